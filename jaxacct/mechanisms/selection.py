"""`Exponential` and `PermuteAndFlip`: private selection of a candidate with a high score."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.bounded_range import BoundedRangePair
from jaxacct.mechanisms.parameters import nonnegative, positive
from jaxacct.mechanisms.randomized_response import Response
from jaxacct.mechanisms.renyi.concentrated import rho_of_pure


@mechanism
class Exponential(Symmetric):
    """Chooses candidate r with probability proportional to exp(``epsilon`` u(r) / (2 sensitivity)).

    Here "sensitivity" is the most that a score u(r) moves between neighbours of the relation in question; scores that
    all move the same way (counts, under `add` or `remove`) allow exp(``epsilon`` u(r) / sensitivity) at the same cost.
    Either way log P(r) / Q(r) over all r spans at most ``epsilon``: the mechanism has bounded range (Durfee, Rogers
    2019), which is better than ``epsilon``-DP.

    The pair is the supremum over all pairs of that range (``BoundedRangePair``; Dong, Durfee, Rogers, "Optimal
    Differential Privacy Composition for Exponential Mechanisms", 2020). For one run it is exact. For compositions it
    is a bound, also if an adaptive analyst chooses scores by what came before; that paper's own formula, one
    shift t for all runs, is smaller but holds only for mechanisms that are all fixed in advance. The pair is
    symmetric: `add`, `remove` and `replace` have one curve.

    Attributes:
        epsilon: the range of the loss, > 0; any shape.

    Raises:
        ValueError: a concrete ``epsilon`` that is not a finite number above 0.
    """

    epsilon: ArrayLike = checked(_validate.positive)

    def _pure(self) -> Array:
        return nonnegative(self.epsilon)

    def _rho(self) -> Array:
        # Bounded range: Cesar, Rogers 2021.
        epsilon = self._pure()
        return xp.minimum(epsilon * epsilon / 8, rho_of_pure(epsilon))

    def _dominating(self, relation: str) -> Runs:
        return [(BoundedRangePair(positive(self.epsilon)), 1.0)]


@mechanism
class PermuteAndFlip(Response):
    """Visits candidates in random order, accepts r with probability exp(``epsilon`` (u(r) - max u) / (2 sensitivity)).

    ``epsilon``-DP, and never worse in expected score than the exponential mechanism (McKenna, Sheldon 2020). It is
    not of bounded range, and pure privacy is all that is proven for it: so the pair is the extremal one of
    ``epsilon``-DP, an upper bound that no mechanism of this kind need attain. A lower bound of delta or epsilon is one
    for that extremal pair, not for permute-and-flip itself.

    Attributes:
        epsilon: above 0; any shape.

    Raises:
        ValueError: a concrete ``epsilon`` that is not a finite number above 0.
    """

    epsilon: ArrayLike = checked(_validate.positive)
