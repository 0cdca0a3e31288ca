"""Compositions of few outcomes against every sequence of outcomes, in fifty digits."""

import itertools
import math
from fractions import Fraction

import jax
import mpmath
import numpy as np
import pytest
from mpmath import mpf

from jaxacct._numerics.rounding import EPS
from jaxacct.losses.engines import few_outcomes as sums
from jaxacct.losses.engines.few_outcomes import Sums, counted, log_factorials
from jaxacct.mechanisms.pairs.response import ResponsePair


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(50):
        yield


def test_counts_are_every_possibility_once():
    for outcomes, runs in ((1, 7), (2, 5), (3, 4), (5, 3), (4, 0)):
        table, ways, error = counted(outcomes, runs)
        brute = {tuple(np.bincount(s, minlength=outcomes)) for s in itertools.product(range(outcomes), repeat=runs)}
        assert {tuple(row) for row in table.astype(int)} == brute
        assert len(table) == len(brute) == math.comb(runs + outcomes - 1, runs)
        for row, way in zip(table.astype(int), ways, strict=True):
            exact = math.factorial(runs) // math.prod(math.factorial(k) for k in row)
            assert abs(mpf(float(way)) - mpmath.log(exact)) <= error
        assert error <= 1e-13
    assert counted(0, 0)[0].shape == (1, 0)
    assert counted(0, 3)[0].shape == (0, 0)


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


def test_more_sums_than_are_worth_it_are_left_to_the_lattices():
    many = np.ones(40) / 40
    law = sums._Part(np.linspace(-1.0, 1.0, 40), many, 1e-15, 1e-15)
    assert sums._composed([(law, 2)]) is not None
    assert sums._composed([(law, 4)]) is None
    assert sums._composed([(law._replace(masses=many * np.nan), 2)]) is None
    assert sums._composed([(law._replace(losses=many * np.nan), 2)]) is None
    assert sums._composed([(law._replace(mass_error=np.nan), 2)]) is None
    assert sums._composed([(law._replace(loss_error=np.inf), 2)]) is None
    certain = sums._Part(np.array([0.0, np.inf]), np.array([1e-9, 1 - 1e-9]), 1e-15, 1e-15)
    assert sums._composed([(certain, 2)]) is None


def test_one_outcome_runs_as_often_as_one_likes():
    nothing = sums._Part(np.zeros(1), np.ones(1), 0.0, 0.0)
    found = sums._composed([(nothing, 10**9)])
    assert found is not None
    assert (found.losses.size, found.losses[0], found.masses[0]) == (1, 0.0, 1.0)


def test_losses_that_overflow_are_left_to_others_in_silence():
    pair = ResponsePair(np.full((1, 1), 1e308), np.full((1, 1), 2.0), np.zeros((1, 1)))
    with jax.enable_x64(True):
        answered, low, high = sums.sum_bounds("delta", (pair,), np.array([[10.0]]), np.array([1.0]), lambda _: None)
    assert not answered.any()
    assert (low[0], high[0]) == (0.0, 1.0)


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
