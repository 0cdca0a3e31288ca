"""Rényi curves of mechanisms on a sample."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct._numerics.host import floats, module
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import inflated
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct.losses.renyi.gaussian import mu_of, sampled_gaussian_curve
from jaxacct.losses.renyi.mixture import mixture_curve
from jaxacct.losses.renyi.tails import log_excess
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.mixture import MixtureOfGaussians
from jaxacct.mechanisms.parameters import nonnegative
from jaxacct.mechanisms.sampling import PoissonSampled
from jaxacct.mechanisms.without_replacement import SampledWithoutReplacement

__all__ = ["no_curve", "pair_curve", "poisson_curve", "without_replacement_curve"]

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
        ValueError: the relation has no analysis.
    """
    if relation == "replace":
        ((pair, _),) = mechanism._dominating(relation)
        return _from_pair(pair, order, pair.log_moment)
    inner, rate = mechanism.mechanism, mechanism.rate
    if isinstance(inner, PoissonSampled):
        rate = nonnegative(rate, 1.0) * nonnegative(inner.rate, 1.0)
        return poisson_curve(_rebuilt(mechanism, inner.mechanism, rate), order, relation, renyi)
    if isinstance(inner, Gaussian):
        return sampled_gaussian_curve(mu_of(inner), rate, order, relation)
    if isinstance(inner, MixtureOfGaussians):
        return mixture_curve(inner, order, relation, rate)
    noise = inner._gaussian_noise()
    if noise is not None:
        return sampled_gaussian_curve(_mu(noise), rate, order, relation)
    names = ["remove", "add"] if relation == "add_or_remove" else [relation]
    found = []
    for name in names:
        ((pair, _),) = mechanism._dominating(name)
        inner_curve = functools.partial(renyi, inner, relation=name)
        found.append(_from_pair(pair, order, functools.partial(_convex, inner_curve, rate)))
    return functools.reduce(module(found).maximum, found)


def _mu(noise: Any) -> Array:
    """The mu of Gaussian noise of this multiplier, rounded up."""
    _, noise = floats(noise)
    with np.errstate(all="ignore"):
        return inflated(1.0 / noise, 2.0**-48)


def pair_curve(mechanism: Mechanism, order: ArrayLike, relation: str) -> Array:
    """The curve of a mechanism without a formula of its own, from the tails of its pair.

    Where its losses have no bound, the pair needs a method ``log_moment(order)``: an upper bound of
    log E_Q[(P/Q)^order], for what the tails cannot show.

    Raises:
        ValueError: a run is a composition, whose pair is a product and not one pair.
    """
    found = []
    for name in mechanism._sides(relation):
        parts = mechanism._dominating(name)
        if len(parts) != 1:
            raise ValueError(f"mechanism must have one pair for a Rényi curve, got {type(mechanism).__name__}")
        found.append(_from_pair(parts[0][0], order, getattr(parts[0][0], "log_moment", _unknown)))
    return functools.reduce(module(found).maximum, found)


def _unknown(order: Array) -> Array:
    return module(order).full_like(order, np.inf)


def no_curve(mechanism: Mechanism, order: ArrayLike, relation: str) -> Array:
    """There is none: what samples with replacement hold of one record has a tail that moments do not bear.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        f"mechanism must be one with a Rényi curve of use, got {type(mechanism).__name__}: at most orders a batch that "
        "holds one record only, however unlikely, is all there is of its divergence; PLD.from_mechanism has its loss"
    )


def without_replacement_curve(
    mechanism: SampledWithoutReplacement, order: ArrayLike, relation: str, renyi: Curve
) -> Array:
    """The curve of the pair that dominates one step; Rényi divergences keep the order of hockey sticks.

    Raises:
        ValueError: a relation without an analysis.
    """
    if relation in ("add_or_remove", "add", "remove"):
        mechanism._dominating("remove" if relation == "add_or_remove" else relation)  # says what is wrong, if anything
        return poisson_curve(_sampled_like(mechanism), order, relation, renyi)
    ((pair, _),) = mechanism._dominating(relation)
    # Its excess is at most that of both Poisson-sampled halves together.
    inner, (_, rate) = mechanism.mechanism, floats(mechanism._rate())
    noise = inner._gaussian_noise()
    if noise is not None:
        mu = _mu(noise)

        def log_moment(at: Array) -> Array:
            return _doubled((at - 1.0) * sampled_gaussian_curve(mu, rate, at, "remove"))

        return _from_pair(pair, order, log_moment)
    inner_curve = functools.partial(renyi, inner, relation="replace")
    return _from_pair(pair, order, functools.partial(_convex, inner_curve, 2.0 * rate))


@np.errstate(all="ignore")
def _doubled(log_moment: Array) -> Array:
    """log(1 + 2 (A - 1)) of log A, rounded up; where A is above e, log(2 A)."""
    xp = module(log_moment)
    small = log1p(2.0 * xp.expm1(xp.minimum(log_moment, 1.0)))
    return inflated(xp.where(log_moment > 1.0, log_moment + math.log(2.0), small), 1e-12)


def _sampled_like(mechanism: SampledWithoutReplacement) -> PoissonSampled:
    """The Poisson sample with the same pairs for `add` and `remove`."""
    return unchecked(PoissonSampled, mechanism=mechanism.mechanism, rate=mechanism._rate())


def _rebuilt(mechanism: PoissonSampled, inner: Any, rate: Any) -> PoissonSampled:
    """A PoissonSampled of other contents, without the checks that are for people."""
    return jax.tree.unflatten(jax.tree.structure(PoissonSampled(inner, 1.0)), [*jax.tree.leaves(inner), rate])


@np.errstate(all="ignore")
def _convex(inner: Curve, rate: Any, order: Array) -> Array:
    """A bound of log E_Q[(P/Q)^order] of a sampled pair: log(1 + rate (A - 1)), A that of the pair itself."""
    xp, c, rate = floats((order - 1.0) * inner(order), rate)
    small = log1p(rate * xp.expm1(xp.minimum(c, 30.0)))
    value = inflated(xp.where(c > 30.0, xp.logaddexp(0.0, xp.log(rate) + c), small), 1e-12)
    return xp.where(rate == 0.0, 0.0, value)


@np.errstate(all="ignore")
def _from_pair(pair: Any, order: Any, log_moment: Curve) -> Array:
    """From the sampled pair's tails, or ``log_moment`` if that is less; it also bounds what the tails cannot show."""
    _, a = floats(order)
    moments = [log_moment(a + s) for s in (0.0, *_TILTS)]
    xp = module(pair, a, moments)
    moments = xp.stack(xp.broadcast_arrays(*moments), -1)
    moments = xp.where(xp.isnan(moments), np.inf, moments)
    shape = np.broadcast_shapes(moments.shape[:-1], *settings_shapes(pair))
    flat = lambda value: xp.broadcast_to(xp.asarray(value, np.float64), shape).reshape(-1)  # noqa: E731
    moments = xp.broadcast_to(moments, (*shape, moments.shape[-1])).reshape(-1, moments.shape[-1])
    a = flat(order)
    tilts = np.broadcast_to(np.asarray(_TILTS), (a.shape[0], len(_TILTS)))
    pairs = flattened(pair, shape, xp)
    excess = log_excess(pairs, a, tilts, moments[:, 1:])
    value = inflated(xp.minimum(xp.logaddexp(0.0, excess), moments[:, 0]) / (a - 1.0), 1e-14)
    good = (a > 1) & (a < np.inf) & ~xp.isnan(value)
    for leaf in jax.tree.leaves(pairs):
        good &= ~xp.isnan(leaf.reshape(good.size, -1)).any(-1)
    return xp.where(good, value, np.inf).reshape(shape)
