"""Few runs composed law by law: sound wherever, tight where it is meant for."""

import itertools
import math
from typing import Any

import jax
import mpmath
import numpy as np
import pytest
import scipy.stats

from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rows import Row
from jaxacct.losses.engines.laws import bounds as few_runs
from jaxacct.losses.engines.laws.in_program import narrowed_by_laws
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.response import ResponsePair
from jaxacct.mechanisms.pairs.table import TablePair


@mechanism
class Hidden(TablePair):
    """A table that does not list its outcomes, so that its laws come from its tails."""

    losses: Any
    p: Any
    q: Any
    mass_error: Any
    loss_slack: Any

    def lists_outcomes(self):
        return False


def table(p, q, cls=TablePair):
    """The table of outcomes with these probabilities, as a batch of one with one part."""
    p, q = (np.asarray(x, float) for x in (p, q))
    with np.errstate(divide="ignore"):
        losses = np.log(p) - np.log(q)
    order = np.argsort(losses)
    slack = 1e-15 * np.abs(losses[np.isfinite(losses)]).max()
    rows = [Row(x[order][None, None]) for x in (losses, p, q)]
    return cls(*rows, np.full((1, 1), 1e-15), np.full((1, 1), slack))


def few(kind, groups, counts, goal):
    with jax.enable_x64(True):
        lower, upper = few_runs.law_bounds(
            kind, groups, np.array([counts], float), np.array([goal], float), np.array([-np.inf])
        )
    return float(lower[0]), float(upper[0])


def composed(parts):
    """P- and Q-probabilities of all outcomes of runs of tables ``(p, q, count)``, exactly."""
    found = [(mpmath.mpf(1), mpmath.mpf(1))]
    for p, q, count in parts:
        p, q, found_before, found = [*map(mpmath.mpf, p)], [*map(mpmath.mpf, q)], found, []
        for drawn in itertools.combinations_with_replacement(range(len(p)), count):
            ways = math.factorial(count)
            for i in range(len(p)):
                ways //= math.factorial(drawn.count(i))
            a, b = ways * mpmath.fprod(p[i] for i in drawn), ways * mpmath.fprod(q[i] for i in drawn)
            found += [(a * c, b * d) for c, d in found_before]
    return found


def true_delta(outcomes, epsilon):
    gamma = mpmath.exp(mpmath.mpf(epsilon))
    return sum(max(p - gamma * q, mpmath.mpf(0)) for p, q in outcomes)


@pytest.mark.parametrize("how", ["eager", "program"])
def test_what_underflows_is_no_delta_of_zero_below_the_largest_loss(how):
    p, q, epsilons = [1e-200, 1.0], [1e-250, 1.0], np.array([1.5, 2.5, 5.5, 7.5, 8.5]) * math.log(1e50)
    pair, batch = table(p, q), np.ones(epsilons.size)
    group, counts = jax.tree.map(lambda x: np.repeat(x, batch.size, 0), pair), 8.0 * batch[:, None]
    with jax.enable_x64(True):
        if how == "eager":
            lower, upper = few_runs.law_bounds("delta", (group,), counts, epsilons, -np.inf * batch)
        else:
            asked = jax.jit(lambda *of: narrowed_by_laws("delta", of[0], of[1], of[2], (0.0 * batch, batch)))
            lower, upper = map(np.asarray, asked((group,), counts, epsilons))
    outcomes = composed([(p, q, 8)])
    for epsilon, low, high in zip(epsilons, lower, upper, strict=True):
        assert low <= true_delta(outcomes, epsilon) <= high, (epsilon, low, high)


@pytest.mark.parametrize("count", [2, 3])
def test_losses_that_lie_further_apart_than_exponents_reach(count):
    p, q = [0.5, 0.5], [1.0, 1e-290]
    outcomes = composed([(p, q, count)])
    for epsilon in (-2.0, -1.5, -0.5, 0.0, 600.0, 660.0, 666.0, 1000.0):
        truth = true_delta(outcomes, epsilon)
        lower, upper = few("delta", (table(p, q),), [count], epsilon)
        assert lower <= truth <= upper
        assert count > 2 or upper - lower < 1e-9


def test_a_part_with_infinite_losses_keeps_its_finite_ones():
    p, q = [0.3, 0.6, 0.1, 0.0], [0.6, 0.3, 0.0, 0.1]
    outcomes = composed([(p, q, 5)])
    for cls in (TablePair, Hidden):
        for epsilon in (0.5, 1.0, 2.0):
            truth = true_delta(outcomes, epsilon)
            lower, upper = few("delta", (table(p, q, cls),), [5], epsilon)
            assert lower <= truth <= upper
            assert upper - lower < 1e-3 * upper


def test_tiny_losses_keep_their_digits():
    pair = ResponsePair(*(np.full((1, 1), x) for x in (1e-9, 2.0, 0.0)))
    # Two runs: delta(0) = tanh(1e-9 / 2), as for one of the two outcomes that tell.
    lower, upper = few("delta", (pair,), [2], 0.0)
    assert lower <= math.tanh(5e-10) <= upper
    assert upper - lower < 1e-3 * upper


def test_no_loss_is_above_the_largest_ones():
    pair = ResponsePair(*(np.full((1, 1), x) for x in (1.0, 2.0, 0.0)))
    assert few("delta", (pair,), [3], 3.0 + 1e-9) == (0.0, 0.0)
    lower, upper = few("epsilon", (pair,), [3], 1e-200)
    assert 3.0 - 1e-9 < lower <= 3.0 <= upper < 3.0 + 1e-9


def test_gaussians_of_any_scale():
    for noise, count, tight in ((30.0, 2, 1e-2), (1.0, 7, 1e-2), (0.1, 3, 1e-2), (0.01, 2, 1.0)):
        mu = mpmath.sqrt(count) / mpmath.mpf(noise)
        for away in (0.0, 1.0, 2.0):
            epsilon = float(mu * mu / 2 + away * mu)
            e = mpmath.mpf(epsilon)
            truth = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
            pair = GaussianPair(*(np.full((1, 1), x) for x in (noise, 1.0, 0.0)))
            lower, upper = few("delta", (pair,), [count], epsilon)
            assert lower <= truth <= upper
            assert upper - lower <= tight * upper


@pytest.mark.parametrize("runs", [5_000, 1_000_003])
def test_laws_of_many_runs_enclose_sums_of_binomial_probabilities(runs):
    p, share = 0.5, 1.0 / math.sqrt(runs)
    p, q = np.array([p, 1 - p]), np.array([p - 0.2 * share, 1 - p + 0.2 * share])
    counts = np.arange(runs + 1)
    log_p, log_q = (scipy.stats.binom.logpmf(counts, runs, x[0]) for x in (p, q))
    for epsilon in (0.0, 0.5, 2.0):
        truth = np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0.0).sum()
        lower, upper = few("delta", (table(p, q),), [runs], epsilon)
        assert lower <= truth * (1.0 + 1e-7)
        assert truth * (1.0 - 1e-7) <= upper
        assert upper - lower <= 2e-3 * upper
