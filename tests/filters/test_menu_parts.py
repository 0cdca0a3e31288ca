"""Parts of priced menus by themselves: online certificates, the scan's margins, tables, schedules."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from jaxacct import LossGrid, filters
from jaxacct.filters.menus.online import MenuCurves

RNG = np.random.default_rng(4)


def test_an_online_price_is_certified_exactly_where_the_curve_after_the_query_fits():
    grid, lowest = LossGrid(0.25, -6, 14), -2
    masses = np.array([0.1, 0.2, 0.3, 0.15, 0.2, 0.05])  # losses -2 .. 3 points
    excess = RNG.uniform(0.01, 0.02, grid.size)
    after = RNG.uniform(0.2, 0.4, grid.size)
    wide = {
        k: after[k] if 0 <= k < 14 else after[13] * np.exp(-0.125 * (k - 13)) if k > 0 else after[0] * np.exp(0.125 * k)
        for k in range(-5, 20)
    }
    whole = np.array([e + sum(m * wide[k - (lowest + j)] for j, m in enumerate(masses)) for k, e in enumerate(excess)])
    for slack in (0.0, 1e-3):
        bump = slack * np.exp(-0.5 * np.abs(grid.losses))
        # A node is 4 units: the curve after is at 4 units, that before at 8, and 6 lies half-way.
        # What rounding may have taken is not there to be spent; any point may be the one that decides.
        for scale, fits, point in (
            (1 + 1e-12, True, 0), (1 + 2e-14, False, 5), *((1 - 1e-12, False, k) for k in range(14)),
        ):  # fmt: skip
            raised = whole * scale + np.where(np.arange(14) == point, 0.0, 1e-3)
            curves = np.stack([0 * after, after - 4 * bump, raised - 8 * bump, raised])
            one = MenuCurves(curves, 4, 9, slack, 0, grid)
            certified = lambda left, price, one=one: one.certified(masses, lowest, excess, left, price)  # noqa: E731
            assert certified(8, 4) == fits
            np.testing.assert_allclose(one.curve(6), 0.5 * (after + raised), rtol=1e-13)
            np.testing.assert_allclose(one.curve(5), 0.75 * after + 0.25 * raised - bump * 0, rtol=1e-13)
        assert [certified(*x) for x in ((8, 0), (4, 5), (10, 4))] == [False] * 3
    empty = MenuCurves(np.zeros((4, 14)), 4, 9, 0.0, 0, grid)
    assert empty.certified(masses, lowest, 0 * excess, 8, 8)
    assert empty.certified(masses, lowest, 0 * excess, 8, 1)
    assert not empty.certified(masses, lowest, 0 * excess + 1e-320, 8, 8)


def test_what_is_as_there_has_the_defaults_from_there():
    defaults = [
        {name: p.default for name, p in inspect.signature(make).parameters.items() if p.kind is p.KEYWORD_ONLY}
        for make in (filters.priced_menu, filters.individual_priced_menu)
    ]
    assert (defaults[0]["unit"], defaults[1].pop("unit"), defaults[0]["cache"]) == (288, 32, True)
    assert defaults[1].items() <= (defaults[0] | {"examples": inspect.Parameter.empty}).items()


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
    for sigma, rate in (((1.0,), 0.1), ((1.0, 2.0), (0.1, 0.2, 0.3)), (1.0, 0.1)):
        with pytest.raises(ValueError, match="sigma must be two numbers and rate one or two, got"):
            filters.gaussian_menu(sigma, rate)
