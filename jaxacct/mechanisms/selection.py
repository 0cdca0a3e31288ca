"""Private selection: the exponential mechanism and permute-and-flip."""

from __future__ import annotations

from typing import Any

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import mechanism
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.bounded_range import BoundedRangePair
from jaxacct.mechanisms.pairs.response import ResponsePair
from jaxacct.mechanisms.parameters import positive

__all__ = ["Exponential", "PermuteAndFlip"]


@mechanism
class Exponential(Mechanism):
    """Chooses candidate r with probability proportional to exp(``epsilon`` u(r) / (2 sensitivity)).

    Here "sensitivity" is the most that a score u(r) moves between neighbours of the relation in question; scores that
    all move the same way (counts, under `add` or `remove`) allow exp(``epsilon`` u(r) / sensitivity) at the same cost.
    Either way log P(r) / Q(r) over all r spans at most ``epsilon``: the mechanism has bounded range (Durfee, Rogers
    2019), which is better than ``epsilon``-DP.

    The pair is the supremum over all pairs of that range (:mod:`._bounded_range_pair`; Dong, Durfee, Rogers, "Optimal
    Differential Privacy Composition for Exponential Mechanisms", 2020). For one run it is exact. For compositions it
    is a bound, also if an adaptive analyst chooses scores by what came before; that paper's own formula, one
    shift t for all runs, is smaller but holds only for mechanisms that are all fixed in advance. The pair is
    symmetric: `add`, `remove` and `replace` have one curve.

    Attributes:
        epsilon: the range of the loss, > 0; any shape.

    Raises:
        ValueError: a concrete ``epsilon`` that is not a finite number above 0.
    """

    epsilon: ArrayLike

    def __post_init__(self) -> None:
        _validate.positive(epsilon=self.epsilon)

    @property
    def _symmetric(self) -> bool:
        return True

    def _dominating(self, relation: str) -> list[tuple[Any, Any]]:
        return [(BoundedRangePair(positive(self.epsilon)), 1.0)]


@mechanism
class PermuteAndFlip(Mechanism):
    """Visits candidates in random order, accepts r with probability exp(``epsilon`` (u(r) - max u) / (2 sensitivity)).

    ``epsilon``-DP, and never worse in expected score than the exponential mechanism (McKenna, Sheldon 2020). It is
    not of bounded range, and pure privacy is all that is proven for it: so the pair is the extremal one of
    ``epsilon``-DP, an upper bound that no mechanism of this kind need attain. A lower bound of delta or epsilon is one
    for that extremal pair, not for permute-and-flip itself.

    Attributes:
        epsilon: > 0; any shape.

    Raises:
        ValueError: a concrete ``epsilon`` that is not a finite number above 0.
    """

    epsilon: ArrayLike

    def __post_init__(self) -> None:
        _validate.positive(epsilon=self.epsilon)

    @property
    def _symmetric(self) -> bool:
        return True

    def _dominating(self, relation: str) -> list[tuple[Any, Any]]:
        return [(ResponsePair(positive(self.epsilon), 2.0, 0.0), 1.0)]
