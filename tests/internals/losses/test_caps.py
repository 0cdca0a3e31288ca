"""Bounds without a lattice hold for tables that are off by as much as they say, and meet the truth where they may."""

import functools
from fractions import Fraction as F

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.rows import Row
from jaxacct.losses.engines.fallback_bounds import capped
from jaxacct.mechanisms.pairs.table import TablePair
from tests import finite

LAW = finite.compose(finite.randomized_response(2), finite.randomized_response(4))
STEPS = 3
TOTAL = STEPS * np.log(8.0)


def table(experiment, off_p=0.0, off_q=0.0):
    """Six atoms of one part, off by as much as they say; more than there are have no mass."""
    loss = lambda p, q: np.log(float(p / q)) if p and q else (np.inf if p else -np.inf)  # noqa: E731
    rows = np.array(sorted((loss(p, q), float(p), float(q)) for p, q in experiment))
    rows = np.concatenate([rows, np.tile([rows[-1, 0], 0.0, 0.0], (6 - len(rows), 1))])
    losses, p, q = (Row(x[None]) for x in rows.T / np.array([[1.0], [1.0 + off_p], [1.0 + off_q]]))
    return TablePair(losses, p, q, np.full(1, max(2.0**-52, abs(off_p), abs(off_q))), np.full(1, 2.0**-50))


@functools.partial(jax.jit, static_argnames="kind")
def _capped(kind, group, goals, known):
    return jax.vmap(lambda goal: capped(kind, (group,), jnp.full(1, float(STEPS)), goal, known))(goals)


def bounds(kind, group, goals, known=(np.nan, np.nan)):
    with jax.enable_x64(True):
        found = _capped(kind, group, np.resize(goals, 8), known)
        return (np.asarray(x)[: len(goals)] for x in found)


def test_deltas_of_a_finite_law():
    truth_law = finite.compose(*[LAW] * STEPS)
    at = np.array([-1.0, 0.0, 1e-3, 1.0, 4.0, TOTAL - 1.0, TOTAL - 0.1, TOTAL + 1e-9])
    # The largest sum is 9 log 2, the next one 7 log 2: between them only the event that all losses are largest counts.
    gammas = [F(float(np.exp(e))) for e in at]
    truth = [finite.hockey_stick(truth_law, gamma) for gamma in gammas]
    exact = np.array(truth, float)
    lower, upper = bounds("delta", table(LAW), at)
    slack = 1e-15 * (1 + np.abs(at)) * 10  # of exp, in what is called the truth
    assert np.all(lower <= exact + slack * exact)
    assert np.all(upper >= exact * (1 - slack))
    last = slice(5, 7)
    assert np.all(lower[last] < exact[last] * (1 - 1e-12))
    np.testing.assert_allclose(lower[last], exact[last], rtol=2e-10)
    assert lower[-1] <= 0
    assert np.all(lower[1:4] > 0)
    distance = float(1 - (1 - finite.hockey_stick(LAW, 1)) ** STEPS)
    floor = np.maximum(-np.expm1(at), 0.0)
    np.testing.assert_allclose(upper, np.minimum(floor + distance, 1.0), rtol=1e-11)
    assert np.all(upper >= np.minimum(floor + distance, 1.0))
    # Rare largest losses: 2e-11 of log P is seen.
    rare = [(F(1, 1000), F(1, 1650)), (F(999, 1000), F(1649, 1650))]
    truth = finite.hockey_stick(finite.compose(*[rare] * STEPS), F(float(np.exp(1.1))))
    lower, _ = bounds("delta", table(rare), np.array([1.1]))
    assert 1 - 1e-10 <= lower[0] / float(truth) <= 1 - 1e-13
    # What is known already is kept where it is better.
    lower, upper = bounds("delta", table(LAW), at, (0.9, 0.95))
    assert np.all((upper <= 0.95) | (floor > 0.9))
    assert np.all(lower[floor < 0.9] == np.minimum(0.9, upper[floor < 0.9]))


def test_epsilons_of_a_finite_law():
    truth_law = finite.compose(*[LAW] * STEPS)
    largest = float((F(8, 15)) ** STEPS)
    inside = TOTAL - np.array([1.0, 0.1, 1e-3])
    goals = np.array([float(finite.hockey_stick(truth_law, F(float(np.exp(e))))) for e in inside])
    lower, upper = bounds("epsilon", table(LAW), np.append(goals, [largest * 1.01, 0.95]))
    assert np.all(lower[:3] < inside)
    np.testing.assert_allclose(lower[:3], inside, rtol=1e-8)
    assert np.all(upper[:4] == np.inf)
    assert lower[3] < inside[0]
    assert upper[-1] == lower[-1] == 0.0  # total variation alone is below 0.95
    lower, upper = bounds("epsilon", table(LAW), goals, (1.0, 7.0))
    assert np.all(upper == 7.0)
    assert np.all((lower >= 1.0) & (lower <= inside))
