"""`RandomizedResponse`, and `PureDP` and `ApproximateDP`, of which it is the worst case."""

from __future__ import annotations

import functools

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.response import ResponsePair
from jaxacct.mechanisms.parameters import nonnegative, whole_number
from jaxacct.mechanisms.renyi.concentrated import rho_of_pure, rho_of_response


class Response(Symmetric):
    """A mechanism whose dominating pair is randomized response, or that after telling the truth with probability delta.

    Attributes:
        epsilon: log of the ratio of the probabilities of a true and a false answer; any shape.
    """

    epsilon: ArrayLike

    def _response(self) -> tuple[Array, Array, Array]:
        """Epsilon, the number of categories and delta in float64, NaN where they are invalid."""
        return nonnegative(self.epsilon), np.full((), 2.0), np.zeros(())

    def _pure(self) -> Array | None:
        epsilon, categories, _ = self._response()
        return epsilon + 0.0 * categories  # a NaN in one is one in both

    def _dominating(self, relation: str) -> Runs:
        return [(ResponsePair(*self._response()), 1.0)]


@mechanism
class RandomizedResponse(Response):
    """Reports the true one of k categories with probability e^eps / s, any other with 1 / s, s = e^eps + k - 1.

    For records of two different categories the loss is eps, 0 (if k > 2) or -eps (Warner 1965; Kairouz, Bonawitz,
    Ramage 2016 for k > 2); exact, and the same for every two categories and in both directions. This is the pair of
    `replace`. A record cannot be missing from a mechanism that reports on every record, so `add` and `remove` are
    understood as is usual for local mechanisms: a missing record reports as one of a fixed, public category would, and
    the pair is the same. Under ``PoissonSampled`` that is what a record outside the sample does.

    Attributes:
        epsilon: log of the ratio of the two probabilities, >= 0; any shape.
        categories: k, a whole number >= 2; any shape, broadcasts with ``epsilon``.

    Raises:
        ValueError: a concrete ``epsilon`` that is negative or not finite, or ``categories`` that are no whole number
            of at least 2.
    """

    epsilon: ArrayLike = checked(_validate.nonnegative)
    categories: ArrayLike = checked(functools.partial(_validate.count, 2), default=2)

    def _response(self) -> tuple[Array, Array, Array]:
        return nonnegative(self.epsilon), whole_number(self.categories, 2.0), np.zeros(())

    def _rho(self) -> Array:
        return rho_of_response(*self._response()[:2])


@mechanism
class PureDP(Response):
    """Any ``epsilon``-DP mechanism, for the relation that is asked about.

    Binary randomized response dominates all of them (Kairouz, Oh, Viswanath 2015), and is one of them: upper and lower
    bounds enclose the exact worst case, also of compositions.

    Attributes:
        epsilon: at least 0; any shape.

    Raises:
        ValueError: a concrete ``epsilon`` that is negative or not finite.
    """

    epsilon: ArrayLike = checked(_validate.nonnegative)


@mechanism
class ApproximateDP(Response):
    """Any (``epsilon``, ``delta``)-DP mechanism, for the relation that is asked about.

    Randomized response on one bit that gives itself away with probability ``delta`` dominates all of them (Kairouz, Oh,
    Viswanath 2015), and is one of them: upper and lower bounds enclose the exact worst case, also of
    compositions. It is the pair of ``FromProfile`` for a single point.

    Attributes:
        epsilon: at least 0; any shape.
        delta: in [0, 1]; any shape, broadcasts with ``epsilon``.

    Raises:
        ValueError: concrete values outside these ranges.
    """

    epsilon: ArrayLike = checked(_validate.nonnegative)
    delta: ArrayLike = checked(_validate.rate)

    def _response(self) -> tuple[Array, Array, Array]:
        return nonnegative(self.epsilon), np.full((), 2.0), nonnegative(self.delta, 1.0)

    def _pure(self) -> None:
        """A loss may be infinite."""

    def _approximate_rho(self) -> tuple[Array, Array]:
        return rho_of_pure(nonnegative(self.epsilon)), nonnegative(self.delta, 1.0)
