"""`Reason`: why a filter admits or refuses a query, as a number inside programs and as a sentence outside."""

from __future__ import annotations

import enum
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._types import PyTree
from jaxacct.filters.base import is_scalar_query
from jaxacct.filters.marks import belongs
from jaxacct.filters.queries import as_sampled_gaussian, parts_of


class Reason(enum.IntEnum):
    """What `reason` of a filter returns, as an int32."""

    ADMITTED = 0
    SPENT = 1
    """The query costs more than is left, or may not follow those that ran."""
    OUTSIDE = 2
    """No state admits it: it is none of the queries that the filter was made for."""
    INVALID = 3
    """A parameter, or a norm, is NaN or out of its domain."""
    HALTED = 4
    """The run had ended before; a training loop's reason, of no filter by itself."""
    FOREIGN_STATE = 5
    """The state was made by another filter."""


_SENTENCES = {
    Reason.ADMITTED: "the query is admitted",
    Reason.SPENT: "the query costs more than is left of the budget",
    Reason.OUTSIDE: "the query is outside of what this filter was made for",
    Reason.INVALID: "the query has a parameter that is NaN or out of its domain",
    Reason.HALTED: "the run had been refused a query, or had spent its budget, and goes on no more",
    Reason.FOREIGN_STATE: "the state was made by another filter; filters.check_state says more",
}


def sentence(reason: ArrayLike, filter: object = None, query: object = None) -> str:
    """A reason in words; of a query outside of its filter's range, with the numbers.

    Args:
        reason: from `reason` of a filter, or a training report; a concrete number.
        filter, query: what was asked, if the sentence is to name the numbers.

    Raises:
        ValueError: a number that is no `Reason`.
    """
    _validate.scalar(reason=reason)
    if _validate.is_traced(reason) or float(np.asarray(reason)) not in list(Reason):
        raise ValueError(f"reason must be one filters.Reason, got {reason!r:.200}")
    found = Reason(int(np.asarray(reason)))
    outside = getattr(filter, "_outside", None)
    if found is Reason.OUTSIDE and outside is not None and query is not None:
        return outside(query) or _SENTENCES[found]
    return _SENTENCES[found]


class Covering(Protocol):
    """A filter that knows which queries it was made for."""

    def _covers(self, query: PyTree) -> ArrayLike: ...


def reason_of(filter: Covering, query: object, state: object, admitted: ArrayLike) -> Array:
    """`reason` of a filter whose `update` said ``admitted``; of one for each example ``query`` is a pair with norms."""
    with jax.enable_x64(True):
        admitted = jnp.asarray(admitted)
        found = jnp.where(_shaped(filter._covers(query), admitted), np.int32(Reason.SPENT), np.int32(Reason.OUTSIDE))
        for wrong in _wrong(query):
            found = jnp.where(_shaped(wrong, admitted), np.int32(Reason.INVALID), found)
        found = jnp.where(_shaped(belongs(filter, state), admitted), found, np.int32(Reason.FOREIGN_STATE))
        return jnp.where(admitted, np.int32(Reason.ADMITTED), found)


def _shaped(value: ArrayLike, like: Array) -> Array:
    """A truth for each account; a query's further axes, as of a law's masses, count together."""
    value = jnp.asarray(value)
    while value.ndim > like.ndim:
        value = value.any(-1)
    return jnp.broadcast_to(value, like.shape)


def _wrong(query: object) -> list[Array]:
    """Where each parameter of a query, or of one with norms, makes no sense."""
    if isinstance(query, tuple):
        query, norms = query
        return [*_wrong(query), ~((jnp.asarray(norms) > 0) & jnp.isfinite(jnp.asarray(norms)))]
    if isinstance(query, np.ma.MaskedArray):
        query = np.ma.filled(query.astype(float), np.nan)
    numbers = [query] if is_scalar_query(query) else []
    for part, _ in [] if numbers else parts_of(query):
        gaussian = as_sampled_gaussian(part)
        numbers.extend(jax.tree.leaves(part) if gaussian is None else gaussian)
    return [~(jnp.asarray(number) >= 0) for number in numbers]
