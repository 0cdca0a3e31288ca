"""Tables that are off by as much as they say: every bound must hold for the truth behind them, and charge no more.

The masses and losses of an exact experiment are moved by the errors that the table admits, in all directions, large
enough to be seen. A charge that is left out is then a bound that fails.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian
from jaxacct._numerics.rows import Row
from jaxacct.losses.curves import from_tails as nodes
from jaxacct.losses.engines.one_run import single_delta, single_epsilon
from jaxacct.losses.grids.convex_envelope import masses_of_excess
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.pairs.table import TablePair
from tests import finite

SOURCE = Gaussian(1.0)

pytestmark = pytest.mark.usefixtures("in_float64")

UNIT = np.log(2.0)
TRUTH = finite.compose(finite.randomized_response(2), finite.randomized_response(4), finite.failing("1/10"))
OFF, SLACK = 1e-4, 1e-5
# P-masses, Q-masses and losses in units of what the table admits, and what it admits.
MOVES = [(p, q, 0, OFF, 0) for p in (-1, 1) for q in (-1, 1)] + [(0, 0, x, 0, SLACK) for x in (-1, 1)]
MOVES = np.array([*MOVES, (0, 0, 0, 0, 0)])
OFFS, SLACKS = MOVES[:, 3:].T[:, :, None]


def smudged(experiment):
    """A table for each of ``MOVES``."""
    loss = lambda p, q: np.log(float(p / q)) if p and q else (np.inf if p else -np.inf)  # noqa: E731
    losses, p, q = np.array(sorted((loss(p, q), float(p), float(q)) for p, q in experiment)).T
    up_p, up_q, up, off, slack = MOVES.T[:, :, None]
    # What is stored times 1 plus or minus the error is the truth.
    return TablePair(
        Row(losses + up * slack), Row(p / (1 + up_p * off)), Row(q / (1 + up_q * off)), off[:, 0], slack[:, 0]
    )


def hockey_stick(experiment, epsilon):
    return np.array([float(finite.hockey_stick(experiment, float(np.exp(e)))) for e in np.ravel(epsilon)])


def excess(experiment, epsilon):
    return hockey_stick(experiment, epsilon) - np.maximum(0.0, -np.expm1(np.ravel(epsilon)))


def tail(experiment, epsilon, reach=1e-3):
    """P(L > epsilon) + e^epsilon Q(L > epsilon), of which errors are shares, a little to the left of epsilon."""
    seen = lambda p, q, e: not q or (p and np.log(float(p / q)) > e - reach)  # noqa: E731
    return np.array([sum(float(p) + np.exp(e) * float(q) for p, q in experiment if seen(p, q, e)) for e in epsilon])


def test_one_run_is_bracketed():
    at = np.array([-1.2, -0.3, 0.0, 0.5, UNIT, 1.5, 3 * UNIT, 3.0])
    inside = np.array([0.2, 1.0, 1.8])
    goal = hockey_stick(TRUTH, inside)

    @jax.jit
    def bounds(pairs):
        deltas = jax.vmap(lambda pair: jax.vmap(lambda e: jnp.stack(single_delta(pair, e)))(at).T, out_axes=1)
        epsilons = jax.vmap(lambda pair: jax.vmap(lambda d: jnp.stack(single_epsilon(pair, d)))(goal).T, out_axes=1)
        return deltas(pairs), epsilons(pairs)

    (lower, upper), (low, high) = jax.tree.map(np.asarray, bounds(smudged(TRUTH)))
    truth, share = hockey_stick(TRUTH, at), 3.05 * (OFFS + SLACKS) + 2e-12
    assert np.all((lower <= truth) & (truth <= upper))
    room = share * tail(TRUTH, at)
    assert np.all((upper - truth <= room) & (truth - lower <= room))
    assert np.all((low <= inside) & (inside <= high))
    slope = (goal - hockey_stick(TRUTH, inside + 1e-6)) * 1e6
    room = 1.01 * share * tail(TRUTH, inside) / slope
    assert np.all((high - inside <= room) & (inside - low <= room))


def _chords_between(values, losses):
    at = losses[:-1] + np.array([0.2, 0.5, 0.9])[:, None] * np.diff(losses)
    share = np.expm1(at - losses[:-1]) / np.expm1(np.diff(losses))
    return at, values[:, None, :-1] * (1 - share) + values[:, None, 1:] * share


def test_nodes_lie_on_their_sides():
    pairs = smudged(TRUTH)

    @functools.partial(jax.jit, static_argnums=1)
    def bounds(pairs, grid, ends):
        losses = grid.losses
        middles = 0.5 * (losses[:-1] + losses[1:])
        ended = jax.vmap(lambda pair, end: nodes.nodes_below(losses, pair.tails(middles), end, end))(pairs, ends)
        kinds = ("lower", "point", "upper")
        return ended, *(jax.vmap(lambda pair, b=b: nodes.excess_of_pair(pair, SOURCE, grid, b))(pairs) for b in kinds)

    ends = 0.1 * (1 - 2 * OFFS[:, 0])
    for grid in (LossGrid(UNIT, -6, 13), LossGrid(0.5, -6, 13)):
        losses = grid.losses
        ended, lower, point, upper = (np.asarray(x) for x in bounds(pairs, grid, ends))
        truth = excess(TRUTH, losses)
        rounded = truth + 1e-16  # a difference of numbers up to 1
        assert np.all((lower <= truth) & (point <= truth) & (truth <= upper) & (ended <= rounded))
        for below in (lower, ended):
            between, chords = _chords_between(below, losses)
            assert np.all(chords <= excess(TRUTH, between).reshape(between.shape) + 1e-15)
        mirrored = [(q, p) for p, q in TRUTH]
        near, wide = (
            np.where(losses >= 0, tail(TRUTH, losses, reach), np.exp(losses) * tail(mirrored, -losses, reach))
            for reach in (1e-3, 1.1 * UNIT)
        )
        room = 3.05 * OFFS * near + 3.05 * SLACKS * wide + 4e-14
        assert np.all(upper - truth <= room)
        assert np.all((truth - point)[:, 1:-1] <= room[:, 1:-1])
        if losses[-1] > 4:  # the lattice holds the losses: the lines at the middles touch at its points
            assert np.all((truth - lower)[:, 1:-1] <= room[:, 1:-1])
            assert np.all((truth - ended) <= room)
        assert np.all(lower[:, 0] == 0)
        assert np.all(np.abs(lower[:, -1] - 0.1) <= 0.1 * 3.1 * OFFS[:, 0] + 1e-14)


@functools.partial(jax.jit, static_argnums=1)
def _placed(pairs, grid):
    """Steps of all the tables on one lattice: masses and infinite mass from above, and from below."""

    def laws(pair):
        sides = zip(("upper", "law"), ("upper", "lower"), strict=True)
        return [masses_of_excess(nodes.excess_of_pair(pair, SOURCE, grid, kind), grid, side) for kind, side in sides]

    return jax.vmap(laws)(pairs)


def _read(masses, losses, at):
    """The hockey stick of masses."""
    return (masses[:, None] * -np.expm1(np.minimum(at[..., None] - losses, 0.0))).sum(-1)


@pytest.mark.parametrize("lowest", [-20, -2, -39])
def test_a_step_on_a_lattice_lies_between(lowest):
    (over, over_infinite), (under, under_infinite) = jax.tree.map(
        np.asarray, _placed(smudged(TRUTH), LossGrid(0.5 * UNIT, lowest, 40))
    )
    losses = (lowest + np.arange(40)) * 0.5 * UNIT
    at = np.array([-2.5, -1.3, -0.7, 0.0, 0.4, 1.0, 1.4, 2.0, 3.0])
    truth, moved = hockey_stick(TRUTH, at), 2 * SLACKS
    above = _read(over, losses, at - moved) + over_infinite[:, None]
    below = _read(under, losses, at + moved) + under_infinite[:, None]
    assert np.all(above >= truth)
    assert np.all(below <= truth)
    assert np.all(under_infinite <= 0.1)
    assert np.all(under_infinite >= 0.1 * (1 - 40 * OFFS[:, 0]) - 1e-13)
    room = 40 * OFFS + 12 * SLACKS + 1.1e-9
    if lowest == -20.0:
        assert np.all(above <= truth * (1 + room))
        near = at >= 0.0  # a spike costs some cells
        assert np.all((below >= hockey_stick(TRUTH, at + 2.0 * UNIT) * (1 - room))[:, near])
        assert np.all(over_infinite <= 0.1 * (1 + 3.1 * (OFFS + SLACKS)[:, 0] + 1e-8))
    elif lowest == -2.0:  # two atoms are below the lattice, of which one may have been moved onto it
        assert np.all((below >= hockey_stick(TRUTH, at + 2.0 * UNIT) * (1 - room))[:, at >= 1.0])
        assert np.all(above[:, at >= 0.0] <= (truth * (1 + room))[:, at >= 0.0])
        total = over.sum(-1)  # what is below the lattice is on its lowest point
        assert np.all(np.abs(total - 0.9) <= 0.9 * 2.1 * (OFFS + SLACKS)[:, 0] + 1e-12)
    else:
        # The lattice ends at 0, and what is above counts as infinite with what it has of the curve there.
        assert np.all(np.abs(over_infinite - hockey_stick(TRUTH, 0.0)) <= 3.1 * (OFFS + 4 * SLACKS)[:, 0] + 1e-8)
