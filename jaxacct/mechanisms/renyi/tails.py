"""Bounds the Rényi divergence of any pair from the tails of its loss, and computes that of a table."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, logsumexp, xp
from jaxacct._numerics.host import floats, hosted
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.table import Tabulated
from jaxacct.mechanisms.renyi.closed import ROUNDING
from jaxacct.mechanisms.renyi.gaussian import log_remainder

_REFINE = 8  # cells between neighbouring points of the survey
_FARTHEST = 600.0  # largest absolute loss on the grid
_CELLS = 8192  # about as many as there are, of a survey of 1,024 points
_TINY = 1e-290  # Q-mass below which a tail may have underflowed


@hosted(work=lambda pair, order, *rest: np.size(order) * _CELLS)
def log_excess(pair: Pair, order: Array, tilts: Array, moments: Array, of_guarantee: Array | bool) -> Array:
    """An upper bound of log(E_Q[(P/Q)^order] - 1) for a batch of pairs.

    The excess is E_Q[f(P/Q)] with f(x) = x^a - 1 - a (x - 1); in each cell of losses the chord of f bounds its part
    (docs/proofs/families.md, theorem 3). Cells follow the points of the pair's survey, their ends move outwards by
    its ``loss_error``.

    Args:
        pair: leaves of shape ``(batch,)``.
        order: a > 1, shape ``(batch,)``.
        tilts: s > 0, shape ``(batch, S)``: above the grid's top l, E_Q[e^(a L)] <= e^(-s l) E_Q[e^((a + s) L)].
        moments: bounds of log E_Q[e^((a + s) L)] for each of them; inf where nothing is known.
        of_guarantee: whether ``moments`` are those of the mechanisms below the pair's curve, and not the pair's; then
            it is the divergence of these that is bounded, and f goes on above the grid as its tangent for the pair.

    Returns:
        float64, shape ``(batch,)``, rounded up; inf where losses may be infinite, or too large to bound.
    """
    xp, a, tilts, moments = floats(order, tilts, moments)
    a = a[..., None]
    loss_error, max_loss = (xp.asarray(x)[..., None] for x in (pair.loss_error(), pair.max_loss()))
    infinity = xp.asarray(pair.infinity())[..., None]
    edges = _edges(pair, loss_error, max_loss)
    tails = pair.tails(edges)
    eta = loss_error + 4.0 * UNIT * xp.abs(edges)
    low, high = (edges - eta)[..., :-1], (edges + eta)[..., 1:]
    p, p_off = _upper_cells(tails.p_above, tails.p_below, tails.error)
    q, q_off = _upper_cells(tails.q_above, tails.q_below, tails.error)
    at_low, at_high = log_power_excess(low, a), log_power_excess(high, a)
    # The share of q at the upper end, from the mean p / q: rounded towards the end where f is larger.
    width = high - low
    slack = 16.0 * UNIT + 4.0 * tails.error.max(-1, keepdims=True) + q_off + p_off
    mean = xp.where(q > _TINY, p / xp.maximum(q, _TINY), 0.0) * xp.exp(-low)
    share = (mean - 1.0) / xp.expm1(width)
    rounding = mean * slack / xp.expm1(width)
    rising = at_high > at_low
    rounding = xp.where(slack > 0.1, np.inf, rounding)  # a mass that is all rounding: the worse end
    share = xp.clip(xp.where(rising, share + rounding, share - rounding), 0.0, 1.0)
    top = xp.maximum(at_low, at_high)
    chord = top + xp.log((1.0 - share) * xp.exp(at_low - top) + share * xp.exp(at_high - top))
    by_q = xp.log(inflated(q, q_off)) + chord
    # f(x) / x rises for x > 1: a bound by the P-mass alone, where the Q-mass is too small for a float.
    by_p = xp.log(inflated(p, p_off)) + at_high - high
    cells = xp.where(q > _TINY, by_q, xp.where(low >= 0.0, by_p, xp.log(_TINY * a)))
    # Below the grid f is at most its value at x = 0 or at the lowest loss.
    first = log_power_excess(edges[..., :1] + eta[..., :1], a)
    under = xp.log(inflated(tails.q_below[..., :1], tails.error[..., :1])) + xp.maximum(xp.log(a - 1.0), first)
    last = edges[..., -1:]
    beyond = (moments - tilts * low[..., -1:]).min(-1, keepdims=True)
    nothing = (max_loss + loss_error <= last) & (infinity == 0.0)
    beyond = xp.where(nothing, -np.inf, xp.where(infinity > 0.0, np.inf, beyond))
    above = inflated(tails.p_above[..., -1:], tails.error[..., -1:])
    tangent = xp.log(2.0 * a) + (a - 1.0) * (last + eta[..., -1:]) + xp.log(xp.maximum(above, _TINY))
    tangent = xp.where(of_guarantee, tangent, -np.inf)
    total = logsumexp(xp.concatenate([cells, under, beyond, tangent], -1))
    margin = 1e-12 + 16.0 * UNIT * a * xp.minimum(xp.abs(last), _FARTHEST)
    total = total + margin[..., 0]
    return xp.where(xp.isnan(tails.p_above).any(-1) | xp.isnan(total), np.inf, total)


def _edges(pair: Pair, loss_error: Array, max_loss: Array) -> Array:
    """Increasing losses that cover the survey, finer by ``_REFINE``, and the largest loss of all if it is moderate."""
    survey = pair.survey()
    points = xp.where(xp.isnan(survey.losses), 0.0, survey.losses)
    greatest = points.max(-1, keepdims=True)
    largest = xp.minimum(xp.where(xp.isfinite(max_loss), max_loss, greatest), _FARTHEST)
    shape = np.broadcast_shapes(points.shape[:-1], largest.shape[:-1])
    points, largest = (xp.broadcast_to(x, (*shape, x.shape[-1])) for x in (points, largest))
    points = xp.sort(xp.clip(xp.concatenate([points, largest], -1), -_FARTHEST, largest), -1)
    # An atom at either end must not count as beyond it because of a rounding: one more cell around it.
    pad = 4.0 * loss_error + 8.0 * UNIT * xp.abs(points)
    points = xp.concatenate([points[..., :1] - pad[..., :1], points, points[..., -1:] + pad[..., -1:]], -1)
    between = np.arange(_REFINE) / _REFINE
    inner = points[..., :-1, None] + between * (points[..., 1:] - points[..., :-1])[..., None]
    return xp.concatenate([inner.reshape(*shape, -1), points[..., -1:]], -1)


def _upper_cells(above: Array, below: Array, error: Array) -> tuple[Array, Array]:
    """The mass of each cell from the smaller tail, rounded up, and its relative error.

    In far tails the error may be larger than the mass, where :func:`jaxacct.mechanisms.pairs.cells.cell_masses` knows
    nothing.
    """
    right = above[..., :-1] < below[..., 1:]
    differences = xp.where(right, above[..., :-1] - above[..., 1:], below[..., 1:] - below[..., :-1])
    mass = xp.maximum(differences, 0.0)
    smaller = xp.where(right, above[..., :-1], below[..., 1:])
    scale = 2.0 * smaller * xp.maximum(error[..., :-1], error[..., 1:])
    return mass + scale, xp.where(mass > 0, 2.0 * scale / xp.where(mass > 0, mass, 1.0), 1.0)


def log_power_excess(loss: Array, a: Array) -> Array:
    """log(e^(a l) - 1 - a (e^l - 1)) for losses l of any shape; -inf at 0."""
    near = xp.abs(loss) < 1e-150
    safe = xp.where(near, 1.0, loss)
    moderate = xp.minimum(safe, _FARTHEST)
    return xp.where(near, -np.inf, log_remainder(xp.expm1(moderate), safe, safe, a))


def table_divergence(pair: Tabulated, order: ArrayLike) -> Array:
    """log(sum p^a q^(1-a)) / (a - 1), from non-negative terms; inf if a loss may be."""
    shape = np.broadcast_shapes(*settings_shapes((pair, order)))
    return _of_table(*flattened((pair, order), shape, xp)).reshape(shape)


@hosted
def _of_table(pair: Tabulated, order: Array) -> Array:
    xp, order = floats(order)
    a, atoms = order[..., None], pair.atoms()
    finite = xp.isfinite(atoms.losses)
    away = inflated(xp.where(finite, xp.abs(atoms.losses) + atoms.loss_error, 0.0), 2.0**-50)
    # The excess is E_Q[f(P/Q)] with f(x) = x^a - 1 - a (x - 1) >= 0, and f(0) = a - 1.
    value = log_power_excess(xp.where(atoms.losses < 0, -away, away), a)
    value = xp.where(atoms.losses == -np.inf, xp.log(a - 1.0), value)
    log = lambda mass: xp.where(mass > 0, xp.log(xp.where(mass > 0, mass, 1.0)), -np.inf)  # noqa: E731
    # What Q has of a large loss may have underflowed, what P has of it has not.
    larger = finite & (atoms.losses > 0)
    log_q = xp.where(larger, log(atoms.p) - xp.where(larger, atoms.losses - atoms.loss_error, 0.0), log(atoms.q))
    margin = (ROUNDING + atoms.error + 2.0**-48 * a * away.max(-1, keepdims=True)).max(-1)
    total = inflated(xp.logaddexp(0.0, logsumexp(log_q + value) + margin) / (order - 1.0), ROUNDING)
    # No divergence is above the largest loss, and none is 0 but of losses of 0.
    most = xp.where(finite & (atoms.p > 0), xp.where(atoms.losses < 0, 0.0, away), 0.0).max(-1)
    total = xp.minimum(xp.maximum(total, 1e-300), most)
    infinite = xp.where(atoms.losses == np.inf, atoms.p, 0.0).sum(-1) > 0
    good = (order > 1) & (order < np.inf) & ~infinite & ~xp.isnan(total + atoms.p.sum(-1) + atoms.q.sum(-1))
    good &= ~xp.isnan(atoms.losses).any(-1)  # what has no size is not finite
    return xp.where(good, total, np.inf)
