"""Laws of many runs at once, on a lattice that is coarser than one run would need."""

from __future__ import annotations

import numpy as np

from jaxacct import accounting
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.rounding import EPS
from jaxacct.games.experiment import experiments_of
from jaxacct.games.lattice_laws import Law, lattice_for, law_of, laws_of
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import side_names

_HALF = 4096  # points on either side of loss 0
_NEGLIGIBLE = 1e-5  # share of delta beyond the lattice's ends
_FINER = 16  # points of the lattice on which single runs are composed, for one that blocks are played on


def block_lattice(blocks: list[Mechanism], rounds: int, epsilon: float, delta: float, relation: str) -> LossGrid:
    """A lattice for ``rounds`` blocks: about 8,192 points, epsilon among them; for finite ones :func:`lattice_for`'s.

    It ends where the curves of as many blocks alone are small next to ``delta``; what is left out, bounds pay for.
    """
    grid = lattice_for(blocks, rounds, relation)
    if all(experiments_of(block, relation) is not None for block in blocks):
        return grid
    ends = [
        accounting.epsilon(one, max(_NEGLIGIBLE * delta, 1e-290), steps=rounds, relation=relation).upper
        for one in blocks
    ]
    reach = max(epsilon, min(max(ends), grid.highest * grid.spacing))
    spacing = epsilon / np.ceil(epsilon * _HALF / reach)
    half = int(np.ceil(reach / spacing)) + 1
    return LossGrid(float(spacing), -half, 2 * half + 1)


@in_float64
def block_laws(block: Mechanism, grid: LossGrid, relation: str) -> list[tuple[Law, Law]]:
    """(upper, lower) laws of ``block`` on ``grid``, one pair a direction.

    Runs are composed on a lattice 16 times finer, whose curve is then put on ``grid``: by its chords from above; from
    below by one line in each cell, which is below the curve there, and at each point by the smaller of its two lines.
    """
    if experiments_of(block, relation) is not None:
        return laws_of(block, grid, relation)
    found = []
    for name in side_names(block, relation):
        upper = PrivacyProfile.from_mechanism(block, "upper", relation=name, grid=_finer(grid, _FINER))
        above = law_of(np.asarray(upper.excess)[::_FINER], grid, "upper")
        found.append((above, law_below(block, grid, name, _FINER)))
    return found


@in_float64
def law_below(block: Mechanism, grid: LossGrid, direction: str, finer: int) -> Law:
    """The lower law of ``block`` in one direction; if it is not finite, of a curve on a lattice so many times finer."""
    if experiments_of(block, direction) is not None:
        return laws_of(block, grid, direction)[0][1]
    fine = _finer(grid, finer)
    lower = PrivacyProfile.from_mechanism(block, "lower", relation=direction, grid=fine)
    excess = lines_below(np.asarray(lower.excess), np.exp(fine.losses), finer)
    return law_of(excess, grid, "lower")


def _finer(grid: LossGrid, finer: int) -> LossGrid:
    return LossGrid(grid.spacing / finer, grid.lowest * finer, (grid.size - 1) * finer + 1)


def lines_below(excess: np.ndarray, gamma: np.ndarray, finer: int) -> np.ndarray:
    """Every ``finer``-th point of a curve whose chords lie below those of ``excess``, given at the points ``gamma``."""
    inside = np.arange(0, excess.size - 1, finer)[:, None] + np.arange(finer + 1)
    curve, steps = excess[inside], gamma[inside] - gamma[inside[:, :1]]
    middle = slice(finer // 2, finer // 2 + 2)
    slope = np.diff(curve[:, middle]) / np.diff(steps[:, middle])
    left = (curve - slope * steps).min(-1)
    right = left + slope[:, 0] * steps[:, -1]
    # Points are off by the roundings of their loss and of its exponential, for any slope.
    highest = np.abs(slope[:, 0]) * gamma[inside[:, -1]]
    error = 16 * EPS * (curve.max(-1) + highest * (1.0 + np.log(gamma[-1])))
    left, right = left - error, right - error
    # A line that is clipped at one end only would be no line: its chord is above a curve that ends inside the cell.
    used = (left > 0) & (right > 0)
    left, right = np.where(used, left, 0.0), np.where(used, right, 0.0)
    # Beyond its ends nothing is claimed of a curve.
    return np.concatenate([[0.0], np.minimum(left[1:], right[:-1]), [0.0]])
