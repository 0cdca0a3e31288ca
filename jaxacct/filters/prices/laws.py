"""The privacy losses of a menu's entries on one grid, and how often each could run alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr

from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.losses.curves import conversions
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism

_COARSE = 4096
_POINTS = 120.0
_SPARED = 1e-6  # share of delta that may lie beyond the lattice's ends
_MOST_RUNS = 2.0**40
_ROUNDING = 1e-13  # of an FFT, by which delta(epsilon) of the reversed pair is off exp(epsilon) times


class MenuLaws(NamedTuple):
    """Upper laws of the losses for `remove`, on lattice points that every query shares."""

    grid: LossGrid  # the points at which curves are kept
    masses: np.ndarray  # shape ``(queries, below + above + 1)``: finite losses from ``-below`` to ``above`` points
    excess: np.ndarray  # shape ``(queries, grid.size)``: each query's own curve, H - (1 - gamma)_+, rounded up
    below: int  # points by which a query lowers the loss at most
    above: int  # points by which it raises the loss at most; mass beyond is at infinity, in ``excess``


@in_float64
def menu_laws(
    menu: Sequence[Mechanism], epsilon: float, delta: float, points: int | None
) -> tuple[MenuLaws, np.ndarray]:
    """Laws on a lattice of at most ``points`` points with their margins, and each query's number of runs alone.

    A coarse lattice shows where the curves of as many runs as the target allows fade; the fine one reaches just so
    far. Without ``points``, their number goes as the root of the runs. Everything here but the laws themselves only
    steers: it costs tightness at worst.
    """
    reach = 4.0 * epsilon + min(10.0, 20.0 * gaussian_of(epsilon, delta))
    wide = LossGrid(_part_of(epsilon, 2.0 * reach / _COARSE), -_COARSE // 2, _COARSE)
    singles = [_law(query, wide) for query in menu]
    powers = _Powers(singles, _COARSE // 2)
    runs = _runs(powers, epsilon, delta, 14)
    lost = 1e-5 * delta / runs.max()
    # Some points for a deviation of one run: the lattice adds about its spacing squared to a run's variance.
    if points is None:
        points = 1 << round(math.log2(min(max(_POINTS * math.sqrt(runs.max()), 2048.0), 32768.0)))
    # The reach of one run, and of all of them; a query's tail counts as soon as it matters within all its runs.
    far = [np.flatnonzero(np.cumsum(law.masses[::-1])[::-1] > lost)[-1] + 1 for law in singles]
    near = [np.flatnonzero(np.cumsum(law.masses) > lost)[0] - 1 for law in singles]
    h = wide.spacing
    low, high = powers.ends(runs, _SPARED * delta, math.exp(epsilon))
    low, high = min(low, -epsilon) - h, max(high, epsilon) + h
    up, down = (max(far) + wide.lowest) * h, -(min(near) + wide.lowest) * h
    down = max(min(down, -low), h)
    spacing = _part_of(epsilon, (high - low + up + down) / (points - 8))
    below, above = (math.ceil(x / spacing) + 1 for x in (down, up))
    lowest = math.floor(low / spacing)
    grid = LossGrid(spacing, lowest, points - below - above)
    step = LossGrid(spacing, -below, below + above + 1)
    laws, excess = zip(*(law_of(query, step, grid) for query in menu), strict=True)
    found = MenuLaws(grid, np.stack([law.masses for law in laws]), np.stack(excess), below, above)
    return found, runs_alone(found, epsilon, delta)


def _part_of(epsilon: float, spacing: float) -> float:
    """A spacing not below, and hardly above, of which epsilon, its half, third and quarter are whole numbers.

    So a query of which one, two, three or four runs spend epsilon exactly is not rounded up beyond it.
    """
    parts = math.floor(epsilon / (12.0 * spacing))
    return epsilon / (12.0 * parts) if parts else spacing


def gaussian_of(epsilon: float, delta: float) -> float:
    """Sensitivity over noise of the Gaussian mechanism that meets the target, about."""
    missed = lambda mu: ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu) - delta  # noqa: E731
    return float(brentq(missed, 1e-6, 60.0))  # pyright: ignore[reportArgumentType]


def runs_alone(laws: MenuLaws, epsilon: float, delta: float) -> np.ndarray:
    """How often each query alone may run within the target, as a real number; no bound, prices need none."""
    step = LossGrid(laws.grid.spacing, -laws.below, laws.below + laws.above + 1)
    nothing: Any = np.zeros(())
    # What the finite losses do not hold is at infinity.
    singles = [
        unchecked(PLD, masses=m, infinity_mass=np.maximum(1.0 - m.sum(), nothing), grid=step, bound="upper")
        for m in laws.masses
    ]
    return _runs(_Powers(singles, max(-laws.grid.lowest, laws.grid.highest)), epsilon, delta, 30)


def lost_to_rounding(epsilon: float, delta: float) -> str:
    """What to add to a refusal where rounding alone takes delta: one law has both directions, or nothing."""
    rounding = _ROUNDING * math.exp(epsilon)
    if rounding < 0.1 * delta:
        return ""
    return (
        f" up to rounding, which alone takes a delta of some {rounding:.0e} at this epsilon: take a smaller epsilon, a "
        "larger delta, or filters.renyi"
    )


@in_float64
def law_of(query: Mechanism, step: LossGrid, grid: LossGrid) -> tuple[PLD, np.ndarray]:
    """A query's upper law for `remove`, each run of it on ``step``, and its excess at the points of ``grid``."""
    law = _law(query, step)
    return law, np.asarray(conversions.pld_excess(law, grid))


def _law(query: Mechanism, grid: LossGrid) -> PLD:
    """An upper law for `remove` on ``grid``; what is composed reaches farther.

    What lies below counts as the least loss of the grid, what lies above as infinite.
    """
    law = PLD.from_mechanism(query, "upper", relation="remove", grid=grid)
    if law.grid == grid:
        return law
    masses = np.asarray(law.masses, np.float64)
    place = np.maximum(np.arange(law.grid.lowest, law.grid.highest + 1) - grid.lowest, 0)
    inside, room = place < grid.size, UNIT * (masses.size + 8.0)
    infinite = inflated(law.infinity_mass + masses[~inside].sum(), room)
    moved = inflated(np.bincount(place[inside], masses[inside], grid.size), room)
    return unchecked(PLD, masses=moved, infinity_mass=infinite, grid=grid, bound="upper")


class _Powers:
    """Real powers of laws under P and under Q on a circular lattice; FFTs, good to about 1e-16 absolutely."""

    def __init__(self, laws: Sequence[PLD], reach: int) -> None:
        self.size = 1 << (2 * reach).bit_length()
        index = np.fft.fftfreq(self.size, 1.0 / self.size)
        self.order = np.argsort(index)
        self.losses = index[self.order] * laws[0].grid.spacing
        self.dense = dense = np.zeros((2, len(laws), self.size))  # under P and under Q
        for i, law in enumerate(laws):
            masses = np.asarray(law.masses).reshape(-1)
            place = np.arange(law.grid.lowest, law.grid.highest + 1) % self.size
            dense[0, i, place], dense[1, i, place] = masses, masses * np.exp(-law.grid.losses)
        spectra = np.fft.rfft(dense)
        self.logs = np.log(np.maximum(np.abs(spectra), 1e-300)) + 1j * np.unwrap(np.angle(spectra), axis=-1)
        # Outcomes that only P has, and outcomes that only Q has: infinite losses of either direction.
        atoms = np.stack([[float(law.infinity_mass) for law in laws], 1.0 - dense[1].sum(-1)])
        self.atoms = np.clip(atoms, 0.0, 1.0 - 2.0**-52)
        self.means = dense[0] @ (index * laws[0].grid.spacing)

    def masses(self, runs: np.ndarray) -> np.ndarray:
        """Under P and Q, shape ``(2, laws, size)``, at ``losses``."""
        return np.maximum(np.fft.irfft(np.exp(runs[:, None] * self.logs), self.size)[..., self.order], 0.0)

    def deltas(self, runs: np.ndarray, epsilon: float) -> np.ndarray:
        """The larger delta(epsilon) of both directions."""
        p, q = self.masses(runs)
        atoms = -np.expm1(runs * np.log1p(-self.atoms))
        remove = p @ -np.expm1(np.minimum(epsilon - self.losses, 0.0)) + atoms[0]
        return np.maximum(remove, q @ -np.expm1(np.minimum(epsilon + self.losses, 0.0)) + atoms[1])

    def ends(self, runs: np.ndarray, spared: float, gain: float) -> tuple[float, float]:
        """Losses beyond which no curve holds more than ``spared`` above, and ``spared / gain`` below.

        By Chernoff's bound: in powers of transforms, rounding hides tails as small as these after many runs.
        """
        p, q = self.dense[..., self.order]
        tilts = np.geomspace(1e-2, 1e4, 120)
        # E(gamma) is at most P(L > log gamma) above 0, and gamma Q(L < log gamma) below.
        above = (self._logs_of_moments(p, tilts) * runs[:, None] - math.log(spared)) / tilts
        below = (math.log(spared / gain) - self._logs_of_moments(q, -tilts) * runs[:, None]) / (1.0 + tilts)
        ends = below.max(-1).min(), above.min(-1).max()
        low, high = np.clip(ends, self.losses[0], self.losses[-1])
        return float(min(low, 0.0)), float(max(high, 0.0))

    def _logs_of_moments(self, masses: np.ndarray, tilts: np.ndarray) -> np.ndarray:
        """log of the sum of masses times exp(tilt loss), shape ``(laws, tilts)``."""
        logs = np.log(np.maximum(masses, 1e-300))
        return np.stack([np.asarray(logsumexp(logs + tilt * self.losses, axis=-1)) for tilt in tilts], -1)


def _runs(powers: _Powers, epsilon: float, delta: float, halvings: int) -> np.ndarray:
    """Bisection over whole numbers of runs; between neighbours log(delta) is taken as linear in 1 / runs.

    That is what it is of a Gaussian far out. (A law of few atoms has no fractional powers: its transform comes near 0,
    and what is computed there is no law.)
    """
    count = powers.logs.shape[1]
    low, high = np.ones(count), np.full(count, _MOST_RUNS)
    misses = powers.deltas(low, epsilon) > delta
    if misses.any():
        raise ValueError(
            f"mechanisms must hold queries that meet epsilon {epsilon:g} at delta {delta:g} at least once, "
            f"got one at position {int(np.argmax(misses))} that does not{lost_to_rounding(epsilon, delta)}"
        )
    for _ in range(halvings):
        middle = np.minimum(np.maximum(np.floor(np.sqrt(low * high)), low + 1), high)
        # What has wrapped around the lattice misses the target, too.
        fits = (powers.deltas(middle, epsilon) <= delta) & (middle * powers.means <= powers.losses[-1])
        low, high = np.where(fits & (middle < high), middle, low), np.where(fits, high, middle)
    below, above = (np.log(np.maximum(powers.deltas(runs, epsilon), 1e-3 * delta) / delta) for runs in (low, high))
    share = np.clip(below / np.minimum(below - above, -1e-12), 0.0, 1.0)
    return 1.0 / (1.0 / low + (1.0 / high - 1.0 / low) * share)
