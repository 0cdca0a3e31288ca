"""What `release_until` releases: a private value behind a noise-reduction mechanism.

A source has ``definition``, ``path(key, epsilons)`` (all releases, with a leading axis) and ``spent(epsilons, path)``
(the ex-post epsilon of the first i releases, for every i). Anything with these three will do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._numerics.rounding import inflated
from jaxacct._types import PyTree
from jaxacct.expost.definitions import Definition, OfGaussians, PureExPost
from jaxacct.expost.parameters import check_order, check_sizes
from jaxacct.expost.reduction import brownian, fresh, gumbel_path, laplace, precision_weighted, releases


class Source(Protocol):
    """A private value and the law of its successive releases."""

    @property
    def definition(self) -> Definition:
        """The definition of ex-post privacy under which the epsilons count."""
        ...

    def path(self, key: Array, epsilons: ArrayLike) -> PyTree:
        """All releases, a pytree with a leading axis of the budgets; private until released one by one."""
        ...

    def spent(self, epsilons: ArrayLike, path: PyTree) -> ArrayLike:
        """The ex-post epsilon of releases 1 to i, shape (m,), float64 where the budgets are concrete.

        Entry i may depend on these releases, the first i of ``path``, and on no later ones.
        """
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class _Reduction:
    """Sources whose latest release holds all earlier ones: they cost what the latest one does.

    ``value`` is an array or pytree of arrays, any shapes; the whole tree is one value.
    """

    value: object
    sensitivity: ArrayLike

    _noise: ClassVar[Callable[..., Array]]

    def __post_init__(self) -> None:
        check_sizes(sensitivity=self.sensitivity)

    def path(self, key: Array, epsilons: ArrayLike) -> PyTree:
        """All releases, as a pytree with a leading axis of the budgets; see `jaxacct.expost.reduction`.

        Args:
            key: a PRNG key that nothing else uses.
            epsilons: shape (m,), > 0; nowhere falling but for `Doubling`.

        Raises:
            ValueError: concrete numbers out of range, or not of these shapes.
        """
        # Gaussian noise of budgets rho is that of any order times rho.
        order = getattr(self, "order", None) or 1.0
        return releases(type(self)._noise, key, self.value, epsilons, order, self.sensitivity)

    def spent(self, epsilons: ArrayLike, path: object) -> ArrayLike:
        """The budgets: the first i releases cost what the i-th does alone."""
        return epsilons


@dataclasses.dataclass(frozen=True, eq=False)
class _Gaussian(OfGaussians, _Reduction):
    """Sources with Gaussian noise.

    Attributes:
        value: array or pytree.
        sensitivity: l2 sensitivity of the whole tree.
        order: above 1, concrete; without it budgets are rho and count under `GDPExPost`.
    """

    order: float | None = dataclasses.field(default=None, metadata={"static": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order is not None:
            _validate.scalar(check_order, order=self.order)


@_register
class Brownian(_Gaussian):
    """The Brownian mechanism: ``value`` plus a Brownian motion read backwards (Algorithm 3).

    The releases 1 to i are ex-post Rényi at ``order`` with epsilon = epsilons_i, also where i was chosen by looking at
    them (Section 5).
    """

    _noise: ClassVar[Callable[..., Array]] = brownian


@_register
class PrecisionWeighted(_Gaussian):
    """The sequential precision-weighted Gaussian mechanism (Algorithm 2): the law of `Brownian`, from fresh noise."""

    _noise: ClassVar[Callable[..., Array]] = precision_weighted


@_register
class LaplaceReduction(_Reduction):
    """Laplace noise reduction; ``sensitivity`` is in l1. The releases 1 to i are pure ex-post private at epsilons_i."""

    _noise: ClassVar[Callable[..., Array]] = laplace
    definition: ClassVar[Definition] = PureExPost()


@_register
class GumbelReduction:
    """The exponential mechanism with noise reduction: the best candidate under Gumbel noise that shrinks.

    Release i is a position, drawn with probability proportional to exp(epsilons_i u / (2 sensitivity)): the exponential
    mechanism at epsilons_i, but for the rounding of noise in float64. The first i releases together are pure ex-post
    private at d epsilons_i, d the number of *different* positions among them, at most one less than there are
    candidates. See `gumbel_path`. Fresh draws cost epsilons_1 + ... + epsilons_i instead; under `ZCDPExPost`, an eighth
    of the sum of their squares.

    Attributes:
        scores: u, shape (candidates,), at least 2.
        sensitivity: the most that a score moves between neighbours, > 0.
    """

    scores: ArrayLike
    sensitivity: ArrayLike

    definition: ClassVar[Definition] = PureExPost()

    def __post_init__(self) -> None:
        check_sizes(sensitivity=self.sensitivity)

    def path(self, key: Array, epsilons: ArrayLike) -> Array:
        """All selected positions, int32[m]."""
        return gumbel_path(key, self.scores, epsilons, sensitivity=self.sensitivity)

    @in_float64
    def spent(self, epsilons: ArrayLike, path: ArrayLike) -> Array:
        """Different positions so far times the budget, rounded up."""
        chosen = jnp.asarray(path)
        earlier = jnp.tril(chosen[:, None] == chosen[None, :], -1).any(-1)
        different = jnp.minimum(jnp.cumsum(~earlier), np.shape(self.scores)[0] - 1)
        return inflated(different * jnp.asarray(epsilons, jnp.float64), 2.0**-52)


@_register
class Doubling(_Gaussian):
    """The baseline without noise reduction: a fresh Gaussian release for every budget, whose costs add up.

    Release i is (order, epsilons_i)-Rényi on its own, and the first i cost epsilons_1 + ... + epsilons_i
    (Section 4). With budgets that double, the sum is less than twice the last: the doubling method of Ligett et
    al. 2017, Section 1. Budgets may be any positive numbers.
    """

    _noise: ClassVar[Callable[..., Array]] = fresh

    @in_float64
    def spent(self, epsilons: ArrayLike, path: object) -> ArrayLike:
        """The running sums, rounded up."""
        row = jnp.asarray(epsilons, jnp.float64)
        return inflated(jnp.cumsum(row), 2.0**-50 * row.shape[0])
