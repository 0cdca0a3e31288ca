"""Bounds in NumPy: for eager calls, and for compiled CPU programs that call back into Python."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.host import on_host
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.accounting.at_once import askable, known_at_once
from jaxacct.accounting.batch import Batch, with_rare_sampling
from jaxacct.accounting.whole_samples import bounds_of_samples
from jaxacct.losses.engines.narrowing import Options
from jaxacct.losses.renyi.conversion import epsilon_of_divergence
from jaxacct.losses.renyi.curve import divergence
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import rarely_sampled
from jaxacct.mechanisms.known_attack import KnownAttack

_DEEP = 1e-280  # a delta that engines may lose among what underflows
_WIDE = 0.999  # of its upper bound, a lower bound that leaves nothing to be said
_ORDERS = 1.0 + 2.0 ** np.arange(-3.0, 22.5, 0.5)  # of divergences
_NEXT_TO_NOTHING = 1e-12  # a delta that is not made smaller where a rate below 1e-14 keeps it there


class Enclosure(NamedTuple):
    """Bounds of the broadcast shape, and the upper bounds ``highs`` of every direction, flat as in ``batch``."""

    lower: np.ndarray
    upper: np.ndarray
    highs: np.ndarray
    batch: Batch


def enclosure(
    kind: str, mechanism: Mechanism, target: ArrayLike, steps: ArrayLike, relation: str, options: Options
) -> Enclosure:
    """Bounds of delta or epsilon; see :func:`jaxacct.delta`. All numbers are concrete."""
    target, steps = on_host((target, steps))
    goal, runs = askable(kind, target, steps)
    batch = Batch.of(mechanism, goal, runs, relation)
    rare, total = rarely_sampled(mechanism, runs)
    # What hardly ever samples at all needs no engine.
    known = rare & (total <= (np.asarray(goal) if kind == "epsilon" else _NEXT_TO_NOTHING))
    # Nor does what makes no sense: no engine would find bounds.
    void = batch.void().ravel()
    open_ = np.flatnonzero(np.tile(~(np.broadcast_to(known, batch.shape).ravel() | void), batch.sides))
    lower, upper = np.zeros(batch.query[2].shape), np.ones(batch.query[2].shape)
    upper[np.tile(void, batch.sides)] = np.inf if kind == "epsilon" else 1.0
    if open_.size:
        pairs, counts, at = batch.query if open_.size == lower.size else jax.tree.map(lambda x: x[open_], batch.query)
        if options.limit is not None:
            limit = np.tile(np.broadcast_to(options.limit, batch.shape).ravel(), batch.sides)
            options = options._replace(limit=limit[open_])
        lower[open_], upper[open_] = bounds_of_samples(kind, pairs, counts, at, batch.most, options, batch.sides)
    low, high = with_rare_sampling(kind, batch.worst(lower, upper), goal, (rare, total), batch)
    low, high = (np.asarray(x) for x in known_at_once(kind, low, high, target, steps, batch))
    if kind == "epsilon" and not isinstance(mechanism, KnownAttack):  # of which only lower bounds count
        high = _by_moments(mechanism, np.asarray(target), np.asarray(runs), relation, low, high)
    return Enclosure(low, high, upper, batch)


def _by_moments(
    mechanism: Mechanism, delta: np.ndarray, steps: np.ndarray, relation: str, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """``upper`` bounds of epsilon, those by Rényi's divergence where engines find none, or a wide one of a deep delta.

    Divergences are logarithms, which never underflow. A mechanism's own are sometimes below its pair's, as the pair's
    lower bound is not: no upper bound goes below that.
    """
    lost = (delta > 0) & (delta < 1) & ((upper == np.inf) | (delta < _DEEP) & (lower < _WIDE * upper))
    found = upper
    for order in _ORDERS if lost.any() else ():
        try:
            rho = inflated(steps * divergence(mechanism, order, relation=relation), 4.0 * UNIT)
        except ValueError:  # it has no such curve
            return upper
        found = np.minimum(found, epsilon_of_divergence(rho, order, delta))
    return np.where(lost, np.where(lower < np.inf, np.maximum(found, lower), found), upper)
