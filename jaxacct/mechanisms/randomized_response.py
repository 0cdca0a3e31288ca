"""`RandomizedResponse`: randomized response on two or more categories."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.pytree import mechanism
from jaxacct.mechanisms.approximate import Response
from jaxacct.mechanisms.parameters import nonnegative, whole_number
from jaxacct.mechanisms.renyi.concentrated import rho_of_response


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

    epsilon: ArrayLike
    categories: ArrayLike = 2

    def __post_init__(self) -> None:
        _validate.nonnegative(epsilon=self.epsilon)
        _validate.count(categories=self.categories)
        _validate.at_least(2.0, categories=self.categories)

    def _response(self) -> tuple[Array, Array, Array]:
        return nonnegative(self.epsilon), whole_number(self.categories, 2.0), np.zeros(())

    def _rho(self) -> Array:
        return rho_of_response(*self._response()[:2])
