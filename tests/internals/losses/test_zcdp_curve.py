"""What rho-zCDP implies in (epsilon, delta), against the best order found in high precision."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from jaxacct.losses.renyi.zcdp import zcdp_delta
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_delta


def best_delta(rho, epsilon):
    """The infimum over orders a = 1 + b, from the root of rho (1 + 2 b) - log(1 + 1 / b) = epsilon."""
    with mpmath.workdps(40):
        rho, epsilon = mpmath.mpf(rho), mpmath.mpf(epsilon)
        f = lambda b: rho * (1 + 2 * b) - mpmath.log1p(1 / b) - epsilon  # noqa: E731
        low, high = mpmath.mpf(10) ** -30, (epsilon + 1) / rho + 2
        for _ in range(200):
            middle = mpmath.sqrt(low * high)
            low, high = (middle, high) if f(middle) < 0 else (low, middle)
        return mpmath.exp(-rho * low**2) / (1 + low)


@pytest.mark.parametrize("rho", [1e-10, 1e-4, 0.02, 0.5, 4.0, 60.0])
def test_delta_is_that_of_the_best_order_rounded_up(rho):
    for epsilon in (0.0, 0.01, 0.7, 3.0, 20.0):
        value, truth = float(zcdp_delta(rho, epsilon)), best_delta(rho, epsilon)
        variation = np.sqrt(min(rho / 2, -np.expm1(-rho)))
        if truth < 1e-300:
            assert value <= 1e-300
            continue
        truth = min(float(truth), variation)
        assert truth * (1 - 1e-15) <= value <= truth * (1 + 1e-9)
        # The Gaussian mechanism is one of the class.
        assert value >= float(gdp_delta(np.sqrt(2 * rho), epsilon)) * (1 - 1e-9)
