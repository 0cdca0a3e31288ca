"""Answers that need no engine: of no runs at all, and epsilon at a delta of 0 (the largest loss) and of 1 (nothing).

Engines are asked something else there (`askable`), and `known_at_once` puts the answer in its place.
"""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module, column, xp
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.accounting.batch import Batch
from jaxacct.mechanisms.pairs.base import Pair, loss_room

LEAST_DELTA = 1e-300
"""Asked in place of a delta of 0: epsilon there is no larger."""
_BELOW = 1e-9  # relative, below the largest loss: where there is probability beyond, epsilon at delta 0 is above
_SLACK = 2.0**-40


def askable(kind: str, target: ArrayLike, steps: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    """Target and steps with others in place of those that `known_at_once` answers."""
    if _may_be(steps, 0):
        steps = xp.where(xp.asarray(steps) == 0, 1, xp.asarray(steps))
    if kind == "epsilon":
        for end, instead in ((0, LEAST_DELTA), (1, 0.5)):
            if _may_be(target, end):
                target = xp.where(xp.asarray(target) == end, instead, xp.asarray(target, np.float64))
    return target, steps


def known_at_once(
    kind: str, lower: Array, upper: Array, target: ArrayLike, steps: ArrayLike, batch: Batch
) -> tuple[Array, Array]:
    """The bounds, with those of no runs and of a delta of 0 or 1 in their places; ``target`` and ``steps`` as given."""
    given = xp.asarray(target, np.float64)
    if kind == "epsilon" and _may_be(target, 0):
        least, largest = _largest_losses(batch)
        lower = xp.where(given == 0, xp.maximum(lower, least), lower)
        upper = xp.where(given == 0, largest, upper)
    if kind == "epsilon" and _may_be(target, 1):
        lower, upper = xp.where(given == 1, 0.0, lower), xp.where(given == 1, 0.0, upper)
    if kind == "epsilon":  # a number that is no probability has no answer
        upper = xp.where((given >= 0) & (given <= 1), upper, np.inf)
    if _may_be(steps, 0):
        none = xp.asarray(steps) == 0
        floor = xp.zeros_like(given) if kind == "epsilon" else 0.0 - xp.expm1(xp.minimum(given, 0.0))
        lower = xp.where(none, deflated(floor, _SLACK), lower)
        upper = xp.where(none, xp.minimum(inflated(floor, _SLACK), 1.0), upper)
    return lower, upper


def _may_be(value: ArrayLike, end: int) -> bool:
    return _validate.is_traced(value) or bool(np.any(np.asarray(value) == end))


def _largest_losses(batch: Batch) -> tuple[Array, Array]:
    """Bounds of the largest loss of all runs: its upper bound is inf where losses have none.

    Runs are independent, so that the largest loss of all is the sum of the largest ones.
    """
    pairs, counts, _ = batch.query
    largest = inflated(sum(pair.max_loss() * count for pair, count in zip(pairs, counts, strict=True)), 1e-12)
    largest = xp.where(xp.isnan(largest), np.inf, largest)
    least = xp.zeros_like(largest)
    if array_module(largest) is np:
        each = [_seen(pair) * count for pair, count in zip(pairs, counts, strict=True)]
        least = deflated(np.maximum(sum(each), 0.0), 1e-12)
        least = np.where(np.isnan(least), 0.0, least)
    return batch.worst(least, largest)


@np.errstate(all="ignore")
def _seen(pair: Pair) -> np.ndarray:
    """A loss that one run exceeds with some probability, next to the largest one where that is finite; else 0."""
    most = np.asarray(pair.max_loss())
    at = np.where(np.isfinite(most), deflated(most, _BELOW), 0.0)
    tails = pair.tails(column(at))
    likely = (tails.p_above * (1.0 - tails.error))[..., 0] > 0
    found = np.where(likely, at - loss_room(pair.loss_error(), column(at))[..., 0], 0.0)
    return np.where(np.asarray(pair.infinity()) > 0, np.inf, found)
