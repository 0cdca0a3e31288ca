"""From a mechanism and a neighbouring relation to the dominating pairs that the engine composes."""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxacct import _validate
from jaxacct.mechanisms._gaussian_pair import GaussianPair
from jaxacct.mechanisms.composed import Composed
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.sampling import PoissonSampled

__all__ = ["RELATIONS", "directions", "rarely_sampled"]

RELATIONS = ("add_or_remove", "add", "remove", "replace")

_LEAST_RATE = 1e-14  # stands for smaller rates: dominates them, and its loss is still a normal number


def directions(mechanism: Any, relation: str, steps: Any = 1.0) -> list[list[tuple[Any, Any]]]:
    """The directions whose worst is the answer for ``relation``; each a list of (pair, steps of it).

    Leaves of a pair are float64 arrays that broadcast against each other. Invalid traced parameters become NaN,
    which the engine turns into delta 1 and epsilon inf. Gaussians that make up a whole direction are merged
    into one run of one Gaussian, exactly. Steps that are known while tracing stay NumPy numbers.

    Raises:
        ValueError: an unknown relation, or one for which the mechanism has no analysis.
    """
    if relation not in RELATIONS:
        raise ValueError(f"relation must be one of {', '.join(RELATIONS)}, got {relation!r}")
    names = [relation]
    if relation == "add_or_remove":
        names = ["remove"] if _symmetric(mechanism) else ["remove", "add"]
    found = []
    for name in names:
        parts = [(pair, _times(count, steps)) for pair, count in _parts(mechanism, name)]
        found.append([_merged(parts)] if _symmetric(mechanism) else parts)
    return found


def _merged(parts: list[tuple[Any, Any]]) -> tuple[Any, float]:
    """T_k Gaussians of noise s_k are one of noise (sum T_k / s_k^2)^(-1/2)."""
    total = sum(count / pair.noise**2 for pair, count in parts)
    pair = parts[0][0]
    return type(pair)(1.0 / _module(total).sqrt(total), pair.rate, pair.reverse), 1.0


def _times(count: Any, steps: Any) -> Any:
    return _whole(count) * _whole(steps)


def _module(*values: Any) -> Any:
    """NumPy for concrete numbers, which costs no compilation; jax.numpy for traced ones."""
    return jnp if _validate.is_traced(values) else np


def _whole(steps: Any) -> Any:
    """Steps as float64, NaN where they are not a whole number of at least 1."""
    xp = _module(steps)
    steps = xp.asarray(steps, np.float64)
    return xp.where((steps >= 1.0) & (steps == xp.floor(steps)) & (steps <= 2.0**53), steps, np.nan)


def rarely_sampled(mechanism: Any, steps: Any = 1.0) -> tuple[Any, Any]:
    """``(any, total)``: whether some rate is too small for a lattice, and what the mechanism costs if all are.

    A smaller rate than 1e-14 is replaced by that, so that lower bounds do not hold. Where there is nothing else,
    each step is (0, rate)-DP and the whole (0, ``total``)-DP; otherwise ``total`` is inf.
    """
    if isinstance(mechanism, Composed):
        found = [rarely_sampled(part, _times(count, steps)) for part, count in mechanism.parts()]
        return functools.reduce(operator.or_, [one for one, _ in found]), sum(total for _, total in found)
    if isinstance(mechanism, PoissonSampled):
        xp = _module(mechanism, steps)
        rate = xp.asarray(mechanism.rate, np.float64)
        rare = rate < _LEAST_RATE
        valid = (rate >= 0) & ~xp.isnan(_noise(mechanism.mechanism) * _whole(steps))
        return rare, xp.where(rare & valid, _whole(steps) * _LEAST_RATE, np.inf)
    return np.zeros((), bool), np.inf


def _symmetric(mechanism: Any) -> bool:
    if isinstance(mechanism, Composed):
        return all(_symmetric(part) for part in mechanism.mechanisms)
    return isinstance(mechanism, Gaussian)


def _parts(mechanism: Any, relation: str) -> list[tuple[Any, Any]]:
    if isinstance(mechanism, Composed):
        found = []
        for part, steps in mechanism.parts():
            found += [(pair, _times(inner, steps)) for pair, inner in _parts(part, relation)]
        return found
    if isinstance(mechanism, Gaussian):
        return [(GaussianPair(_noise(mechanism), np.ones(()), np.zeros(())), 1.0)]
    if isinstance(mechanism, PoissonSampled):
        inner = mechanism.mechanism
        if not isinstance(inner, Gaussian):
            raise ValueError(
                f"PoissonSampled has an analysis for Gaussian only, got {type(inner).__name__}; "
                "account for the mechanism without sampling, which is a sound upper bound"
            )
        if relation == "replace":
            raise ValueError(
                "relation 'replace' has no analysis for PoissonSampled; a replaced record is one removed and one "
                "added, so group privacy turns (epsilon, delta) for 'add_or_remove' into "
                "(2 epsilon, (1 + exp(epsilon)) delta)"
            )
        xp = _module(mechanism.rate)
        rate = xp.asarray(mechanism.rate, np.float64)
        rate = xp.where((rate >= 0) & (rate <= 1), xp.maximum(rate, _LEAST_RATE), np.nan)
        return [(GaussianPair(_noise(inner), rate, np.full((), float(relation == "add"))), 1.0)]
    raise ValueError(f"mechanism must be one of Gaussian, PoissonSampled, Composed, got {type(mechanism).__name__}")


def _noise(gaussian: Any) -> Any:
    """sigma / sensitivity in float64, NaN where either makes no sense."""
    xp = _module(gaussian)
    sigma, sensitivity = xp.asarray(gaussian.sigma, np.float64), xp.asarray(gaussian.sensitivity, np.float64)
    good = (sigma > 0) & (sensitivity > 0) & xp.isfinite(sigma) & xp.isfinite(sensitivity)
    return xp.where(good, sigma / xp.where(good, sensitivity, 1.0), np.nan)
