"""The ladder of bands, its closed form and its product of responses, against exact sums in high precision."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from jaxacct.adversary.filters import ladder as module
from jaxacct.adversary.filters.ladder import Ladder

RNG = np.random.default_rng(6)


def test_what_theorem_9_says_is_rounded_up_and_its_h_down():
    with mpmath.workdps(40):
        for epsilon in 10.0 ** RNG.uniform(-3, 1, 30):
            rounds = int(RNG.integers(1, 10**6))
            e = mpmath.mpf(epsilon)
            truth = mpmath.expm1(e) / (mpmath.exp(e) + mpmath.exp(-e))
            delta = 10.0 ** RNG.uniform(-12, -4)
            h = module._check(epsilon, delta, rounds)
            assert truth * (1 - 2.0**-46) <= h <= truth
            k = 3 + (rounds - 1).bit_length()
            size = mpmath.log(k / mpmath.mpf(delta))
            r = mpmath.ceil(8 * (2 + 2 * mpmath.sqrt(size) + 2 * size / 3))
            wanted = (1 + (k - 2) * r) * e, (1 + 2 * (k - 2) * r) * mpmath.mpf(delta) - mpmath.log1p(-delta / truth)
            for value, exact in zip(module.closed_form(epsilon, delta, rounds), wanted, strict=True):
                assert exact <= value <= exact * (1 + 2.0**-46)
    with pytest.raises(ValueError, match="delta must be below min"):
        module.closed_form(0.1, 0.0951, 10)
    with pytest.raises(ValueError, match=r"delta must be below min\(1/2, .* got 0.5"):
        module.closed_form(5.0, 0.5, 10)


def test_a_product_of_responses_is_the_convolution_and_its_error_covers_rounding():
    bands = Ladder(np.array([0.25, 0.5, 1.0, np.inf]), np.zeros(4), np.array([3, 4, 2]), 0.0)
    losses, masses, error = module.product_law(bands)
    assert np.allclose(losses, 0.25 * np.arange(-19, 20))
    exact = {0: mpmath.mpf(1)}
    with mpmath.workdps(40):
        for stride, epsilon, count in ((1, 0.25, 3), (2, 0.5, 4), (4, 1.0, 2)):
            p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
            for _ in range(count):
                old, exact = exact, {}
                for k, m in old.items():
                    for step, chance in ((stride, p), (-stride, 1 - p)):
                        exact[k + step] = exact.get(k + step, 0) + m * chance
        truth = np.array([float(exact.get(k, 0)) for k in range(-19, 20)])
    size, norm = 64, np.linalg.norm(truth)
    assert np.abs(masses - truth).sum() <= error
    assert error == pytest.approx(np.sqrt(size) * norm * (16 * 9 + 64 * 6) * 2.0**-51, rel=1e-6, abs=0)
    assert masses.min() >= 0
    losses, masses, _ = module.product_law(Ladder(np.array([0.25, 0.5, np.inf]), np.zeros(3), np.array([2, 15]), 0.0))
    p, q = (1 / (1 + math.exp(-e)) for e in (0.25, 0.5))
    assert masses.size == 65
    assert (masses[0], masses[-1]) == (
        pytest.approx((1 - p) ** 2 * (1 - q) ** 15, abs=1e-14),
        pytest.approx(p**2 * q**15, rel=1e-10),
    )
    none = module.product_law(Ladder(np.array([0.25, 0.5, np.inf]), np.zeros(3), np.array([2**22, 2**22]), 0.0))
    assert none[0].size == none[1].size == none[2] == 0
