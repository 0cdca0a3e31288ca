"""Hockey-stick curves from the tails of a privacy loss, from above and from below.

The curve is kept as its *excess* over perfect privacy, E(gamma) = H(gamma) - (1 - gamma)_+, because both of its ends
are then small numbers with all their digits: with l = log gamma,

    E(gamma) = P(L > l) - gamma Q(L > l)      for gamma >= 1,
    E(gamma) = gamma Q(L <= l) - P(L <= l)    for gamma < 1, which is gamma times the reverse pair's H(1 / gamma).

*Above*: E at the grid's points, whose chords lie above the convex H. Where tails are evaluated at a loss that is off by
up to eta, (e^eta - 1) P(L > l - eta) is added (gamma >= 1; with Q(L <= l + eta) times gamma below).

*Below*: for any event A, P(A) - gamma Q(A) is a line below H. Each cell takes that of A = {L > middle of the cell}, or
the identity where that line would dip below it; a node takes the smaller of its two cells' lines, so that a cell's
chord lies below its line. Before the first node and after the last only the atoms at minus and plus infinity count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, column
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.mechanisms.pairs.base import Pair, Tails

_TINY = 1e-290  # what underflow may hide
_UNITS = 2.0**-50  # relative error of a product of two tails and an exponential, per unit of the loss


def from_pair(pair: Pair, losses: Array, bound: str) -> Array:
    """Bounds of the excess of one run of ``pair`` at equally spaced ``losses``, 0 among them; shape ``(..., n)``.

    ``bound`` is "upper" or "lower" for the nodes of a curve that is a bound everywhere, or "point" for the best lower
    bounds at the points alone, whose chords bound nothing.

    A pair does not say how much of its loss is infinite: from above everything beyond the grid counts as infinite,
    from below nothing does.
    """
    if bound == "point":
        return points_below(losses, pair.tails(losses))
    if bound == "upper":
        wide = widened(losses)
        return nodes_above(losses, pair.tails(wide), pair.loss_error())
    middles = 0.5 * (losses[:-1] + losses[1:])
    return nodes_below(losses, pair.tails(middles), np.zeros(()), np.zeros(()))


def widened(losses: Array) -> Array:
    """The losses, and one more on either side."""
    xp = array_module(losses)
    return xp.concatenate([2.0 * losses[:1] - losses[1:2], losses, 2.0 * losses[-1:] - losses[-2:-1]])


def nodes_above(losses: Array, tails: Tails, loss_error: Any) -> Array:
    """Excess at ``losses`` (n), rounded up, from tails at the same losses and one more on either side (n + 2).

    Tails may have axes of settings before that of the losses, ``(..., n + 2)``; then so has what comes out.
    """
    p_above, p_below, q_above, q_below, error = tails
    xp = array_module(losses, *tails, loss_error)
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


def nodes_below(losses: Array, tails: Tails, infinite: Array, singular: Array) -> Array:
    """Excess at ``losses`` (n), rounded down, from tails at the middles of their cells (n - 1).

    Args:
        losses: increasing, 0 among them, so that no cell straddles gamma = 1.
        tails: P- and Q-tails of any losses inside the cells, shape ``(..., n - 1)``.
        infinite: P(L = inf), or less; broadcasts with the settings.
        singular: Q(L = -inf), or less; likewise.
    """
    xp = array_module(losses, *tails, infinite, singular)
    left, right = (_line(end, tails, losses[:-1] >= 0) for end in (losses[:-1], losses[1:]))
    # The identity is a line as well; a line that is clipped at one end only would be no line.
    used = (left > 0) & (right > 0)
    left, right = xp.where(used, left, 0.0), xp.where(used, right, 0.0)
    inner = xp.minimum(right[..., :-1], left[..., 1:])
    start = deflated(xp.exp(losses[0]) * singular, _UNITS * (1.0 + xp.abs(losses[0])))
    first, last = xp.minimum(column(start), left[..., :1]), xp.minimum(column(infinite), right[..., -1:])
    return xp.concatenate([first, inner, last], -1)


def points_below(losses: Array, tails: Tails) -> Array:
    """Lower bounds of the excess at ``losses`` themselves, from tails at about the same losses: any event is one."""
    return array_module(losses, *tails).maximum(_line(losses, tails, losses >= 0), 0.0)


def _line(at: Array, tails: Tails, right: Array) -> Array:
    """The excess at ``at`` of the lines of the events with these tails, rounded down; ``right``: where gamma >= 1."""
    xp = array_module(at, *tails)
    gamma = xp.exp(at)
    slack = 2.0 * (tails.error + _UNITS * (1.0 + xp.abs(at)))
    high = deflated(tails.p_above, slack) - gamma * (inflated(tails.q_above, slack) + _TINY)
    low = deflated(gamma * tails.q_below, slack) - (inflated(tails.p_below, slack) + _TINY)
    return xp.where(right, high, low)
