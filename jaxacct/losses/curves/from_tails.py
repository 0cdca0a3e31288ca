"""Hockey-stick curves from the tails of a privacy loss, from above and from below.

The curve is kept as its *excess* over perfect privacy, E(gamma) = H(gamma) - (1 - gamma)_+, because both of its ends
are then small numbers with all their digits: with l = log gamma,

    E(gamma) = P(L > l) - gamma Q(L > l)      for gamma >= 1,
    E(gamma) = gamma Q(L <= l) - P(L <= l)    for gamma < 1, which is gamma times the reverse pair's H(1 / gamma).

*Above*: E at the grid's points, whose chords lie above the convex H. Where tails are evaluated at a loss that is off by
up to eta, (e^eta - 1) P(L > l - eta) is added (gamma >= 1; with Q(L <= l + eta) times gamma below).

*Below*: for any event A, P(A) - gamma Q(A) is a line below H. Each cell takes that of A = {L > middle of the cell}, or
that of the infinite losses alone where the former would dip below it; a node takes the smaller of its two cells' lines,
so that a cell's chord lies below its line. Before the first node and after the last only the atoms at minus and plus
infinity count.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module, column, xp
from jaxacct._numerics.curve_arrays import beside, compiled
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct.losses.grids.grid import CEILING, LossGrid
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import rarely_sampled
from jaxacct.mechanisms.pairs.base import Pair, Runs, Tails

_TINY = 1e-290  # what underflow may hide
_UNITS = 2.0**-50  # relative error of a product of two tails and an exponential, per unit of the loss

_SIZE = 2**13
_CANDIDATES = 2.0 ** (np.arange(-80, 76) / 8.0)  # reaches of a grid, 1e-3 to 640


def excess_of_pair(pair: Pair, source: Mechanism, grid: LossGrid, bound: str) -> Array:
    """Bounds of the excess of one run of ``pair`` at the points of ``grid``, shape ``(*settings, grid.size)``.

    ``bound`` is "upper" or "lower" for the nodes of a curve that is a bound everywhere; "law" for those of one from
    below that may dip below the identity; or "point" for the best lower bounds at the points alone, whose chords bound
    nothing. ``source`` is the mechanism of the pair; its arrays say which devices are used.
    """
    flat, shape = on_one_axis(pair)
    excess = _excess(beside(flat, source), grid.losses, bound).reshape((*shape, grid.size))
    rare, _ = rarely_sampled(source)
    if bound == "upper" or not (_validate.is_traced(rare) or np.any(rare)):
        return excess
    return xp.where(column(rare), 0.0, excess)  # the pair samples more often than the mechanism does


def grid_for(sides: Iterable[Runs], outside: float = 1e-16) -> LossGrid:
    """8,192 losses around 0, cut at 650; a run of any composition is beyond with a probability of about ``outside``."""
    reach = 0.0
    for runs in sides:
        if _validate.is_traced(runs):
            raise ValueError("grid must be given where the mechanism's parameters are traced, got None")
        reach = max(reach, _reach(runs, outside))
    half = _SIZE // 2
    # The largest loss is point `half`, the smallest one short of it, 0 in between.
    return LossGrid(min(reach, CEILING) / half, 1 - half, _SIZE)


def _reach(runs: Runs, outside: float) -> float:
    mean = variance = largest = 0.0
    for pair, count in runs:
        flat, _ = on_one_axis(pair)
        tails = flat.tails(np.concatenate([-_CANDIDATES[::-1], _CANDIDATES]))
        n = len(_CANDIDATES)
        # An atom at infinity is no reason for a longer grid.
        above = tails.p_above[:, n:] - tails.p_above[:, -1:]
        below = (tails.q_below[:, :n] - tails.q_below[:, :1])[:, ::-1]
        needed = ((above > outside) | (below > outside)).sum(-1).max()
        largest = max(largest, float(_CANDIDATES[min(int(needed), n - 1)]))
        if np.any(np.asarray(count) != 1):
            survey = flat.survey()
            weights = np.exp(survey.log_masses)
            centre = (weights * survey.losses).sum(-1)
            spread = (weights * (survey.losses - centre[:, None]) ** 2).sum(-1)
            mean += float(np.max(np.abs(centre)) * np.max(count))
            variance += float(np.max(spread) * np.max(count))
    return largest + mean + 9.0 * variance**0.5


def on_one_axis(pair: Pair) -> tuple[Pair, tuple[int, ...]]:
    """Every leaf broadcast to one flat batch axis (rows keep their own), and the batch's shape."""
    shape = np.broadcast_shapes(*settings_shapes(pair))
    return flattened(pair, shape, array_module(pair)), shape


@compiled("bound")
def _excess(pair: Pair, losses: Array, bound: str) -> Array:
    excess = _nodes(pair, losses, bound)
    limit = xp.minimum(inflated(xp.exp(losses), 16.0 * EPS), 1.0)
    least, worst = -np.inf if bound == "law" else 0.0, limit if bound == "upper" else 0.0
    return xp.where(xp.isnan(excess), worst, xp.clip(excess, least, limit))


def _nodes(pair: Pair, losses: Array, bound: str) -> Array:
    if bound == "point":
        return _line(losses, pair.tails(losses), losses >= 0)[0]  # any event is a bound
    if bound == "upper":
        found = nodes_above(losses, pair.tails(widened(losses)), pair.loss_error())
        # Above the largest loss the curve is 0; a point of the lattice is good to some units of itself.
        return xp.where(deflated(losses, _UNITS) >= column(pair.max_loss()), 0.0, found)
    inside, dips = 0.5 * (losses[:-1] + losses[1:]), bound == "law"
    if dips:
        inside = xp.where(losses[1:] == 0, 0.0, inside)
    return nodes_below(losses, pair.tails(inside), pair.infinity(), np.zeros(()), dips)


def widened(losses: Array) -> Array:
    """The losses, and one more on either side."""
    return xp.concatenate([2.0 * losses[:1] - losses[1:2], losses, 2.0 * losses[-1:] - losses[-2:-1]])


def nodes_above(losses: Array, tails: Tails, loss_error: Array) -> Array:
    """Excess at ``losses`` (n), rounded up, from tails at the same losses and one more on either side (n + 2).

    Tails may have axes of settings before that of the losses, ``(..., n + 2)``; then so has what comes out.
    """
    p_above, p_below, q_above, q_below, error = tails
    before, here, after = (slice(i, i + losses.shape[-1]) for i in range(3))
    gamma = xp.exp(losses)
    units = _UNITS * (1.0 + xp.abs(losses))
    high = p_above[..., here] - gamma * q_above[..., here]
    low = gamma * q_below[..., here] - p_below[..., here]
    # The event's own shortfall; the neighbouring tail is the one that surely holds the moved loss.
    shortfall = xp.expm1(column(loss_error) + units)
    missed_high = shortfall * p_above[..., before]
    missed_low = shortfall * gamma * q_below[..., after]
    relative = 2.0 * (xp.maximum(error[..., here], xp.maximum(error[..., before], error[..., after])) + units)
    high = high + relative * (p_above[..., here] + gamma * q_above[..., here]) + inflated(missed_high, relative)
    low = low + relative * (p_below[..., here] + gamma * q_below[..., here]) + inflated(missed_low, relative)
    return xp.where(losses >= 0, high, low) + _TINY


def nodes_below(losses: Array, tails: Tails, infinite: Array, singular: Array, dips: bool = False) -> Array:
    """Excess at ``losses`` (n), rounded down, from tails at the middles of their cells (n - 1).

    Args:
        losses: increasing, 0 among them, so that no cell straddles gamma = 1.
        tails: P- and Q-tails of any losses inside the cells, shape ``(..., n - 1)``.
        infinite: P(L = inf), or less; broadcasts with the settings.
        singular: Q(L = -inf), or less; likewise.
        dips: whether the cell before loss 0 may take a line that dips below the identity. The curve of a law may, and
            would be 0 otherwise where all negative losses lie in that cell.
    """
    above = losses[:-1] >= 0
    start = deflated(xp.exp(losses) * column(singular), _UNITS * (1.0 + xp.abs(losses)))
    (left, left_error), (right, right_error) = (_line(end, tails, above) for end in (losses[:-1], losses[1:]))
    low, high = (xp.where(above, column(infinite), x) for x in (start[..., :-1], start[..., 1:]))
    # A line that is raised at one end only would be no line. One that falls short by its own rounding is as good.
    used = (left > low - xp.minimum(left_error, low)) & (right > high - xp.minimum(right_error, high))
    if dips:
        used = used | (losses[1:] == 0)
    left, right = xp.where(used, left, low), xp.where(used, right, high)
    inner = xp.minimum(right[..., :-1], left[..., 1:])
    first, last = xp.minimum(start[..., :1], left[..., :1]), xp.minimum(column(infinite), right[..., -1:])
    return xp.concatenate([first, inner, last], -1)


def _line(at: Array, tails: Tails, right: Array) -> tuple[Array, Array]:
    """The excess at ``at`` of the lines of the events with these tails, rounded down, and by how much at most.

    ``right`` is where gamma >= 1.
    """
    gamma = xp.exp(at)
    slack = 2.0 * (tails.error + _UNITS * (1.0 + xp.abs(at)))
    high = deflated(tails.p_above, slack) - gamma * (inflated(tails.q_above, slack) + _TINY)
    low = deflated(gamma * tails.q_below, slack) - (inflated(tails.p_below, slack) + _TINY)
    size = xp.where(right, tails.p_above + gamma * tails.q_above, gamma * tails.q_below + tails.p_below)
    return xp.where(right, high, low), 2.0 * slack * size
