"""`Skellam`: Skellam noise on whole numbers, the difference of two Poisson variables."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.skellam import LEAST, MOST, SkellamPair, outcomes
from jaxacct.mechanisms.parameters import positive, whole_number


@mechanism
class Skellam(Symmetric):
    """Adds the difference of two independent Poisson(``mu``) variables to a count that moves by ``sensitivity``.

    Sums of such noise are such noise: what many parties add is one mechanism (Agarwal, Kairouz, Liu 2021). The query
    is one whole number. The noise is log-concave, as a sum of independent log-concave variables, so the shift by the
    whole sensitivity dominates all smaller ones, and symmetric, so `add`, `remove` and `replace` have one curve; the
    sensitivity is that *for the relation in question*. For vectors the L2 sensitivity is no substitute.

    Attributes:
        mu: the mean of each Poisson variable, so that the noise has the variance 2 mu; at least 1e-290, at most
            about 1.4e6 (some 2e4 inside a trace); any shape.
        sensitivity: a whole number >= 1; any shape, broadcasts with ``mu``.

    Raises:
        ValueError: a concrete ``mu`` out of this range, a ``sensitivity`` that is not whole or too large.
    """

    mu: ArrayLike = checked(_validate.positive)
    sensitivity: ArrayLike = checked(_validate.count, default=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if _validate.is_traced((self.mu, self.sensitivity)):
            return
        mu, gap = np.asarray(self.mu, np.float64), np.asarray(self.sensitivity, np.float64)
        wrong = (mu < LEAST) | (outcomes(mu, gap) > MOST)
        if np.any(wrong):
            first = tuple(x[wrong][0] for x in np.broadcast_arrays(mu, gap))
            raise ValueError(
                f"mu must be at least {LEAST:g} and fit a window of {MOST} outcomes (up to about 1.4e6 where the "
                f"sensitivity is small), got {first[0]:g} with a sensitivity of {first[1]:g}"
            )

    def _dominating(self, relation: str) -> Runs:
        mu, gap = positive(self.mu), whole_number(self.sensitivity)
        return [(SkellamPair(mu + 0.0 * gap, gap), 1.0)]  # a NaN in one is one in both
