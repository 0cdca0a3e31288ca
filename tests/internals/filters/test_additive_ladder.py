"""The ladder of bands, its closed form and its product of responses, against exact sums in high precision."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from jaxacct.adversary.filters import ladder as module

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
