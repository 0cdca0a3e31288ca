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
from typing import Any, Protocol

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float64 import reentrant_x64, settled
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct.expost import noise as _noise
from jaxacct.expost.definitions import Definition, PureExPost, RenyiExPost
from jaxacct.expost.parameters import UP, check_sizes, usable
from jaxacct.expost.scales import plain_gaussian_scale, sparse_vector_scales
from jaxacct.filters.amounts import caller_dtype


class Check(Protocol):
    """A stopping rule whose answers are private together."""

    @property
    def definition(self) -> Definition:
        """What ``epsilon`` means."""
        ...

    @property
    def epsilon(self) -> ArrayLike:
        """The cost of all answers together."""
        ...

    def start(self, key: Array) -> Any:
        """What the check keeps secret between answers."""
        ...

    def ask(self, key: Array, state: Any, score: ArrayLike, number: ArrayLike) -> tuple[Array, Array]:
        """Whether the score passes, and a score that may be published (NaN where none may)."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class _AtOneOrder:
    """Checks with a Rényi cost."""

    threshold: ArrayLike
    epsilon: ArrayLike
    sensitivity: ArrayLike
    order: float = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        RenyiExPost(self.order)  # concrete and above 1
        _validate.finite(threshold=self.threshold)
        check_sizes(order=self.order, epsilon=self.epsilon, sensitivity=self.sensitivity)

    @property
    def definition(self) -> Definition:
        """Rényi at this order."""
        return RenyiExPost(self.order)


@_register
class PlainGaussian(_AtOneOrder):
    """Scores with Gaussian noise against a threshold, at most ``checks`` of them (Appendix D).

    Asked more often, it answers "no" without looking. All answers and all noisy scores together are
    (order, epsilon)-Rényi; see `plain_gaussian_scale`. With m budgets, m - 1 checks are enough: the last release
    has no successor.

    Attributes:
        threshold: public.
        epsilon: of all checks, > 0.
        sensitivity: of a score, > 0.
        order: above 1, concrete.
        checks: whole number >= 1, concrete.
    """

    checks: int = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.count(checks=self.checks)

    def start(self, key: Array) -> None:
        """Nothing to keep."""
        return None

    def ask(self, key: Array, state: None, score: ArrayLike, number: ArrayLike) -> tuple[Array, Array]:
        """Whether the noisy score reaches the threshold, and the noisy score."""
        sigma = plain_gaussian_scale(self.epsilon, order=self.order, sensitivity=self.sensitivity, checks=self.checks)
        score, threshold = settled(score, self.threshold)
        return _noisy(key, score, sigma, threshold, jnp.asarray(number) < self.checks, caller_dtype())


class _NoisyThreshold:
    """Checks that compare noisy scores with a threshold that got its noise once."""

    def ask(self, key: Array, state: tuple[Array, Array], score: ArrayLike, number: ArrayLike) -> tuple[Array, Array]:
        """Whether the score with Laplace noise reaches the noisy threshold, and NaN."""
        (score,), (threshold, scale) = settled(score), state
        return _above(key, score, threshold, scale, caller_dtype())


@_register
class SparseVector(_NoisyThreshold, _AtOneOrder):
    """A noisy threshold and noisy scores, any number of them, until the first that passes (Zhu, Wang 2020).

    Only the answers are published. See `sparse_vector_scales` for the noise and the proof. After the first "yes"
    it must not be asked again; `release_until` stops there.

    Attributes:
        threshold: public.
        epsilon: Rényi divergence of the whole sequence of answers, > 0.
        sensitivity: of a score, > 0.
        order: above 1, concrete.
    """

    def start(self, key: Array) -> tuple[Array, Array]:
        """The threshold with its Gaussian noise, and the scale of the scores' noise."""
        sigma, scale = sparse_vector_scales(self.epsilon, order=self.order, sensitivity=self.sensitivity)
        (threshold,) = settled(self.threshold)
        return _threshold(key, threshold, sigma, "normal"), scale


@_register
class AboveThreshold(_NoisyThreshold):
    """The pure-DP sparse vector: Laplace noise on the threshold and on the scores (Dwork, Roth 2014, Theorem 3.23).

    The answers up to the first "yes" are epsilon-DP: half for the threshold at the sensitivity, half for the scores
    at twice that.

    Attributes:
        threshold: public.
        epsilon: of the whole sequence of answers, > 0.
        sensitivity: of a score, > 0.
    """

    threshold: ArrayLike
    epsilon: ArrayLike
    sensitivity: ArrayLike

    def __post_init__(self) -> None:
        _validate.finite(threshold=self.threshold)
        check_sizes(epsilon=self.epsilon, sensitivity=self.sensitivity)

    @property
    def definition(self) -> Definition:
        """Pure."""
        return PureExPost()

    def start(self, key: Array) -> tuple[Array, Array]:
        """The threshold with its noise, and the scale of the scores' noise."""
        threshold, epsilon, sensitivity = settled(self.threshold, self.epsilon, self.sensitivity)
        first, second = _halves(epsilon, sensitivity)
        return _threshold(key, threshold, first, "laplace"), second


@_register
class PublicScore:
    """A threshold for scores that anyone could compute from the release and public data: they cost nothing."""

    threshold: ArrayLike

    def __post_init__(self) -> None:
        _validate.finite(threshold=self.threshold)

    @property
    def definition(self) -> Definition:
        """Pure, with epsilon 0."""
        return PureExPost()

    @property
    def epsilon(self) -> float:
        """Nothing."""
        return 0.0

    def start(self, key: Array) -> None:
        """Nothing to keep."""
        return None

    def ask(self, key: Array, state: None, score: ArrayLike, number: ArrayLike) -> tuple[Array, Array]:
        """Whether the score reaches the threshold, and the score."""
        return jnp.asarray(score) >= self.threshold, jnp.asarray(score).astype(caller_dtype())


# Traced scales that make no sense are infinite or NaN: a comparison with NaN is never passed.


@reentrant_x64
def _noisy(
    key: Array, score: ArrayLike, sigma: Array, threshold: ArrayLike, may: Array, dtype: str
) -> tuple[Array, Array]:
    noise = jnp.where(sigma < jnp.inf, sigma * _noise.normal(key, ()), jnp.nan)
    noisy = jnp.where(may, jnp.asarray(score, jnp.float64) + noise, jnp.nan)
    return noisy >= jnp.asarray(threshold, jnp.float64), noisy.astype(dtype)


@reentrant_x64
def _threshold(key: Array, threshold: ArrayLike, scale: Array, law: str) -> Array:
    noise = _noise.normal(key, ()) if law == "normal" else _noise.laplace(key, ())
    return jnp.asarray(threshold, jnp.float64) + jnp.where(scale < jnp.inf, scale * noise, jnp.nan)


@reentrant_x64
def _halves(epsilon: ArrayLike, sensitivity: ArrayLike) -> tuple[Array, Array]:
    epsilon, sensitivity = jnp.asarray(epsilon, jnp.float64), jnp.asarray(sensitivity, jnp.float64)
    unit = jnp.where(usable(epsilon, sensitivity), sensitivity / epsilon * UP, jnp.inf)
    return 2.0 * unit, 4.0 * unit


@reentrant_x64
def _above(key: Array, score: ArrayLike, threshold: Array, scale: Array, dtype: str) -> tuple[Array, Array]:
    noise = jnp.where(scale < jnp.inf, scale * _noise.laplace(key, ()), jnp.nan)
    return jnp.asarray(score, jnp.float64) + noise >= threshold, jnp.full((), jnp.nan, dtype)
