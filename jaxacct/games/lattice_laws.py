"""Privacy losses of queries on one common grid, from above and from below.

Tables move by whole lattice points, so the only errors are those made here. A finite experiment's atoms are split
between their two neighbours from above (connecting the dots), which is exact where losses lie on the lattice; so a
lattice is chosen to hold them where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.pytree import replaced, unchecked
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.experiment import Experiment, Query, experiments_of
from jaxacct.losses.compare.suprema import infimum
from jaxacct.losses.curves import checks as validity
from jaxacct.losses.curves import conversions
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff
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
        every = np.unique(np.abs(np.concatenate([e.finite for e in finite])))
        every = every[every > 0]
        reach = min(rounds * float(every.max(initial=1e-3)), conversions.CEILING, _spread(finite, rounds))
        spacing = _common_divisor(every)
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


def _common_divisor(losses: np.ndarray) -> float | None:
    """A number of which every loss is a multiple, to a few units; None without one among the first 64 fractions."""
    if not losses.size:
        return 1.0
    for parts in range(1, 65):
        unit = losses[0] / parts
        ratio = losses / unit
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
    if finite is not None:
        return [(_split(e, grid), _garbled(e, grid)) for e in finite]
    bounds = ("upper", "lower")
    if isinstance(query, Mechanism):
        names = side_names(query, relation)
        each = [[PrivacyProfile.from_mechanism(query, b, relation=name, grid=grid) for b in bounds] for name in names]
    elif isinstance(query, TradeOff):
        each = [[replaced(query, bound=b).profile(grid) for b in reversed(bounds)]]
    elif isinstance(query, PrivacyProfile):
        each = [[replaced(query, bound=b).on(grid) for b in bounds]]
    else:
        literal = [(conversions.pld_excess(query, grid, literal=b), b) for b in bounds]
        each = [[unchecked(PrivacyProfile, excess=x, grid=grid, bound=b) for x, b in literal]]
    # A curve from below need not be convex where it was cut or rounded, or where an atom lies between points; as masses
    # such bends would be debts that cost more than the hull does.
    return [(_of_curve(above), _of_curve(infimum([below]))) for above, below in each]


def _of_curve(curve: PrivacyProfile) -> Law:
    pld = curve.to_pld()
    masses = np.asarray(pld.masses)
    if masses.ndim != 1:
        raise ValueError(f"queries must have one setting each, got masses of shape {masses.shape}")
    used = np.nonzero(masses > 0)[0]
    if not used.size:
        used = np.array([-pld.grid.lowest])
    return Law(used + pld.grid.lowest, masses[used], float(pld.infinity_mass), np.asarray(curve.excess))


def _split(one: Experiment, grid: LossGrid) -> Law:
    """From above: each atom's loss, raised by its own error, is a mixture of the two lattice points around it."""
    h = grid.spacing
    kept = np.isfinite(one.losses) & (one.p > 0)
    up = 1.0 + one.error + 8 * EPS
    losses, p = one.losses[kept], one.p[kept] * up
    nearest = np.rint(losses / h)
    raised = losses + one.loss_error + 2 * EPS * (np.abs(losses) + h)
    # A loss that is a lattice point but for rounding stays one: its hockey sticks grow by at most that much.
    on = np.abs(losses - nearest * h) <= one.loss_error + 8 * EPS * (np.abs(losses) + h)
    slip = np.expm1(2.0 * one.loss_error + 16 * EPS * (np.abs(losses) + h))
    cell = np.where(on, nearest, np.floor(raised / h)).astype(np.int64)
    share = np.clip(inflated(np.expm1(-(raised - cell * h)) / np.expm1(-h), 8 * EPS), 0.0, 1.0)
    share = np.where(on, np.minimum(slip / -np.expm1(-h), 1.0), share)
    offsets = np.concatenate([cell, cell + 1])
    masses = np.concatenate([p * np.where(on, 1.0, np.minimum(1.0 - share + 4 * EPS, 1.0)), p * share])
    offsets = np.maximum(offsets, grid.lowest)
    beyond = offsets > grid.highest
    infinite = one.infinite * up + inflated(masses[beyond].sum(), 16 * EPS)
    offsets, masses = _grouped(offsets[~beyond], masses[~beyond])
    law = _pld(offsets, masses, min(infinite, 1.0), grid, "upper")
    return Law(offsets, masses, min(infinite, 1.0), np.asarray(conversions.pld_excess(law, grid)))


def _garbled(one: Experiment, grid: LossGrid) -> Law:
    """From below: every outcome off the lattice is brought to the next lattice loss towards 0 by mixing.

    An outcome of loss l > 0 is no longer told apart from a share of one with negative loss, which brings it down; then
    those below 0 are brought up by shares of those above. Every step forgets something, so the result is dominated; the
    first-order loss of that is nothing where losses lie on the lattice.
    """
    h = grid.spacing
    inner = np.isfinite(one.losses)
    losses = np.where(inner, one.losses, 0.0)
    slack = one.loss_error + 8 * EPS * (np.abs(losses) + h)
    nearest = np.rint(losses / h)
    on = np.abs(losses - nearest * h) <= slack
    p, q = one.p.copy(), one.q.copy()
    exact = np.where(on, nearest, np.trunc(losses / h))
    cell = np.clip(exact, grid.lowest, grid.highest)  # losses beyond the lattice are brought to its ends
    off = inner & (~on | (cell != exact)) & (one.p + one.q > 0)
    cell[~inner] = one.losses[~inner]
    lowest, highest = np.argsort(one.losses), np.argsort(-one.losses)
    for rising, partners in ((False, lowest), (True, highest)):
        for i in np.nonzero(off & ((one.losses < 0) == rising))[0]:
            gamma = np.exp(cell[i] * h)
            need = gamma * q[i] - p[i] if rising else p[i] - gamma * q[i]
            for j in partners:
                if need <= 0 or ((one.losses[j] <= 0) if rising else (one.losses[j] >= 0)):
                    break
                if cell[j] == np.inf:
                    continue  # what is certain stays certain
                gives = p[j] - gamma * q[j] if rising else gamma * q[j] - p[j]
                share = min(need / gives, 1.0) if gives > 0 else 0.0
                p[i], q[i] = p[i] + share * p[j], q[i] + share * q[j]
                p[j], q[j] = p[j] * (1.0 - share), q[j] * (1.0 - share)
                need -= share * gives
            if need > 1e-12 * (p[i] + gamma * q[i]):
                # Nothing left to mix with: perfect privacy is a lower bound of whatever it is.
                return Law(np.zeros(1, np.int64), np.ones(1), 0.0, np.zeros(grid.size))
    finite = np.isfinite(cell) & (p > 0)
    offsets, masses = _grouped(cell[finite].astype(np.int64), p[finite])
    masses = deflated(masses, 16 * EPS * (masses.size + one.p.size) + 2 * one.error)
    infinite = deflated(one.infinite, 2 * one.error + 8 * EPS)
    # What rounding may have moved: each mass by a few units, each loss by the slack.
    missed = 1e-12 * float(off.any()) + 8.0 * (one.error + float(slack.max()))
    law = _pld(offsets, masses, infinite, grid, "lower")
    excess = np.asarray(conversions.pld_excess(law, grid))
    return Law(offsets, masses, infinite, excess - missed * np.minimum(np.exp(grid.losses), 1.0))


def _grouped(offsets: Array, masses: Array) -> tuple[np.ndarray, np.ndarray]:
    unique, inverse = np.unique(offsets, return_inverse=True)
    summed = inflated(np.bincount(inverse, masses, unique.size), 4 * EPS * masses.size)
    return unique[summed > 0], summed[summed > 0]


def _pld(offsets: np.ndarray, masses: np.ndarray, infinite: float, grid: LossGrid, bound: str) -> PLD:
    dense: Array = np.zeros(grid.size)
    dense[offsets - grid.lowest] = masses
    return unchecked(PLD, masses=dense, infinity_mass=np.float64(infinite), grid=grid, bound=bound)
