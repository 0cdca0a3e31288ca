"""`DiscreteGaussian`: discrete Gaussian noise on whole numbers."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct._numerics.rounding import inflated
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.discrete_gaussian import DiscreteGaussianPair
from jaxacct.mechanisms.parameters import positive, whole_number
from jaxacct.mechanisms.renyi.closed import proportional


@mechanism
class DiscreteGaussian(Symmetric):
    """Adds X with Pr[X = x] proportional to exp(-x^2 / (2 sigma^2)), x whole, to a count that moves by ``sensitivity``.

    The query is one whole number (Canonne, Kamath, Steinke 2020, Definition 1); for vectors the L2 sensitivity is no
    substitute, because shifts that are not along an axis have pairs of their own. X is log-concave, so the shift by the
    whole sensitivity dominates all smaller ones, and symmetric, so `add`, `remove` and `replace` have one curve; the
    sensitivity is that *for the relation in question*.

    Attributes:
        sigma: parameter of the noise (its standard deviation is slightly less), > 0; any shape.
        sensitivity: a whole number >= 1; any shape, broadcasts with ``sigma``.

    Raises:
        ValueError: a concrete ``sigma`` that is not a finite number above 0, a ``sensitivity`` that is not whole.
    """

    sigma: ArrayLike = checked(_validate.positive)
    sensitivity: ArrayLike = checked(_validate.count, default=1)

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        # What the Gaussian has bounds it, exactly where order * sensitivity is whole (Canonne, Kamath, Steinke 2020).
        ratio = whole_number(self.sensitivity) / positive(self.sigma)
        return proportional(inflated(0.5 * ratio**2, 2.0**-49), order)

    def _rho(self) -> Array:
        return (whole_number(self.sensitivity) / positive(self.sigma)) ** 2 / 2

    def _dominating(self, relation: str) -> Runs:
        sigma, gap = positive(self.sigma), whole_number(self.sensitivity)
        return [(DiscreteGaussianPair(sigma + 0.0 * gap, gap), 1.0)]  # a NaN in one is one in both
