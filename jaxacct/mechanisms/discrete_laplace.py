"""`DiscreteLaplace`: two-sided geometric noise on whole numbers."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct._numerics.rounding import inflated
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.discrete_laplace import DiscreteLaplacePair
from jaxacct.mechanisms.parameters import positive, whole_number


@mechanism
class DiscreteLaplace(Symmetric):
    """Adds X with Pr[X = x] proportional to exp(-|x| / scale), x whole, to a count that moves by ``sensitivity``.

    The geometric mechanism of Ghosh, Roughgarden, Sundararajan 2009: (sensitivity / scale)-DP, and better than that in
    (epsilon, delta) if the sensitivity is above 1. X is log-concave, so the shift by the whole sensitivity dominates
    all smaller ones, and symmetric, so `add`, `remove` and `replace` have one curve; the sensitivity is that *for the
    relation in question*.

    Attributes:
        scale: above 0, in the units of the query; any shape.
        sensitivity: a whole number >= 1; any shape, broadcasts with ``scale``.

    Raises:
        ValueError: a concrete ``scale`` that is not a finite number above 0, a ``sensitivity`` that is not whole.
    """

    scale: ArrayLike = checked(_validate.positive)
    sensitivity: ArrayLike = checked(_validate.count, default=1)

    def _pure(self) -> Array:
        return inflated(whole_number(self.sensitivity) / positive(self.scale), 2.0**-51)

    def _dominating(self, relation: str) -> Runs:
        return [(DiscreteLaplacePair(positive(self.scale), whole_number(self.sensitivity)), 1.0)]
