"""Makes the filter for Poisson-sampled Gaussians whose noise and rate lie in given ranges: `sampled_gaussian`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.pytree import replaced
from jaxacct.filters import amounts
from jaxacct.filters.guarantees import certified
from jaxacct.filters.prices.arguments import check_mechanisms, check_ranges, check_target
from jaxacct.filters.prices.entries import covered, edges_of, narrow, shrunk
from jaxacct.filters.prices.family import UNITS, prepared
from jaxacct.filters.prices.grid_table import box_tables, within
from jaxacct.filters.prices.kept import Progress, digest, kept
from jaxacct.filters.prices.look_up import axes_of
from jaxacct.filters.prices.packed import least_of, unpacked
from jaxacct.filters.prices.table import TableFilter
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import PureDP
from jaxacct.mechanisms.base import Mechanism

_VERSION = 19  # of the table format and algorithm: increase it to invalidate cached tables
_MOST_RECORDS = 10_000  # of a user


def sampled_gaussian(
    *,
    sigma: float | tuple[float, float],
    rate: float | tuple[float, float],
    epsilon: float,
    delta: float,
    records: int = 1,
    extra: Sequence[Mechanism] = (),
    cache: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> TableFilter:
    """A filter that keeps a fully adaptive interaction (epsilon, delta)-DP, for all sampled Gaussians of a box.

    Noise and rate of each step may be chosen freely in the box, by looking at all earlier outputs, inside a compiled
    step. The price of a step depends on its noise and rate and on the budget left: it is the least one for which the
    promise for the budget left, composed with the step, is certified to stay below the promise before it
    (docs/theorems/prices.md). It uses no central limit theorem and no Rényi conversion.

    The table is computed once for a box and a target, and kept on disk (``JAXACCT_CACHE_DIR`` moves it). The time goes
    as the logarithms of both ranges: half a minute for one rate and a range of noise, a minute or two for wide boxes.
    Where a wide box has queries that can run a few times only, it has two tables: an account's first query picks the
    one in which it is cheaper, for good, and the other kind is dearer from then on (docs/filters.md has figures).

    Args:
        sigma: the smallest and the largest noise multiplier (noise over sensitivity), > 0; or one number. Steps with
            more noise pay for the largest.
        rate: the smallest and the largest sampling rate in (0, 1]; or one number.
        epsilon: target, > 0 and at most 100.
        delta: target, strictly between 0 and 1.
        records: the most records of one user, from 1 to 10,000. Neighbours differ in all records of a user (as in
            `UserLevel`), and so must mechanisms of ``extra``.
        extra: further mechanisms with scalar, concrete parameters, asked for by their position: a `Laplace` release of
            an accuracy, a `Gaussian` on all records.
        cache: whether to look for the table on disk, and to leave it there.
        progress: called as ``progress(done, total)`` while the table grows.

    Raises:
        ValueError: a bad argument (named), or ranges of which the least noise at the largest rate misses the
            target at once.
    """
    target = check_target(
        *("sampled_gaussian", sigma, rate, extra), epsilon=epsilon, delta=delta, progress=progress, cache=cache
    )
    check_mechanisms(extra=extra)
    _validate.integer(1, _MOST_RECORDS, records=records)
    noises, rates = ranges(sigma, rate)
    return _made(noises, rates, target, list(extra), cache, progress, two=True, records=int(records))


def ranges(
    sigma: float | tuple[float, float], rate: float | tuple[float, float]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ranges of noise and rate that a filter is made for, a hair wider than asked; raises for bad ones."""
    noises, rates = check_ranges(sigma, rate)
    # A float32 program's queries at the low-noise ends of the ranges are inside.
    least, most = (float(end) for end in covered(noises[0], rates[1]))
    noises = least, least if noises[0] == noises[1] else float(narrow(noises[1], up=True))
    rates = most if rates[0] == rates[1] else float(narrow(rates[0], up=False)), most
    return noises, rates


def with_one_table(box: TableFilter) -> TableFilter:
    """A box with a single table for the same ranges and target, from the disk or computed."""
    if box.other is None:
        return box
    with jax.enable_x64(True):
        noises, rates = ((float(x[0]), float(x[-1])) for x in axes_of(box))
    return _made(noises, rates, box.target, [], True, None, two=False, records=box.records)


def _made(
    noises: tuple[float, float],
    rates: tuple[float, float],
    target: tuple[float, float],
    extra: Sequence[Mechanism],
    cache: bool,
    progress: Progress,
    *,
    two: bool,
    records: int,
) -> TableFilter:
    entries = [shrunk(one) for one in extra]
    key = digest(f"box {_VERSION}", noises, rates, records, *target, entries, two)

    def make(told: Progress) -> dict[str, np.ndarray]:
        tables = box_tables(noises, rates, records, *target, entries, two, told or (lambda done, total: None))
        return {f"{name} {i}": array for i, table in enumerate(tables) for name, array in table.items()}

    arrays = kept(key, make, cache, progress)
    # To a user no sampled Gaussian is an entry: those are what they are to all records at once.
    edges = edges_of(extra if records == 1 else [PureDP(1.0)] * len(extra))
    first, *others = (
        _filter_of(
            {name.removesuffix(end): arrays[name] for name in arrays if name.endswith(end)}, edges, target, records
        )
        for end in (" 0", " 1")
        if f"lines{end}" in arrays
    )
    if not others:
        return first
    if not all(np.array_equal(getattr(first, name), getattr(others[0], name)) for name in ("sigmas", "rates")):
        raise ArithmeticError("both tables of a box must have the same noise multipliers and rates")
    both = replaced(first.curve, excess=np.maximum(first.curve.excess, others[0].curve.excess))
    return dataclasses.replace(first, curve=both, other=others[0])


def _filter_of(
    kept: dict[str, np.ndarray], edges: tuple[np.ndarray, np.ndarray], target: tuple[float, float], records: int
) -> TableFilter:
    grid = LossGrid(float(kept["spacing"]), int(kept["lowest"]), kept["promised"].size)
    width, slack, far = (float(kept[name]) for name in ("width", "slack", "far"))
    inside = within(kept["support"], grid.size)
    excess = np.zeros(inside.shape)
    excess[inside] = unpacked(kept["excess"], least_of(slack, far))
    family = prepared(grid, kept["nodes"] / UNITS, excess, width, slack, far)
    with jax.enable_x64(True):
        sigmas, rates = (np.asarray(amounts.split(kept[name])) for name in ("sigmas", "rates"))
    lines, curve = kept["lines"], certified(kept["promised"], grid, *target)
    nodes = kept["nodes"][: lines.shape[-1] + 1].astype(np.int32)
    return TableFilter(lines, nodes, sigmas, rates, *edges, curve, target, family, records=records)
