"""`DiscreteLaplace`: two-sided geometric noise on whole numbers."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, logsumexp, xp
from jaxacct._numerics.host import floats, hosted
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct._numerics.rounding import inflated
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.discrete_laplace import DiscreteLaplacePair
from jaxacct.mechanisms.parameters import positive, whole_number
from jaxacct.mechanisms.renyi.closed import pure_divergence


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

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        """log((1-t)/(1+t) sum_x t^(a |x - D| + (1-a) |x|)) / (a-1), t = e^(-1/scale): three geometric series.

        Where that is all rounding (losses below 1e-7), the divergence of pure privacy is less and takes its place.
        """
        scale, gap = positive(self.scale), whole_number(self.sensitivity)
        exact, pure = _divergence(scale, gap, order), pure_divergence(inflated(gap / scale, 2.0**-49), order)
        return xp.minimum(exact, pure)

    def _pure(self) -> Array:
        return inflated(whole_number(self.sensitivity) / positive(self.scale), 2.0**-51)

    def _dominating(self, relation: str) -> Runs:
        return [(DiscreteLaplacePair(positive(self.scale), whole_number(self.sensitivity)), 1.0)]


@hosted
def _divergence(scale: Array, gap: Array, order: Array) -> Array:
    xp, scale, gap, a = floats(scale, gap, order)
    scale, gap, a = xp.broadcast_arrays(scale, gap, a)
    good = ~xp.isnan(gap / scale) & (a > 1) & (a < np.inf)
    c, gap, a = xp.where(good, 1.0 / scale, 1.0), xp.where(good, gap, 1.0), xp.where(good, a, 2.0)
    rest = xp.log(-xp.expm1(-c))
    low, high = -a * gap * c - rest, (a - 1.0) * gap * c - rest
    ratio = (2.0 * a - 1.0) * c
    middle = -a * gap * c + ratio * (gap - 1.0)
    middle = middle + xp.log(-xp.expm1(-ratio * (gap - 1.0))) - xp.log(-xp.expm1(-ratio))
    log_moment = logsumexp(xp.stack([low, middle, high], -1)) + rest - log1p(xp.exp(-c))
    margin = 2.0**-48 * (a * gap * c + xp.abs(rest) + 4.0)
    return xp.where(good, inflated((xp.maximum(log_moment, 0.0) + margin) / (a - 1.0), 1e-12), np.inf)
