"""Forms the float64 parameters of pairs from what a user wrote: NumPy's where they are concrete, NaN where invalid.

Parameters are formed here only. Each that is computed is within a known number of units (:data:`NOISE_UNITS`,
:data:`RATE_UNITS`), which the errors of the pairs include: docs/proofs/parameters.md. Nothing is formed as 1 minus
something rounded: a rate comes with its complement.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, xp
from jaxacct._numerics.host import floats, not_negative
from jaxacct._numerics.rounding import total

NOISE_UNITS = 9.0
"""Units (2^-53 of itself) by which the noise multiplier of a Gaussian pair may be off."""

RATE_UNITS = 8.0
"""Units by which a sampling rate, and its complement, may be off, each of itself."""

MOST_NESTED = 6
"""Samples of samples whose rates are good to ``RATE_UNITS``."""

LEAST_RATE = 1e-14
"""Stands for smaller Poisson rates: dominates them, and its loss is still a normal number."""

LEAST_MASS = 1e-300
"""Smallest weight or probability: its logarithm, and the exponential of that, are good to a few units."""

SUM_SLACK = 1e-9
"""How far weights or probabilities may sum up to something else than 1."""

SINGLE_SLACK = 2.0**-23
"""The same of a law of float32 numbers, each of which is off by at most half as much of itself."""

_fractions = contextvars.ContextVar("fractions", default=False)


def check_law(name: str, table: ArrayLike, *, single: bool = False) -> None:
    """Raises unless every row of a concrete ``table`` is a law: numbers of at least ``LEAST_MASS`` or 0, of sum 1.

    With ``single`` the sum of float32 numbers may miss 1 by what their rounding explains.
    """
    if _validate.is_traced(table):
        return
    table = np.asarray(table, np.float64)
    if np.any((table > 0) & (table < LEAST_MASS)):
        raise ValueError(f"{name} must be at least {LEAST_MASS:g} or 0, got {table[table > 0].min()}")
    total = table.sum(-1)
    slack = np.where(single & are_float32(table), SINGLE_SLACK, SUM_SLACK)
    if np.any(np.abs(total - 1.0) > slack):
        raise ValueError(f"{name} must sum up to 1, got {total.flat[np.argmax(np.abs(total - 1.0))]}")


def are_float32(table: Array) -> Array:
    """Whether all numbers of a row are float32 numbers, whatever their type; shape ``(...)``."""
    return (table.astype(np.float32).astype(np.float64) == table).all(-1)


def positive(value: ArrayLike) -> Array:
    """``value`` in float64, NaN where it is not a finite number above 0."""
    xp, x = floats(value)
    return xp.where((x > 0) & xp.isfinite(x), x, np.nan)


def nonnegative(value: ArrayLike, most: float = np.inf) -> Array:
    """``value`` in float64, NaN where it is not a finite number of at least 0 and at most ``most``."""
    xp, x = floats(not_negative(value))
    return xp.where((x >= 0) & xp.isfinite(x) & (x <= most), x, np.nan)


def whole_number(value: ArrayLike, least: float = 1.0) -> Array:
    """``value`` in float64, NaN where it is not a whole number of at least ``least``."""
    xp, x = floats(value)
    return xp.where((x >= least) & (x == xp.floor(x)) & (x <= 2.0**53), x, np.nan)


def whole_steps(steps: ArrayLike) -> Array:
    """Steps as float64, NaN where they are not a whole number of at least 1."""
    if not _fractions.get():
        return whole_number(steps)
    xp, x = floats(steps)
    return xp.where((x >= 1.0) & (x <= 2.0**53), x, np.nan)


@contextlib.contextmanager
def fractional_steps() -> Iterator[None]:
    """Allows fractional steps of at least 1 in the block, for finite differences."""
    token = _fractions.set(True)
    try:
        yield
    finally:
        _fractions.reset(token)


def moved() -> bool:
    """Whether parameters are shifted for finite differences at the moment: then weights need not sum up to 1."""
    return _fractions.get()


def times(count: ArrayLike, steps: ArrayLike) -> Array:
    """The product of two numbers of steps."""
    if isinstance(count, float) and count == 1.0:
        return whole_steps(steps)
    return whole_steps(count) * whole_steps(steps)


class Rate(NamedTuple):
    """A sampling rate and its complement, each within ``RATE_UNITS`` of itself; 0 is exact, NaN is invalid."""

    value: Array
    rest: Array


EVERY_RECORD = Rate(np.ones(()), np.zeros(()))
"""The rate of a sample that is all there is."""


def poisson_rate(rate: ArrayLike) -> Rate:
    """A Poisson rate in [0, 1], at least ``LEAST_RATE``; exact, and its complement to a unit."""
    xp, x = floats(not_negative(rate))
    value = xp.where((x >= 0) & (x <= 1), xp.maximum(x, LEAST_RATE), np.nan)
    return Rate(value, 1.0 - value)


def nested(outer: Rate, inner: Rate) -> Rate:
    """The rate of a sample of a sample: 1 - a b = (1 - a) + a (1 - b), where nothing cancels."""
    value, rest = outer.value * inner.value, outer.rest + outer.value * inner.rest
    least = value < LEAST_RATE
    return Rate(xp.where(least, LEAST_RATE, value), xp.where(least, 1.0 - LEAST_RATE, rest))


def subset_rate(size: ArrayLike, whole: ArrayLike) -> Rate:
    """``size / whole`` of whole numbers up to 2^53, NaN where it is not in [``LEAST_RATE``, 1]; 1 unit both."""
    part, records = whole_steps(size), whole_steps(whole)
    value, rest = part / records, (records - part) / records
    good = (value >= LEAST_RATE) & (value <= 1.0)
    return Rate(xp.where(good, value, np.nan), xp.where(good, rest, np.nan))


def composed_noise(runs: Sequence[tuple[Array, Real]], steps: ArrayLike = 1.0) -> Array:
    """(steps sum_k T_k / s_k^2)^(-1/2), the noise multiplier of the one Gaussian that ``steps`` times all runs are."""
    (noise, count), *others = runs
    if others:
        value = total([count / noise**2 for noise, count in runs])
        noise = 1.0 / xp.sqrt(value)
    else:
        steps = times(count, steps)
    return noise / xp.sqrt(steps)
