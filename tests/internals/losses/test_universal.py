"""The inversion of any composition: sound wherever, tight where it is meant for."""

import itertools
import math
from typing import Any

import jax
import mpmath
import numpy as np
import pytest

from jaxacct import Laplace, PoissonSampled, RenyiDP
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rows import Row
from jaxacct.accounting.batch import Batch
from jaxacct.losses.engines.choose import grouped
from jaxacct.losses.engines.inversion.inversion_bounds import Size, inversion_bounds
from jaxacct.losses.engines.inversion.tilt_plan import tilt_plan
from jaxacct.losses.engines.laws import cells
from jaxacct.mechanisms.pairs.cells import placed
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.laplace import LaplacePair
from jaxacct.mechanisms.pairs.response import ResponsePair
from jaxacct.mechanisms.pairs.table import TablePair

SMALL, LARGE = Size(128, 256), Size(512, 1024)


def column(values):
    return np.atleast_1d(np.asarray(values, float))[:, None]


def response(epsilon, delta=0.0):
    return ResponsePair(*np.broadcast_arrays(*map(column, (epsilon, 2.0, delta))))


def gaussian(noise):
    return GaussianPair(*np.broadcast_arrays(*map(column, (noise, 1.0, 0.0))))


def bounds(kind, size, pairs, counts, goal):
    """Bounds of a batch; ``counts`` has a row for each of its settings."""
    with jax.enable_x64(True), np.errstate(all="ignore"):
        return inversion_bounds(kind, size, pairs, np.array(counts, float), np.atleast_1d(np.asarray(goal, float)))


def true_delta(epsilon, delta, count, noise, steps, at):
    """``count`` runs of (epsilon, delta)-DP with ``steps`` Gaussians, to 25 digits."""
    with mpmath.workdps(25):
        return +_true_delta(epsilon, delta, count, noise, steps, at)


def _true_delta(epsilon, delta, count, noise, steps, at):
    epsilon, at = mpmath.mpf(epsilon), mpmath.mpf(at)
    truth, survived = 1 / (1 + mpmath.exp(-epsilon)), (1 - mpmath.mpf(delta)) ** count
    mu = mpmath.sqrt(steps) / mpmath.mpf(noise)

    def stick(x):
        if steps == 0:
            return max(-mpmath.expm1(x), mpmath.mpf(0))
        return mpmath.ncdf(mu / 2 - x / mu) - mpmath.exp(x) * mpmath.ncdf(-mu / 2 - x / mu)

    total = 1 - survived
    for j in range(count + 1):
        mass = mpmath.binomial(count, j) * truth**j * (mpmath.exp(-epsilon) * truth) ** (count - j)
        total += survived * mass * stick(at - (2 * j - count) * epsilon)
    return total


# Randomised response with failures, Gaussians, queries: (epsilon, delta, count, noise, steps, epsilon of the query).
CASES = [
    (3e-3, 0.0, 200, 1.0, 0, 0.1),
    (0.1, 0.0, 40, 1.0, 0, 4.0),
    (0.1, 0.0, 40, 1.0, 0, math.nextafter(4.0, 0.0)),
    (0.1, 0.0, 40, 1.0, 0, 1.0),
    (0.1, 0.0, 40, 1.0, 0, -1.0),
    (1.0, 1e-9, 10, 1.0, 0, 2.0),
    (1.0, 0.1, 10, 1.0, 0, 50.0),
    (8.0, 0.0, 3, 1.0, 0, 8.0),
    (100.0, 0.0, 3, 1.0, 0, 100.0),
    (1e-9, 0.0, 100, 1.0, 0, 0.0),
    (1e-9, 0.0, 100, 1.0, 0, 2e-8),
    (0.5, 0.0, 0, 1.0, 10, 3.0),
    (0.5, 1e-5, 3, 2.0, 10, 1.0),
    (0.5, 1e-5, 3, 20.0, 1000, 8.0),
    (0.5, 0.0, 3, 5.0, 10, 12.0),
    (2.0, 0.0, 20, 0.5, 100, 0.0),
]
TRUTHS = [true_delta(*case) for case in CASES]


def of_cases(kind, size, goal):
    epsilon, delta, count, noise, steps, _ = zip(*CASES, strict=True)
    pairs, counts = (response(epsilon, delta), gaussian(noise)), np.stack([count, steps], -1)
    return bounds(kind, size, pairs, counts, goal)


@pytest.mark.parametrize("size", [Size(64, 64), SMALL, LARGE])
def test_deltas_are_enclosed(size):
    lower, upper = of_cases("delta", size, [case[-1] for case in CASES])
    for case, truth, low, high in zip(CASES, TRUTHS, lower, upper, strict=True):
        slack = mpmath.mpf(10) ** -14
        assert low * (1 - slack) <= truth <= high * (1 + slack), case


def test_epsilons_are_enclosed():
    for moved in (1.0, 1.0 - 1e-12, 1e-3):
        goal = np.clip([float(truth) * moved for truth in TRUTHS], 1e-250, 1.0 - 1e-9)
        lower, upper = of_cases("epsilon", SMALL, goal)
        for case, delta, low, high in zip(CASES, goal, lower, upper, strict=True):
            delta = mpmath.mpf(delta)
            if high < np.inf:
                assert true_delta(*case[:-1], high) <= delta, case
            if low == np.inf:
                assert 1 - (1 - mpmath.mpf(case[1])) ** case[2] > delta, case
            elif low > 0:
                assert true_delta(*case[:-1], low) >= delta, case


def test_bounds_are_tight_where_a_contour_suits():
    found = {"delta": of_cases("delta", LARGE, [case[-1] for case in CASES])}
    found["epsilon"] = of_cases("epsilon", LARGE, [1e-6] * len(CASES))
    for lower, upper in found.values():
        for case in (0, 3, 11, 13):
            assert lower[case] >= 0.95 * upper[case] > 0, CASES[case]


def test_nothing_is_lost_beyond_the_largest_loss():
    assert bounds("delta", SMALL, (response(0.5),), [[4]], 2.0 + 1e-9) == (0.0, 0.0)
    lower, upper = bounds("delta", SMALL, (response(0.5, 0.1),), [[2]], 3.0)
    assert lower <= 0.19 <= upper
    assert upper - lower < 1e-12
    lower, upper = bounds("epsilon", SMALL, (LaplacePair(column(0.5)),), [[4]], 1e-30)
    assert upper == pytest.approx(2.0, rel=1e-12)
    assert upper >= 2.0


def test_a_delta_next_to_1_is_bounded_from_below():
    lower, upper = bounds("delta", SMALL, (LaplacePair(column(0.5)),), [[3000]], 5.0)
    assert lower > 1.0 - 1e-6
    assert upper == 1.0


@pytest.mark.parametrize("kind", ["delta", "epsilon"])
def test_what_is_no_number_bounds_nothing(kind):
    rows = gaussian([1.0, np.nan, 1.0]), np.array([[2.0], [2.0], [np.nan]])
    lower, upper = bounds(kind, SMALL, (rows[0],), rows[1], [0.5] * 3)
    assert upper[0] < 1.0 < np.inf
    np.testing.assert_array_equal(upper[1:], 1.0 if kind == "delta" else np.inf)
    np.testing.assert_array_equal(lower[1:], 0.0)


@mechanism
class Displaced(TablePair):
    """A table whose tails are those of losses that are off by all that it says, to changing sides."""

    losses: Any
    p: Any
    q: Any
    mass_error: Any
    loss_slack: Any
    side: Any

    def lists_outcomes(self):
        return False

    def tails(self, losses):
        side = self.side[..., None]
        off = np.where(side == 0, np.sin(1e9 * losses), side)
        return super().tails(losses + 0.99 * self.loss_slack[..., None] * off)


def displaced(p, q, slack, side):
    p, q = np.array(p), np.array(q)
    rows = [Row(x[None, None]) for x in (np.log(p / q), p, q)]
    return Displaced(*rows, *(np.full((1, 1), x) for x in (1e-15, slack, side)))


@pytest.mark.parametrize("side", [-1.0, 0.0, 1.0])
def test_an_atom_at_an_edge_is_counted_once(side):
    p, q, slack = [0.2, 0.3, 0.5], [0.5, 0.3, 0.2], 1e-3
    pair = displaced(p, q, slack, side)
    edges = np.linspace(-1.0, 1.0, 9)
    near = np.concatenate([x + 0.3 * slack * np.arange(-4.0, 5.0) for x in (0.0, np.log(0.4), np.log(2.5))])
    with np.errstate(all="ignore"):
        laws = cells.laws(pair, np.sort(np.concatenate([edges, near]))[None, None])
    for gamma in np.exp(np.linspace(-1.1, 1.1, 45)):
        truth = sum(max(a - gamma * b, 0.0) for a, b in zip(p, q, strict=True))
        low, high = (
            (law.masses * np.maximum(1.0 - gamma * np.exp(-law.losses), 0.0)).sum() + law.infinite.sum()
            for law in (laws.lower, laws.upper)
        )
        assert low <= truth * (1 + 1e-12)
        assert truth <= high * (1 + 1e-12)
        assert high - low < 0.05 or side < 0


@pytest.mark.parametrize("side", [-1.0, 0.0, 1.0])
def test_displaced_atoms_are_composed_soundly(side):
    p, q, count = [0.2, 0.3, 0.5], [0.5, 0.3, 0.2], 6
    outcomes = []
    for drawn in itertools.product(range(3), repeat=count):
        outcomes.append((math.prod(p[i] for i in drawn), math.prod(q[i] for i in drawn)))
    pair = displaced(p, q, 1e-4, side)
    for epsilon in (-1.0, 0.0, 1.5, 4.0, 5.4, 6.0):
        truth = sum(max(a - math.exp(epsilon) * b, 0.0) for a, b in outcomes)
        lower, upper = bounds("delta", SMALL, (pair,), [[count]], epsilon)
        assert lower <= truth + 1e-13
        assert truth <= upper + 1e-13


def test_points_that_coincide_leave_room_for_edges():
    losses, weights = np.array([[0.5, 0.5, 0.5, 0.5]]), np.array([[0.0, 1.0, 0.0, 0.0]])
    edges = placed(losses, weights, (np.array([0.5 - 1e-9]), np.array([0.5])), 8)
    assert np.isfinite(edges).all()
    assert (np.diff(edges) >= 0).all()


def test_sampled_pairs_of_renyi_divergences_have_bounds():
    with jax.enable_x64(True):
        batch = Batch.of(PoissonSampled(RenyiDP(1.5, 0.06), 0.1), [8.5], 2, "remove", np)
        groups, counts = grouped(batch.query[0], batch.query[1], np)
    lower, upper = bounds("delta", LARGE, groups, counts, batch.query[2])
    assert 0.9 * upper < lower < upper < 1e-3


def test_a_compiled_plan_finds_the_tilt_that_numpy_finds():
    with jax.enable_x64(True), np.errstate(all="ignore"):
        batch = Batch.of(PoissonSampled(Laplace(1.0), 0.1), [1e-3, 2e-3], 10, "remove", np)
        groups, counts = grouped(batch.query[0], batch.query[1], np)
        expected = tilt_plan("epsilon", groups, counts, batch.query[2]).theta
        inputs = jax.tree.map(jax.numpy.asarray, (groups, counts, batch.query[2]))
        found = jax.jit(lambda *inputs: tilt_plan("epsilon", *inputs).theta)(*inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
