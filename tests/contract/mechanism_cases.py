"""Every public mechanism, once: `tests/contract/test_mechanisms.py` runs on all, and fails where one is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxacct as j
from jaxacct import Gaussian

__all__ = ["CASES", "Case"]

PRESENCE = ("add_or_remove", "remove", "add")
REPLACED = (*PRESENCE, "replace")


class Case(NamedTuple):
    """A mechanism as a function of its noise, or of what it claims.

    Attributes:
        make: from a number above 0, of any shape or traced, to the mechanism; 0.8 and 1.6 make sense.
        relations: that have an analysis.
        certified: whether `jaxacct.certify` knows it.
        traced: whether its parameters may be.
        heavy: whether a program takes seconds, so that its test is a slow one.
    """

    make: Callable[[Any], Any]
    relations: tuple[str, ...] = PRESENCE
    certified: bool = True
    traced: bool = True
    heavy: bool = False


def profile(x):
    return j.FromProfile(np.stack([0 * x, x], -1), np.stack([0 * x + 0.4, 0 * x + 0.1], -1))


def tables(x):
    xp = jnp if isinstance(x, jax.core.Tracer) else np
    p = xp.stack([0.3 * x, 1 - 0.3 * x], -1)
    return j.FromTables(p, p[..., ::-1])


CASES = {
    "ApproximateDP": Case(lambda x: j.ApproximateDP(x, 1e-6)),
    "Composed": Case(lambda x: j.Composed([Gaussian(x), j.PoissonSampled(Gaussian(x), 0.1)], [1, 3])),
    "DiscreteGaussian": Case(j.DiscreteGaussian),
    "DiscreteLaplace": Case(j.DiscreteLaplace),
    "Exponential": Case(j.Exponential, certified=False),
    "FromProfile": Case(profile, certified=False, traced=False),
    "FromTables": Case(tables),
    "GDP": Case(j.GDP),
    "Gaussian": Case(Gaussian),
    "Laplace": Case(j.Laplace),
    "RandomSensitivityGaussian": Case(lambda x: j.RandomSensitivityGaussian(x, (0.0, 1.0), (0.5, 0.5)), heavy=True),
    "PermuteAndFlip": Case(j.PermuteAndFlip, certified=False),
    "PoissonSampled": Case(lambda x: j.PoissonSampled(Gaussian(x), 0.1), REPLACED),
    "PrivateSelection": Case(lambda x: j.PrivateSelection(Gaussian(x), 3.0, 1.0), certified=False, traced=False),
    "PureDP": Case(j.PureDP),
    "RandomAllocation": Case(lambda x: j.RandomAllocation(Gaussian(x), 5)),
    "RandomizedResponse": Case(j.RandomizedResponse),
    "RenyiDP": Case(lambda x: j.RenyiDP(4.0, x), certified=False),
    "SampledWithReplacement": Case(lambda x: j.SampledWithReplacement(Gaussian(x), 5, 50), REPLACED),
    "SampledWithoutReplacement": Case(lambda x: j.SampledWithoutReplacement(Gaussian(x), 5, 50), REPLACED),
    "Shuffled": Case(lambda x: j.Shuffled(Gaussian(x), 5)),
    "Skellam": Case(lambda x: j.Skellam(4 * x)),
    "TruncatedPoisson": Case(lambda x: j.TruncatedPoisson(Gaussian(x), 0.1, 12, 50), REPLACED),
    "UserLevel": Case(lambda x: j.UserLevel(Gaussian(x), 0.1, 3), REPLACED, heavy=True),
    "ZeroConcentratedDP": Case(j.ZeroConcentratedDP, certified=False),
}
