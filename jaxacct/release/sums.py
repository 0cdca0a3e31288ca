"""Private sums and means of numbers that are clamped to stated bounds."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.filters.base import Filter
from jaxacct.ledger.ledger import Ledger
from jaxacct.mechanisms import Composed
from jaxacct.release.noise import check_people, noise, noises
from jaxacct.release.released import Released, released
from jaxacct.release.rows import as_rows
from jaxacct.release.samplers import Number, as_fraction


def bounded_sum(
    values: ArrayLike,
    budget: Ledger | Filter,
    *,
    lower: Number,
    upper: Number,
    scale: Number | None = None,
    sigma: Number | None = None,
    grid: Number = 1,
    relation: str = "add_or_remove",
    max_rows: int = 1,
    state: object = None,
    label: str = "",
) -> Released:
    """The sum of ``values``, each rounded to the ``grid`` and clamped to [lower, upper], plus noise on the grid.

    One person moves it by at most ``max_rows`` times max(|lower|, |upper|) under ``"add_or_remove"``, and ``max_rows``
    times (upper - lower) under ``"replace"``; the bounds are rounded to the grid as the values are. The sum is of whole
    numbers of steps, and exact.

    Args:
        values: (rows,) of numbers; infinite ones are clamped, NaN is refused.
        budget: as in `jaxacct.release.count`.
        lower, upper: bounds, fixed without a look at the data.
        scale, sigma: of the noise, in the units of ``values``, as in `jaxacct.release.count`. In steps of the grid it
            is rounded up to a float64, with which it is charged and drawn.
        grid: the step; a float is the fraction that it is, ``Fraction("0.01")`` is a hundredth.
        relation, max_rows, state, label: as in `jaxacct.release.count`.

    Returns:
        A `Released`; ``value`` is a whole number if the grid is, else the float next to a number of steps.

    Raises:
        ValueError: bad arguments, before anything is charged.
        LedgerError: do not release.
    """
    check_people(relation, max_rows)
    steps = _steps(values, lower, upper, grid)
    width, true = noise(scale, sigma, steps.size), sum(steps.rows)
    mechanism = width.of_number(max_rows * steps.farthest(0, relation))
    return released(lambda: steps.in_units(true + width.draw(1)[0]), mechanism, budget, state, label)


def mean(
    values: ArrayLike,
    budget: Ledger | Filter,
    *,
    lower: Number,
    upper: Number,
    scale: object = None,
    sigma: object = None,
    grid: Number = 1,
    relation: str = "add_or_remove",
    max_rows: int = 1,
    state: object = None,
    label: str = "",
) -> Released:
    """The mean of ``values``, rounded and clamped as in `jaxacct.release.bounded_sum`: a noisy sum over a noisy count.

    The sum is that of distances from the middle of the bounds, which move by half as much: max_rows (upper - lower) / 2
    under ``"add_or_remove"``. Sum and count are asked for in one request, and both or none are charged; the quotient,
    clamped to the bounds, is made of the two alone. Under ``"replace"`` the number of rows is public, the count has no
    noise and costs nothing, and the sum moves by max_rows (upper - lower).

    Args:
        values, budget, lower, upper, grid, relation, max_rows, state, label: as in `jaxacct.release.bounded_sum`.
        scale, sigma: two numbers, of the sum's noise in the units of ``values``, and of the count's; under
            ``"replace"`` the first alone.

    Returns:
        A `Released`; ``value`` is a float within the bounds.

    Raises:
        ValueError: bad arguments, before anything is charged; under ``"replace"``, no rows.
        LedgerError: do not release.
    """
    check_people(relation, max_rows)
    steps = _steps(values, lower, upper, grid)
    middle, number = (steps.lower + steps.upper) // 2, len(steps.rows)
    true, moves = sum(steps.rows) - middle * number, max_rows * steps.farthest(middle, relation)
    if relation == "replace":
        if not number:
            raise ValueError("values must hold at least one row, got none")
        width, of_count = noise(scale, sigma, steps.size), None
        mechanism = width.of_number(moves)
    else:
        width, of_count = noises(scale, sigma, steps.size)
        mechanism = Composed([width.of_number(moves), of_count.of_number(max_rows)])

    def draw() -> float:
        total = true + width.draw(1)[0]
        over = number if of_count is None else max(1, number + of_count.draw(1)[0])
        return float(steps.size * min(max(middle + Fraction(total, over), steps.lower), steps.upper))

    return released(draw, mechanism, budget, state, label)


class _Steps(NamedTuple):
    """Numbers as whole steps of a grid, each clamped to [lower, upper] steps."""

    rows: list[int]
    lower: int
    upper: int
    size: Fraction

    def farthest(self, middle: int, relation: str) -> int:
        """How far one row moves the sum of distances from ``middle``, in steps."""
        return self.upper - self.lower if relation == "replace" else max(self.upper - middle, middle - self.lower)

    def in_units(self, steps: int) -> int | float:
        value = steps * self.size
        return int(value) if self.size.denominator == 1 else float(value)


def _steps(values: ArrayLike, lower: Number, upper: Number, grid: Number) -> _Steps:
    size = as_fraction(_validate.positive, grid=grid)
    _validate.at_least(1e-300, grid=float(size))
    _validate.at_most(1e300, grid=float(size))
    bounds = as_fraction(_validate.finite, lower=lower), as_fraction(_validate.finite, upper=upper)
    low, high = (round(bound / size) for bound in bounds)
    if not -(2**53) <= low < high <= 2**53:
        raise ValueError(
            f"lower and upper must be at least one step of the grid apart, and at most 2^53 steps from 0, got {lower} "
            f"and {upper} on a grid of {grid}"
        )
    # What a row becomes depends on that row alone, however NumPy rounds it, and lies within the bounds.
    rows = as_rows("values", values, "iuf").astype(np.float64)
    with np.errstate(over="ignore"):
        clamped = np.clip(np.rint(rows / float(size)), low, high)
    return _Steps(clamped.astype(np.int64).tolist(), low, high, size)
