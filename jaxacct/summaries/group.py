"""`group_of`: what a mechanism guarantees for a group of records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct.mechanisms import Composed, FromProfile, Gaussian, Laplace, PoissonSampled, UserLevel
from jaxacct.mechanisms.base import Mechanism
from jaxacct.summaries.curve import FARTHEST, ROUNDING, Curve, curve_of

_POINTS = 400  # of the curve, from epsilon 0 to where one record's delta is one of these
_LAST = (1e-16, 1e-13, 1e-10, 1e-7, 1e-4, 1e-2)
_MOST = 100_000


class Group(NamedTuple):
    """What :func:`group_of` found.

    Attributes:
        mechanism: for neighbours that differ in the whole group; of all steps together.
        tight: whether some group attains its curve. Otherwise it is an upper bound by group privacy.
        why: what the curve is, in words.
    """

    mechanism: Mechanism
    tight: bool
    why: str


def group_of(mechanism: Mechanism, records: ArrayLike, *, steps: ArrayLike = 1) -> Group:
    """What ``mechanism`` guarantees for groups of at most ``records`` records, all of which are added or removed.

    Gaussian and Laplace noise, Poisson samples of Gaussians (`UserLevel`) and compositions of these have the curve that
    a group attains. For everything else, and the guarantee of a filter, the trade-off curve for one record is applied
    once for each record of the group (Dong, Roth, Su 2022, Theorem 2.14; docs/theorems/user-level.md): an upper bound.

    Args:
        mechanism: a mechanism, or the guarantee of a filter, with concrete parameters; arrays are settings.
        records: from 1 to 100,000; one number where the curve is no attained one.
        steps: how often it runs.

    Raises:
        ValueError: another object, traced parameters, or such a number of records.
    """
    if _validate.is_traced((mechanism, steps, records)):
        raise ValueError("mechanism and records must be concrete, got traced ones")
    _validate.count(records=records)
    _validate.at_most(_MOST, records=records)
    if isinstance(mechanism, Mechanism):
        found = mechanism if np.all(np.asarray(records) == 1) else _tight(mechanism, records)
        if found is not None:
            once = not np.ndim(steps) and steps == 1
            why = f"the curve of {records} records that all pull the same way, which is attained"
            return Group(found if once else Composed([found], [steps]), True, why)
    if np.ndim(records):
        raise ValueError(f"records must be one number for {getattr(mechanism, '_name', 'a guarantee')}, got {records}")
    curve = curve_of(mechanism, "add_or_remove", _POINTS, _LAST, steps)
    why = f"an upper bound: group privacy, from the curve for one record {records} times"
    return Group(_chained(curve, int(np.asarray(records))), False, why)


def _tight(mechanism: Mechanism, records: ArrayLike) -> Mechanism | None:
    """The mechanism for a group, where a group is known that attains it."""
    noise: Any = mechanism._gaussian_noise()
    if noise is not None:
        return Gaussian(noise, records)
    if isinstance(mechanism, Laplace):
        return Laplace(mechanism.scale, np.asarray(mechanism.sensitivity) * records)
    if isinstance(mechanism, PoissonSampled):
        rates, inner = mechanism._nesting()
        noise, rate = inner._gaussian_noise(), np.prod(np.broadcast_arrays(*rates), 0)
        return None if noise is None or np.any(rate == 0) else UserLevel(Gaussian(noise), rate, records)
    if isinstance(mechanism, Composed):
        parts = [(_tight(part, records), steps) for part, steps in mechanism.parts()]
        if all(part is not None for part, _ in parts):
            return Composed([part for part, _ in parts if part is not None], [steps for _, steps in parts])
    return None


def _chained(curve: Curve, records: int) -> FromProfile:
    """The curve of ``records`` records from that of one, both directions, setting by setting."""
    settings = curve.losses.shape[1:]
    epsilons, deltas = np.zeros((2, *settings, _POINTS + 1))
    for i in np.ndindex(settings):
        one = curve.setting(i)
        once = (1, one.losses, one.upper.max(0))
        found = once
        for bit in f"{records:b}"[1:]:
            found = _joined(found, found)
            found = _joined(found, once) if bit == "1" else found
        epsilons[i], deltas[i] = (x[_POINTS:] for x in found[1:])
    return FromProfile(epsilons, deltas)


def _joined(first: tuple[int, Array, Array], second: tuple[int, Array, Array]) -> tuple[int, Array, Array]:
    """The curve of two groups in a row: delta(e) <= min over a of delta_1(a) + exp(a) delta_2(e - a)."""
    records = first[0] + second[0]
    reach = min(first[1][-1] + second[1][-1], FARTHEST)
    at = reach * np.linspace(-1.0, 1.0, first[1].size)
    _, losses, deltas = second
    rest = at[:, None] - first[1]
    # The second curve is convex in exp(loss): below its chords, at most 1 before the lattice, and falling after it.
    others = np.interp(np.exp(np.minimum(rest, FARTHEST)), np.exp(losses), deltas)
    others = np.where(rest < losses[0], 1.0, others)
    with np.errstate(over="ignore"):
        found = np.min(first[2] + np.exp(first[1]) * others, axis=1) * (1.0 + ROUNDING)
    return records, at, np.minimum.accumulate(np.minimum(found, 1.0))
