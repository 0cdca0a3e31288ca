"""Accuracy checks: whether a private score is high enough, at one privacy cost for all answers together.

A check has ``definition``, ``epsilon`` (of all answers it may give), ``start(key)`` and ``ask(key, state, score,
number)``, which returns (passes, reported score). A score must be a finite number on every data set, and change by at
most ``sensitivity`` between neighbours: for accuracy on n validation records that is 1/n where n is a public
constant and the score is (number correct) / n. Rounding counts: a share computed in float32 is off by up to 2^-25,
which moves it by 0.6 % more than 1/n at n = 100,000. The *number* of correct answers, with the threshold as a number
and sensitivity 1, is exact below 2^24; so is, but for 1e-10, a share in float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float32 import above, below
from jaxacct._numerics.float64 import in_float64, settled
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._types import PyTree
from jaxacct.expost import noise as _noise
from jaxacct.expost.definitions import Definition, OfGaussians, PureExPost, RenyiExPost
from jaxacct.expost.parameters import UP, check_order, check_sizes, usable
from jaxacct.expost.scales import plain_gaussian_scale, sparse_vector_scales
from jaxacct.filters.amounts import caller_dtype


class Check(Protocol):
    """A stopping rule whose answers are private together."""

    @property
    def definition(self) -> Definition:
        """The definition of ex-post privacy under which ``epsilon`` counts."""
        ...

    @property
    def epsilon(self) -> ArrayLike:
        """The cost of all answers together."""
        ...

    def start(self, key: Array) -> object:
        """What the check keeps secret between answers."""
        ...

    def ask(self, key: Array, state: PyTree, score: ArrayLike, number: ArrayLike) -> tuple[Array, Array]:
        """Whether the score passes, and a score that may be published (NaN where none may)."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class _Private:
    """Checks of a private score."""

    threshold: ArrayLike
    epsilon: ArrayLike
    sensitivity: ArrayLike

    def __post_init__(self) -> None:
        _validate.finite(threshold=self.threshold)
        check_sizes(epsilon=self.epsilon, sensitivity=self.sensitivity)


class _NoSecret:
    """Checks that keep no secret between answers."""

    def start(self, key: Array) -> None:
        """Returns None."""
        return None


@_register
class PlainGaussian(_NoSecret, OfGaussians, _Private):
    """Scores with Gaussian noise against a threshold, at most ``checks`` of them (Appendix D).

    Asked more often, it answers "no" without looking. All answers and all noisy scores together are
    (order, epsilon)-Rényi; see `plain_gaussian_scale`. With m budgets, m - 1 checks are enough: the last release
    has no successor.

    Attributes:
        threshold: public.
        epsilon: of all checks, > 0.
        sensitivity: of a score, > 0.
        order: above 1, concrete; None if ``epsilon`` is a rho, under `GDPExPost`.
        checks: whole number >= 1, concrete.
    """

    order: float | None = dataclasses.field(metadata={"static": True})
    checks: int = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order is not None:
            _validate.scalar(check_order, order=self.order)
        _validate.count(checks=self.checks)

    def ask(self, key: Array, state: None, score: ArrayLike, number: ArrayLike) -> tuple[Array, Array]:
        """Whether the noisy score reaches the threshold, and the noisy score."""
        epsilon, order = self.epsilon, self.order
        if order is None:  # a rho is half the divergence at order 2
            epsilon, order = 2 * (epsilon if _validate.is_traced(epsilon) else np.asarray(epsilon, np.float64)), 2.0
        sigma = plain_gaussian_scale(epsilon, order=order, sensitivity=self.sensitivity, checks=self.checks)
        score, threshold = settled(score, self.threshold)
        may, dtype = jnp.asarray(number) < self.checks, caller_dtype()
        with jax.enable_x64(True):
            noisy = jnp.where(may, _noisy(key, score, sigma, _noise.normal), jnp.nan)
            return noisy >= jnp.asarray(threshold, jnp.float64), noisy.astype(dtype)


class _NoisyThreshold:
    """Checks that compare noisy scores with a threshold that got its noise once."""

    def ask(self, key: Array, state: tuple[Array, Array], score: ArrayLike, number: ArrayLike) -> tuple[Array, Array]:
        """Whether the score with Laplace noise reaches the noisy threshold, and NaN."""
        (score,), (threshold, scale), dtype = settled(score), state, caller_dtype()
        with jax.enable_x64(True):
            return _noisy(key, score, scale, _noise.laplace) >= threshold, jnp.full((), jnp.nan, dtype)


@_register
class SparseVector(_NoisyThreshold, _Private):
    """A noisy threshold and noisy scores, any number of them, until the first that passes (Zhu, Wang 2020).

    Only the answers are published. See `sparse_vector_scales` for the noise and the proof. After the first "yes"
    it must not be asked again; `release_until` stops there.

    Attributes:
        threshold: public.
        epsilon: Rényi divergence of the whole sequence of answers, > 0.
        sensitivity: of a score, > 0.
        order: above 1, concrete.
    """

    order: float = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.scalar(check_order, order=self.order)

    @property
    def definition(self) -> RenyiExPost:
        """Ex-post Rényi at this order."""
        return RenyiExPost(self.order)

    def start(self, key: Array) -> tuple[Array, Array]:
        """The threshold with its Gaussian noise, and the scale of the scores' noise."""
        sigma, scale = sparse_vector_scales(self.epsilon, order=self.order, sensitivity=self.sensitivity)
        (threshold,) = settled(self.threshold)
        return _noisy(key, threshold, sigma, _noise.normal), scale


@_register
class AboveThreshold(_NoisyThreshold, _Private):
    """The pure-DP sparse vector: Laplace noise on the threshold and on the scores (Dwork, Roth 2014, Theorem 3.23).

    The answers up to the first "yes" are epsilon-DP: half for the threshold at the sensitivity, half for the scores
    at twice that.

    Attributes:
        threshold: public.
        epsilon: of the whole sequence of answers, > 0.
        sensitivity: of a score, > 0.
    """

    definition: ClassVar[Definition] = PureExPost()

    def start(self, key: Array) -> tuple[Array, Array]:
        """The threshold with its noise, and the scale of the scores' noise."""
        threshold, epsilon, sensitivity = settled(self.threshold, self.epsilon, self.sensitivity)
        epsilon, sensitivity = below(epsilon), above(sensitivity)
        with jax.enable_x64(True):
            epsilon, sensitivity = jnp.asarray(epsilon, jnp.float64), jnp.asarray(sensitivity, jnp.float64)
            unit = jnp.where(usable(epsilon, sensitivity), sensitivity / epsilon * UP, jnp.inf)
            return _noisy(key, threshold, 2.0 * unit, _noise.laplace), 4.0 * unit


@_register
class PublicScore(_NoSecret):
    """A threshold for scores that anyone could compute from the release and public data: they cost nothing."""

    threshold: ArrayLike

    definition: ClassVar[Definition] = PureExPost()
    epsilon: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        _validate.finite(threshold=self.threshold)

    def ask(self, key: Array, state: None, score: ArrayLike, number: ArrayLike) -> tuple[Array, Array]:
        """Whether the score reaches the threshold, and the score."""
        return jnp.asarray(score) >= self.threshold, jnp.asarray(score).astype(caller_dtype())


@in_float64
def _noisy(key: Array, value: ArrayLike, scale: Array, law: Callable[[Array, tuple[int, ...]], Array]) -> Array:
    """``value`` with noise; NaN, which passes no comparison, where a traced scale makes no sense."""
    return jnp.asarray(value, jnp.float64) + jnp.where(scale < jnp.inf, scale * law(key, ()), jnp.nan)
