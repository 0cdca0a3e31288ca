"""Answers in NumPy on the host, by the same code as for eager calls, and their derivatives; calls no program.

Bounds are not differentiated: the derivatives of their errors mean nothing. Both carry the derivative of the value
that they enclose; epsilon(delta) is implicit, d epsilon = (d delta - d_parameters delta) / (d delta / d epsilon).
A derivative is 0 where the answer is exactly 0, and NaN where none is known or to be trusted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import ModuleType

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, column
from jaxacct.accounting.at_once import LEAST_DELTA
from jaxacct.accounting.batch import Batch
from jaxacct.accounting.enclosure import Enclosure, enclosure
from jaxacct.accounting.question import Question
from jaxacct.losses.engines import choose as engine
from jaxacct.losses.engines.derivatives import SIZES, Curve, Place, Size, Value, extrapolated, placed, value
from jaxacct.losses.engines.laws.bounds import Runs, runs_of
from jaxacct.losses.engines.lines.line_of_pair import has_derivatives
from jaxacct.losses.engines.narrowing import Options
from jaxacct.losses.engines.one_run import single_value
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.parameters import fractional_steps

_Parts = tuple[list[Pair], list[np.ndarray]]
_STEPS = (1e-3, 1e-4, 1e-5, 1e-6)  # relative, of differences of the fourth order; in turn, as curves have kinks
_CENTRAL = {1.0: 8.0 / 12.0, -1.0: -8.0 / 12.0, 2.0: -1.0 / 12.0, -2.0: 1.0 / 12.0}
_ONE_SIDED = {0.0: -25.0 / 12.0, 1.0: 4.0, 2.0: -3.0, 3.0: 4.0 / 3.0, 4.0: -0.25}
_NARROW = 1e-8  # relative width of bounds anywhere between which derivatives are the same
_AGREEMENT = 1e-5  # of differences of two steps; the better one is some 16 times better
_ROWS = 16  # settings whose transforms are worked on at once

DIGITS = 3e-7
"""Relative difference of two windows whose better one is given out."""


def host_answer(
    question: Question, constants: tuple[Array, ...], numbers: Iterable[ArrayLike], wanted: tuple[bool, ...] = ()
) -> list[np.ndarray]:
    """``[lower, upper, *slopes]`` in NumPy, in float64, for concrete numbers that broadcast; calls no program.

    ``numbers`` are for the open places, and ``wanted`` says in which of them derivatives are wanted (empty: none).
    """
    numbers = [np.asarray(number, np.float64) for number in numbers]
    with _validate.unchecked(), np.errstate(all="ignore"):
        mechanism, target, steps = question.asked(constants, numbers)
        found = enclosure(question.kind, mechanism, target, steps, question.relation, Options())
        slopes = _slopes(question, constants, numbers, wanted, found) if any(wanted) else []
    return [found.lower, found.upper, *slopes]


def _slopes(
    question: Question,
    constants: tuple[Array, ...],
    numbers: list[np.ndarray],
    wanted: tuple[bool, ...],
    found: Enclosure,
) -> list[np.ndarray]:
    batch, shape = found.batch, found.batch.shape
    highs = found.highs.reshape(batch.sides, -1)
    # The derivative is that of the worse direction, at the epsilon in question; 1.0 stands in where there is none.
    worst = highs.argmax(0)
    rows = worst * highs.shape[1] + np.arange(highs.shape[1])
    at = highs.max(0) if question.kind == "epsilon" else batch.query[2][rows]
    inside = np.isfinite(at) & ((at > 0) | (question.kind == "delta"))
    if question.kind == "epsilon":  # at a delta of 0 the answer is the largest loss, and not on the curve
        inside &= batch.query[2][rows] > LEAST_DELTA
    at = np.where(inside, at, 1.0)

    def parts(place: int | None = None, factor: float = 1.0) -> _Parts:
        """Pairs and counts of the worse direction, with one of the numbers multiplied."""
        moved = [number * factor if i == place else number for i, number in enumerate(numbers)]
        with fractional_steps():
            query = Batch.of(*question.asked(constants, moved), question.relation, np).query
        return jax.tree.map(lambda x: x[rows], query[:2])

    pairs, counts = parts()
    if question.kind == "epsilon":
        at = _at_root(pairs, counts, at, np.broadcast_to(found.lower, shape).ravel(), np.asarray(batch.query[2][rows]))
    read = _one_run if _once(counts).all() else _composed
    per_epsilon, slope_in = _by_laws_too(*read(parts, pairs, counts, at), parts, pairs, counts, at)
    per_epsilon = per_epsilon.reshape(shape)
    slopes = []
    for place, (leaf, is_wanted) in enumerate(zip(np.flatnonzero(question.traced), wanted, strict=True)):
        if not is_wanted:
            continue
        own = leaf == question.target
        value = 0.0 if own else slope_in(place).reshape(shape) / np.broadcast_to(numbers[place], shape)
        value = implicit(question.kind, value, per_epsilon, own, np)
        value = np.where(inside.reshape(shape) & np.isfinite(value), value, np.nan)
        slopes.append(np.where(found.upper == 0.0, 0.0, value))
    return slopes


def _at_root(
    pairs: list[Pair], counts: list[np.ndarray], at: np.ndarray, lower: np.ndarray, goal: np.ndarray
) -> np.ndarray:
    """A better epsilon where bounds of it are wide: a step of Newton's method."""
    wide = (at - lower > _NARROW * at) & ~_once(counts)
    if not wide.any() or not has_derivatives(pairs):
        return at
    values, slope = (x[wide] for x in _by_transforms(pairs, counts, at))
    root = np.clip(at[wide] - (values - goal[wide]) / slope, lower[wide], at[wide])
    at = at.copy()
    at[wide] = np.where(np.isfinite(root), root, at[wide])
    return at


def _once(counts: list[np.ndarray]) -> np.ndarray:
    """Which settings are one run."""
    return counts[0] == 1.0 if len(counts) == 1 else np.zeros(counts[0].shape, bool)


def implicit(kind: str, slope: Real, per_epsilon: Array, is_target: bool, xp: ModuleType) -> Real:
    """The derivative of the answer from that of delta."""
    if kind == "delta":
        return per_epsilon if is_target else slope
    return (float(is_target) - slope) / xp.where(per_epsilon < 0, per_epsilon, np.nan)


def _one_run(parts: Callable[..., _Parts], pairs: list[Pair], counts: list[np.ndarray], at: np.ndarray):
    """The derivative in epsilon, and a function for those in the logarithm of a number, of one run of any pair.

    By differences of its curve.
    """
    (pair,), (count,) = pairs, counts
    # The best event {L > epsilon} may be held fixed.
    per_epsilon = -np.exp(at) * pair.tails(column(at)).q_above[..., 0]

    def slope_in(place: int) -> np.ndarray:
        slope = np.full(at.shape, np.nan)
        if np.any(parts(place, 1.0 + _STEPS[0])[1][0] != count):
            return slope  # the number of runs moves, and one run knows of no other
        value = functools.cache(lambda factor: single_value(parts(place, factor)[0][0], at))
        for step in _STEPS:
            found, rough = (_difference(value, size) for size in (step, 2.0 * step))
            agree = np.abs(found - rough) <= _AGREEMENT * np.abs(found)
            slope = np.where(np.isnan(slope) & agree & (count == 1.0), found, slope)
            if not np.isnan(slope).any():
                break
        return slope

    return np.where(count == 1.0, per_epsilon, np.nan), slope_in


def _composed(parts: Callable[..., _Parts], pairs: list[Pair], counts: list[np.ndarray], at: np.ndarray):
    """The same for compositions of which the transforms are known, by differences along a fixed contour."""
    once = _once(counts)
    per_epsilon, of_one = _by_transforms(pairs, counts, at).slope, None
    if once.any():
        alone, of_one = _one_run(parts, pairs, counts, at)
        per_epsilon = np.where(once, alone, per_epsilon)

    @functools.cache
    def contour(size: Size, rows: tuple[int, ...]) -> Place:
        return placed(size, *_grouped(pairs, counts, np.array(rows)), at[np.array(rows)])

    def slope_in(place: int) -> np.ndarray:
        def tried(size: Size, rows: np.ndarray) -> np.ndarray:
            fixed = contour(size, tuple(rows.tolist()))
            curve = functools.cache(lambda factor: value(fixed, *_grouped(*parts(place, factor), rows)).delta)
            slope = np.full(rows.size, np.nan)
            for step in _STEPS[:2]:
                found, rough = (_difference(curve, width) for width in (step, 2.0 * step))
                agree = np.abs(found[0] - rough[0]) <= _AGREEMENT * np.abs(found[0])
                agree &= np.abs(found[0] - found[1]) <= DIGITS * np.abs(found[0])
                slope = np.where(np.isnan(slope) & agree, found[0], slope)
                if not np.isnan(slope).any():
                    break
            return slope

        slope = of_one(place) if of_one is not None else np.full(at.shape, np.nan)
        return _in_turn(np.where(once, slope, np.nan), ~once, tried)

    return per_epsilon, slope_in


def _by_laws_too(
    per_epsilon: Array,
    slope_in: Callable[[int], np.ndarray],
    parts: Callable[..., _Parts],
    pairs: list[Pair],
    counts: list[np.ndarray],
    at: np.ndarray,
) -> tuple[Array, Callable[[int], np.ndarray]]:
    """The same, and what transforms do not say from differences of composed laws."""
    smooth = has_derivatives(pairs)

    def runs(moved: _Parts, row: int) -> Runs:
        return runs_of(*_grouped(*moved, np.array([row])), 0)

    @functools.cache
    def curve(row: int) -> Curve:
        return Curve(runs((pairs, counts), row), float(at[row]))

    def filled(slopes: np.ndarray, difference: Callable[[int], np.ndarray]) -> np.ndarray:
        for row in np.flatnonzero(np.isnan(slopes) & ~_once(counts) & smooth):
            slopes[row] = extrapolated(difference(int(row)))
        return slopes

    def in_number(place: int) -> np.ndarray:
        def of(row: int) -> np.ndarray:
            def value(factor: float) -> np.ndarray:
                moved = parts(place, factor)
                same = all(a[row] == b[row] for a, b in zip(moved[1], counts, strict=True))
                return curve(row).at(runs(moved, row), float(at[row])) if same else np.full(2, np.nan)

            return _difference(value, _STEPS[0])

        return filled(np.array(slope_in(place)), of)

    def in_epsilon(row: int) -> np.ndarray:
        value = lambda factor: curve(row).at(curve(row).runs, float(at[row]) * factor)  # noqa: E731
        return _difference(value, _STEPS[0]) / at[row]

    return filled(np.array(per_epsilon), in_epsilon), in_number


def _by_transforms(pairs: list[Pair], counts: list[np.ndarray], at: np.ndarray) -> Value:
    """delta and its derivative in epsilon, NaN where two windows differ."""

    def tried(size: Size, rows: np.ndarray) -> np.ndarray:
        query = _grouped(pairs, counts, rows)
        found = np.stack(value(placed(size, *query, at[rows]), *query))  # kinds, windows, settings
        agree = (np.abs(found[:, 0] - found[:, 1]) <= DIGITS * np.abs(found[:, 0])).all(0)
        return np.where(agree, found[:, 0], np.nan)

    return Value(*_in_turn(np.full((2, at.size), np.nan), np.asarray(sum(counts) > 0), tried))


def _in_turn(found: np.ndarray, wanted: np.ndarray, tried: Callable[[Size, np.ndarray], np.ndarray]) -> np.ndarray:
    """``found``, and where it is NaN and ``wanted``, what the first size knows that knows anything."""
    for size in SIZES:
        left = np.flatnonzero(np.isnan(found).reshape(-1, found.shape[-1]).any(0) & wanted)
        for first in range(0, left.size, _ROWS):
            rows = left[first : first + _ROWS]
            found[..., rows] = tried(size, rows)
    return found


def _grouped(pairs: list[Pair], counts: list[np.ndarray], rows: np.ndarray) -> tuple[tuple[Pair, ...], np.ndarray]:
    """Pairs and counts of some settings, as engines want them."""
    return engine.grouped(*jax.tree.map(lambda x: x[rows], (pairs, counts)), np)  # pyright: ignore[reportCallIssue]


def _difference(function: Callable[[float], Array], step: float) -> np.ndarray:
    """The derivative of ``function`` at 1, from both sides or from where it has values."""

    def combined(weights: dict[float, float], sign: float) -> np.ndarray:
        return sum(sign * weight * function(1.0 + sign * at * step) for at, weight in weights.items()) / step  # pyright: ignore[reportReturnType]

    found = combined(_CENTRAL, 1.0)
    for sign in (-1.0, 1.0):
        if np.isnan(found).any():
            found = np.where(np.isnan(found), combined(_ONE_SIDED, sign), found)
    return found
