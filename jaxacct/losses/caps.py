"""Bounds on a composition that need no lattice: crude, sound for every parameter, and never infinite without need.

For epsilon >= 0 and T_k runs of part k:

* delta(eps) <= delta(0) <= 1 - prod_k (1 - TV_k)^T_k, with TV_k = delta_k(0): couple every run. So epsilon is 0
  where that is at most the target.
* a part that mu_k-GDP dominates at every order may be replaced by it: the whole is sqrt(sum_k T_k mu_k^2)-GDP
  (Dong, Roth, Su 2022, Corollary 3.3).
* for every loss t, the event that some run's loss exceeds t has probability 1 - prod_k (1 - P_k(L > t))^T_k, under
  Q likewise, and delta(eps) >= P(event) - e^eps Q(event).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct._log1p import log1p
from jaxacct._rounding import deflated, inflated
from jaxacct.losses.gdp_curve import log_delta_bounds, log_inverse
from jaxacct.losses.single import single_delta

__all__ = ["capped"]

_LOSSES = np.geomspace(1e-4, 1e7, 100)  # candidates t
_SHARES = np.geomspace(1e-12, 0.5, 36)  # candidates s
_LEAST = 1e-290  # what underflow may hide
_SHARE = 1e-12  # of sums and products of some hundred factors
_SURE = 1.0 - _SHARE
_UNITS = 2.0**-50  # of an exponential and what is next to it


def capped(kind: str, groups: tuple[Any, ...], counts: Array, goal: Array, bounds: tuple[Array, Array]):
    """``bounds`` of one query with the above worked in.

    Args:
        kind: ``"delta"`` (``goal`` is epsilon) or ``"epsilon"`` (``goal`` is delta).
        groups: pairs with a leading axis, together the K parts.
        counts: steps of each part, shape ``(K,)``.
        goal: scalar.
        bounds: ``(lower, upper)``, scalars; NaN counts as knowing nothing.
    """
    lower, upper = bounds
    upper = jnp.where(jnp.isnan(upper), jnp.inf if kind == "epsilon" else 1.0, upper)
    lower = jnp.where(jnp.isnan(lower), 0.0, lower)
    p, q = _some_run_exceeds(groups, counts)
    all_p, total = _every_run_exceeds(groups, counts)
    distance = _any([jax.vmap(lambda pair: single_delta(pair, jnp.zeros(()))[1])(group) for group in groups], counts)
    distance = distance / _SURE
    mu = jnp.sqrt((counts * jnp.concatenate([_gaussian(group) for group in groups]) ** 2).sum()) / _SURE
    known = mu < jnp.inf
    mu = jnp.where(known, mu, 1.0)
    if kind == "epsilon":
        gaussian = log_inverse(mu, jnp.log(goal))
        upper = jnp.fmin(upper, jnp.where(known, gaussian, jnp.inf))  # fmin: NaN is no bound
        upper = jnp.where(distance <= goal, 0.0, upper)
        reached = jnp.where(p > goal, jnp.log(p - goal) - jnp.log(q), 0.0)
        lower = jnp.maximum(lower, jnp.max(reached) * _SURE - 1e-13)
        reached = jnp.where(all_p > goal, total + log1p(-jnp.minimum(goal / all_p / _SURE, 1.0)), 0.0)
        lower = jnp.fmax(lower, jnp.max(reached * _SURE))
        return jnp.clip(lower, 0.0, upper), upper
    floor = jnp.maximum(-jnp.expm1(goal), 0.0)
    gaussian = jnp.exp(log_delta_bounds(mu, jnp.maximum(goal, 0.0))[1]) + _LEAST
    upper = jnp.minimum(upper, jnp.where(known & (goal >= 0), gaussian, 1.0))
    upper = jnp.fmin(upper, inflated(floor + distance, _UNITS))
    upper = jnp.clip(upper, inflated(floor, _UNITS), 1.0)
    upper = jnp.where(jnp.isnan(upper), 1.0, upper)
    reached = p - inflated(jnp.exp(goal + jnp.log(q)), _SHARE + _UNITS * (jnp.abs(goal) + jnp.abs(jnp.log(q))))
    lower = jnp.maximum(lower, jnp.max(reached))
    reached = all_p * -jnp.expm1(jnp.minimum(goal - total + _UNITS * jnp.abs(goal), 0.0)) * _SURE
    lower = jnp.fmax(lower, jnp.max(reached))
    return jnp.minimum(jnp.where(jnp.isnan(lower), 0.0, lower), upper), upper


def _gaussian(group: Any) -> Array:
    """mu of the Gaussian that dominates each pair of a group; inf where a pair knows of none."""
    if hasattr(group, "gaussian_mu"):
        return jax.vmap(lambda pair: pair.gaussian_mu())(group)
    return jnp.full(jax.tree.leaves(group)[0].shape[0], jnp.inf)


def _any(probabilities: list[Array], counts: Array) -> Array:
    """1 - prod (1 - p_k)^T_k; parts first."""
    joined = jnp.clip(jnp.concatenate(probabilities), 0.0, 1.0)
    counts = counts.reshape((-1,) + (1,) * (joined.ndim - 1))
    return -jnp.expm1(jnp.where(counts > 0, counts * log1p(-joined), 0.0).sum(0))


def _some_run_exceeds(groups: tuple[Any, ...], counts: Array) -> tuple[Array, Array]:
    """P (rounded down) and Q (rounded up) of the event that some run's loss exceeds each candidate."""
    p, q = [], []
    for group in groups:
        tails = jax.vmap(lambda pair: pair.tails(jnp.asarray(_LOSSES)))(group)
        p.append(deflated(tails.p_above, tails.error) - _LEAST)
        q.append(inflated(tails.q_above, tails.error) + _LEAST)
    return _any(p, counts) * _SURE, jnp.minimum(_any(q, counts) / _SURE + _LEAST, 1.0)


def _every_run_exceeds(groups: tuple[Any, ...], counts: Array) -> tuple[Array, Array]:
    """P of the event that every loss exceeds (1 - s) of its bound, and what their sum exceeds; both rounded down."""
    logs, losses = [], []
    for group in groups:
        largest = jax.vmap(lambda pair: pair.max_loss())(group)
        at = jnp.where((largest < jnp.inf) & (largest > 0), largest, 0.0)[:, None] * (1.0 - _SHARES[::-1])
        tails = jax.vmap(lambda pair, at: pair.tails(at))(group, at)
        p = jnp.where((largest < jnp.inf)[:, None], deflated(tails.p_above, tails.error) - _LEAST, 0.0)
        logs.append(jnp.log(jnp.clip(p, 0.0, 1.0)))
        losses.append(at - jax.vmap(lambda pair: pair.loss_error())(group)[:, None])
    used = (counts > 0)[:, None]
    log_p = jnp.where(used, counts[:, None] * jnp.concatenate(logs), 0.0).sum(0)
    total = jnp.where(used, counts[:, None] * jnp.concatenate(losses), 0.0).sum(0)
    return jnp.exp(inflated(log_p, _SHARE)) * _SURE, total - _SHARE * jnp.abs(total)
