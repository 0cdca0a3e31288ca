"""Hulls of stated points, and the pairs of zCDP and Rényi guarantees: they dominate what keeps the guarantee."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

from jaxacct.mechanisms.pairs.convex_hull import hull_atoms
from jaxacct.mechanisms.pairs.curve import ConcentratedPair, RenyiPair

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of:RuntimeWarning")


def curve_of_atoms(losses, p, q, epsilons):
    """sum (p - e^eps q)_+, in long double."""
    terms = np.longdouble(p)[:, None] - np.exp(np.longdouble(epsilons))[None] * np.longdouble(q)[:, None]
    return np.where(losses[:, None] > epsilons[None], terms, 0.0).sum(0)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=6),
    st.lists(st.floats(-3, 3), min_size=1, max_size=6),
)
def test_the_hull_of_a_pairs_own_points_dominates_both_directions(rows, epsilons):
    p, q = np.array(rows).T + 1e-6
    p, q = p / p.sum(), q / q.sum()
    epsilons = np.array(epsilons)
    both = lambda at: np.maximum(  # noqa: E731
        np.maximum(p[:, None] - np.exp(at) * q[:, None], 0).sum(0),
        np.maximum(q[:, None] - np.exp(at) * p[:, None], 0).sum(0),
    )
    losses, mass_p, mass_q = hull_atoms(epsilons, np.minimum(both(epsilons) * (1 + 1e-12), 1.0))
    assert mass_p.min() >= 0
    assert mass_q.min() >= 0
    assert mass_p.sum() == pytest.approx(1.0, abs=1e-12)
    assert mass_q.sum() == pytest.approx(1.0, abs=1e-12)
    inside = np.isfinite(losses) & (mass_q > 0)
    np.testing.assert_allclose(mass_p[inside], mass_q[inside] * np.exp(losses[inside]), rtol=1e-12)
    at = np.concatenate([np.linspace(-5, 5, 101), epsilons])
    hull = curve_of_atoms(losses, mass_p, mass_q, at)
    assert np.all(hull >= both(at) - 1e-13)
    # It keeps the claims it was made of.
    assert np.all(hull[101:] <= both(epsilons) * (1 + 1e-11) + 1e-14)
    # And is its own reflection: H(-eps) = 1 - e^-eps + e^-eps H(eps).
    mirrored = 1 - np.exp(-at) * (1 - hull)
    np.testing.assert_allclose(curve_of_atoms(losses, mass_p, mass_q, -at), mirrored, atol=1e-12)


@pytest.mark.parametrize(
    "pair",
    [ConcentratedPair(1e-9), ConcentratedPair(0.3), ConcentratedPair(80.0), RenyiPair(2.5, 0.4), RenyiPair(50.0, 1e-3)],
    ids=str,
)
def test_tails_of_stated_guarantees_are_those_of_a_pair(pair):
    with jax.enable_x64(True):
        pair = jax.tree.map(lambda x: jax.numpy.asarray(x, np.float64), pair)
        start = float(pair._at(pair._start())[0][0])
        grid = max(start, 0.01) * np.array([0.2, 0.9, 1.0, 1.05, 1.2, 2.0, 4.0, 6.0])
        losses = np.concatenate([-grid[::-1], grid])
        tails = jax.tree.map(np.asarray, jax.jit(lambda p, x: p.tails(x))(pair, losses))
        survey = jax.tree.map(np.asarray, pair.survey())
    np.testing.assert_allclose(tails.p_above + tails.p_below, 1.0, atol=1e-13)
    np.testing.assert_allclose(tails.q_above + tails.q_below, 1.0, atol=1e-13)
    # dP = e^L dQ in every cell: both sides of it, with digits from the smaller tail.
    for above, below in ((tails.p_above, tails.q_above), (tails.p_below, tails.q_below)):
        p, q = np.abs(np.diff(above)), np.abs(np.diff(below))
        room = 1e-12 * (np.maximum(above[1:], above[:-1]) + np.exp(losses[1:]) * np.maximum(below[1:], below[:-1]))
        assert np.all(p >= np.exp(losses[:-1]) * q - room)
        assert np.all(p <= np.exp(losses[1:]) * q + room)
    # Reflection.
    np.testing.assert_allclose(tails.p_above[:8], tails.q_below[8:][::-1], rtol=1e-12)
    weights = np.exp(survey.log_masses)
    assert weights.sum() == pytest.approx(1.0, abs=1e-6)
