"""delta and epsilon of any composition, from transforms of its losses along one vertical line.

Every part gives the transform of its loss as points and weights with a certified error
(`losses.engines.lines`), or is put between two discrete laws (`cells`), whose
transforms are finite sums. Powers of them are pointwise, so the work does not depend on the number of steps. Where
densities make the transform decay, the inversion is that of `engines.contour.bounds`; elsewhere the payoff is put
between two band-limited functions (`one_sided`). The bounds close in with the square of the
number of frequencies, and with that of the number of cells.

Every array has a leading axis of settings, and parts of a composition are the next one; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, pick
from jaxacct._numerics.least import first_least
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.losses.engines.composition import times
from jaxacct.losses.engines.contour.bounds import BACK
from jaxacct.losses.engines.contour.read_off import Integrand
from jaxacct.losses.engines.discrete_laws.one_sided import one_sided
from jaxacct.losses.engines.discrete_laws.plan import Plan, each_group, edges_of, plan_of
from jaxacct.losses.engines.discrete_laws.powers import Parts, Powers, powers
from jaxacct.losses.engines.discrete_laws.read_off import read_delta, read_epsilon
from jaxacct.losses.engines.laws.cells import laws
from jaxacct.losses.engines.lines.base import Line, Totals
from jaxacct.losses.engines.lines.listed import ListedLine
from jaxacct.losses.engines.lines.of_pair import line_of
from jaxacct.losses.engines.saddle_point import spacing_for, tilts_around
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.table import lists_outcomes

_LEFT_OUT = 21.0  # e-foldings between delta and what lines leave out
_LOWER = np.array([1.0, 0.93, 0.85, 0.7])[:, None]  # parts of a tilt that are tried


class Size(NamedTuple):
    """How many points; static."""

    cells: int
    """Cells of a step's loss, or points of its transform."""
    nodes: int
    """Frequencies; a power of 2."""
    lines: bool = True
    """Whether pairs are asked for their transforms; otherwise all are cut into cells."""


def has_lines(groups: tuple[Pair, ...]) -> bool:
    """Whether all pairs give their transforms, so that more frequencies make bounds as tight as one likes."""
    return all(line_of(group) is not None for group in groups)


def universal_bounds(kind: str, size: Size, groups: tuple[Pair, ...], counts: Array, goal: Array):
    """``(lower, upper)`` of delta or epsilon, by ``kind``, shape ``(B,)``, as ``goal``, which is the other one.

    Leaves of groups have shape ``(B, parts of the group)``; ``counts``, ``(B, K)``, are in the order of the groups.
    """
    plan = plan_of(kind, groups, counts, goal)
    below, above = lines(size, plan, groups, counts)
    if size.lines and array_module(goal) is np:
        lower = _lower_tilt(kind, plan, above, goal)
        if (lower < plan.theta).any():
            plan = plan._replace(theta=lower)
            below, above = lines(size, plan, groups, counts)
    tilts, moments, spacing = period(plan, above)
    lower, upper = _integrand(powers(above, spacing, size.nodes), plan, spacing, size.nodes, tilts, moments)
    if any(low is not high for (low, _), (high, _) in zip(below, above, strict=True)):
        lower, _ = _integrand(powers(below, spacing, size.nodes), plan, spacing, size.nodes, tilts, moments)
    low, high = totals(below), totals(above)
    failed, lost = failures(low, high)
    lower, upper = lower._replace(left_out=failed), upper._replace(left_out=lost)
    largest = _largest(high)
    if kind == "delta":
        return read_delta(lower, upper, largest, _all_but(below, low, goal), goal)
    return read_epsilon(lower, upper, largest, plan.epsilon, goal)


def lines(size: Size, plan: Plan, groups: tuple[Pair, ...], counts: Array) -> tuple[Parts, Parts]:
    """The parts from below and from above; a pair that gives its transform is the same on both sides."""
    xp = array_module(counts)
    below, above = [], []
    log_share = plan.log_delta - _LEFT_OUT - xp.log(counts.sum(-1))
    for group, survey, many in zip(groups, plan.surveys, each_group(counts, plan.surveys), strict=True):
        theta, share = (xp.broadcast_to(x[:, None], many.shape) for x in (plan.theta, log_share))
        made = line_of(group) if size.lines or lists_outcomes(group) else None
        if made is not None:
            low = high = made(theta, share, size.cells)
        else:
            pair_laws = laws(group, edges_of(group, survey, plan, many, size.cells))
            low, high = (ListedLine.of_law(law, theta) for law in pair_laws)
        below.append((low, many))
        above.append((high, many))
    return below, above


def _lower_tilt(kind: str, plan: Plan, above: Parts, goal: Array) -> Array:
    """The tilt, or a lower one where far outcomes, which the plan's survey cuts off, outweigh all others."""
    tilts = _LOWER * plan.theta
    moments = sum(_log_moments(line, count, tilts) for line, count in above)
    value = moments - tilts * goal if kind == "delta" else (moments - np.log(goal)) / tilts
    value = np.where(np.isnan(value), np.inf, value)
    better = value.min(0) < np.minimum(value[0] - 1.0, np.where(kind == "delta", np.inf, 0.9 * value[0]))
    return np.where(better, pick(tilts.T, value.argmin(0)), plan.theta)


def period(plan: Plan, above: Parts) -> tuple[Array, Array, Array]:
    """Chernoff's tilts around theta and bounds there, and the spacing of frequencies that their aliases ask for."""
    tilts = tilts_around(plan.theta, plan.deviation)
    moments = sum(_log_moments(line, count, tilts) for line, count in above)
    moments = array_module(tilts).where(tilts > 0, moments, 0.0)
    return tilts, moments, spacing_for(plan.theta, tilts, moments, plan.epsilon, plan.log_delta)


def _log_moments(line: Line, counts: Array, tilts: Array) -> Array:
    """Upper bounds of sum_k T_k log E[exp(t L_k)] at tilts of shape ``(N, B)``."""
    return inflated(times(counts, line.log_moments(tilts)), 8.0 * UNIT * counts.shape[-1]).sum(-1)


def totals(parts: Parts) -> list[tuple[Totals, Array]]:
    """What is known of each part's law as a whole, and how often it runs."""
    return [(line.totals(), counts) for line, counts in parts]


def _largest(parts: list[tuple[Totals, Array]]) -> Array:
    """What no sum of finite losses exceeds, shape ``(B,)``; NaN where a law is none."""
    found = 0.0
    for whole, counts in parts:
        most = times(counts, whole.largest)
        found = found + most.sum(-1) + UNIT * (8.0 + 2.0 * most.shape[-1]) * abs(most).sum(-1)
    return found


def failures(below: list[tuple[Totals, Array]], above: list[tuple[Totals, Array]]) -> tuple[Array, Array]:
    """A lower bound of the probability that some loss is infinite; an upper one, with all that was left out."""
    xp = array_module(above[0][1])
    unit = UNIT * (8.0 + sum(counts.shape[1] for _, counts in above))
    log_low = sum(times(counts, log1p(-xp.minimum(whole.least_infinite, 1.0))).sum(-1) for whole, counts in below)
    log_high = sum(times(counts, log1p(-xp.minimum(whole.most_infinite, 1.0))).sum(-1) for whole, counts in above)
    left = sum(times(counts, whole.left_out).sum(-1) for whole, counts in above)
    failed = -xp.expm1(log_low) * (1.0 - unit * (4.0 - 8.0 * log_low))
    return failed, inflated(-xp.expm1(log_high), unit * (4.0 - 8.0 * log_high)) + inflated(left, 4.0 * unit)


def _integrand(
    powers: Powers, plan: Plan, spacing: Array, nodes: int, tilts: Array, moments: Array
) -> tuple[Integrand, Integrand]:
    """The terms of a lower and of an upper bound, every error, and where to cut off."""
    theta, whole = plan.theta, powers.whole
    xp = array_module(theta)
    index, wide = powers.index, spacing[:, None]
    frequencies = index * wide
    weight = wide / np.pi * np.where(index > 0, 1.0, 0.5)
    t = theta[:, None]
    plain = 1.0 / ((t + 1j * frequencies) * (t + 1.0 + 1j * frequencies))
    band = one_sided(theta, spacing, nodes, index)
    sizes = xp.maximum(xp.abs(band.below), xp.abs(band.above))
    band_error = (weight * (sizes * whole.off + band.error * whole.power)).sum(-1)
    # How far apart the two sums are where the answer is supposed.
    phase = whole.angle - frequencies * (plan.epsilon - whole.mean)[:, None]
    apart = (band.above - band.below) * xp.exp(1j * phase)
    gap = xp.maximum((weight * whole.power * apart.real).sum(-1), 0.0)

    # The plain transform, cut off where errors of further terms would outweigh what the decay bounds.
    begun = np.searchsorted(index, powers.checks)
    none = xp.zeros_like(wide)
    errors = xp.concatenate([none, xp.cumsum(weight * xp.abs(plain) * whole.off, -1)], -1)[:, begun]
    beyond = xp.exp(powers.left) / (np.pi * (powers.checks - 1.0) * wide)
    at = first_least(errors + beyond)
    plain_error = pick(errors + beyond, at)
    cut = xp.asarray(powers.checks)[at]
    is_plain = (plain_error < band_error + gap)[:, None]
    kept = index < cut[:, None]
    dropped = powers.dropped * (2.0 / (theta * (theta + 1.0)) + xp.abs(band.below[:, 0]) + xp.abs(band.above[:, 0]))
    dropped = dropped * spacing / np.pi

    def side(kernel: Array) -> Integrand:
        kernel = weight * xp.where(is_plain, xp.where(kept, plain, 0.0), kernel)
        amplitude = xp.abs(kernel) * whole.power
        error = xp.where(is_plain[:, 0], plain_error, band_error) + dropped
        rounding = (amplitude * UNIT * 16.0 * (1.0 + xp.abs(whole.angle))).sum(-1)
        terms = kernel * whole.power * xp.exp(1j * whole.angle)
        return Integrand(
            theta,
            whole.mean,
            whole.mean_error,
            whole.log_total,
            whole.log_error,
            spacing,
            terms.real,
            terms.imag,
            inflated(error, 1e-9) + rounding,
            (amplitude * frequencies).sum(-1),
            tilts,
            moments,
            xp.zeros_like(theta),
            index,
        )

    return side(band.below), side(band.above)


def _all_but(parts: Parts, wholes: list[tuple[Totals, Array]], epsilon: Array) -> Array:
    """A lower bound of the hockey stick of finite losses that is good where almost all of them are far above epsilon.

    It is the total mass less the mean of min(1, e^(epsilon - L)) <= e^(s (epsilon - L)), for any s in [0, 1].
    """
    xp = array_module(epsilon)
    log_moments = sum(_log_moments(line, counts, -BACK * xp.ones_like(epsilon)) for line, counts in parts)
    log_rest = log_moments + BACK * epsilon
    log_rest = log_rest + 8.0 * UNIT * (1.0 + xp.abs(log_moments) + xp.abs(epsilon))
    log_total = 0.0
    for whole, counts in wholes:
        log_total = log_total + inflated(times(counts, whole.log_mass), 8.0 * UNIT).sum(-1)
    log_total = log_total - 8.0 * UNIT * len(parts) * xp.abs(log_total)
    return xp.exp(log_total) - xp.exp(log_rest.min(0)) - 16.0 * UNIT
