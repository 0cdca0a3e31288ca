"""Discrete Laplace (two-sided geometric) noise on whole numbers."""

from __future__ import annotations

from typing import Any

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import mechanism
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.discrete_laplace import DiscreteLaplacePair
from jaxacct.mechanisms.parameters import positive, whole_number

__all__ = ["DiscreteLaplace"]


@mechanism
class DiscreteLaplace(Mechanism):
    """Adds X with Pr[X = x] proportional to exp(-|x| / scale), x whole, to a count that moves by ``sensitivity``.

    The geometric mechanism of Ghosh, Roughgarden, Sundararajan 2009: (sensitivity / scale)-DP, and better than that in
    (epsilon, delta) if the sensitivity is above 1. X is log-concave, so the shift by the whole sensitivity dominates
    all smaller ones, and symmetric, so `add`, `remove` and `replace` have one curve; the sensitivity is that *for the
    relation in question*.

    Attributes:
        scale: > 0, in the units of the query; any shape.
        sensitivity: a whole number >= 1; any shape, broadcasts with ``scale``.

    Raises:
        ValueError: a concrete ``scale`` that is not a finite number above 0, a ``sensitivity`` that is not whole.
    """

    scale: ArrayLike
    sensitivity: ArrayLike = 1

    def __post_init__(self) -> None:
        _validate.positive(scale=self.scale)
        _validate.count(sensitivity=self.sensitivity)

    @property
    def _symmetric(self) -> bool:
        return True

    def _dominating(self, relation: str) -> list[tuple[Any, Any]]:
        return [(DiscreteLaplacePair(positive(self.scale), whole_number(self.sensitivity, 1.0)), 1.0)]
