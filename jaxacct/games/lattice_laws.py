"""Privacy losses of queries on one common grid, from above and from below.

Values move by whole lattice points, so the only errors are those made here. A finite experiment whose losses are
lattice points keeps its atoms; so a lattice is chosen to hold them where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated
from jaxacct.games.experiment import Experiment, Query, experiments_of
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.compare.suprema import infimum
from jaxacct.losses.curves import checks as validity
from jaxacct.losses.curves import conversions
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import Composed
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import side_names


class Law(NamedTuple):
    """One query on the lattice from one side: atoms at ``offsets`` (lattice points from loss 0) and at infinity.

    Attributes:
        offsets: int64, shape ``(atoms,)``.
        masses: float64, shape ``(atoms,)``, rounded to the side.
        infinite: P(L = inf).
        excess: H - (1 - gamma)_+ at the points of the grid, shape ``(grid.size,)``.
    """

    offsets: np.ndarray
    masses: np.ndarray
    infinite: float
    excess: np.ndarray


def lattice_index(grid: LossGrid, epsilon: ArrayLike) -> np.ndarray:
    """Indices of the lattice points nearest to ``epsilon``; raises ValueError outside of the lattice."""
    index = np.rint(np.asarray(epsilon, np.float64) / grid.spacing).astype(np.int64) - grid.lowest
    if np.any((index < 0) | (index >= grid.size)):
        raise ValueError(f"epsilon must be within the lattice, {grid.losses[0]:g} to {grid.losses[-1]:g}")
    return index


@in_float64
def lattice_for(queries: Sequence[Query], rounds: int, relation: str) -> LossGrid:
    """A lattice of about 4,096 points around 0 for ``rounds`` runs of any of the queries.

    It holds every finite loss of finite queries where those are multiples of one number, and then all sums of them.
    """
    curves = [m for m in queries if isinstance(m, PLD | PrivacyProfile)]
    each = [experiments_of(m, relation) for m in queries]
    finite = [one for experiments in each for one in experiments or []]
    half = 2048
    spacing = None
    reach = 0.0
    if all(experiments is not None for experiments in each):
        every = np.concatenate([e.finite for e in finite])
        reach = min(
            rounds * (float(np.abs(every).max(initial=0.0)) or 1e-3), conversions.CEILING, _spread(finite, rounds)
        )
        spacing = common_divisor(every)
    else:
        mechanisms = [m for m in queries if isinstance(m, Mechanism)]
        if mechanisms:
            own = conversions.grid_for([Composed([m], rounds) if rounds > 1 else m for m in mechanisms], relation)
            reach = own.highest * own.spacing
        for curve in curves:
            reach = max(reach, rounds * max(abs(curve.grid.lowest), curve.grid.highest) * curve.grid.spacing)
    if curves:
        spacings = {c.grid.spacing for c in curves}
        if len(spacings) > 1:
            raise ValueError(f"spacings must agree, got {', '.join(f'{s!r}' for s in sorted(spacings))}")
        spacing = spacings.pop()
        half = min(int(np.ceil(reach / spacing)) + 1, int(conversions.CEILING / spacing))
    elif spacing is not None:
        # As fine as fits: between lattice points curves are chords.
        refine = max(1, int(half * spacing / reach))
        spacing /= refine
        half = min(int(np.ceil(reach / spacing)) + 1, int(conversions.CEILING / spacing))
    else:
        spacing = reach / (half - 1)
    return LossGrid(spacing, -half, 2 * half + 1)


def common_divisor(losses: np.ndarray) -> float | None:
    """A number of which every loss is a multiple, to a few units; None without one among the first 64 fractions."""
    sizes = np.abs(losses[losses != 0])
    if not sizes.size:
        return 1.0
    for parts in range(1, 65):
        unit = sizes.min() / parts
        ratio = sizes / unit
        if np.all(np.abs(ratio - np.round(ratio)) <= 8 * EPS * ratio):
            return float(unit)
    return None


def _spread(finite: Sequence[Experiment], rounds: int) -> float:
    """Mean and nine deviations of the sum of finite losses: larger orders do not matter."""
    mean = variance = largest = 0.0
    for one in finite:
        p, losses = one.p[np.isfinite(one.losses)], one.finite
        mean = max(mean, abs(float((p * losses).sum())))
        variance = max(variance, float((p * losses**2).sum()))
        largest = max(largest, float(np.abs(losses).max(initial=0.0)))
    return rounds * mean + 9.0 * (rounds * variance) ** 0.5 + 2.0 * largest


@in_float64
def laws_of(query: Query, grid: LossGrid, relation: str) -> list[tuple[Law, Law]]:
    """(upper, lower) laws of ``query`` on ``grid``, one pair a direction."""
    validity.check_grid(grid)
    finite = experiments_of(query, relation)
    names = side_names(query, relation) if isinstance(query, Mechanism) else [relation]
    found = []
    for side in range(len(names) if finite is None else len(finite)):
        laws = None if finite is None else _exact(finite[side], grid)
        if laws is None:
            curve = families.enclose(query, grid, names[min(side, len(names) - 1)])
            laws = law_of(curve.upper, grid, "upper"), law_of(curve.line, grid, "lower")
        found.append(laws)
    return found


def law_of(excess: Array, grid: LossGrid, bound: str) -> Law:
    """The law of the curve through ``excess`` at the points of ``grid``."""
    curve = unchecked(PrivacyProfile, excess=excess, grid=grid, bound=bound)
    # A curve from below need not be convex where it was cut or rounded, or where an atom lies between points; as masses
    # such bends would be debts that cost more than the hull does.
    curve = infimum([curve]) if bound == "lower" else curve
    pld = curve.to_pld()
    masses = np.asarray(pld.masses)
    if masses.ndim != 1:
        raise ValueError(f"queries must have one setting each, got masses of shape {masses.shape}")
    # A hull from below may rise up to the last point, and no law's curve does: what a run is worth by itself and what
    # follows it are those of one law.
    own = curve.excess if bound == "upper" else xp.minimum(curve.excess, conversions.pld_excess(pld, grid))
    return _of_masses(masses, float(pld.infinity_mass), grid, np.asarray(own))


def _of_masses(masses: np.ndarray, infinite: float, grid: LossGrid, excess: np.ndarray) -> Law:
    used = np.flatnonzero(masses > 0)
    return Law(used + grid.lowest, masses[used], infinite, excess)


def _exact(one: Experiment, grid: LossGrid) -> tuple[Law, Law] | None:
    """The laws of an experiment whose losses are lattice points, up to their error; None for others."""
    h = grid.spacing
    kept = np.isfinite(one.losses) & (one.p > 0)
    losses, p = one.losses[kept], one.p[kept]
    offsets = np.rint(losses / h).astype(np.int64)
    slack = one.loss_error + 8 * EPS * (np.abs(losses) + h)
    if np.any((np.abs(losses - offsets * h) > slack) | (offsets < grid.lowest) | (offsets > grid.highest)):
        return None
    place, size, up = offsets - grid.lowest, grid.size, 1.0 + one.error + 16 * EPS
    # From above a little mass goes to the next point as well: hockey sticks grow by as much as the loss may be larger.
    share = np.minimum(np.expm1(2.0 * slack) / -np.expm1(-h), 1.0)
    above = (np.bincount(place, p, size + 1) + np.bincount(place + 1, p * share, size + 1)) * up
    infinite = min(one.infinite * up + above[-1], 1.0)
    upper = _of_masses(above[:-1], infinite, grid, _excess_of(above[:-1], infinite, grid, "upper"))
    # From below each mass is off by a few units, each loss by the slack.
    below = deflated(np.bincount(place, p, size), 32 * EPS * one.p.size + 2 * one.error)
    infinite = float(deflated(one.infinite, 2 * one.error + 8 * EPS))
    missed = 8.0 * (one.error + float(slack.max(initial=0.0))) * np.minimum(np.exp(grid.losses), 1.0)
    return upper, _of_masses(below, infinite, grid, _excess_of(below, infinite, grid, "lower") - missed)


def _excess_of(masses: Array, infinite: float, grid: LossGrid, bound: str) -> np.ndarray:
    law = unchecked(PLD, masses=masses, infinity_mass=np.float64(infinite), grid=grid, bound=bound)
    return np.asarray(conversions.pld_excess(law, grid))
