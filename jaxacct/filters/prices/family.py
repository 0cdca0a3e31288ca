"""The curves that a box promises, one for every budget: `family_of`.

    V_b = T_G (U_b + b S m),    m(gamma) = (min(1, gamma) + far (1 + gamma)) / 2,    far = 1 / (1 + exp(epsilon))

U_b is linear in b between nodes and linear in gamma between lattice points. G is one small Gaussian, run first, with
which the curves are smooth on a scale of several lattice points; S m covers rounding and the tails beyond the lattice,
and S is what it adds to delta at the target. Prices are certified against this family alone: any excess of U that is
not negative and rises with the budget will do (docs/theorems/prices.md). It is read off the worst case of a few
reference queries (:mod:`jaxacct.filters.prices.references`).
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import scipy.fft

from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.filters.prices.kernels import ACCURACY, gaussian_excess
from jaxacct.filters.prices.packed import least_of, rounded_down
from jaxacct.losses.grids.grid import LossGrid

UNITS = 2_000_000_000
"""The whole budget in units: int32, and fine enough for hundreds of millions of runs."""
_BEYOND = 1.06  # budgets to which the curves go on: mixtures of prices look a little above the whole budget
_ALIASES = 1e-9  # of the least slack of a unit, that the lattice's aliases may take
_FADE = 9.0  # of G's standard deviations: where U is 0 so far around, V is nothing but slack
_UNDERFLOW = 39.0  # of G's standard deviations: beyond them its excess is 0 in float64, and 1e-300 at most
_FLOOR = 1e-3  # of the slack: smaller values of a curve are dropped


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """Curves over sqrt(gamma) at lattice points, and what certifying takes of them."""

    grid: LossGrid
    nodes: np.ndarray  # budgets, from 0, rising, whole numbers of `UNITS`; 1, the promised budget, is one
    excess: np.ndarray  # of U, shape ``(nodes, size)``: the definition of the family
    width: float  # sensitivity over noise of G
    slack: float  # S
    far: float  # in m
    kinks: np.ndarray  # of U, changes of slope times gamma over sqrt(gamma), rounded up; shape ``(nodes, size)``
    spectra: np.ndarray  # transforms of ``kinks``
    norms: np.ndarray  # Euclidean norms of ``kinks``
    rises: np.ndarray  # of V next to half of G from node to node, rounded down; shape ``(nodes - 1, size)``
    growth: np.ndarray  # of the pace of V at some order, at each inner node, at least 1; shape ``(nodes - 2,)``

    @property
    def half_width(self) -> float:
        """Of the half of G's variance that certificates are asked next to."""
        return self.width * math.sqrt(0.5)

    @functools.cached_property
    def heights(self) -> np.ndarray:
        """Sums of ``rises``, from 0; shape ``(nodes, size)``."""
        return np.concatenate([np.zeros((1, self.grid.size)), np.cumsum(self.rises, 0)])

    def curve(self, budget: float, width: float) -> np.ndarray:
        """V over sqrt(gamma) at the lattice points for ``budget`` in [0, 1], next to a Gaussian of ``width``, up."""
        at = min(int(np.searchsorted(self.nodes, budget, side="right")) - 1, self.nodes.size - 2)
        share = (budget - self.nodes[at]) / (self.nodes[at + 1] - self.nodes[at])
        excess = (1.0 - share) * self.excess[at] + share * self.excess[at + 1]
        smooth, error = smoothed(excess, self.grid, width)
        return smooth + error + budget * self.slack * steady(self.grid, width, self.far)


def kinks_of(excess: np.ndarray, grid: LossGrid) -> np.ndarray:
    """Changes of slope in gamma of H, times gamma over sqrt(gamma), of curves given by E over sqrt(gamma).

    Beyond the last point E is constant, before the first proportional to gamma.
    """
    h = grid.spacing
    fade = math.exp(-0.5 * h)
    wide = np.concatenate([excess[..., :1] * fade, excess, excess[..., -1:] * fade], -1)
    bends = (wide[..., 2:] - 2.0 * math.cosh(0.5 * h) * excess + wide[..., :-2]) / (2.0 * math.sinh(0.5 * h))
    bends[..., -grid.lowest] += 1.0
    return bends


def kink_error(excess: np.ndarray, grid: LossGrid) -> np.ndarray:
    """A bound on the rounding of `kinks_of`."""
    around = np.abs(excess)
    around = around + np.maximum(np.roll(around, 1, -1), np.roll(around, -1, -1))
    found = (8.0 * EPS / grid.spacing) * around
    found[..., -grid.lowest] += 4.0 * EPS
    return found


@functools.lru_cache(8)
def _moved(grid: LossGrid, width: float) -> np.ndarray:
    """The excess of G at lattice offsets, as far as it is more than a float64 holds."""
    reach = min(math.ceil(_UNDERFLOW * width / grid.spacing), grid.size - 1)
    return gaussian_excess(width, grid.spacing * np.arange(-reach, reach + 1))


def padded(size: int) -> int:
    """A length that a transform is fast at, and at which nothing wraps around."""
    return scipy.fft.next_fast_len(2 * size, real=True)  # pyright: ignore[reportReturnType]


def circular(values: np.ndarray, size: int) -> np.ndarray:
    """Values at offsets ``-(size - 1) .. size - 1``, laid out for a transform of `padded` points."""
    found = np.zeros(padded(size))
    found[:size], found[-(size - 1) :] = values[size - 1 :], values[: size - 1]
    return found


def smoothed(
    excess: np.ndarray, grid: LossGrid, width: float, *, difference: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A curve (or a difference of two) composed with a Gaussian, at the lattice points, and bounds on the error.

    Exact but for rounding: U(gamma) plus each kink's share of the excess of G, which is short. So it is summed term by
    term, and every point's error is relative to its own terms (docs/proofs/arithmetic.md, A3): that of a
    transform would be relative to the whole curve, and hide orders at which a small delta is asked for.
    """
    kernel, kinks = _moved(grid, width), kinks_of(excess, grid)
    if difference:
        kinks[-grid.lowest] -= 1.0
    whole = lambda x: np.convolve(x, kernel)[kernel.size // 2 :][: grid.size]  # noqa: E731
    relative = (2.0 * kernel.size + 16.0) * EPS + 16.0 * ACCURACY / min(width, 1.0)
    error = whole(relative * np.abs(kinks) + kink_error(excess, grid)) + 4.0 * EPS * np.abs(excess) + 1e-300
    return excess + whole(kinks), 1.01 * error


def family_of(
    curves: np.ndarray, grid: LossGrid, width: float, epsilon: float, delta: float, grade: float, spared: float
) -> Family:
    """The family of curves of evenly spaced budgets, up to the largest that meets (epsilon, delta) and a little beyond.

    ``curves`` are excesses over sqrt(gamma) at the points of ``grid``, of budgets from 0, shape ``(budgets,
    grid.size)``; ``width`` is G's, ``grade`` the distance of nodes over the root of their budget, ``spared`` S / delta.
    """
    slack, far = spared * delta, 1.0 / (1.0 + math.exp(epsilon))
    beyond = math.ceil(_FADE * width / grid.spacing)  # points at both ends at which U is 0
    wide = LossGrid(grid.spacing, grid.lowest - beyond, grid.size + 2 * beyond)
    fade = np.exp(-0.5 * np.abs(grid.losses))

    def kept(i: int) -> np.ndarray:
        # So that U ends within the lattice, a little is dropped of E above gamma = 1 and of E / gamma below.
        ends = [max(_FLOOR * slack * far, 1.01 * curves[i, k] / fade[k]) for k in (0, -1)]
        floor = np.interp(grid.losses, [0.0, 0.5 * epsilon], ends) * fade
        return np.pad(np.maximum(curves[i] - floor, 0.0), beyond)

    def met(curve: np.ndarray) -> bool:
        smooth, error = smoothed(curve, wide, width)
        return delta_at(smooth + error + slack * steady(wide, width, far), wide, epsilon) <= delta * (1.0 - 1e-9)

    low, high = 0, len(curves) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if met(kept(middle)) else (low, middle)
    before, after = kept(low), kept(low + 1)
    share, step = 0.0, 0.5
    while step > 1e-4:
        if met((1.0 - share - step) * before + (share + step) * after):
            share += step
        step *= 0.5
    end = low + share
    index = _graded(min(len(curves) - 1, math.ceil(_BEYOND * end)), grade * math.sqrt(end))
    rows = [np.zeros(wide.size), *(kept(i) for i in index[index < end])]
    rows += [(1.0 - share) * before + share * after, *(kept(i) for i in index[index > end])]
    places = np.concatenate([[0.0], index[index < end] / end, [1.0], index[index > end] / end])
    nodes = np.rint(UNITS * places) / UNITS
    good = np.concatenate([np.diff(nodes) > 1e-4 * grade, [True]]) | (nodes == 1.0)
    rising = np.maximum.accumulate(np.stack(rows)[good], 0)
    return prepared(wide, nodes[good], rounded_down(rising, least_of(slack, far)), width, slack, far)


def steady(grid: LossGrid, width: float, far: float) -> np.ndarray:
    """m next to a Gaussian, over sqrt(gamma)."""
    losses = grid.losses
    shrunk = np.exp(-0.5 * np.abs(losses)) * (1.0 - 2.0**-40) - gaussian_excess(width, losses)
    return 0.5 * np.maximum(shrunk, 0.0) + far * np.cosh(0.5 * losses)


def prepared(grid: LossGrid, nodes: np.ndarray, excess: np.ndarray, width: float, slack: float, far: float) -> Family:
    """A family with what certifying takes of it; ``excess`` is not negative, rises with the budget, and is 0 at 0."""
    kinks = np.maximum(kinks_of(excess, grid), 0.0) + kink_error(excess, grid)
    norms = np.sqrt((kinks**2).sum(-1))
    differences = np.diff(excess, axis=0)
    sums = steady(grid, width * math.sqrt(0.5), far)
    # Certified at lattice points next to half of G, the inequality holds everywhere next to all of it but for this.
    aliases = 16.0 * math.exp(-0.5 * (math.pi * width / grid.spacing) ** 2)
    if aliases > _ALIASES * slack * far / UNITS:
        raise ArithmeticError(
            f"the lattice of spacing {grid.spacing:g} is too coarse for a Gaussian of width {width:g}"
        )
    rises, growth = [], []
    upper = None
    for row, length in zip(differences, np.diff(nodes), strict=True):
        smooth, error = smoothed(row, grid, width * math.sqrt(0.5), difference=True)
        smooth = np.maximum(smooth, 0.0) + slack * length * sums
        lower = (smooth - error) * (1.0 - 1e-8)
        if upper is not None:
            growth.append(max(1.0 + 1e-6, float((((smooth + error) / length) / upper).max())))
        upper = lower / length
        rises.append(lower)
    spectra = np.fft.rfft(kinks, padded(grid.size))
    return Family(grid, nodes, excess, width, slack, far, kinks, spectra, norms, np.stack(rises), np.array(growth))


def least_cells(epsilon: float, slack: float) -> float:
    """The lattice points in a standard deviation of G with which its aliases are small enough."""
    return math.sqrt(2.0 * math.log(17.0 * UNITS / _ALIASES * (1.0 + math.exp(epsilon)) / slack)) / math.pi


def delta_at(excess: np.ndarray, grid: LossGrid, epsilon: float) -> float:
    """delta(epsilon) of the worse direction of curves over sqrt(gamma), as a chord, rounded up."""
    cell = math.floor(epsilon / grid.spacing)
    share = math.expm1(epsilon - cell * grid.spacing) / math.expm1(grid.spacing)
    low, high = (
        math.exp(0.5 * k * grid.spacing) * max(excess[k - grid.lowest], excess[-k - grid.lowest])
        for k in (cell, cell + 1)
    )
    return inflated(float(low * (1.0 - share) + high * share), 1e-9)


def _graded(last: int, spacing: float) -> np.ndarray:
    """Indices from 1 to ``last``, at least 1 apart, and ``spacing`` times their root where that is more."""
    found = [1]
    while found[-1] < last:
        found.append(min(last, max(found[-1] + 1, round(found[-1] + spacing * math.sqrt(found[-1])))))
    return np.array(found)
