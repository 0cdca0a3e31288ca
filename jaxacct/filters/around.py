"""`AroundFilter`: base of the filters that pass on what they do not say themselves."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._types import Bool, Float, PyTree
from jaxacct.filters.base import Around, Guarantee
from jaxacct.filters.states import BaseFilter


class AroundFilter(Around, BaseFilter):
    """A filter around another, ``filter``, whose state it has; what a subclass does not say is the inner filter's."""

    @property
    def guarantee(self) -> Guarantee:
        """The inner filter's."""
        return self.filter.guarantee

    def init(self) -> PyTree:
        """The inner filter's state with nothing spent."""
        return self.filter.init()

    def update(self, query: object, state: PyTree) -> tuple[Bool[Array, "*shape"], PyTree]:
        """Whether ``query`` may run, and the state after it; arguments and errors as the inner filter's."""
        return self.filter.update(query, state)

    def spent(self, state: PyTree) -> PyTree:
        """What has been spent, in the inner filter's own parameter, rounded up, in the caller's float type."""
        return self.filter.spent(state)

    def remaining(self, state: PyTree) -> PyTree:
        """What is left, in the inner filter's own parameter, rounded down, in the caller's float type."""
        return self.filter.remaining(state)

    def fraction(self, state: PyTree) -> Float[Array, "*shape"]:
        """The share of the inner filter's budget that is spent, rounded up, in the caller's float type."""
        return self.filter.fraction(state)

    def _covers(self, query: object) -> ArrayLike:
        return self.filter._covers(query)

    def _outside(self, query: object) -> str:
        return self.filter._outside(query)
