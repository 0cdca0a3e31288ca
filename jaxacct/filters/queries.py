"""What a query is: a number, a position in a list, a Gaussian sampled some times, or several mechanisms in a row."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, Real
from jaxacct._numerics.host import floats
from jaxacct._types import PyTree
from jaxacct.mechanisms import Composed, Gaussian, PoissonSampled, UserLevel
from jaxacct.mechanisms.parameters import whole_steps

_LEAST_RATE = 1e-12  # of a user's records; smaller ones count as this


@np.errstate(all="ignore")
def as_sampled_gaussian(query: object) -> tuple[Array, Real] | None:
    """(noise multiplier, rate) of a Gaussian, sampled any number of times or never; None for anything else.

    NaN where a parameter makes no sense. Inside ``enable_x64``.
    """
    if isinstance(query, Gaussian):
        xp, sigma, sensitivity = floats(query.sigma, query.sensitivity)
        return xp.where((sigma > 0) & (sensitivity > 0), sigma / sensitivity, np.nan), 1.0
    if isinstance(query, PoissonSampled):
        inner = as_sampled_gaussian(query.mechanism)
        xp, rate = floats(query.rate)
        rate = xp.where((rate >= 0) & (rate <= 1), rate, np.nan)
        return None if inner is None else (inner[0], inner[1] * rate)
    return None


def charged_as(noise: float, rate: float, records: int) -> PoissonSampled | UserLevel:
    """What a sampled Gaussian is to a user who owns at most so many records."""
    if records == 1:
        return PoissonSampled(Gaussian(noise), rate)
    return UserLevel(Gaussian(noise), max(rate, _LEAST_RATE), records)


def parts_of(query: object) -> list[tuple[object, Real]]:
    """Each mechanism of a query and how often it runs, NaN where some traced number is no number of runs."""
    if isinstance(query, Composed):
        with jax.enable_x64(True):
            return [(p, n * whole_steps(steps)) for part, steps in query.parts() for p, n in parts_of(part)]
    return [(query, 1.0)]


def position_of(query: object) -> Array | np.int32 | None:
    """The position in a list of entries that a query is; None for a mechanism."""
    if isinstance(query, (int, np.integer)) and not isinstance(query, bool | np.timedelta64):
        return np.int32(np.clip(query, -1, 2**31 - 1))
    if isinstance(query, np.ndarray | jax.Array) and jnp.issubdtype(query.dtype, jnp.integer):
        return query
    return None


def sensitivity_of(query: PyTree) -> ArrayLike:
    """The clip norm of a (sampled) Gaussian."""
    return query.sensitivity if isinstance(query, Gaussian) else sensitivity_of(query.mechanism)


def for_norms(query: PyTree, norms: Array) -> PyTree:
    """What ``query`` is to examples of these norms: the same noise, their own sensitivity."""
    if isinstance(query, Gaussian):
        return Gaussian(query.sigma, norms)
    return dataclasses.replace(query, mechanism=for_norms(query.mechanism, norms))
