"""Splits samples that hold all records off a batch: there the mechanism itself is answered, and Gaussians are one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.losses.engines.narrowing import Answer, Options
from jaxacct.losses.engines.split_failures import bounds_with_failures
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.parameters import NOISE_UNITS, composed_noise

if TYPE_CHECKING:
    from jaxacct.mechanisms.pairs.base import Pair

_MERGED = NOISE_UNITS + 12.0  # units of the noise of Gaussians composed once more: docs/proofs/parameters.md, lemma 1


def bounds_of_samples(
    kind: str, pairs: list[Pair], counts: Sequence[Array], goal: Array, most: float | None, options: Options, sides: int
) -> Answer:
    """`bounds_with_failures` of a concrete batch, with samples of rate exactly 1 answered as what they are."""
    wholes = [pair.whole() for pair in pairs]
    kinds = np.stack([np.broadcast_to(where, goal.shape) for _, where in wholes])
    if not kinds.any():
        return bounds_with_failures(kind, pairs, counts, goal, most, options, sides)
    patterns, which = np.unique(kinds, axis=1, return_inverse=True)
    lower, upper = np.empty(goal.shape), np.empty(goal.shape)
    for i, pattern in enumerate(patterns.T):
        rows = np.flatnonzero(which.ravel() == i)
        chosen = [whole if flag else pair for pair, (whole, _), flag in zip(pairs, wholes, pattern, strict=True)]
        some, runs, at = jax.tree.map(lambda x: x[rows], (chosen, counts, goal))  # noqa: B023
        own = options if options.limit is None else options._replace(limit=options.limit[rows])
        unsampled = pattern.all() and all(isinstance(pair, GaussianPair) for pair in chosen)
        if unsampled and (len(runs) > 1 or np.any(runs[0] > 1.0)):
            lower[rows], upper[rows] = _one_gaussian(kind, some, runs, at, own, sides)
        else:
            lower[rows], upper[rows] = bounds_with_failures(kind, some, runs, at, most, own, sides)
    return lower, upper


def _one_gaussian(
    kind: str, pairs: list[GaussianPair], counts: Sequence[Array], goal: Array, options: Options, sides: int
) -> Answer:
    """Bounds of composed Gaussians, which are one: below from a little more noise, above from a little less."""
    noise = composed_noise([(pair.noise, count) for pair, count in zip(pairs, counts, strict=True)])
    one, zero = np.ones(goal.shape), np.zeros(goal.shape)

    def ask(noise: Array) -> Answer:
        return bounds_with_failures(kind, [GaussianPair(noise, one, zero, zero)], [one], goal, 1.0, options, sides)

    return ask(inflated(noise, _MERGED * UNIT))[0], ask(deflated(noise, _MERGED * UNIT))[1]
