"""Noise reduction: releases of one value with decreasing noise, of which only the last one costs.

The budgets epsilons_1 <= ... <= epsilons_m are those of ex-post privacy after each release: the releases 1 to i
together cost epsilons_i. That holds because the noise of release i - 1 is the noise of release i plus something
independent of the data, so the earlier releases are post-processings of the latest. :mod:`.sources` has the mechanisms.

Gaussian, ex-post Rényi at one order: the variance of release i is T_i = order sensitivity^2 / (2 epsilons_i).
Laplace, pure ex-post: the scale of release i is sensitivity / epsilons_i. Gumbel: selections instead of values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float32 import above, below
from jaxacct._numerics.float64 import in_float64, settled
from jaxacct._numerics.least import first_greatest
from jaxacct._types import PyTree
from jaxacct.expost import noise as _noise
from jaxacct.expost.parameters import UP, check_budgets, check_order, check_row, check_sizes, usable, usable_order
from jaxacct.filters.amounts import caller_dtype

__all__ = ["brownian_step", "gumbel_path"]


def brownian_step(
    key: Array,
    value: object,
    previous: object,
    spent: ArrayLike,
    epsilon: ArrayLike,
    *,
    order: ArrayLike,
    sensitivity: ArrayLike,
) -> PyTree:
    """The next release of a Brownian mechanism, for budgets that are chosen after looking at the last release.

    With w = (epsilon - spent) / epsilon, the next release is w value + (1 - w) previous plus Gaussian noise of
    variance w order sensitivity^2 / (2 epsilon): the conditional law of Algorithm 3 (equation 62). Given the
    previous release it is a Gaussian mechanism of sensitivity w sensitivity, of divergence epsilon - spent, so by
    adaptive composition all releases so far cost ``epsilon``, whatever rounding did to the previous one.

    Args:
        key: a PRNG key that nothing else uses.
        value: array or pytree of arrays.
        previous: the last release, a pytree like ``value``; before the first one ``value`` or anything of its
            shapes with ``spent`` 0: it is multiplied by 0.
        spent: the epsilon of the last release, 0 before the first one; scalar.
        epsilon: of the next release, at least ``spent`` and above 0; scalar. Equal ones repeat the release.
        order: above 1, scalar; fixed before anything was released.
        sensitivity: l2 sensitivity of the whole tree, > 0, scalar; both the same in every step.

    Returns:
        A pytree like ``value``; NaN where traced parameters make no sense.

    Raises:
        ValueError: concrete parameters out of range.
    """
    check_sizes(epsilon=epsilon, sensitivity=sensitivity)
    check_order(order)
    _validate.number(spent=spent, epsilon=epsilon, order=order, sensitivity=sensitivity)
    _validate.nonnegative(spent=spent)
    _validate.real_arrays(value=value, previous=previous)
    if _validate.shapes(previous) != _validate.shapes(value):
        raise ValueError(f"previous must be a tree like value, {value!r:.200}, got {previous!r:.200}")
    if not _validate.is_traced((spent, epsilon)) and not np.all(np.asarray(spent) <= np.asarray(epsilon)):
        raise ValueError(f"epsilon must be at least what is spent, {spent}, got {epsilon}")
    value, previous, *parameters = settled(value, previous, spent, epsilon, order, sensitivity)
    falls = jnp.asarray(parameters[0]) > jnp.asarray(parameters[1])
    parameters = [side(one) for side, one in zip((above, below, above, above), parameters, strict=True)]
    dtype = caller_dtype()
    with jax.enable_x64(True):
        spent, epsilon, order, sensitivity = (jnp.asarray(v, jnp.float64) for v in parameters)
        sane = (spent >= 0) & ~falls & usable_order(order) & usable(epsilon, sensitivity)
        weight = jnp.where(sane, jnp.maximum(epsilon - spent, 0.0) / epsilon, jnp.nan)
        sigma = sensitivity * jnp.sqrt(0.5 * order / epsilon * weight) * UP

        def draw(leaf_key: Array, leaf: Array, last: ArrayLike) -> Array:
            last = jnp.where(weight < 1, jnp.asarray(last, jnp.float64), 0.0)
            mean = jnp.where(weight > 0, weight * leaf, 0.0) + (1 - weight) * last
            return mean + sigma * _noise.normal(leaf_key, leaf.shape)

        return _noise.released(key, draw, dtype, value, previous)


def gumbel_path(key: Array, scores: ArrayLike, epsilons: ArrayLike, *, sensitivity: ArrayLike) -> Array:
    """Positions of the best of ``scores`` under Gumbel noise of scale 2 sensitivity / epsilons_i, which shrinks.

    Noise of the larger scale is that of the smaller one plus the logarithm of a positive stable variable of index
    c = epsilons_i / epsilons_(i+1), at the smaller scale: with E exponential and E[e^(-t S)] = e^(-t^c), the variable
    (E / S)^c is exponential. So each release is the exponential mechanism at its budget, and the first i are made from
    the noisy scores of the i-th by randomness that no data enter. docs/theorems/gumbel-reduction.md has what they cost.

    Args:
        key: a PRNG key that nothing else uses.
        scores: shape (candidates,), at least 2.
        epsilons: shape (m,), > 0, nowhere falling.
        sensitivity: the most that a score moves between neighbours, > 0, scalar.

    Returns:
        int32[m]. Where traced parameters or scores make no sense, every position is 0, whatever the scores.

    Raises:
        ValueError: concrete parameters out of range, or not of these shapes.
    """
    _validate.numbers(scores=scores)
    if np.ndim(scores) != 1 or np.shape(scores)[0] < 2:
        raise ValueError(f"scores must have shape (candidates,) with at least 2, got shape {np.shape(scores)}")
    _validate.finite(scores=scores)
    check_budgets(epsilons)
    check_sizes(sensitivity=sensitivity)
    _validate.number(sensitivity=sensitivity)
    scores, *parameters = settled(scores, epsilons, sensitivity)
    return _selected(key, scores, below(parameters[0]), above(parameters[1]))


@in_float64
@jax.jit
def _selected(key: Array, scores: ArrayLike, epsilons: ArrayLike, sensitivity: ArrayLike) -> Array:
    scores, epsilons, sensitivity = (jnp.asarray(v, jnp.float64) for v in (scores, epsilons, sensitivity))
    sane = jnp.all(epsilons[1:] >= epsilons[:-1]) & usable(epsilons[0], epsilons[-1], sensitivity)
    sane = sane & jnp.all(jnp.isfinite(scores))
    epsilons = jnp.where(sane, epsilons, 1.0)
    first, second, third = jax.random.split(key, 3)
    shape = (epsilons.size - 1, scores.size)
    last = -jnp.log(-jnp.log(_noise.uniform(first, scores.shape))) / epsilons[-1]
    # Kanter 1975, in logarithms; equal budgets have index 1, for which the variable is 1.
    index = (epsilons[:-1] / epsilons[1:])[:, None]
    angle = np.pi * _noise.uniform(second, shape)
    shrunk = jnp.where(index < 1, 1.0 - index, 0.5)
    size = jnp.log(jnp.sin(index * angle)) - jnp.log(jnp.sin(angle)) / index
    size = size + shrunk / index * (jnp.log(jnp.sin(shrunk * angle)) - jnp.log(-jnp.log(_noise.uniform(third, shape))))
    more = jnp.where(index < 1, size, 0.0) / epsilons[1:, None]
    noise = jnp.cumsum(jnp.concatenate([last[None], more[::-1]]), axis=0)[::-1]
    noisy = scores / (2.0 * sensitivity * UP) + noise
    return jnp.where(sane, first_greatest(noisy), 0).astype(jnp.int32)


def releases(
    noise: Callable[..., Array], key: Array, value: PyTree, epsilons: ArrayLike, order: float, sensitivity: ArrayLike
) -> PyTree:
    """All releases: ``value`` with ``noise`` of each budget, drawn and added in float64.

    There is no less noise than for any numbers that traced parameters were rounded from.

    Returns:
        A pytree like ``value`` whose leaves have one more, leading axis of m releases, in the leaves' float types (the
        caller's for integers; none wider than the caller's). NaN where traced parameters make no sense.

    Raises:
        ValueError: concrete budgets or a sensitivity out of range, or not of these shapes.
    """
    (check_row if noise is fresh else check_budgets)(epsilons)
    check_sizes(sensitivity=sensitivity)
    if np.ndim(sensitivity):
        raise ValueError(f"sensitivity must be a scalar (jax.vmap maps over more), got shape {np.shape(sensitivity)}")
    value, epsilons, sensitivity = settled(value, epsilons, sensitivity)
    return _added(noise, key, value, caller_dtype(), below(epsilons), order, above(sensitivity))


@in_float64
@functools.partial(jax.jit, static_argnames=("noise", "dtype"))
def _added(noise: Callable[..., Array], key: Array, value: object, dtype: str, *parameters: ArrayLike) -> object:
    epsilons, order, sensitivity = (jnp.asarray(v, jnp.float64) for v in parameters)
    rising = jnp.all(epsilons[1:] >= epsilons[:-1]) | (noise is fresh)
    sane = rising & usable(epsilons.min(), epsilons.max(), sensitivity)
    epsilons, sensitivity = jnp.where(sane, epsilons, 1.0), jnp.where(sane, sensitivity, jnp.nan)

    def draw(leaf_key: Array, leaf: Array) -> Array:
        budgets = epsilons.reshape(-1, *([1] * leaf.ndim))
        return leaf + noise(leaf_key, (epsilons.size, *leaf.shape), budgets, order, sensitivity)

    return _noise.released(key, draw, dtype, value)


# Noise of one leaf, of shape (m, ...), for budgets of shape (m, 1, ...).


def brownian(key: Array, shape: tuple[int, ...], epsilons: Array, order: Array, sensitivity: Array) -> Array:
    """A Brownian motion read at T_1 >= ... >= T_m, drawn from its least time upwards, where increments are independent.

    Algorithm 3; equation 63 as corrected: docs/errata.md, 7.
    """
    times = 0.5 * order / epsilons  # at sensitivity 1: its square could underflow
    # Only the variance of each release matters for privacy; the increments need not be exact, just independent.
    increments = jnp.concatenate([jnp.maximum(times[:-1] - times[1:], 0.0), times[-1:]])
    steps = _noise.normal(key, shape) * (sensitivity * jnp.sqrt(increments) * UP)
    return jnp.cumsum(steps[::-1], axis=0)[::-1]


def fresh(key: Array, shape: tuple[int, ...], epsilons: Array, order: Array, sensitivity: Array) -> Array:
    """Independent Gaussians; budgets may rise and fall."""
    return _noise.normal(key, shape) * (sensitivity * jnp.sqrt(0.5 * order / epsilons) * UP)


def precision_weighted(key: Array, shape: tuple[int, ...], epsilons: Array, order: Array, sensitivity: Array) -> Array:
    """The law of `brownian`, from fresh noise (Algorithm 2).

    Release i is the average of i independent Gaussian releases, of variances
    order sensitivity^2 / (2 (epsilons_j - epsilons_(j-1))) and weights proportional to their inverses. Equal
    budgets repeat a release (infinite variance, weight 0).
    """
    # weight / total weight = (eps_j - eps_(j-1)) / eps_i, and weight * deviation stays finite where weight is 0.
    extra = jnp.diff(epsilons, axis=0, prepend=0.0)
    scale = sensitivity * jnp.sqrt(0.5 * order) * UP
    return jnp.cumsum(_noise.normal(key, shape) * (scale * jnp.sqrt(extra)), axis=0) / epsilons


def laplace(key: Array, shape: tuple[int, ...], epsilons: Array, order: Array, sensitivity: Array) -> Array:
    """Laplace noise that shrinks (Ligett et al. 2017; Koufogiannis et al. 2015).

    From the last release upwards, the noise keeps its value with probability (epsilons_(i-1) / epsilons_i)^2 and
    otherwise gains Laplace noise of the larger scale: (1 + b^2 t^2) / (1 + B^2 t^2) = (b/B)^2 + (1 - (b/B)^2) /
    (1 + B^2 t^2) are the characteristic functions of the increment's two descriptions.
    """
    scales = sensitivity / epsilons * UP
    noise_key, coin_key = jax.random.split(key)
    steps = _noise.laplace(noise_key, shape) * scales
    kept = jnp.concatenate([(epsilons[:-1] / epsilons[1:]) ** 2, jnp.zeros_like(epsilons[-1:])])
    steps = jnp.where(_noise.uniform(coin_key, shape) <= kept, 0.0, steps)
    return jnp.cumsum(steps[::-1], axis=0)[::-1]
