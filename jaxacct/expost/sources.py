"""What `release_until` releases: a private value behind a noise-reduction mechanism.

A source has ``definition``, ``path(key, epsilons)`` (all releases, with a leading axis) and ``spent(epsilons)`` (the
ex-post epsilon of the first i releases, for every i). Anything with these three will do.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float32 import above, below
from jaxacct._numerics.float64 import in_float64, settled
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._numerics.rounding import inflated
from jaxacct.expost import noise as _noise
from jaxacct.expost.definitions import AtOneOrder, Definition, PureExPost
from jaxacct.expost.parameters import UP, check_order, check_row, check_sizes, usable, usable_order
from jaxacct.expost.reduction import brownian_path, laplace_path, precision_weighted_path
from jaxacct.filters.amounts import caller_dtype


class Source(Protocol):
    """A private value and the law of its successive releases."""

    @property
    def definition(self) -> Definition:
        """The definition of ex-post privacy under which the epsilons count."""
        ...

    def path(self, key: Array, epsilons: ArrayLike) -> Any:
        """All releases, a pytree with a leading axis of the budgets; private until released one by one."""
        ...

    def spent(self, epsilons: ArrayLike) -> ArrayLike:
        """The ex-post epsilon of releases 1 to i, shape (m,), float64 where the budgets are concrete."""
        ...


class _Reduction:
    """Sources whose latest release holds all earlier ones: they cost what the latest one does."""

    def spent(self, epsilons: ArrayLike) -> ArrayLike:
        """The budgets: the first i releases cost what the i-th does alone."""
        return epsilons


@dataclasses.dataclass(frozen=True, eq=False)
class _Gaussian(AtOneOrder):
    """Sources with Gaussian noise.

    Attributes:
        value: array or pytree.
        sensitivity: l2 sensitivity of the whole tree.
        order: above 1, concrete.
    """

    value: object
    sensitivity: ArrayLike
    order: float = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        _validate.scalar(check_order, order=self.order)
        check_sizes(sensitivity=self.sensitivity)


@_register
class Brownian(_Reduction, _Gaussian):
    """The Brownian mechanism; see `brownian_path` for the arguments and the theorem."""

    def path(self, key: Array, epsilons: ArrayLike) -> Any:
        """All releases, as a pytree with a leading axis of the budgets."""
        return brownian_path(key, self.value, epsilons, order=self.order, sensitivity=self.sensitivity)


@_register
class PrecisionWeighted(_Reduction, _Gaussian):
    """The sequential precision-weighted Gaussian mechanism; see `precision_weighted_path`."""

    def path(self, key: Array, epsilons: ArrayLike) -> Any:
        """All releases, as a pytree with a leading axis of the budgets."""
        return precision_weighted_path(key, self.value, epsilons, order=self.order, sensitivity=self.sensitivity)


@_register
class LaplaceReduction(_Reduction):
    """Laplace noise reduction; see `laplace_path` (``sensitivity`` is in l1)."""

    value: object
    sensitivity: ArrayLike

    definition: ClassVar[Definition] = PureExPost()

    def __post_init__(self) -> None:
        check_sizes(sensitivity=self.sensitivity)

    def path(self, key: Array, epsilons: ArrayLike) -> Any:
        """All releases, as a pytree with a leading axis of the budgets."""
        return laplace_path(key, self.value, epsilons, sensitivity=self.sensitivity)


@_register
class Doubling(_Gaussian):
    """The baseline without noise reduction: a fresh Gaussian release for every budget, whose costs add up.

    Release i is (order, epsilons_i)-Rényi on its own, and the first i cost epsilons_1 + ... + epsilons_i
    (Section 4). With budgets that double, the sum is less than twice the last: the doubling method of Ligett et
    al. 2017, Section 1. Budgets may be any positive numbers.
    """

    def path(self, key: Array, epsilons: ArrayLike) -> Any:
        """All releases, independent of one another given the value."""
        check_row(epsilons)
        (value, row, scale), dtype = settled(self.value, epsilons, self.sensitivity), caller_dtype()
        row, scale = below(row), above(scale)
        with jax.enable_x64(True):
            row, scale = jnp.asarray(row, jnp.float64), jnp.asarray(scale, jnp.float64)
            sane = jnp.all(usable(row)) & usable(scale) & usable_order(jnp.float64(self.order))
            sigmas = jnp.where(sane, scale * jnp.sqrt(0.5 * self.order / row) * UP, jnp.nan)

            def draw(leaf_key: Array, leaf: Array) -> Array:
                noise = _noise.normal(leaf_key, (row.size, *leaf.shape))
                return leaf + noise * sigmas.reshape(-1, *([1] * leaf.ndim))

            return _noise.released(key, draw, dtype, value)

    @in_float64
    def spent(self, epsilons: ArrayLike) -> ArrayLike:
        """The running sums, rounded up."""
        row = jnp.asarray(epsilons, jnp.float64)
        return inflated(jnp.cumsum(row), 2.0**-50 * row.shape[0])
