"""`menu`: a budget for queries from a menu, chosen with full adaptivity, at the menu's worst case."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate, accounting
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.accounting.batch import Bounds
from jaxacct.filters.guarantees import certified
from jaxacct.filters.prices.arguments import check_mechanisms, check_target
from jaxacct.filters.prices.entries import edges_of, shrunk
from jaxacct.filters.prices.family import delta_at
from jaxacct.filters.prices.kept import Progress, digest, kept
from jaxacct.filters.prices.laws import lost_to_rounding, menu_laws
from jaxacct.filters.prices.menu_table import budget_table
from jaxacct.filters.prices.online import MenuCurves
from jaxacct.filters.prices.table import TableFilter
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism

_VERSION = 5  # of the table format and of how it is computed; increase it to invalidate cached tables
_MOST_UNITS = 2**31 - 2
_LEAST_NODES = 600
_FEW = 4.0  # runs of the loudest entry, below which U is a staircase
_LEAST_UNIT = 16
_MOST_STEPS = 6000  # of a staircase
_SPARED = 0.01  # of delta, where the table is to price what is off the menu


def menu(
    mechanisms: Sequence[Mechanism],
    *,
    epsilon: float,
    delta: float,
    unit: int = 288,
    points: int | None = None,
    online: bool = False,
    cache: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> TableFilter:
    """A filter that keeps a fully adaptive interaction (epsilon, delta)-DP by the exact worst case of a menu.

    Entry m costs c_m units, in inverse proportion to how often it alone may run within the target. The analyst may
    ask for anything on the menu at any time as long as the units last. The worst case of all such analysts, W_B, is
    computed with certified upper bounds (docs/proofs/filters.md), and the budget B is the largest
    whose certified curve meets the target, in both directions: a table of `remove` is enough, because domination at
    all orders gamma >= 0 carries over to the reversed pair by H_rev(gamma) = 1 - gamma + gamma H(1 / gamma).

    By Lemma 1 of the residue paper this is the exact worst case of an adaptive analyst under a rule. It uses no
    central limit theorem and no Rényi conversion. The table is computed once for a menu and a target, and kept on disk
    (see :func:`jaxacct.filters.prices.kept.directory`; ``JAXACCT_CACHE_DIR`` moves it). The time grows with the number
    of runs of the cheapest entry, the entries, and the points.

    Args:
        mechanisms: with scalar, concrete parameters, for instance from `gaussian_menu`; entries that are no
            (sampled) Gaussians are asked for by their position. A release of validation accuracy is an entry of its
            own, for instance `Gaussian(50.0)`.
        epsilon: target, > 0 and at most 100.
        delta: target, strictly between 0 and 1. Rounding adds some 1e-13 exp(epsilon) a run
            to the bound (soundly), so a delta below that has no useful table.
        unit: units of the cheapest entry: the resolution of prices; at least 16.
        points: the lattice's points, from 256; without it a power of 2, by the number of runs.
        online: whether concrete queries outside of compiled code pay the least price that is certified for what is
            left when they are asked. A query between two entries then costs between their prices (a menu of a few
            entries is enough). A query with less noise than all of them, or of another kind (a `Laplace` in between),
            has a price too, and the last units, too few for any entry, can still be spent. This uses a hundredth of
            delta, and the table's curves are kept: 8 bytes a node and point, 11 MB for 700 nodes of 2,048 points, some
            hundred MB for thousands of steps. Domination is asked at all epsilons, so a query with a far heavier tail
            than the entries can be dear, or have no price.
        cache: whether to look for the table on disk, and to leave it there.
        progress: called as ``progress(done, total)`` while the table grows; the total is an estimate.

    Raises:
        ValueError: a bad argument (named), an empty menu, an entry that misses the target at once, or entries whose
            prices are so far apart that the table does not fit into memory.
    """
    target = check_target(
        *("menu", mechanisms), epsilon=epsilon, delta=delta, progress=progress, cache=cache, online=online
    )
    check_mechanisms(mechanisms=mechanisms)
    if not len(mechanisms):
        raise ValueError("mechanisms must hold at least one, got none")
    _validate.whole(unit=unit)
    _validate.at_least(_LEAST_UNIT, unit=unit)
    _validate.at_most(100_000, unit=unit)
    if points is not None:
        _validate.whole(points=points)
        _validate.at_least(256, points=points)
        _validate.at_most(2**24, points=points)
        points = int(points)
    entries, unit = [shrunk(one) for one in mechanisms], int(unit)
    key = digest(f"menu {_VERSION}" + ", whole" * online, entries, *target, unit, points or 0)
    make = lambda told: _arrays(entries, *target, unit, points, told, online)  # noqa: E731
    return _filter_of(mechanisms, kept(key, make, cache, progress), target)


def _arrays(
    entries: list[Mechanism],
    epsilon: float,
    delta: float,
    unit: int,
    points: int | None,
    progress: Progress,
    whole: bool,
) -> dict[str, np.ndarray]:
    """The arrays of a menu's table; with ``whole`` also the curves of all its nodes."""
    laws, runs = menu_laws(entries, epsilon, delta, points)
    most = runs.max()
    few = runs.min() < _FEW and _LEAST_UNIT * most <= _MOST_STEPS
    if few:
        unit = min(unit, max(_LEAST_UNIT, int(_MOST_STEPS / most)))
    # Accounts are int32. An entry whose price would not fit is charged the largest one, and the table is computed for
    # the prices that are charged.
    prices = np.clip(np.rint(unit * most / runs), unit, _MOST_UNITS).astype(np.int64)
    # A node is 8/9 of the cheapest price or a part of that: never equal to it, and many enough for the interpolation.
    node = 1 if few else max(1, 8 * unit // 9 // max(1, round(_LEAST_NODES / most)))
    total = int(unit * most / node)
    report = (lambda done: progress(min(done, total), total)) if progress is not None else None
    spared = _SPARED if whole else 0.0
    fade = np.exp(-0.5 * laws.grid.losses)
    met = lambda curve: delta_at(curve * fade, laws.grid, epsilon) <= deflated(delta, spared + 1e-9)  # noqa: E731
    table = budget_table(laws, prices, node, met, _MOST_UNITS, report, whole, few)
    if table.budget < prices.min():
        raise ValueError(
            f"mechanisms must hold a query that fits within epsilon {epsilon:g} at delta {delta:g}, got none: no "
            f"entry's certified cost does{lost_to_rounding(epsilon, delta)}"
        )
    found = {
        "prices": prices,
        "budget": np.array(table.budget),
        "excess": table.excess,
        "spacing": np.array(laws.grid.spacing),
        "lowest": np.array(laws.grid.lowest),
    }
    if whole:
        # As docs/proofs/filters.md, 5, proves: a little more for every unit, the same in both directions.
        steps = laws.grid.spacing * np.arange(-laws.below, laws.above + 1)
        if max(laws.masses.sum(-1).max(), (laws.masses * np.exp(-steps)).sum(-1).max()) > 1 + 1e-9:
            raise ArithmeticError("an entry's law on the lattice holds more than probability 1")
        slack = spared * delta / table.budget
        added = slack * table.budget * np.exp(np.minimum(laws.grid.losses, 0.0))
        found |= {"excess": inflated(table.excess + added, 2.0**-45), "slack": np.array(slack)}
        found |= {"curves": table.curves, "node": np.array(node), "reach": np.array(max(laws.below, laws.above))}
    return found


def _filter_of(
    mechanisms: Sequence[Mechanism], arrays: dict[str, np.ndarray], target: tuple[float, float]
) -> TableFilter:
    grid = LossGrid(float(arrays["spacing"]), int(arrays["lowest"]), arrays["excess"].size)
    profile = certified(arrays["excess"], grid, *target)
    if max(arrays["prices"].max(), arrays["budget"]) > _MOST_UNITS:
        raise ArithmeticError(f"prices must fit int32, got {arrays['prices'].tolist()} and budget {arrays['budget']}")
    curves, budget = None, int(arrays["budget"])
    if "curves" in arrays:
        node, slack, reach = int(arrays["node"]), float(arrays["slack"]), int(arrays["reach"])
        curves = MenuCurves(arrays["curves"], node, budget, slack, reach, grid, tuple(mechanisms))
    noise, rate = edges_of(mechanisms)
    return fixed_prices(arrays["prices"], budget, noise, rate, profile, target, curves)


def fixed_prices(
    prices: ArrayLike,
    budget: int,
    noise: Array,
    rate: Array,
    curve: PrivacyProfile,
    target: tuple[float, float],
    promise: MenuCurves | None = None,
) -> TableFilter:
    """A table of entries whose prices, in units, do not depend on what is left; the rest as in `TableFilter`."""
    lines = np.broadcast_to(np.asarray(prices, np.int32)[:, None], (2, np.size(prices), 1)).copy()
    axis = np.zeros((0, 3), np.float32)
    return TableFilter(lines, np.array([0, budget], np.int32), axis, axis, noise, rate, curve, target, promise)


def constant_schedules(filter: TableFilter, mechanisms: Sequence[Mechanism], delta: ArrayLike) -> Bounds:
    """Bounds on epsilon of each entry run alone for the whole budget, fixed in advance: adaptivity's baseline.

    The filter admits every one of them, so the largest ``lower`` is a lower bound for the filter's
    guarantee. The ratio of the two bounds the overhead of adaptivity, all of the table's slack included.

    Args:
        filter: from `menu`.
        mechanisms: those it was made from.
        delta: a number strictly between 0 and 1.

    Returns:
        Bounds of shape ``(entries,)``; 0 for an entry of which not one fits.
    """
    if not (isinstance(filter, TableFilter) and filter.fixed):
        raise ValueError(f"filter must be one of filters.menu, got {filter!r:.200}")
    _validate.scalar(_validate.probability, delta=delta)
    runs = np.asarray(filter.budget) // np.asarray(filter.prices)
    if not isinstance(mechanisms, Sequence) or len(mechanisms) != runs.size:
        raise ValueError(f"mechanisms must be the {runs.size} that filter was made from, got {mechanisms!r:.200}")
    found = [
        accounting.epsilon(one, delta, steps=int(n)) if n else Bounds(np.zeros(()), np.zeros(()))
        for one, n in zip(mechanisms, runs, strict=True)
    ]
    return Bounds(*(np.array([getattr(x, side) for x in found]) for side in ("lower", "upper")))
