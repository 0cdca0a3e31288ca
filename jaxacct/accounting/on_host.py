"""Answers in NumPy on the host, by the same code as for eager calls, and their derivatives; calls no program.

Bounds are not differentiated: the derivatives of their errors mean nothing. Both carry the derivative of the value
that they enclose; epsilon(delta) is implicit, d epsilon = (d delta - d_parameters delta) / (d delta / d epsilon).
A derivative is 0 where the answer is exactly 0, and NaN where none is known or to be trusted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, column, xp
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

    def parts(place: int | None = None, factor: float = 1.0) -> _Parts:
        """Pairs and counts of the worse direction, with one of the numbers multiplied."""
        moved = [number * factor if i == place else number for i, number in enumerate(numbers)]
        with fractional_steps():
            query = Batch.of(*question.asked(constants, moved), question.relation).query
        return jax.tree.map(lambda x: x[rows], query[:2])

    curve = _Derivatives(parts, np.where(inside, at, 1.0))
    if question.kind == "epsilon":
        curve.to_root(np.broadcast_to(found.lower, shape).ravel(), np.asarray(batch.query[2][rows]))
    per_epsilon = curve.in_epsilon().reshape(shape)
    slopes = []
    for place, (leaf, is_wanted) in enumerate(zip(np.flatnonzero(question.traced), wanted, strict=True)):
        if not is_wanted:
            continue
        own = leaf == question.target
        value = 0.0 if own else curve.in_number(place).reshape(shape) / np.broadcast_to(numbers[place], shape)
        value = implicit(question.kind, value, per_epsilon, own)
        value = np.where(inside.reshape(shape) & np.isfinite(value), value, np.nan)
        slopes.append(np.where(found.upper == 0.0, 0.0, value))
    return slopes


def implicit(kind: str, slope: Real, per_epsilon: Array, is_target: bool) -> Real:
    """The derivative of the answer from that of delta."""
    if kind == "delta":
        return per_epsilon if is_target else slope
    return (float(is_target) - slope) / xp.where(per_epsilon < 0, per_epsilon, np.nan)


class _Derivatives:
    """Derivatives of delta at an epsilon ``at`` for each setting.

    One run of any pair has them by differences of its curve, compositions of which the transforms are known by
    differences along a fixed contour, and what these do not say by differences of composed laws.
    """

    def __init__(self, parts: Callable[..., _Parts], at: np.ndarray) -> None:
        self.parts, self.at = parts, at
        self.pairs, self.counts = parts()
        self.once = self.counts[0] == 1.0 if len(self.counts) == 1 else np.zeros(at.shape, bool)
        self.contour, self.law = functools.cache(self._contour), functools.cache(self._law)

    def to_root(self, lower: np.ndarray, goal: np.ndarray) -> None:
        """Puts ``at`` where delta is ``goal``, if bounds of that are wide: a step of Newton's method."""
        wide = (self.at - lower > _NARROW * self.at) & ~self.once
        if not wide.any() or not has_derivatives(self.pairs):
            return
        values, slope = self._by_transforms()
        root = np.clip(self.at - (values - goal) / slope, lower, self.at)
        self.at = np.where(wide & np.isfinite(root), root, self.at)

    def in_epsilon(self) -> np.ndarray:
        """The derivative in epsilon."""
        # Of one run the best event {L > epsilon} may be held fixed.
        one = -np.exp(self.at) * self.pairs[0].tails(column(self.at)).q_above[..., 0] if self.once.any() else np.nan
        found = np.where(self.once, one, np.nan)
        if not self.once.all():
            found = np.where(self.once, found, self._by_transforms().slope)

        def by_law(row: int) -> np.ndarray:
            values = lambda factor: self.law(row).at(self.law(row).runs, float(self.at[row]) * factor)  # noqa: E731
            return _difference(values, _STEPS[0]) / self.at[row]

        return self._filled(found, by_law)

    def in_number(self, place: int) -> np.ndarray:
        """The derivative in the logarithm of a number."""
        moved = functools.cache(functools.partial(self.parts, place))

        def tried(size: Size, rows: np.ndarray) -> np.ndarray:
            fixed = self.contour(size, tuple(rows.tolist()))
            return _agreed(lambda factor: value(fixed, *_grouped(*moved(factor), rows)).delta, _STEPS[:2])

        def by_law(row: int) -> np.ndarray:
            def values(factor: float) -> np.ndarray:
                same = all(a[row] == b[row] for a, b in zip(moved(factor)[1], self.counts, strict=True))
                return self.law(row).at(_runs(moved(factor), row), float(self.at[row])) if same else np.full(2, np.nan)

            return _difference(values, _STEPS[0])

        found = np.full(self.at.shape, np.nan)
        # Where the number of runs moves, one run knows of no other.
        if self.once.any() and not np.any(moved(1.0 + _STEPS[0])[1][0] != self.counts[0]):
            one = _agreed(lambda factor: single_value(moved(factor)[0][0], self.at), _STEPS)
            found = np.where(self.once, one, np.nan)
        return self._filled(_in_turn(found, ~self.once, tried), by_law)

    def _filled(self, slopes: np.ndarray, by_law: Callable[[int], np.ndarray]) -> np.ndarray:
        """``slopes``, and what composed laws say where they are NaN."""
        for row in np.flatnonzero(np.isnan(slopes) & ~self.once & has_derivatives(self.pairs)):
            slopes[row] = extrapolated(by_law(int(row)))
        return slopes

    def _contour(self, size: Size, rows: tuple[int, ...]) -> Place:
        return placed(size, *_grouped(self.pairs, self.counts, np.array(rows)), self.at[np.array(rows)])

    def _law(self, row: int) -> Curve:
        return Curve(_runs((self.pairs, self.counts), row), float(self.at[row]))

    def _by_transforms(self) -> Value:
        """delta and its derivative in epsilon, NaN where two windows differ."""

        def tried(size: Size, rows: np.ndarray) -> np.ndarray:
            query = _grouped(self.pairs, self.counts, rows)
            found = np.stack(value(placed(size, *query, self.at[rows]), *query))  # kinds, windows, settings
            agree = (np.abs(found[:, 0] - found[:, 1]) <= DIGITS * np.abs(found[:, 0])).all(0)
            return np.where(agree, found[:, 0], np.nan)

        return Value(*_in_turn(np.full((2, self.at.size), np.nan), ~self.once & (sum(self.counts) > 0), tried))


def _in_turn(found: np.ndarray, wanted: np.ndarray, tried: Callable[[Size, np.ndarray], np.ndarray]) -> np.ndarray:
    """``found``, and where it is NaN and ``wanted``, what the first size knows that knows anything."""
    for size in SIZES:
        left = np.flatnonzero(np.isnan(found).reshape(-1, found.shape[-1]).any(0) & wanted)
        for first in range(0, left.size, _ROWS):
            rows = left[first : first + _ROWS]
            found[..., rows] = tried(size, rows)
    return found


def _grouped(pairs: list[Pair], counts: list[np.ndarray], rows: np.ndarray) -> tuple[tuple[Pair, ...], Array]:
    """Pairs and counts of some settings, as engines want them."""
    return engine.grouped(*jax.tree.map(lambda x: x[rows], (pairs, counts)))  # pyright: ignore[reportCallIssue]


def _runs(parts: _Parts, row: int) -> Runs:
    return runs_of(*_grouped(*parts, np.array([row])), 0)


def _agreed(curve: Callable[[float], Array], steps: tuple[float, ...]) -> np.ndarray:
    """The derivative of ``curve`` at 1, or of its first row, by the first step that others agree with; NaN for none.

    Others are twice the step, and the last row.
    """
    curve, slope = functools.cache(curve), np.full((), np.nan)
    for step in steps:
        found, rough = (np.atleast_2d(_difference(curve, size)) for size in (step, 2.0 * step))
        agree = np.abs(found[0] - rough[0]) <= _AGREEMENT * np.abs(found[0])
        agree &= np.abs(found[0] - found[-1]) <= DIGITS * np.abs(found[0])
        slope = np.where(np.isnan(slope) & agree, found[0], slope)
        if not np.isnan(slope).any():
            break
    return slope


def _difference(function: Callable[[float], Array], step: float) -> np.ndarray:
    """The derivative of ``function`` at 1, from both sides or from where it has values."""

    def combined(weights: dict[float, float], sign: float) -> np.ndarray:
        return sum(sign * weight * function(1.0 + sign * at * step) for at, weight in weights.items()) / step  # pyright: ignore[reportReturnType]

    found = combined(_CENTRAL, 1.0)
    for sign in (-1.0, 1.0):
        if np.isnan(found).any():
            found = np.where(np.isnan(found), combined(_ONE_SIDED, sign), found)
    return found
