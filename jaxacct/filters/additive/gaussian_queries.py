"""The mu^2 of queries that are Gaussian mechanisms or are dominated by one."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.host import floats, not_negative
from jaxacct._numerics.rounding import inflated
from jaxacct.filters.base import is_scalar_query
from jaxacct.mechanisms import GDP, Composed, Gaussian, PoissonSampled
from jaxacct.mechanisms.parameters import times, whole_steps

Part = tuple[ArrayLike, ArrayLike, ArrayLike]
"""Sensitivity, sigma and steps."""


def is_gaussian(query: object) -> bool:
    """Whether ``query`` is a mechanism of which `gaussian_parts` knows the mu."""
    if isinstance(query, PoissonSampled):
        return _always(query.rate) and is_gaussian(query.mechanism)
    if isinstance(query, Composed):
        return all(is_gaussian(part) for part, _ in query.parts())
    return isinstance(query, Gaussian | GDP)


def _always(rate: ArrayLike) -> bool:
    return not _validate.is_traced(rate) and bool(np.all(np.asarray(rate) == 1))


def gaussian_parts(query: object) -> list[Part]:
    """(sensitivity, sigma, steps) of each part of ``query``; a number mu is a mechanism with sigma 1."""
    if is_scalar_query(query):
        return [(not_negative(query), 1.0, 1.0)]
    if isinstance(query, Gaussian):
        return [(not_negative(query.sensitivity), query.sigma, 1.0)]
    if isinstance(query, GDP):
        return [(not_negative(query.mu), 1.0, 1.0)]
    if isinstance(query, PoissonSampled):
        if not _always(query.rate):
            raise ValueError(
                "GDP cannot account for a Poisson-sampled Gaussian (rate not concretely 1): use filters.menu "
                "or filters.renyi"
            )
        return gaussian_parts(query.mechanism)
    if isinstance(query, Composed):
        return [(p, s, times(k, steps)) for part, steps in query.parts() for p, s, k in gaussian_parts(part)]
    raise ValueError(
        f"query must be a Gaussian, a Composed of them, a PLD or a number mu, got {type(query).__name__}: filters.zcdp "
        "and gdp_residue take Gaussians and other mechanisms"
    )


@np.errstate(all="ignore")
def gaussian_cost(parts: list[Part]) -> Array:
    """The sum of steps (sensitivity / sigma)^2, rounded up; infinite or NaN where there is none (in ``enable_x64``)."""
    cost: Array = np.zeros(())
    for triple in parts:
        xp, sensitivity, sigma, steps = floats(*triple[:2], whole_steps(triple[2]))
        mu = sensitivity / sigma
        good = (sensitivity >= 0) & (sigma > 0) & (sigma < np.inf) & (mu < np.inf) & ~xp.isnan(steps)
        each = xp.where(mu > 0, xp.maximum(steps * mu * mu, 1e-300), 0.0)  # a square may underflow
        # No under-count: the roundings of the square and of the sum are covered term by term.
        cost = cost + inflated(xp.where(good, each, np.inf), (4 + len(parts)) * 2.0**-52)
    return cost
