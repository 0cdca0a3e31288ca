"""Compositions of few outcomes against every sequence of outcomes, in fifty digits."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from jaxacct._numerics.rounding import EPS
from jaxacct.losses.engines import few_outcomes as sums
from jaxacct.losses.engines.few_outcomes import Sums, log_factorials


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(50):
        yield


def test_logarithms_of_factorials_are_as_good_as_they_say():
    found = log_factorials(20_000)
    assert found.size == 20_001
    for k in [*range(130), 1000, 4321, 20_000]:
        assert abs(mpf(float(found[k])) - mpmath.loggamma(k + 1)) <= 4 * EPS * (k + 1) * math.log(k + 1)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_errors_of_losses_and_masses_are_counted_to_both_sides(side):
    """Sums that are as far off as they may be, with errors that can be seen: bounds hold, no wider than they must."""
    rng = np.random.default_rng(3)
    masses = rng.dirichlet(np.ones(12)) * 0.9
    losses = np.sort(rng.normal(0.3, 1.0, 12))
    off, share = 1e-4, 3e-4
    stated = Sums(
        losses, masses, np.full(12, off), np.full(12, share), (0.0999, 0.1001), float(losses[-1] + off), 1e-300
    )
    true_losses, true_masses, infinite = losses + side * off, masses * (1 + side * share), 0.1 + side * 1e-4
    for epsilon in (-0.5, 0.0, 0.4, float(losses[7]), float(losses[7] - side * off / 2), 3.0):
        truth = infinite + (true_masses * np.maximum(-np.expm1(epsilon - true_losses), 0.0)).sum()
        lower, upper = sums._curve(stated, epsilon, False), sums._curve(stated, epsilon, True)
        assert lower <= truth <= upper
        assert upper - lower <= 2.1e-4 + 2 * (1.02 * off + 1.01 * share)
    for goal in (0.12, 0.2, 0.35):
        low, high = sums._epsilon(stated, goal)
        at = lambda e: infinite + (true_masses * np.maximum(-np.expm1(e - true_losses), 0.0)).sum()  # noqa: E731
        assert at(low) >= goal >= at(high)
        assert high - low <= 0.02


def test_no_sum_is_above_the_top_where_parts_cancel():
    for k in range(1, 40):
        first, runs = k / 10, 3 + k % 5
        second = -first * runs
        parts = [(first, runs), (second, 1)]
        found = sums._composed([(sums._Part(np.array([x]), np.ones(1), 0.0, 0.0), n) for x, n in parts])
        assert found is not None
        truth = sum(Fraction(x) * n for x, n in parts)
        assert Fraction(found.top) >= truth
        assert abs(Fraction(float(found.losses[0])) - truth) <= Fraction(float(found.loss_error[0]))
