"""Clip norms: a fixed one, or from `adaptive_clip` one that moves towards a quantile of the gradients' norms."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree

_LEAST, _MOST = 1e-6, 1e6  # norms


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["norm"], meta_fields=["quantile", "learning_rate", "weight"]
)
@dataclasses.dataclass(frozen=True)
class AdaptiveClip:
    """A clip norm and how it moves; made by :func:`adaptive_clip`. A fixed one counts nothing: its weight is 0.

    Attributes:
        norm: () float32, the L2 norm that gradients are clipped to now; a release.
        quantile: the share of gradients that are to be no longer.
        learning_rate: of the logarithm of the norm.
        weight: of the count in a record's vector, in [0, 1).
    """

    norm: ArrayLike
    quantile: float
    learning_rate: float
    weight: float

    @property
    def bound(self) -> jax.Array:
        """The L2 norm of what a record adds, gradient and count together: the unit of the noise."""
        return jnp.asarray(self.norm, jnp.float32) / (1.0 - self.weight**2) ** 0.5

    @property
    def counts(self) -> bool:
        """Whether records add a count beside their gradients, so that the norm can move."""
        return self.weight > 0

    @property
    def told(self) -> ArrayLike:
        """What a state says of it: the norm, a release, where it moves, else 0."""
        return self.norm if self.counts else jnp.float32(0.0)

    def at(self, norm: ArrayLike) -> AdaptiveClip:
        """The same rule at another norm; at its own where ``norm`` is not above 0, and where it does not move."""
        return (
            dataclasses.replace(self, norm=jnp.where(jnp.asarray(norm) <= 0, self.norm, norm)) if self.counts else self
        )

    def added(self, gradient: PyTree, count: ArrayLike = 0.0) -> PyTree:
        """What a record adds, or its shapes: its gradient, and beside it a count where the norm moves."""
        return (gradient, count) if self.counts else gradient

    def moved(self, count: jax.Array) -> AdaptiveClip:
        """The next clip norm: the geometric step of Andrew et al. 2021.

        ``count`` is the released mean, over the expected sample, of what each record adds: plus or minus ``weight``
        times ``bound``.
        """
        inside = 0.5 + 0.5 * count / (self.weight * self.bound)
        norm = jnp.asarray(self.norm, jnp.float32) * jnp.exp(-self.learning_rate * (inside - self.quantile))
        return dataclasses.replace(self, norm=jnp.clip(norm, _LEAST, _MOST))


def as_clip(clip_norm: ArrayLike | AdaptiveClip) -> AdaptiveClip:
    """A clip norm that moves, or a number as one that does not; what it is, is not checked."""
    return clip_norm if isinstance(clip_norm, AdaptiveClip) else AdaptiveClip(clip_norm, 0.5, 0.0, 0.0)


def adaptive_clip(
    quantile: float = 0.5, *, start: float = 1.0, learning_rate: float = 0.2, weight: float = 0.1
) -> AdaptiveClip:
    """A clip norm for `make_step` and `noisy_gradient` that follows a quantile of the gradients' norms.

    Each record adds one vector: its clipped gradient, and beside it one coordinate that says whether the gradient was
    no longer than the norm (plus) or clipped (minus). That vector is no longer than
    ``bound = norm / sqrt(1 - weight^2)`` and gets noise of ``sigma * bound`` as a whole. So it is *one* Gaussian query
    of multiplier ``sigma``, which is what the filter is asked: the clip norm of a step may depend on all releases
    before. The norm is then multiplied by exp(-learning_rate * (share - quantile)), of the released share of gradients
    that were not clipped; it stays between 1e-6 and 1e6.

    This is Andrew, Thakkar, McMahan and Ramaswamy 2021 ("Differentially private learning with adaptive clipping",
    Theorem 1): the gradient has the multiplier z = sigma / sqrt(1 - weight^2) and the count, centred, the deviation
    s = sigma / (2 weight), so that z^-2 + (2 s)^-2 = sigma^-2.

    Args:
        quantile: the share of gradients that are not to be clipped, in (0, 1).
        start: the clip norm of the first step; public.
        learning_rate: how fast the norm moves.
        weight: the count's coordinate, as a share of the vector, in (0, 1). At 0.1 the gradient has 0.5 % more noise,
            and the share of a sample of m records is known up to a deviation of 5 sigma / m.

    Raises:
        ValueError: numbers out of range.
    """
    _validate.scalar(_validate.probability, quantile=quantile, weight=weight)
    _validate.scalar(_validate.positive, learning_rate=learning_rate)
    _validate.scalar(start=start)
    _validate.at_least(_LEAST, start=start)
    _validate.at_most(_MOST, start=start)
    return AdaptiveClip(jnp.float32(start), float(quantile), float(learning_rate), float(weight))
