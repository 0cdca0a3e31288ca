"""Crude bounds on a composition that hold for every parameter and need no transform.

For epsilon >= 0 and T_k runs of part k:

* delta(eps) <= delta(0) <= 1 - prod_k (1 - TV_k)^T_k, with TV_k = delta_k(0): couple every run. So epsilon is 0
  where that is at most the target.
* a part that mu_k-GDP dominates at every order may be replaced by it: the whole is sqrt(sum_k T_k mu_k^2)-GDP
  (Dong, Roth, Su 2022, Corollary 3.3).
* for every loss t, the event that some run's loss exceeds t has probability 1 - prod_k (1 - P_k(L > t))^T_k, under
  Q likewise, and delta(eps) >= P(event) - e^eps Q(event).

Arrays have leading axes of settings; in NumPy nothing is compiled.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, column
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct._numerics.rows import settings_shapes
from jaxacct.losses.engines.inversion.composed_transform import times
from jaxacct.losses.engines.one_run import single_delta
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.gaussian_curve import log_delta_bounds, log_inverse

_LOSSES = np.geomspace(1e-4, 1e7, 100)  # candidates t
_SHARES = np.geomspace(1e-12, 0.5, 36)  # candidates s
_LEAST = 1e-290  # what underflow may hide
_SHARE = 1e-12  # of sums and products of some hundred factors
_SURE = 1.0 - _SHARE
_UNITS = 2.0**-50  # of an exponential and what is next to it


@np.errstate(all="ignore")  # NaN is no bound
def capped(kind: str, groups: tuple[Pair, ...], counts: Array, goal: Array, bounds: tuple[Array, Array]):
    """``bounds``, ``(lower, upper)`` of shape ``(...)``, with the above worked in; NaN counts as knowing nothing.

    Groups have leaves of shape ``(..., parts of the group)``, and ``counts`` the shape ``(..., K)`` of all parts
    together.
    """
    lower, upper = bounds
    xp = array_module(goal, counts, lower, upper, *jax.tree.leaves(groups))
    upper = xp.where(xp.isnan(upper), np.inf if kind == "epsilon" else 1.0, upper)
    lower = xp.where(xp.isnan(lower), 0.0, lower)
    p, q = _some_run_exceeds(groups, counts)
    all_p, total = _every_run_exceeds(groups, counts)
    distances = [single_delta(group, np.zeros(()))[1] for group in groups]
    distance = _any(xp.concatenate(distances, -1)[..., None], counts)[..., 0] / _SURE
    mu = xp.sqrt((counts * xp.concatenate([_gaussian(group) for group in groups], -1) ** 2).sum(-1)) / _SURE
    known = mu < np.inf
    mu = xp.where(known, mu, 1.0)
    each = column(goal)
    if kind == "epsilon":
        gaussian = log_inverse(mu, xp.log(goal))
        upper = xp.fmin(upper, xp.where(known, gaussian, np.inf))  # fmin: NaN is no bound
        upper = xp.where(distance <= goal, 0.0, upper)
        reached = xp.where(p > each, xp.log(p - each) - xp.log(q), 0.0)
        lower = xp.maximum(lower, reached.max(-1) * _SURE - 1e-13)
        reached = xp.where(all_p > each, total + log1p(-xp.minimum(each / all_p / _SURE, 1.0)), 0.0)
        lower = xp.fmax(lower, (reached * _SURE).max(-1))
        return xp.clip(lower, 0.0, upper), upper
    floor = xp.maximum(-xp.expm1(goal), 0.0)
    gaussian = xp.exp(log_delta_bounds(mu, xp.maximum(goal, 0.0))[1]) + _LEAST
    upper = xp.minimum(upper, xp.where(known & (goal >= 0), gaussian, 1.0))
    upper = xp.fmin(upper, inflated(floor + distance, _UNITS))
    upper = xp.clip(upper, inflated(floor, _UNITS), 1.0)
    upper = xp.where(xp.isnan(upper), 1.0, upper)
    reached = p - inflated(xp.exp(each + xp.log(q)), _SHARE + _UNITS * (xp.abs(each) + xp.abs(xp.log(q))))
    lower = xp.maximum(lower, reached.max(-1))
    reached = all_p * -xp.expm1(xp.minimum(each - total + _UNITS * xp.abs(each), 0.0)) * _SURE
    lower = xp.fmax(lower, reached.max(-1))
    return xp.minimum(xp.where(xp.isnan(lower), 0.0, lower), upper), upper


def _gaussian(group: Any) -> Array:
    """mu of the Gaussian that dominates each pair of a group; inf where a pair knows of none."""
    if hasattr(group, "gaussian_mu"):
        return group.gaussian_mu()
    return np.full(np.broadcast_shapes(*settings_shapes(group)), np.inf)


def _any(probabilities: Array, counts: Array) -> Array:
    """1 - prod (1 - p_k)^T_k for probabilities ``(..., parts, candidates)``."""
    xp = array_module(probabilities, counts)
    return -xp.expm1(times(counts[..., None], log1p(-xp.clip(probabilities, 0.0, 1.0))).sum(-2))


def _some_run_exceeds(groups: tuple[Pair, ...], counts: Array) -> tuple[Array, Array]:
    """P (rounded down) and Q (rounded up) of the event that some run's loss exceeds each candidate."""
    p, q = [], []
    for group in groups:
        tails = group.tails(_LOSSES)
        p.append(deflated(tails.p_above, tails.error) - _LEAST)
        q.append(inflated(tails.q_above, tails.error) + _LEAST)
    xp = array_module(counts, *p, *q)
    p, q = (_any(xp.concatenate(parts, -2), counts) for parts in (p, q))
    return p * _SURE, xp.minimum(q / _SURE + _LEAST, 1.0)


def _every_run_exceeds(groups: tuple[Pair, ...], counts: Array) -> tuple[Array, Array]:
    """P of the event that every loss exceeds (1 - s) of the largest, or of the likeliest, and what their sum exceeds.

    Both rounded down.
    """
    logs, losses = [], []
    for group in groups:
        largest, likely = group.max_loss()[..., None], group.anchor()[..., None]
        xp = array_module(largest, likely)
        largest = xp.where(largest < np.inf, largest, likely)
        at = xp.where((largest < np.inf) & (largest > 0), largest, 0.0) * (1.0 - _SHARES[::-1])
        tails = group.tails(at)
        p = deflated(tails.p_above, tails.error) - _LEAST
        logs.append(xp.log(xp.clip(p, 0.0, 1.0)))
        losses.append(at - group.loss_error()[..., None])
    xp, counts = array_module(counts, *logs, *losses), counts[..., None]
    log_p, total = (times(counts, xp.concatenate(parts, -2)).sum(-2) for parts in (logs, losses))
    return xp.exp(inflated(log_p, _SHARE)) * _SURE, total - _SHARE * xp.abs(total)
