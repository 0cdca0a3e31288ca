"""Rényi curves of mechanisms on a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct.losses.renyi.gaussian import mu_of, sampled_gaussian_curve
from jaxacct.losses.renyi.mixture import mixture_curve
from jaxacct.losses.renyi.tails import log_excess
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.mixture import MixtureOfGaussians
from jaxacct.mechanisms.sampling import PoissonSampled
from jaxacct.mechanisms.without_replacement import SampledWithoutReplacement

__all__ = ["poisson_curve", "without_replacement_curve"]

Curve = Callable[..., Array]

_TILTS = (1.0, 4.0, 16.0, 64.0, 256.0)


def poisson_curve(mechanism: PoissonSampled, order: ArrayLike, relation: str, renyi: Curve) -> Array:
    """The curve of a Poisson sample: exact for Gaussians and mixtures of them, from tails for all others.

    Args:
        mechanism: the sampled mechanism.
        order: above 1.
        relation: a relation.
        renyi: the curve of any mechanism, for what is inside.

    Raises:
        ValueError: the relation is `replace`.
    """
    if relation == "replace":
        raise ValueError("relation must be add_or_remove, add or remove for a PoissonSampled mechanism, got 'replace'")
    inner, rate = mechanism.mechanism, mechanism.rate
    if isinstance(inner, PoissonSampled):
        rate = jnp.asarray(rate, jnp.float64) * jnp.asarray(inner.rate, jnp.float64)
        rate = jnp.where((jnp.asarray(inner.rate) >= 0) & (jnp.asarray(mechanism.rate) >= 0), rate, jnp.nan)
        return poisson_curve(_rebuilt(mechanism, inner.mechanism, rate), order, relation, renyi)
    if isinstance(inner, Gaussian):
        return sampled_gaussian_curve(mu_of(inner), rate, order, relation)
    if isinstance(inner, MixtureOfGaussians):
        return mixture_curve(inner, order, relation, rate)
    noise = inner._gaussian_noise()
    if noise is not None:
        return sampled_gaussian_curve(1.0 / jnp.asarray(noise, jnp.float64) * (1.0 + 2.0**-48), rate, order, relation)
    names = [relation]
    if relation == "add_or_remove":
        names = ["remove", "add"]
    found = []
    for name in names:
        ((pair, _),) = mechanism._dominating(name)
        found.append(_from_pair(pair, rate, order, lambda at, name=name: renyi(inner, at, relation=name), 1.0))
    return jnp.max(jnp.stack(found), 0)


def without_replacement_curve(
    mechanism: SampledWithoutReplacement, order: ArrayLike, relation: str, renyi: Curve
) -> Array:
    """The curve of the pair that dominates one step; Rényi divergences keep the order of hockey sticks.

    Raises:
        ValueError: a relation other than `replace`.
    """
    ((pair, _),) = mechanism._dominating(relation)
    # Its excess is at most that of both halves together, and each of those is at most rate times the inner one.
    return _from_pair(
        pair, mechanism._rate(), order, lambda at: renyi(mechanism.mechanism, at, relation="replace"), 2.0
    )


def _rebuilt(mechanism: PoissonSampled, inner: Any, rate: Any) -> PoissonSampled:
    """A PoissonSampled of other contents, without the checks that are for people."""
    return jax.tree.unflatten(jax.tree.structure(PoissonSampled(inner, 1.0)), [*jax.tree.leaves(inner), rate])


def _from_pair(pair: Any, rate: ArrayLike, order: ArrayLike, inner: Curve, sides: float) -> Array:
    """From the sampled pair's tails, or by convexity: excess <= sides * rate * (inner moment - 1)."""
    leaves, tree = jax.tree.flatten(pair)
    shape = jnp.broadcast_shapes(*(jnp.shape(leaf) for leaf in (*leaves, rate, order)))
    flat = lambda value: jnp.broadcast_to(jnp.asarray(value, jnp.float64), shape).reshape(-1)  # noqa: E731
    a, q = flat(order), flat(rate)

    def log_moment(at: Array) -> Array:
        """log(1 + sides * rate * (E[e^(at L)] - 1)) for the inner pair."""
        c = (at - 1.0) * flat(inner(at.reshape(shape)))
        scaled = sides * q
        small = jnp.log1p(scaled * jnp.expm1(jnp.minimum(c, 30.0)))
        return jnp.where(c > 30.0, jnp.logaddexp(0.0, jnp.log(scaled) + c), small) * (1.0 + 1e-12)

    tilts = jnp.broadcast_to(jnp.asarray(_TILTS), (a.shape[0], len(_TILTS)))
    moments = jnp.stack([log_moment(a + s) for s in _TILTS], -1)
    moments = jnp.where(jnp.isnan(moments), jnp.inf, moments)
    excess = log_excess(jax.tree.unflatten(tree, [flat(leaf) for leaf in leaves]), a, tilts, moments)
    value = jnp.fmin(jnp.logaddexp(0.0, excess), log_moment(a)) / (a - 1.0) * (1.0 + 1e-14)
    value = jnp.where(q == 0.0, 0.0, value)
    good = (q >= 0) & (q <= 1) & (a > 1) & (a < jnp.inf) & ~jnp.isnan(value)
    return jnp.where(good, value, jnp.inf).reshape(shape)
