"""From a mechanism and a neighbouring relation to the dominating pairs that the engine composes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxacct.mechanisms._gaussian_pair import GaussianPair
from jaxacct.mechanisms.composed import Composed
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.sampling import PoissonSampled

__all__ = ["RELATIONS", "directions"]

RELATIONS = ("add_or_remove", "add", "remove", "replace")

_LEAST_RATE = 1e-290  # stands for rate 0: dominates it, and keeps logarithms finite


def directions(mechanism: Any, relation: str) -> list[list[tuple[Any, Any]]]:
    """The directions whose worst is the answer for ``relation``; each a list of (pair, steps of it).

    Leaves of a pair are float64 arrays that broadcast against each other. Invalid traced parameters become NaN,
    which the engine turns into delta 1 and epsilon inf.

    Raises:
        ValueError: an unknown relation, or one for which the mechanism has no analysis.
    """
    if relation not in RELATIONS:
        raise ValueError(f"relation must be one of {', '.join(RELATIONS)}, got {relation!r}")
    if relation == "add_or_remove":
        if _symmetric(mechanism):
            return [_parts(mechanism, "remove")]
        return [_parts(mechanism, "remove"), _parts(mechanism, "add")]
    return [_parts(mechanism, relation)]


def _symmetric(mechanism: Any) -> bool:
    if isinstance(mechanism, Composed):
        return all(_symmetric(part) for part in mechanism.mechanisms)
    return isinstance(mechanism, Gaussian)


def _parts(mechanism: Any, relation: str) -> list[tuple[Any, Any]]:
    if isinstance(mechanism, Composed):
        found = []
        for part, steps in mechanism.parts():
            for pair, inner in _parts(part, relation):
                found.append((pair, jnp.asarray(inner, jnp.float64) * jnp.asarray(steps, jnp.float64)))
        return found
    if isinstance(mechanism, Gaussian):
        return [(GaussianPair(_positive(mechanism.sigma, mechanism.sensitivity), jnp.ones(()), False), 1.0)]
    if isinstance(mechanism, PoissonSampled):
        inner = mechanism.mechanism
        if not isinstance(inner, Gaussian):
            raise ValueError(
                f"PoissonSampled has an analysis for Gaussian only, got {type(inner).__name__}; "
                "account for the mechanism without sampling, which is a sound upper bound"
            )
        if relation == "replace":
            raise ValueError(
                "relation 'replace' has no analysis for PoissonSampled; use 'add_or_remove', and double epsilon "
                "by group privacy if records are replaced"
            )
        rate = jnp.asarray(mechanism.rate, jnp.float64)
        rate = jnp.where((rate >= 0) & (rate <= 1), jnp.maximum(rate, _LEAST_RATE), jnp.nan)
        return [(GaussianPair(_positive(inner.sigma, inner.sensitivity), rate, relation == "add"), 1.0)]
    raise ValueError(f"mechanism must be one of Gaussian, PoissonSampled, Composed, got {type(mechanism).__name__}")


def _positive(sigma: Any, sensitivity: Any) -> Array:
    sigma, sensitivity = jnp.asarray(sigma, jnp.float64), jnp.asarray(sensitivity, jnp.float64)
    good = (sigma > 0) & (sensitivity > 0) & jnp.isfinite(sigma) & jnp.isfinite(sensitivity)
    return jnp.where(good, sigma / sensitivity, jnp.nan)
