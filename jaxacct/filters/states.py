"""`BaseFilter`: states carry the mark of their filter, which is looked at, taken off and put back here.

A subclass says what a state holds and what queries do to it, of states without marks (:mod:`jaxacct.filters.marks`):
`_fresh`, `_after`, `_spent`, `_remaining` and `_fraction`. `filter_class` makes it a frozen pytree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar, TypeVar, dataclass_transform

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import at_hand, on_device
from jaxacct._numerics.pytree import mechanism
from jaxacct._types import Bool, Float, Int, PyTree
from jaxacct.filters import amounts, marks
from jaxacct.filters.printing import printed_as
from jaxacct.filters.reasons import reason_of

T = TypeVar("T", bound=type)


@dataclass_transform(frozen_default=True, eq_default=False)
def filter_class(state: type, name: str, *shown: str) -> Callable[[T], T]:
    """Makes a class a pytree with states of a type, which prints as the function ``name`` with properties.

    The other arguments are those of `printed_as`.
    """

    def wrap(cls: T) -> T:
        cls._state = state  # type: ignore[attr-defined]
        return printed_as(name, *shown)(mechanism(cls))

    return wrap


class Marked:
    """What makes states of its own, and reads no others.

    The readings of a state of another filter raise ValueError where it is concrete, and fail closed in a program:
    nothing is left, and everything is spent.
    """

    _state: ClassVar[type]
    _fresh: Callable[..., PyTree]
    _spent: Callable[..., PyTree]
    _remaining: Callable[..., PyTree]
    _fraction: Callable[..., PyTree]

    @in_float64
    def init(self) -> PyTree:
        """The state with nothing spent; one account for each entry of the budget's shape."""
        return marks.marked(self, self._fresh())

    def spent(self, state: PyTree) -> PyTree:
        """What has been spent, in the filter's own parameter, rounded up to the caller's float type."""
        return self._read(self._spent, state, up=True)

    def remaining(self, state: PyTree) -> PyTree:
        """What is left, in the filter's own parameter, rounded down to the caller's float type."""
        return self._read(self._remaining, state, up=False)

    def fraction(self, state: PyTree) -> Float[Array, "*shape"]:
        """The share of the budget that is spent, rounded up to the caller's float type; 1 is all of it."""
        return self._read(self._fraction, state, up=True)

    def _owns(self, state: PyTree) -> Array:
        """Whether each account is one of this filter's. Raises ValueError for what is no state of its kind."""
        if not isinstance(state, self._state):
            raise ValueError(
                f"state must be what init or update returned, {self._state.__name__}, got {marks.shown(state)}"
            )
        return marks.belongs(self, state)

    def _read(self, reading: Callable[..., PyTree], state: PyTree, *, up: bool) -> PyTree:
        """A reading, rounded up or down; of a foreign state in a program the largest number there is, or 0."""
        fits = self._owns(state)
        if at_hand(fits) and not np.all(fits):
            marks.check_state(self, state)
        found = amounts.rounded(up=up)(reading)(marks.put(state, None))
        return found if at_hand(fits) else jax.tree.map(functools.partial(_closed, fits, up), found)


class BaseFilter(Marked):
    """What every filter of one account a budget has."""

    _after: Callable[..., tuple[Array, PyTree]]

    def update(self, query: object, state: PyTree) -> tuple[Bool[Array, "*shape"], PyTree]:
        """Whether ``query`` may run (a bool array) and the state after it.

        Args:
            query: what the class takes.
            state: from `init` or `update`. It holds one account for each budget; its shape covers the query's.

        Returns:
            ``(admitted, state)``. NaN, negative and infinite parameters are refused, and so is the state of another
            filter; a refused query leaves the state.

        Raises:
            ValueError: a query of another type, or of a shape that the state does not cover; what is no state.
        """
        admitted, after = self._updated(self._after, query, state)
        return admitted, after

    def reason(self, query: object, state: PyTree, *, admitted: ArrayLike | None = None) -> Int[Array, "*shape"]:
        """Why `update` admits or refuses ``query``: a `Reason`, int32 of the accounts' shape, inside programs too.

        Args:
            query, state: as for `update`.
            admitted: what `update` said of them, if it was asked already.
        """
        return reason_of(self, query, state, self.update(query, state)[0] if admitted is None else admitted)

    def _covers(self, query: object) -> ArrayLike:
        """Whether ``query`` is one that the filter was made for: some state may admit it."""
        del query
        return True

    def _outside(self, query: object) -> str:
        """In what way ``query`` is not covered; nothing where no more is known."""
        del query
        return ""

    def _updated(self, after: Callable[..., PyTree], query: object, state: PyTree, *kinds: str) -> PyTree:
        """What ``after`` makes of a state of this filter's own; one of another filter is refused and left.

        ``kinds`` are the types of what it returns after the state, which is 0 where the query is refused.
        """
        query, fits = given(query), self._owns(state)
        known = at_hand(fits)
        if known and not np.any(fits):
            refused, *scale = on_device([np.zeros(np.shape(fits), kind) for kind in ("bool", *kinds)])
            return refused, state, *scale
        bare = marks.put(state, None)
        admitted, made, *scale = after(query, bare)
        if not (known and np.all(fits)):
            admitted, made = fits & admitted, marks.chosen(fits, made, bare)
            scale = [array_module(fits, one).where(fits, one, array_module(one).zeros_like(one)) for one in scale]
        (mark, *_) = marks.marks_in(state)
        return admitted, marks.put(made, mark), *scale


def given(query: object) -> object:
    """A query once it is known to be none of the containers that NumPy takes for arrays; what is masked is NaN."""
    if isinstance(query, list | dict | set):
        raise ValueError(f"query must be a mechanism, a number or an array, got {_validate.shown(query)}")
    if isinstance(query, np.ma.MaskedArray):
        query = np.ma.filled(query.astype(float), np.nan)
    _validate.plain(query=query)
    return query


def _closed(fits: Array, up: bool, value: Array) -> Array:
    """``value`` where ``fits``, of which it may have further axes; else what is the safe side."""
    xp = array_module(fits, value)
    most = np.inf if value.dtype.kind == "f" else True if value.dtype.kind == "b" else np.iinfo(value.dtype).max
    axes = (1,) * max(value.ndim - fits.ndim, 0)
    return xp.where(
        xp.reshape(fits, fits.shape + axes) if axes else fits, value, xp.full_like(value, most if up else 0)
    )
