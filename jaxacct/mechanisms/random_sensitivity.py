"""`RandomSensitivityGaussian`: Gaussian noise on a query whose sensitivity is random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.base import Pair, Runs
from jaxacct.mechanisms.pairs.mixture import MixturePair
from jaxacct.mechanisms.pairs.replaced.mixture import AntipodalMixturePair
from jaxacct.mechanisms.parameters import EVERY_RECORD, LEAST_MASS, SUM_SLACK, Rate, check_law, moved, positive


@mechanism
class RandomSensitivityGaussian(Mechanism):
    """Adds N(0, sigma^2 I) to a query that a record moves by ``sensitivities[i]`` with probability ``weights[i]``.

    The randomness is the mechanism's own and hidden (which of a record's contributions a sample holds, say), and
    independent of the noise. The pair of `remove` is sum_i w_i N(s_i, sigma^2) against N(0, sigma^2), that of `add`
    the reverse; moves by vectors are dominated by their norms (Choquette-Choo, Ganesh, Steinke, Thakurta, "Privacy
    Amplification for Matrix Mechanisms", 2024: their mixture of Gaussians mechanisms). A sensitivity of 0 is a
    record that was not looked at.
    `replace` is a record removed and another one added: sum_i w_i N(s_i, sigma^2) against sum_i w_i N(-s_i, sigma^2)
    dominates it, and records that pull in opposite directions attain it (``docs/proofs/replaced-records.md``).
    Sensitivities are those of a record that comes or goes, for every relation.

    Attributes:
        sigma: standard deviation of the noise, > 0; any shape.
        sensitivities: k numbers >= 0, not all 0; each of any shape.
        weights: as many numbers, 0 or at least 1e-300, that sum up to 1; each is divided by their sum.

    Raises:
        ValueError: concrete values outside these ranges, or lists of different length.
    """

    sigma: ArrayLike
    sensitivities: Sequence[ArrayLike]
    weights: Sequence[ArrayLike]

    def __post_init__(self) -> None:
        for name in ("sensitivities", "weights"):
            try:
                object.__setattr__(self, name, tuple(getattr(self, name)))
            except TypeError:
                raise ValueError(f"{name} must be a sequence of numbers, got {getattr(self, name)!r}") from None
        if len(self.sensitivities) != len(self.weights) or not self.weights:
            raise ValueError(
                "weights must hold one number for each sensitivity, at least one, got "
                f"{len(self.weights)} for {len(self.sensitivities)}"
            )
        _validate.positive(sigma=self.sigma)
        for sensitivity, weight in zip(self.sensitivities, self.weights, strict=True):
            _validate.nonnegative(sensitivities=sensitivity, weights=weight)
        if not _validate.is_traced(self.weights):
            check_law("weights", np.stack(np.broadcast_arrays(*self.weights), -1))
        if not _validate.is_traced(self.sensitivities):
            largest = np.asarray(sum(np.asarray(sensitivity, np.float64) for sensitivity in self.sensitivities))
            if np.any(largest <= 0):
                raise ValueError("sensitivities must hold a number above 0, got only 0")

    def _dominating(self, relation: str) -> Runs:
        if relation == "replace":
            return [(self._replaced(EVERY_RECORD), 1.0)]
        return [(MixturePair(*self._parts(), np.full((), float(relation == "add"))), 1.0)]

    def _replaced(self, rate: Rate) -> Pair:
        noise, s, w = self._parts()
        # A record that is not in the sample moves nothing.
        weights = column(rate.value / w.values.sum(-1)) * w.values
        rest = xp.broadcast_to(column(rate.rest), (*weights.shape[:-1], 1))
        still = xp.zeros_like(s.values[..., :1])
        both = xp.concatenate([still, s.values], -1), xp.concatenate([rest, weights], -1)
        return AntipodalMixturePair(noise, *map(Row, both))

    def _parts(self) -> tuple[Array, Row, Row]:
        """Noise, sensitivities and weights in float64; NaN noise where they are invalid."""
        s, w = (Row.of(floats(*numbers)[1:]) for numbers in (self.sensitivities, self.weights))
        some = (w.values >= LEAST_MASS) & (w.values < np.inf)
        good = ((w.values == 0) | some).all(-1) & ((s.values >= 0) & (s.values < np.inf)).all(-1)
        good = good & ((xp.abs(w.values.sum(-1) - 1.0) <= SUM_SLACK) | moved())
        good = good & (xp.where(some, s.values, 0.0).sum(-1) > 0)
        return xp.where(good, positive(self.sigma), np.nan), s, w
