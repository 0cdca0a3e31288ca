"""delta and epsilon of one run of a mechanism, from the tails of its loss.

H(eps) = P(L > eps) - e^eps Q(L > eps). Tails are read at eps - eta, where the pair may be off by up to eta: they are
those of an event {L > l} with l in [eps - 2 eta, eps], atoms at eps included, which takes little from H and adds
nothing (docs/proofs/one-run.md).

A pair that knows its curve in closed form may have a method ``log_hockey_stick(epsilon, upper)``, a bound of log H for
epsilon >= 0, and ``gaussian_mu()``, a mu such that mu-GDP dominates it: then deltas may underflow and epsilon has no
ceiling.

Arrays have the shape of the settings, that of the pair's leaves; in NumPy nothing is compiled.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, column, xp
from jaxacct._numerics.roots import crossing
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct._numerics.trivial_bounds import possible
from jaxacct.mechanisms.pairs.base import Pair, loss_room
from jaxacct.mechanisms.pairs.gaussian_curve import log_inverse

_TINY = 1e-290  # what underflow may hide
_LARGEST = 2.0**60  # losses asked for
_ENDS = np.array([1e-3, 0.03, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 650.0, 1e4, 1e6, 1e9])  # where to begin
_UNDERFLOW = -700.0


@np.errstate(all="ignore")
def single_delta(pair: Any, epsilon: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta(epsilon) for one run of ``pair``."""
    closed = hasattr(pair, "log_hockey_stick")
    largest = pair.max_loss()
    if closed and array_module(epsilon, *jax.tree.leaves(pair)) is np and np.all(epsilon >= 0):
        lower, upper = np.zeros(()), np.ones(())
    else:
        lower, upper = (x[..., 0] for x in _from_tails(pair, column(epsilon), largest, pair.loss_error()))
    if closed:
        log_lower, log_upper = (pair.log_hockey_stick(xp.maximum(epsilon, 0.0), side) for side in (False, True))
        rounding = 1e-13  # of exp
        closed_lower = xp.where(log_lower > _UNDERFLOW, deflated(xp.exp(log_lower), rounding), 0.0)
        # NaN stays NaN, which fails closed below.
        closed_upper = inflated(xp.exp(xp.maximum(log_upper, _UNDERFLOW)), rounding)
        closed_upper = xp.where(log_upper == -np.inf, 0.0, closed_upper)
        lower = xp.where(epsilon >= 0, closed_lower, lower)
        upper = xp.where(epsilon >= 0, closed_upper, upper)
    return possible(lower, xp.where(epsilon >= largest, 0.0, upper), epsilon)


def _from_tails(pair: Pair, epsilon: Array, largest: Array, loss_error: Array) -> tuple[Array, Array]:
    """Bounds at several epsilons of each setting, shape ``(..., n)``; ``largest`` and ``loss_error`` are the pair's."""
    cut = xp.clip(epsilon, -_LARGEST, _LARGEST)
    eta = loss_room(loss_error, cut)
    p, _, q, _, error = pair.tails(cut - eta)
    # e^eps Q(L > eps) <= P(L > eps) <= 1, so the exponential cannot overflow but by rounding. A Q-tail that may
    # have underflowed counts as nothing above and as _TINY below.
    log_q = xp.log(xp.maximum(q, _TINY))
    log_scaled = cut + log_q
    scaled = xp.exp(xp.minimum(log_scaled, 0.0))
    slack = 2.0 * (error + 2.0**-50 * (1.0 + xp.abs(cut) + xp.abs(log_q))) * (p + scaled)
    sure = xp.where(q > _TINY, scaled, 0.0)
    upper = p - sure + slack + xp.minimum(inflated(xp.expm1(2.0 * eta) * (p + slack), 1e-9), sure)
    below_top = -xp.expm1(xp.minimum(cut - column(largest), 0.0))
    upper = xp.minimum(upper, inflated(below_top * p, 2.0 * error + 16.0 * UNIT)) + _TINY
    lower = p - xp.exp(log_scaled) - slack
    lower = xp.where(epsilon > _LARGEST, 0.0, lower)
    return possible(lower, xp.where(epsilon >= column(largest), 0.0, upper), epsilon)


def single_value(pair: Pair, epsilon: Array) -> Array:
    """delta(epsilon) for one run without bounds, to be differentiated.

    The event {L > eps} maximises P - e^eps Q, so moving its edge changes nothing to first order.
    """
    p, _, q, _, _ = (x[..., 0] for x in pair.tails(column(epsilon)))
    return p - xp.exp(epsilon) * q


@np.errstate(all="ignore")
def single_epsilon(pair: Any, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta, by certified bisection."""
    largest, infinite = pair.max_loss(), pair.infinity()
    zero = xp.zeros(np.broadcast_shapes(np.shape(largest), np.shape(delta)))
    target = xp.log(delta)
    if hasattr(pair, "log_hockey_stick"):
        room = 8.0 * UNIT * (1.0 + xp.abs(target))  # of the logarithm
        least, most, curve = target - room, target + room, pair.log_hockey_stick
        steering = lambda bound, goal: bound - goal  # noqa: E731
        # Where the dominating Gaussian is small enough, so is the pair itself.
        end = log_inverse(pair.gaussian_mu(), least)
        small = xp.isfinite(end)
        low = bottom = zero
        high = xp.where(small, end, _LARGEST)
    else:
        least, most, limits = delta, delta, (largest, pair.loss_error())
        steering = lambda bound, goal: xp.log(0.5 + 0.5 * bound / goal)  # noqa: E731
        curve = lambda epsilon, upper: _from_tails(pair, column(epsilon), *limits)[upper][..., 0]  # noqa: E731
        # Neighbours among some ends, between which the bounds come down to delta.
        at_lower, at_upper = _from_tails(pair, _ENDS + zero[..., None], *limits)
        above, found = at_lower > column(delta), at_upper <= column(delta)
        low = xp.where(above, _ENDS, 0.0).max(-1)
        high = xp.where(above | (low[..., None] >= _ENDS), _LARGEST, _ENDS).min(-1)
        end, small = xp.where(found, _ENDS, _ENDS[-1]).min(-1), found.any(-1)
        # Beyond `end`, rounding alone may have hidden that the target is met.
        bottom = xp.where(found | (end[..., None] < _ENDS), 0.0, _ENDS).max(-1)
        # At the largest loss the curve is 0.
        end, high = (xp.where(largest < x, xp.maximum(largest, 0.0), x) for x in (end, high))

    # The end that is to be certified moves by comparisons that hold; one with NaN certifies nothing.
    def surely_above(epsilon: Array) -> tuple[Array, Array]:
        bound = curve(epsilon, False)
        return bound > most, steering(bound, most)

    def not_surely_below(epsilon: Array) -> tuple[Array, Array]:
        bound = curve(epsilon, True)
        return ~(bound <= least), steering(bound, least)

    # The curve certified both ends where it was asked there; asked again elsewhere, it may round to the other side.
    lower, _ = crossing(surely_above, low, xp.where(infinite > delta, low, high) + zero)
    _, high = crossing(not_surely_below, xp.minimum(bottom, end) + zero, end + zero)
    upper = xp.where(curve(zero, True) <= least, 0.0, xp.where(small, high, np.inf))
    upper = xp.where(xp.isnan(largest), upper, xp.minimum(upper, xp.maximum(largest, 0.0)))
    upper = xp.where(xp.isnan(upper), np.inf, upper)
    # An infinite loss that is likelier than delta leaves no epsilon.
    lower = xp.where(infinite > delta, np.inf, lower)
    return xp.minimum(lower, upper), upper
