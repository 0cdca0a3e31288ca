"""`UserLevel`: all records of one user in a Poisson sample of records."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.binomial import binomial_probability
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.base import Mechanism, as_mechanism
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.parameters import LEAST_MASS
from jaxacct.mechanisms.random_sensitivity import RandomSensitivityGaussian

MOST_RECORDS = 100_000
_SMALL = 1e-25  # a tail that may count as all records at once
_LOST = 1e-307  # a probability too small for its relative error to hold


@mechanism
class UserLevel(Mechanism):
    """Runs a Gaussian mechanism on a Poisson sample of records; neighbours differ in all records of one user.

    Each record is in the sample with probability ``rate``, on its own; a user owns at most ``records`` of them, which
    move the sum by at most the sensitivity of ``mechanism`` each. So a sample holds J of them, J binomial, and the pair
    of one run is a Gaussian with sensitivity J (docs/theorems/user-level.md): exact for users who own that many records
    that all pull the same way, and above that of users who own fewer. `replace` is a user exchanged for another.

    Attributes:
        mechanism: a ``Gaussian``, or what is equivalent to one run of it, whose sensitivity is that of one record.
        rate: in (0, 1], concrete; any shape.
        records: whole numbers from 1 to 100,000, concrete; any shape.

    Raises:
        ValueError: another mechanism, numbers that are traced or outside these ranges.
    """

    mechanism: Mechanism = checked(as_mechanism)
    rate: ArrayLike = checked(_validate.rate, _validate.positive)
    records: ArrayLike = checked(_validate.count, functools.partial(_validate.at_most, MOST_RECORDS))

    def __post_init__(self) -> None:
        super().__post_init__()
        with jax.enable_x64(True):
            noise = self.mechanism._gaussian_noise()
        if noise is None:
            raise ValueError(f"mechanism must be a Gaussian, got {self.mechanism._name}")
        if _validate.is_traced((self.rate, self.records)):
            raise ValueError("rate and records must be concrete numbers, got traced ones")

    def _mixture(self, upper: bool) -> RandomSensitivityGaussian:
        """One run as a Gaussian of random sensitivity: above every such user, or one that such a user attains.

        Rounded tails, and the few largest sensitivities as one: as all records at once, or as the least of them.
        """
        noise: Any = self.mechanism._gaussian_noise()
        rate, records = np.broadcast_arrays(np.asarray(self.rate, np.float64), np.asarray(self.records, np.float64))
        numbers = np.arange(1, int(records.max()) + 1).reshape(-1, *[1] * rate.ndim)
        tails = _tails(records, rate, numbers, upper)
        some = np.any(tails > _SMALL, tuple(range(1, tails.ndim)))
        kept = max(int(some.sum()), 1)
        numbers, beyond = numbers[:kept], np.max(tails[kept:], axis=0, initial=0.0)
        tails = np.where(tails[:kept] >= 2.0 * LEAST_MASS, tails[:kept], 0.0)
        weights = -np.diff(np.concatenate([np.ones((1, *rate.shape)), tails, np.zeros((1, *rate.shape))]), axis=0)
        weights = np.where(weights >= LEAST_MASS, weights, 0.0)
        sensitivities = np.concatenate([np.zeros((1, *rate.shape)), np.broadcast_to(numbers, tails.shape)])
        if upper:  # what is beyond the last one, and what was cut off above, is all records
            sensitivities = np.concatenate([sensitivities, records[None]])
            weights = np.concatenate([weights, np.maximum(beyond, 2.0 * LEAST_MASS)[None]])
        return RandomSensitivityGaussian(noise, tuple(sensitivities), tuple(weights))

    def _dominating(self, relation: str) -> Runs:
        return self._mixture(True)._dominating(relation)

    def _witness(self, relation: str) -> Mechanism:
        return self._mixture(False)


def _tails(records: Array, rate: Array, numbers: Array, upper: bool) -> Array:
    """P[Bin(``records``, ``rate``) >= each of ``numbers``], rounded up, or down.

    ``numbers`` are 1, 2, ... up to all records along the first axis.
    """
    some = rate < 1.0
    chance, error = binomial_probability(records, np.where(some, rate, 0.5), np.minimum(numbers, records))
    chance *= np.maximum(1.0 + error if upper else 1.0 - error, 0.0)
    chance = np.where(numbers <= records, chance + (_LOST if upper else 0.0), 0.0)
    tails = np.flip(np.cumsum(np.flip(chance, 0), 0), 0)
    rounding = (numbers.size + 8) * UNIT
    tails = np.minimum(tails * (1.0 + (rounding if upper else -rounding)), 1.0)
    return np.where(some, tails, np.where(numbers <= records, 1.0, 0.0))
