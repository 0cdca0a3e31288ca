"""An account for each example over any filter; an example drops out when its budget is spent.

In each step everybody is asked and charged, sampled or not, for the query with noise multiplier sigma / min(norm, clip
norm), and contributes at most that norm, or nothing if refused. Then the whole run has the filter's guarantee for
every data set with and without each example, in both directions (docs/proofs/filters.md, 6, has the proof; Feldman,
Zrnic 2021 for Rényi divergence, Theorem 4.4 of the f-DP filters paper for its Algorithm 3).

docs/how-to/per-example-budgets.md says what that asks of the program around: above all that accounts, and whatever is
computed from them, are never published.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.rounding import deflated
from jaxacct._types import Float, PyTree
from jaxacct.filters import amounts
from jaxacct.filters.accounts.examples import INFINITY, as_bits, check_query, given_norms, settle_norms
from jaxacct.filters.base import Filter, Guarantee, LastStepFilter
from jaxacct.filters.marks import mark_of, put_for, row_of
from jaxacct.filters.queries import for_norms, sensitivity_of
from jaxacct.filters.reasons import PerExampleReasons
from jaxacct.filters.states import filter_class

_STATEMENT = (
    "For every data set, every example in it, and add and remove alike, if each example was charged in every step, "
    "sampled or not, for the norm up to which it could contribute, contributions and accounts depend on other examples "
    "through releases only, and no account, nor who takes part, was published (individual filters: Feldman, Zrnic "
    "2021; proof: docs/proofs/filters.md, theorem 2): "
)


def for_each_example(guarantee: Any) -> Any:
    """A scalar filter's guarantee, with what makes it everybody's."""
    return dataclasses.replace(guarantee, statement=_STATEMENT + guarantee.statement)


class PerExampleState(NamedTuple):
    """What a run carries, private: every example's state, the norm (float32) up to which it takes part, one mark."""

    each: Any
    allowed: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"PerExampleState(private accounts, shape {jnp.shape(self.allowed)})"


@filter_class(PerExampleState, "per_example", "filter", "examples")
class AnyPerExampleFilter(PerExampleReasons):
    """Any filter, once for each example; see `per_example`.

    Attributes:
        filter: everybody's filter.
        examples: how many there are, static.
    """

    filter: Filter
    examples: int = dataclasses.field(metadata={"static": True})

    @property
    def guarantee(self) -> Guarantee:
        """The scalar filter's guarantee for every example; a bound where that is one. See the module."""
        return for_each_example(self.filter.guarantee)

    def init(self) -> PerExampleState:
        """The state in which nobody has spent anything."""
        one = put_for(self.filter, self.filter.init(), None)
        each = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.examples, axis=0), one)
        return PerExampleState(each, jnp.zeros(self.examples, jnp.float32))

    @property
    def _common(self) -> Filter:
        return self.filter

    def _identity(self) -> list[Array]:
        mark = mark_of(self.filter)
        return [] if mark is None else [row_of(mark)]

    def update(self, query: object, norms: ArrayLike, state: PerExampleState) -> tuple[Array, PerExampleState]:
        """Who may take part (bool, shape ``(examples,)``) and the state after the step. Both are private.

        Args:
            query: a `Gaussian` or a `PoissonSampled` one that the filter takes; ``sensitivity`` is the clip norm, in
                the unit of ``norms``. The rate may be one for each example.
            norms: of everybody's gradient, shape ``(examples,)``. An example of norm 0 pays nothing; one whose norm is
                NaN, infinite or negative takes no part.
            state: from `init` or `update`.

        Raises:
            ValueError: another type of query, or norms that are not one float for each example.
        """
        check_query(query, self.examples)
        return _update(self.filter, query, given_norms(norms, self.examples), state)

    def bounds(self, query: object, norms: ArrayLike, state: PerExampleState) -> Array:
        """The norm up to which each example may contribute to the step that ``state`` is *after*; 0 for nothing.

        float32, shape ``(examples,)``. A filter with an ``update_clipped`` shortens the last step of each example to
        what is left. Clip to it again, whatever else has been done: then nobody contributes more than was charged.
        """
        del query, norms
        return state.allowed

    def spent(self, state: PerExampleState) -> Float[Array, "*shape"]:
        """What each example has spent, in the filter's parameter. Private."""
        return _of_all(self.filter, "spent", state)

    def remaining(self, state: PerExampleState) -> Float[Array, "*shape"]:
        """What each example has left, in the filter's parameter. Private."""
        return _of_all(self.filter, "remaining", state)

    def fraction(self, state: PerExampleState) -> Float[Array, "*shape"]:
        """The share of its budget that each example has spent. Private."""
        return _of_all(self.filter, "fraction", state)


def _of_all(filter: Filter, which: str, state: PerExampleState) -> Array:
    """A reading of everybody's state, whose marks are one."""
    own, read = mark_of(filter), getattr(filter, which)
    return jax.vmap(lambda one: read(put_for(filter, one, own)))(state.each)


# In float64: a query's Python floats would otherwise be rounded to the nearest float32, to less noise or to more.
@in_float64
@jax.jit
def _update(filter: Filter, query: object, norms: Array, state: PerExampleState) -> tuple[Array, PerExampleState]:
    norms = settle_norms(norms, norms.shape[0])
    clip = amounts.outward(jnp.asarray(sensitivity_of(query), jnp.float64), "float32", up=True)
    clipped = jnp.where(norms > clip, clip, norms)
    good = (as_bits(norms) > 0) & (as_bits(norms) < INFINITY) & (clip > 0) & (clip < jnp.inf)
    asked = for_norms(query, jnp.where(good, clipped, 1.0))
    asked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, norms.shape), asked)

    own = mark_of(filter)

    def one(query: object, norm: Array, good: Array, bare: PyTree) -> tuple[Array, PyTree]:
        each = put_for(filter, bare, own)
        if isinstance(filter, LastStepFilter):
            admitted, after, scale = filter.update_clipped(query, each)
        else:
            (admitted, after), scale = filter.update(query, each), None
        allowed = jnp.where(admitted & good, norm, 0.0)
        if scale is not None:
            scale = amounts.outward(jnp.asarray(scale, jnp.float64), "float32", up=False)
            # A factor of 1 is exact; below it the product is rounded down by two units.
            allowed = jnp.where(scale >= 1, allowed, jnp.where(scale > 0, deflated(allowed * scale, 2.0**-22), 0.0))
        return allowed, jax.tree.map(
            lambda new, old: jnp.where(allowed > 0, new, old), put_for(filter, after, None), bare
        )

    allowed, each = jax.vmap(one)(asked, clipped, good, state.each)
    return allowed > 0, PerExampleState(each, allowed)
