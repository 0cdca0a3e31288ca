"""Arguments and entries of menus."""

from __future__ import annotations

import numpy as np
import pytest

from jaxacct import filters

RNG = np.random.default_rng(4)


def test_a_menus_entries_are_evenly_spaced_in_logarithm_and_float32_on_the_safe_side():
    made = filters.gaussian_menu((0.7, 5.6), (0.03, 0.7), sigmas=4, rates=3)
    noise = sorted({one.mechanism.sigma for one in made})
    rates = sorted({one.rate for one in made})
    assert len(made) == 12
    assert [(one.rate, one.mechanism.sigma) for one in made] == [(q, s) for q in rates for s in noise]
    for found, exact, up in ((noise, 0.7 * 2.0 ** np.arange(4), False), (rates, np.geomspace(0.03, 0.7, 3), True)):
        found = np.array(found)
        assert np.array_equal(found, found.astype(np.float32))
        np.testing.assert_allclose(found, exact, rtol=2.0**-23)
        assert np.all(found >= exact * (1 - 1e-15)) if up else np.all(found <= exact * (1 + 1e-15))
    single = filters.gaussian_menu((0.7, 5.6), (0.03, 0.7), sigmas=1)
    assert [(one.rate, one.mechanism.sigma) for one in single] == [(rates[-1], noise[0])]
    (whole,) = filters.gaussian_menu((1.0, 1.0), 1.0, sigmas=5)
    assert (whole.rate, whole.mechanism.sigma) == (1.0, 1.0)
    for sigma, rate in (((2.0, 1.0), 0.1), ((1.0, 2.0), (0.2, 0.1))):
        with pytest.raises(ValueError, match="must"):
            filters.gaussian_menu(sigma, rate)
    for sigma, rate in (((1.0,), 0.1), ((1.0, 2.0), (0.1, 0.2, 0.3))):
        with pytest.raises(ValueError, match="sigma and rate must be one or two numbers, got"):
            filters.gaussian_menu(sigma, rate)
