"""The Rényi divergence of any pair, from above, from the tails of its loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct._rounding import UNIT, inflated
from jaxacct.losses.renyi.gaussian import log_remainder

__all__ = ["log_excess", "log_power_excess"]

_REFINE = 8  # cells between neighbouring points of the survey
_FARTHEST = 600.0  # largest absolute loss on the grid
_TINY = 1e-290  # Q-mass below which a tail may have underflowed


@jax.jit
def log_excess(pair: Any, order: Array, tilts: Array, moments: Array) -> Array:
    """An upper bound of log(E_Q[(P/Q)^order] - 1) for a batch of pairs.

    The excess is E_Q[f(P/Q)] with f(x) = x^a - 1 - a (x - 1), convex and at least 0. In a cell of losses with Q-mass q
    and P-mass p, P/Q lies between the cell's ends and has the mean p / q, so the chord of f between the ends bounds
    the cell's part from above. No term is negative, so nothing cancels; the error is of second order in the cells,
    which follow the points of the pair's survey. Ends move outwards by the pair's ``loss_error``.

    Args:
        pair: leaves of shape ``(batch,)``.
        order: a > 1, shape ``(batch,)``.
        tilts: s > 0, shape ``(batch, S)``: above the grid's top l, E_Q[e^(a L)] <= e^(-s l) E_Q[e^((a + s) L)].
        moments: bounds of log E_Q[e^((a + s) L)] for each of them; inf where nothing is known.

    Returns:
        float64, shape ``(batch,)``, rounded up; inf where losses may be infinite, or too large to bound.
    """
    return jax.vmap(_log_excess)(pair, order, tilts, moments)


def _log_excess(pair: Any, a: Array, tilts: Array, moments: Array) -> Array:
    edges = _edges(pair)
    tails = pair.tails(edges)
    eta = pair.loss_error() + 4.0 * UNIT * jnp.abs(edges)
    low, high = (edges - eta)[:-1], (edges + eta)[1:]
    p, q = (
        _upper_cells(tails.p_above, tails.p_below, tails.error),
        _upper_cells(tails.q_above, tails.q_below, tails.error),
    )
    log_f = lambda loss: log_power_excess(loss, a)  # noqa: E731
    at_low, at_high = log_f(low), log_f(high)
    # The share of q at the upper end, from the mean p / q: rounded towards the end where f is larger.
    width = high - low
    slack = 16.0 * UNIT + 4.0 * tails.error.max() + q.slack + p.slack
    mean = jnp.where(q.mass > _TINY, p.mass / jnp.maximum(q.mass, _TINY), 0.0) * jnp.exp(-low)
    share = (mean - 1.0) / jnp.expm1(width)
    rounding = mean * slack / jnp.expm1(width)
    rising = at_high > at_low
    rounding = jnp.where(slack > 0.1, jnp.inf, rounding)  # a mass that is all rounding: the worse end
    share = jnp.clip(jnp.where(rising, share + rounding, share - rounding), 0.0, 1.0)
    top = jnp.maximum(at_low, at_high)
    chord = top + jnp.log((1.0 - share) * jnp.exp(at_low - top) + share * jnp.exp(at_high - top))
    by_q = jnp.log(inflated(q.mass, q.slack)) + chord
    # f(x) / x rises for x > 1: a bound by the P-mass alone, where the Q-mass is too small for a float.
    by_p = jnp.log(inflated(p.mass, p.slack)) + at_high - high
    cells = jnp.where(q.mass > _TINY, by_q, jnp.where(low >= 0.0, by_p, jnp.log(_TINY * a)))
    # Below the grid f is at most its value at x = 0 or at the lowest loss.
    under = jnp.log(inflated(tails.q_below[0], tails.error[0])) + jnp.maximum(
        jnp.log(a - 1.0), log_f(edges[:1] + eta[:1])[0]
    )
    beyond = jnp.min(moments - tilts * low[-1])
    nothing = (pair.max_loss() + pair.loss_error() <= edges[-1]) & (pair.infinity() == 0.0)
    beyond = jnp.where(nothing, -jnp.inf, jnp.where(pair.infinity() > 0.0, jnp.inf, beyond))
    total = jax.nn.logsumexp(jnp.concatenate([cells, jnp.stack([under, beyond])]))
    margin = 1e-12 + 16.0 * UNIT * a * jnp.minimum(jnp.abs(edges[-1]), _FARTHEST)
    total = total + margin
    return jnp.where(jnp.isnan(tails.p_above).any() | jnp.isnan(total), jnp.inf, total)


def _edges(pair: Any) -> Array:
    """Increasing losses that cover the survey, finer by ``_REFINE``, and the largest loss of all if it is moderate."""
    survey = pair.survey()
    points = jnp.where(jnp.isnan(survey.losses), 0.0, survey.losses)
    largest = jnp.minimum(jnp.where(jnp.isfinite(pair.max_loss()), pair.max_loss(), points.max()), _FARTHEST)
    points = jnp.sort(jnp.clip(jnp.append(points, largest), -_FARTHEST, largest))
    # An atom at either end must not count as beyond it because of a rounding: one more cell around it.
    pad = 4.0 * pair.loss_error() + 8.0 * UNIT * jnp.abs(points)
    points = jnp.concatenate([points[:1] - pad[:1], points, points[-1:] + pad[-1:]])
    between = jnp.arange(_REFINE) / _REFINE
    inner = points[:-1, None] + between * (points[1:] - points[:-1])[:, None]
    return jnp.append(inner.reshape(-1), points[-1])


class _Mass:
    """Masses of cells and the relative errors of them."""

    def __init__(self, mass: Array, slack: Array):
        self.mass, self.slack = mass, slack


def _upper_cells(above: Array, below: Array, error: Array) -> _Mass:
    """Mass of each cell from the smaller tail; the slack is its relative error."""
    right = above[:-1] < below[1:]
    mass = jnp.maximum(jnp.where(right, above[:-1] - above[1:], below[1:] - below[:-1]), 0.0)
    scale = 2.0 * jnp.where(right, above[:-1], below[1:]) * jnp.maximum(error[:-1], error[1:])
    return _Mass(mass + scale, jnp.where(mass > 0, 2.0 * scale / jnp.where(mass > 0, mass, 1.0), 1.0))


def log_power_excess(loss: Array, a: Array) -> Array:
    """log(e^(a l) - 1 - a (e^l - 1)) for losses l of any shape; -inf at 0."""
    near = jnp.abs(loss) < 1e-150
    safe = jnp.where(near, 1.0, loss)
    moderate = jnp.minimum(safe, _FARTHEST)
    return jnp.where(near, -jnp.inf, log_remainder(jnp.expm1(moderate), safe, safe, a))
