"""Chooses the curves of a box, near the worst case of an analyst with a few reference queries: `chosen_families`.

The recursion of the worst case, U_b = max over c of T_c U_(b - price_c), on evenly spaced budgets and a lattice of
losses. It need not be a bound: prices are certified against the curves that come out, whatever they are. That they are
near the worst case of low-noise queries is what makes prices low.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxacct import accounting
from jaxacct.filters.prices.family import Family, circular, delta_at, family_of, kinks_of, least_cells, padded
from jaxacct.filters.prices.kernels import Ratios, atoms_of, excess_of
from jaxacct.filters.prices.laws import gaussian_of, menu_laws
from jaxacct.filters.prices.lines import runs_of
from jaxacct.filters.queries import charged_as
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import Gaussian
from jaxacct.mechanisms.base import Mechanism

_BUDGETS = 2500  # of the worst case of references
_MANY_BUDGETS = 5000  # of references whose prices are given: nothing else is chosen
_FEW_BUDGETS = 600  # of a trial
_POINTS = 4096
_LEAST_POINTS = 1024
_CELLS = 4.5  # lattice points in a standard deviation of G
_FINER = 8  # a lattice on which chords cost next to nothing
_DEARER = (1.02, 1.06, 1.2, 1.6, 2.2)
"""What the price of the query with the least noise is multiplied by where that is better than nothing."""
_NEXT = 0.4  # the next reference's price is multiplied by this power of that, and so on
_DEAR_GAUSSIAN = 1.3  # what G's price is multiplied by where that is better
_APART = 1.07  # references' noise at one rate, at least
_MOST = 7  # of them
_WORTH_TWO = 0.03  # by which two families must be better than one, in shares of epsilon
_MIXED = 0.03  # weight of what a query spends in the table that its first run would not choose
_FEW = 4.0  # runs of a query
_WHOLE = 0.8  # of the budget that the whole runs of such a query take: rounding raises each price, too
_SPARED = 0.005  # of delta, where such a query has curves jump: what their rounding takes is relative to the jump
_COARSE = 2.0  # nodes of a trial next to one noise or rate
_COARSER = 1.8  # nodes of two families, which take the room of one


class Fineness(NamedTuple):
    """How finely a table is made: all of it costs tightness at worst."""

    small: float  # G's noise over that of the Gaussian mechanism that meets the target
    grade: float  # distance of nodes over the root of their budget
    sigma: float  # distance of the grid's noise multipliers, in logarithm
    rate: float  # of its rates
    spared: float  # share of delta for the slack of prices


def chosen_families(
    sigma: tuple[float, float],
    rate: tuple[float, float],
    records: int,
    epsilon: float,
    delta: float,
    fine: Fineness,
    tries: bool,
    two: bool,
    report: Callable[[int, int], object],
    others: Sequence[Mechanism],
) -> list[Family]:
    """The family of a few low-noise queries of a box and one small Gaussian G, or two such families on one lattice.

    Low-noise queries bend curves most: how much dearer than alone they are made, and whether G is, is chosen by what a
    few queries of the box then cost. A wide box may have two families, one for low-noise queries and one for the rest.
    All this steers, and is no part of any certificate.

    Without ``tries`` nothing is chosen: all references are as dear as alone. Only with ``two`` there may be two
    families. ``report`` is called with the trials done and their number. ``others`` are followed beside the queries of
    the box, at a price at which they run as often as they do alone: each whole run of a few fits.
    """
    spared = max(fine.spared, _SPARED) if others else fine.spared
    low_noise, tried = _references(sigma, rate), _tried(sigma, rate)
    count = len(low_noise)
    lattice = _lattice(low_noise, tried, others, epsilon, delta, fine._replace(spared=spared), records)
    powers = _NEXT ** np.arange(count)

    def made(budgets: int, factor: float, gaussian: float, grade: float) -> Family:
        dearer = np.concatenate([factor**powers, [gaussian], np.ones(len(others))])
        return _family(lattice, 1.0 / lattice.alone, dearer, budgets, grade)

    def gains(family: Family) -> np.ndarray:
        """What each tried query spends of epsilon until it is refused; next to one rate or noise, where schedules that
        move are meant, how many steps of one there are that has the tried queries in turn.
        """
        steps = np.maximum([runs_of(one, family) for one in lattice.tried], 1.0)
        if rate[0] == rate[1] or sigma[0] == sigma[1]:
            return np.array([1.0 / np.mean(1.0 / steps)])
        queries, whole = [charged_as(s, q, records) for s, q in tried], steps.astype(int)
        low, high = (
            np.array([float(accounting.epsilon(one, delta, steps=k).upper) for one, k in zip(queries, n, strict=True)])  # pyright: ignore[reportAttributeAccessIssue]
            for n in (whole.tolist(), (whole + 1).tolist())
        )
        return (low + (high - low) * (steps - whole)) / epsilon

    trials = [(1.0, 1.0), (1.0, _DEAR_GAUSSIAN), *((factor, None) for factor in _DEARER if count > 1)] if tries else []
    found: dict[tuple[float, float], np.ndarray] = {}
    for i, (factor, gaussian) in enumerate(trials):
        report(i, len(trials) + 2)
        trial = factor, _best(found)[1] if gaussian is None else gaussian
        found[trial] = gains(made(_FEW_BUDGETS, *trial, fine.grade if two else _COARSE * fine.grade))
        # Next to one noise or rate, worth rises with the factor to its greatest value, and falls from there on.
        if not two and factor > 1.0 and _best(found) != trial:
            break
    if not found:
        return [made(_BUDGETS, 1.0, 1.0, fine.grade)]
    best = _best(found)
    if two:
        pair = max(itertools.combinations(found, 2), key=lambda pair: _worth(*(found[one] for one in pair)))
        if _worth(*(found[one] for one in pair)) > _worth(found[best]) + _WORTH_TWO:
            return [made(_BUDGETS, *one, _COARSER * fine.grade) for one in pair]
    return [made(_BUDGETS, *best, fine.grade)]


class _Lattice(NamedTuple):
    """What a family is made of: a lattice, and references, G and further queries as discrete laws."""

    grid: LossGrid
    width: float  # of G
    target: tuple[float, float]
    spared: float
    tried: list[Ratios]  # what a family is tried with
    ones: list[np.ndarray]  # excesses of one run of each that it follows
    dearer: np.ndarray  # how much dearer they are on the lattice
    alone: np.ndarray  # how often each runs


def _lattice(
    references: Sequence[tuple[float, float]],
    tried: Sequence[tuple[float, float]],
    others: Sequence[Mechanism],
    epsilon: float,
    delta: float,
    fine: Fineness,
    records: int = 1,
) -> _Lattice:
    """The lattice for (noise, rate) ``references``, G, and ``others``."""
    width, pairs, count = gaussian_of(epsilon, delta) / fine.small, [*references, *tried], len(references)
    asked = [charged_as(s, q, records) for s, q in pairs] + [Gaussian(1.0 / width), *others]
    try:
        laws, runs = menu_laws(asked, epsilon, delta, _POINTS)  # for the lattice's ends, and how often each runs alone
    except ValueError as refused:
        least, most = min(s for s, _ in pairs), max(q for _, q in pairs)
        raise ValueError(
            f"sigma must be larger, or rate smaller, got {least:.6g} and {most:.6g}: one such query misses "
            f"epsilon {epsilon:g} at delta {delta:g}"
        ) from refused
    atoms = [atoms_of(one, laws.grid) for one in asked]
    runs = runs * _dearer_on(laws.grid, atoms, 8 * _FINER)
    last = len(runs) - len(others)  # of the box and G
    runs[last:] = np.maximum(runs[last:], np.maximum(np.floor(runs[last:] + 1e-6), 1.0) / _WHOLE)
    cells = max(_CELLS, least_cells(epsilon, fine.spared * delta))
    spacing = min(width / cells, (laws.grid.highest - laws.grid.lowest) * laws.grid.spacing / _LEAST_POINTS)
    spacing = epsilon / math.ceil(epsilon / spacing)  # the target is at a point: two curves meet it if each does
    lowest = math.floor(laws.grid.losses[0] / spacing)
    grid = LossGrid(spacing, lowest, math.ceil(laws.grid.losses[-1] / spacing) - lowest + 1)
    # Laws of further queries are rounded as they are where they are priced.
    used = [*atoms[:count], atoms[last - 1], *(atoms_of(one, grid) for one in others)]
    ones, dearer = [excess_of(one, spacing, grid.size) for one in used], _dearer_on(grid, used, _FINER)
    alone = np.append(runs[:count], runs[last - 1 :])
    return _Lattice(grid, width, (epsilon, delta), fine.spared, atoms[count : last - 1], ones, dearer, alone)


def _family(lattice: _Lattice, shares: np.ndarray, dearer: np.ndarray, budgets: int, grade: float) -> Family:
    """The family of the worst case of queries whose runs take ``shares`` times ``dearer`` of the budget."""
    grid, (epsilon, delta) = lattice.grid, lattice.target
    prices = lattice.dearer * budgets * shares
    times = np.ceil(1.0 / prices).astype(int)  # what runs more often than there are budgets runs so often at once
    singles = [several(one, int(k), grid.spacing) for one, k in zip(lattice.ones, times, strict=True)]
    enough = lambda curve: delta_at(curve, grid, epsilon) >= 1.5 * delta  # noqa: E731
    curves = worst_curves(singles, prices * times * dearer, lattice.alone >= _FEW, grid, enough)
    return family_of(curves, grid, lattice.width, epsilon, delta, grade, lattice.spared)


def family_of_costs(
    queries: Sequence[tuple[float, float]], costs: np.ndarray, epsilon: float, delta: float, fine: Fineness
) -> Family:
    """The family of the worst case of (noise, rate) ``queries`` whose prices are in the ratio of ``costs``."""
    lattice = _lattice(queries, [], [], epsilon, delta, fine)
    shares = np.append(costs / (costs * lattice.alone[:-1]).max(), 1.0 / lattice.alone[-1])
    return _family(lattice, shares, np.ones(shares.size), _MANY_BUDGETS, fine.grade)


def _best(found: dict[tuple[float, float], np.ndarray]) -> tuple[float, float]:
    return max(found, key=lambda trial: _worth(found[trial]))


def _worth(*gains: np.ndarray) -> float:
    """Of families between which a query's first run chooses."""
    best = np.max(gains, axis=0)
    return float(best.mean() + 0.5 * best.min() + _MIXED * np.min(gains, axis=0).mean())


def _dearer_on(grid: LossGrid, atoms: Sequence[Ratios], finer: int) -> np.ndarray:
    """How much dearer queries are on a lattice than on a finer one: chords are above curves."""
    spacing, size = grid.spacing, grid.size
    coarse = np.array([excess_of(one, spacing, size).sum() for one in atoms])
    return coarse * finer / np.array([excess_of(one, spacing / finer, size * finer).sum() for one in atoms])


def _references(sigma: tuple[float, float], rate: tuple[float, float]) -> list[tuple[float, float]]:
    """The queries whose worst case the family follows, the one with the least noise first."""
    if rate[0] == rate[1]:
        count = min(math.ceil(math.log(sigma[1] / sigma[0]) / math.log(_APART)) + 1, _MOST)
        return [(float(s), rate[0]) for s in np.geomspace(*sigma, count)]
    return [(sigma[0], float(q)) for q in np.geomspace(rate[1], math.sqrt(rate[0] * rate[1]), 3)]


def _tried(sigma: tuple[float, float], rate: tuple[float, float]) -> list[tuple[float, float]]:
    """Queries of the box that prices are chosen for: five noises at one rate, else three of both."""
    count = 5 if rate[0] == rate[1] else 3
    noises, rates = (sorted({*map(float, np.geomspace(*ends, count))}) for ends in (sigma, rate))
    return [(s, q) for s in noises for q in rates]


def several(single: np.ndarray, times: int, spacing: float) -> np.ndarray:
    """The excess over sqrt(gamma) of so many runs of a query, at the offsets of ``single``, that of one run."""
    n = single.size
    wide = LossGrid(spacing, -(n // 2), n)

    def both(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        kernel = np.fft.rfft(np.pad(second, (0, padded(n) - n)))
        more = np.fft.irfft(np.fft.rfft(kinks_of(first, wide), padded(n)) * kernel, padded(n))
        return first + np.maximum(more[n // 2 : n // 2 + n], 0.0)

    found = single
    for bit in f"{times:b}"[1:]:
        found = both(found, found)
        if bit == "1":
            found = both(found, single)
    return found


def worst_curves(
    singles: Sequence[np.ndarray],
    prices: Sequence[float] | np.ndarray,
    ramps: Sequence[bool] | np.ndarray,
    grid: LossGrid,
    enough: Callable[[np.ndarray], bool],
) -> np.ndarray:
    """Excesses over sqrt(gamma) of budgets 0, 1, 2, ..., up to the first one that is ``enough``.

    ``singles`` are the queries' own, at offsets ``-(grid.size - 1) .. grid.size - 1``; their ``prices`` are at least 1.
    ``ramps`` says for which of them curves rise before a first run fits, so that nothing jumps: a part of the ramp of a
    query that runs a few times, and then a run, are a part of a run too many.
    """
    n = grid.size
    kernels = [np.fft.rfft(circular(one, n)) for one in singles]
    alone = [one[n - 1 + grid.lowest :][:n] for one in singles]
    curves = [np.zeros(n)]
    composed: list[list[np.ndarray]] = [[] for _ in singles]
    while not (len(curves) % 32 == 0 and enough(curves[-1])):
        spectrum = np.fft.rfft(kinks_of(curves[-1], grid), padded(n))
        at = len(curves)  # the next budget
        best = curves[-1]
        for done, kernel, single, price, ramp in zip(composed, kernels, alone, prices, ramps, strict=True):
            done.append(curves[-1] + np.maximum(np.fft.irfft(spectrum * kernel, padded(n))[:n], 0.0))
            before = at - price
            if before >= 0:
                i = min(int(before), len(done) - 1)
                one = done[i] if i + 1 >= len(done) else done[i] + (before - i) * (done[i + 1] - done[i])
                if i:
                    done[i - 1] = one[:0].copy()  # no longer needed
            else:
                one = single * (at / price) if ramp else curves[-1]
            best = np.maximum(best, one)
        curves.append(best)
    return np.stack(curves)
