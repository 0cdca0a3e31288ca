"""The filter protocol: `init` and `update` over a small state, and a guarantee that names its theorem."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._types import Bool, Float, Int, Num, PyTree
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid


@runtime_checkable
class Guarantee(Protocol):
    """What holds for the whole interaction, however adaptively the queries were chosen."""

    @property
    def statement(self) -> str:
        """A sentence that names the theorem and its assumptions."""
        ...

    @property
    def is_bound(self) -> bool:
        """True for a proven bound; False for an approximation, whose `statement` says so in words."""
        ...

    def epsilon(self, delta: ArrayLike) -> Array:
        """The epsilon of the whole interaction at ``delta`` in (0, 1), rounded up; a float64 array."""
        ...

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta of the whole interaction at ``epsilon`` >= 0, rounded up; a float64 array."""
        ...

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The whole privacy curve of the interaction, from above; a budget with a shape gives a batch of curves."""
        ...


class Filter(Protocol):
    """A budget for an analyst who chooses each query after seeing all earlier outputs.

    Filters are frozen pytrees whose budgets are leaves: pass them through ``jit``, map over them with
    ``vmap``; changing a budget does not retrace. All methods are pure.
    """

    @property
    def guarantee(self) -> Guarantee:
        """What the whole interaction satisfies, provided that every refusal was obeyed."""
        ...

    def init(self) -> PyTree:
        """The state with nothing spent."""
        ...

    def update(self, query: object, state: PyTree) -> tuple[Bool[Array, "*shape"], PyTree]:
        """Whether ``query`` may run, and the state after it; a refused query leaves the state as it was."""
        ...

    def reason(self, query: object, state: PyTree, *, admitted: ArrayLike | None = None) -> Int[Array, "*shape"]:
        """Why ``query`` is admitted or refused: a `jaxacct.filters.Reason`, int32, inside programs too."""
        ...

    def spent(self, state: PyTree) -> Num[Array, "*shape"]:
        """What has been spent, in the filter's own parameter, rounded up to the caller's float type."""
        ...

    def remaining(self, state: PyTree) -> Array:
        """What is left, in the filter's own parameter, rounded down to the caller's float type."""
        ...

    def fraction(self, state: PyTree) -> Float[Array, "*shape"]:
        """The share of the budget that is spent, for a progress bar."""
        ...


@runtime_checkable
class ReasonFilter(Protocol):
    """A filter that says why it admits or refuses a query, as all of the package do."""

    def reason(self, query: object, state: PyTree, *, admitted: ArrayLike | None = None) -> Int[Array, "*shape"]:
        """Why ``query`` is admitted or refused: a `jaxacct.filters.Reason`, int32, inside programs too."""
        ...


@runtime_checkable
class LastStepFilter(Protocol):
    """A filter that shortens a last step to what is left, in place of refusing it."""

    def update_clipped(
        self, query: object, state: PyTree
    ) -> tuple[Bool[Array, "*shape"], PyTree, Float[Array, "*shape"]]:
        """Whether ``query`` may run, the state after it, and what its contributions are to be multiplied with."""
        ...


@runtime_checkable
class ExamplesFilter(Protocol):
    """A filter with an account for each example, as `per_example` makes it."""

    examples: int

    def bounds(self, query: object, norms: ArrayLike, state: PyTree) -> Array:
        """The norm up to which each example may contribute to the step that ``state`` is after."""
        ...


class Around:
    """A filter around another, ``filter``, whose states and marks it has."""

    filter: Any


def is_scalar_query(query: object) -> TypeGuard[ArrayLike]:
    """Whether ``query`` is a real number (or array, or tracer) that JAX can hold, rather than a mechanism."""
    if isinstance(query, int):
        return not isinstance(query, bool) and query.bit_length() < 64
    if isinstance(query, np.ndarray | np.generic | jax.Array):
        return jnp.issubdtype(query.dtype, jnp.floating) or query.dtype.kind in ("i", "u")
    return isinstance(query, float)
