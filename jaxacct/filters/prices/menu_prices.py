"""`kept_table`: the table of a menu, from the disk or computed."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.filters.prices.entries import shrunk
from jaxacct.filters.prices.kept import Progress, digest, kept
from jaxacct.filters.prices.laws import delta_of, menu_laws
from jaxacct.filters.prices.menu_table import budget_table
from jaxacct.mechanisms.base import Mechanism

_VERSION = 3  # of the table format and of how it is computed; increase it to invalidate cached tables
MOST_UNITS = 2**31 - 2
_LEAST_NODES = 600
_FEW = 4.0  # runs of the loudest entry, below which U is a staircase
_LEAST_UNIT = 16
_MOST_STEPS = 6000  # of a staircase
_SPARED = 0.01  # of delta, where the table is to price what is off the menu


def kept_table(
    mechanisms: Sequence[Mechanism],
    epsilon: float,
    delta: float,
    unit: int,
    points: int | None,
    cache: bool,
    progress: Progress,
    whole: bool,
) -> dict[str, np.ndarray]:
    """The arrays of a table, from the disk or computed; with ``whole`` also the curves of all its nodes."""
    if _validate.is_traced((mechanisms, epsilon, delta)):
        raise ValueError("menu needs concrete arguments, got a traced one: call it outside jit, vmap and grad")
    _validate.scalar(_validate.positive, epsilon=epsilon)
    _validate.at_most(100.0, epsilon=epsilon)
    _validate.scalar(_validate.probability, delta=delta)
    _validate.whole(unit=unit)
    _validate.at_least(_LEAST_UNIT, unit=unit)
    _validate.at_most(100_000, unit=unit)
    _validate.instance(bool | np.bool_, cache=cache, online=whole)
    if progress is not None:
        _validate.function(progress=progress)
    if not isinstance(mechanisms, Sequence) or not all(isinstance(one, Mechanism) for one in mechanisms):
        raise ValueError(f"mechanisms must be a sequence of mechanisms, got {mechanisms!r:.200}")
    if not len(mechanisms):
        raise ValueError("mechanisms must hold at least one, got none")
    if any(np.ndim(leaf) for leaf in jax.tree.leaves(list(mechanisms))):
        raise ValueError("mechanisms must hold mechanisms with scalar parameters, got an array of settings")
    entries = [shrunk(one) for one in mechanisms]
    if points is not None:
        _validate.whole(points=points)
        _validate.at_least(256, points=points)
        _validate.at_most(2**24, points=points)
        points = int(points)
    epsilon, delta, unit = float(epsilon), float(delta), int(unit)
    kind = f"menu {_VERSION}" + ", whole" * whole
    key = digest(kind, entries, epsilon, delta, unit, points or 0)
    return kept(key, lambda told: _table(entries, epsilon, delta, unit, points, told, whole), cache, progress)


def _table(
    entries: list[Mechanism],
    epsilon: float,
    delta: float,
    unit: int,
    points: int | None,
    progress: Progress,
    whole: bool,
) -> dict[str, np.ndarray]:
    laws, runs = menu_laws(entries, epsilon, delta, points)
    most = runs.max()
    few = runs.min() < _FEW and _LEAST_UNIT * most <= _MOST_STEPS
    if few:
        unit = min(unit, max(_LEAST_UNIT, int(_MOST_STEPS / most)))
    # Accounts are int32. An entry whose price would not fit is charged the largest one, and the table is computed for
    # the prices that are charged.
    prices = np.clip(np.rint(unit * most / runs), unit, MOST_UNITS).astype(np.int64)
    # A node is 8/9 of the cheapest price or a part of that: never equal to it, and many enough for the interpolation.
    node = 1 if few else max(1, 8 * unit // 9 // max(1, round(_LEAST_NODES / most)))
    total = int(unit * most / node)
    report = (lambda done: progress(min(done, total), total)) if progress is not None else None
    spared = _SPARED if whole else 0.0
    met = lambda curve: delta_of(curve, laws.grid, epsilon) <= deflated(delta, spared + 1e-9)  # noqa: E731
    table = budget_table(laws, prices, node, met, MOST_UNITS, report, whole, few)
    if table.budget < prices.min():
        raise ValueError(
            f"mechanisms must hold a query that fits within epsilon {epsilon:g} at delta {delta:g}, got none: no "
            "entry's certified cost does"
        )
    kept = {
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
        kept |= {"excess": inflated(table.excess + added, 2.0**-45), "slack": np.array(slack)}
        kept |= {"curves": table.curves, "node": np.array(node), "reach": np.array(max(laws.below, laws.above))}
    return kept
