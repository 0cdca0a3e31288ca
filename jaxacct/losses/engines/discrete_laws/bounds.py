"""delta and epsilon of any composition, from discrete laws on either side of every part.

Every part's loss is put between two discrete laws (`cells`). Their transforms along one vertical line are finite sums,
powers of them are pointwise, and a small Gaussian mechanism ends the integral (`smoothing`). The inversion itself is
that of `engines.contour.bounds`. The work does not depend on the number of steps; a larger :class:`Size` makes the
bounds tighter, to the second order in both numbers.

Every array has a leading axis of settings, and parts of a composition are the next one; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import array_module, iterated, logsumexp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct._numerics.trivial_bounds import possible
from jaxacct.losses.engines.contour.read_off import Integrand, aliases, chernoff, summed
from jaxacct.losses.engines.contour.transform import log_modulus_of, transform
from jaxacct.losses.engines.discrete_laws.cells import Law, laws, laws_of_outcomes
from jaxacct.losses.engines.discrete_laws.plan import edges_of, plan_of
from jaxacct.losses.engines.discrete_laws.smoothing import smoothing
from jaxacct.mechanisms.pairs.table import lists_outcomes

__all__ = ["Size", "universal_bounds"]

Array = Any  # NumPy's or JAX's

_DIGITS = 18.0  # e-foldings between delta and each error that a plan aims at
_DECAY = 8.5  # s W: the Gaussian's transform falls to exp(-8.5^2 / 2) at the last frequency
_SHIFTS = np.array([0.5, 1.0, 2.0, 4.0, 6.0])[:, None]
_STRETCHES = np.array([0.02, 0.06, 0.15, 0.4, 0.8])[:, None]
_BACK = np.array([0.03, 0.1, 0.3, 0.5, 0.8, 1.0])[:, None]  # s of the bound of what is missing to 1
_ITERATIONS = 16
_CLOSE = 1e-9


class Size(NamedTuple):
    """How many points; static."""

    cells: int
    """Cells of a step's loss."""
    nodes: int
    """Frequencies; a square of a power of 2."""


class _Tilted(NamedTuple):
    """A law tilted by theta, at frequency 0 of total 1: losses around their mean, and what that is good to."""

    losses: Array
    weights: Array
    mean: Array
    log_total: Array
    error: Array
    phase: Array


def universal_bounds(kind: str, size: Size, groups: tuple[Any, ...], counts: Array, goal: Array):
    """``(lower, upper)`` of delta or epsilon, shape ``(B,)``.

    Args:
        kind: ``"delta"`` (``goal`` is epsilon) or ``"epsilon"`` (``goal`` is delta).
        size: static sizes.
        groups: pairs of one structure each, leaves of shape ``(B, parts of the group)``.
        counts: whole numbers >= 0, shape ``(B, K)``, in the order of the groups.
        goal: shape ``(B,)``.
    """
    plan = plan_of(kind, groups, counts, goal)
    xp = array_module(goal)
    below, above = [], []
    first = 0
    for group, survey in zip(groups, plan.surveys, strict=True):
        own = slice(first, first + survey[0].shape[1])
        first = own.stop
        if lists_outcomes(group):
            pair_laws = laws_of_outcomes(group)
        else:
            pair_laws = laws(group, edges_of(group, survey, plan, counts[:, own], size.cells))
        below.append((pair_laws.lower, counts[:, own]))
        above.append((pair_laws.upper, counts[:, own]))

    # Chernoff's bounds at tilts around theta: for the period, and for what lies a period away.
    theta = plan.theta
    shift = xp.concatenate([_SHIFTS / xp.maximum(plan.deviation, 1e-300), _STRETCHES * theta])
    tilts = xp.concatenate([theta + shift, xp.maximum(theta - shift, 0.0)])
    moments = sum(_log_moments(law, count, tilts) for law, count in above)
    moments = xp.where(tilts > 0, moments, 0.0)
    n = shift.shape[0]
    excess = moments - tilts * plan.epsilon - log1p(tilts) - plan.log_delta + _DIGITS
    gap = xp.abs(tilts - theta)
    needed = xp.where(gap > 0, xp.maximum(excess, 1.0) / xp.where(gap > 0, gap, 1.0), np.inf)
    period = xp.maximum(needed[:n].min(0), needed[n:].min(0)) * 1.05
    spacing = 2.0 * np.pi / period
    s = _DECAY / (spacing * (size.nodes - 1))
    moments = moments + 0.5 * s * s * tilts * (tilts + 1.0)
    lower = _integrand(below, theta, spacing, s, size.nodes, tilts, moments)
    upper = _integrand(above, theta, spacing, s, size.nodes, tilts, moments)
    largest = sum(_largest(law, count) for law, count in above)
    if kind == "delta":
        return _delta(lower, upper, s, largest, _all_but(below, goal), goal)
    return _epsilon(lower, upper, s, largest, plan.epsilon, goal)


def _log_moments(law: Law, counts: Array, tilts: Array) -> Array:
    """Upper bounds of sum_k T_k log E[exp(t L_k); L_k < inf] at tilts of shape ``(N, B)``."""
    xp = array_module(tilts)
    log_masses = xp.where(law.masses > 0, xp.log(xp.where(law.masses > 0, law.masses, 1.0)), -np.inf)
    log_masses = log_masses + 0.0 * law.masses  # NaN stays NaN
    found = logsumexp(tilts[..., None, None] * law.losses + log_masses)
    size = xp.abs(found) + xp.abs(tilts)[..., None] * xp.abs(law.losses).max(-1) + 700.0
    found = found + UNIT * (16.0 + 2.0 * law.losses.shape[-1] + 8.0 * size)
    return xp.where(counts == 0, 0.0, counts * found).sum(-1)


def _largest(law: Law, counts: Array) -> Array:
    """What no sum of finite losses exceeds, shape ``(B,)``; NaN where the law is none."""
    xp = array_module(counts)
    most = law.losses.max(-1) + 0.0 * law.masses.sum(-1)
    most = xp.where(counts == 0, 0.0, counts * most)
    return most.sum(-1) + UNIT * (8.0 + 2.0 * most.shape[-1]) * xp.abs(most).sum(-1)


def _tilted(law: Law, theta: Array) -> _Tilted:
    xp = array_module(theta)
    theta = theta[:, None, None]
    positive = law.masses > 0
    log_masses = xp.where(positive, xp.log(xp.where(positive, law.masses, 1.0)), -np.inf) + 0.0 * law.masses
    exponent = log_masses + theta * law.losses
    top = exponent.max(-1)
    weights = xp.exp(exponent - top[..., None])
    total = weights.sum(-1)
    log_total = top + xp.log(total)
    weights = weights / total[..., None]
    mean = (weights * law.losses).sum(-1)
    centred = law.losses - mean[..., None]
    size = xp.where(positive, xp.abs(log_masses), 0.0) + 2.0 * theta * xp.abs(law.losses)
    units = UNIT * (24.0 + 4.0 * size)
    error = (weights * units).sum(-1) + UNIT * (2.0 * weights.shape[-1] + 32.0 + 8.0 * xp.abs(log_total))
    phase = 8.0 * UNIT * (weights * (xp.abs(law.losses) + xp.abs(mean)[..., None])).sum(-1)
    return _Tilted(centred, weights, mean, log_total, error, phase)


def _integrand(parts: Any, theta: Array, spacing: Array, s: Array, nodes: int, tilts: Array, moments: Array):
    """The powers of the transforms and every error; see :class:`jaxacct.losses.engines.contour.read_off.Integrand`."""
    xp = array_module(theta)
    index = np.arange(nodes)
    frequencies = index * spacing[:, None]
    number = sum(count.shape[1] for _, count in parts)
    unit = UNIT * (8.0 + number)
    log_total = mean = size = mean_size = wrong = survival = log_modulus = angle = turns = growth = 0.0
    for law, counts in parts:
        tilted = _tilted(law, theta)
        found = transform(tilted.losses, tilted.weights, spacing, nodes)
        used = counts != 0  # NaN stays NaN
        times = lambda x: xp.where(used, counts * x, 0.0)  # noqa: B023, E731
        each = lambda x: xp.where(used[..., None], counts[..., None] * x, 0.0)  # noqa: B023, E731
        log_total, size = log_total + times(tilted.log_total).sum(-1), size + times(xp.abs(tilted.log_total)).sum(-1)
        mean, mean_size = mean + times(tilted.mean).sum(-1), mean_size + times(xp.abs(tilted.mean)).sum(-1)
        wrong = wrong + times(1.5 * tilted.error).sum(-1)
        survival = survival + times(log1p(-xp.minimum(law.infinite, 1.0))).sum(-1)
        eta = found.error + 4.0 * tilted.error[..., None] + frequencies[:, None, :] * tilted.phase[..., None]
        log_moduli = log_modulus_of(found.real, found.imag)
        turned = each(xp.arctan2(found.imag, 1.0 + found.real))
        log_modulus, angle = log_modulus + each(log_moduli).sum(1), angle + turned.sum(1)
        turns = turns + xp.abs(turned).sum(1)
        growth = growth + each(log1p(eta * xp.exp(-log_moduli))).sum(1)

    # The small Gaussian: exp(s^2 z (z + 1) / 2) at z = theta + i w, exactly.
    log_modulus = log_modulus - 0.5 * (s[:, None] * frequencies) ** 2
    log_total, mean = log_total + 0.5 * s * s * theta * (theta + 1.0), mean + s * s * (theta + 0.5)
    size, mean_size = size + s * s * theta * (theta + 1.0), mean_size + s * s * (theta + 0.5)
    power = xp.exp(log_modulus)
    rounding = unit * 2.0 * (2.0 + xp.abs(log_modulus) + turns + (s[:, None] * frequencies) ** 2)
    off = xp.exp(xp.minimum(log_modulus + growth, 1.0)) * -xp.expm1(-growth) + power * rounding
    t = theta[:, None]
    kernel = xp.hypot(t, frequencies) * xp.hypot(t + 1.0, frequencies)
    angle = angle - xp.arctan2(frequencies, t) - xp.arctan2(frequencies, t + 1.0)
    weight = spacing[:, None] / np.pi * np.where(index > 0, 1.0, 0.5) / kernel
    # The integral of exp(-(s w)^2 / 2) / w^2 from the last frequency on.
    last = frequencies[:, -1]
    beyond = xp.exp(-0.5 * (s * last) ** 2) / (s * s * last**3) / np.pi * 1.01
    amplitude = weight * power
    error = inflated((weight * off).sum(-1) + beyond, 1e-9) + (amplitude * UNIT * 16.0 * (1.0 + xp.abs(angle))).sum(-1)
    survived = unit * (4.0 - 8.0 * survival)
    return Integrand(
        theta,
        mean,
        unit * mean_size,
        log_total,
        wrong + unit * (size + 1.0),
        spacing,
        amplitude * xp.cos(angle),
        amplitude * xp.sin(angle),
        error,
        (amplitude * frequencies).sum(-1),
        tilts,
        moments,
        (-xp.expm1(survival), survived),
    )


def _both(lower: Integrand, upper: Integrand) -> tuple[Array, Array]:
    """Bounds of the probability that some loss is infinite, from the two laws."""
    (low, low_off), (high, high_off) = lower.left_out, upper.left_out
    return low * (1.0 - low_off), inflated(high, high_off)


def _all_but(parts: Any, epsilon: Array) -> Array:
    """A lower bound of the hockey stick of finite losses that is good where almost all of them are far above epsilon.

    It is the total mass less the mean of min(1, e^(epsilon - L)) <= e^(s (epsilon - L)), for any s in [0, 1].
    """
    xp = array_module(epsilon)
    log_moments = sum(_log_moments(law, counts, -_BACK * xp.ones_like(epsilon)) for law, counts in parts)
    log_rest = log_moments + _BACK * epsilon
    log_rest = log_rest + 8.0 * UNIT * (1.0 + xp.abs(log_moments) + xp.abs(epsilon))
    log_total = 0.0
    for law, counts in parts:
        log_mass = xp.log(law.masses.sum(-1)) - UNIT * (8.0 + law.masses.shape[-1])
        log_total = log_total + inflated(xp.where(counts == 0, 0.0, counts * log_mass), 8.0 * UNIT).sum(-1)
    log_total = log_total - 8.0 * UNIT * len(parts) * xp.abs(log_total)
    return xp.exp(log_total) - xp.exp(log_rest.min(0)) - 16.0 * UNIT


def _delta(
    lower: Integrand, upper: Integrand, s: Array, largest: Array, floor: Array, epsilon: Array
) -> tuple[Array, Array]:
    failed, lost = _both(lower, upper)
    xp = array_module(epsilon)
    high = summed(upper, epsilon).upper + lost
    high = xp.minimum(high, chernoff(upper._replace(left_out=lost), epsilon))
    high = xp.where(epsilon >= largest, lost, xp.maximum(high, 1e-300))
    low = _unsmoothed(lower, s).at(epsilon)[0]
    return possible(xp.where(floor > low, floor, low) + failed, high, epsilon)


class _Unsmoothed(NamedTuple):
    """A lower bound of the hockey stick of finite losses, as one sum over the frequencies."""

    integrand: Integrand
    rest: Array

    def at(self, epsilon: Array) -> tuple[Array, Array]:
        """The bound and its slope in epsilon."""
        i = self.integrand
        xp = array_module(epsilon)
        found = summed(i, epsilon)
        units = i.log_error + 8.0 * UNIT * (1.0 + xp.abs(i.log_total) + i.theta * xp.abs(epsilon))
        rest = self.rest * inflated(xp.exp(i.log_total - i.theta * epsilon + units), 1e-12)
        value = found.lower - self.aliased * aliases(i, epsilon) - rest
        return xp.where(value > 0, value, 0.0), found.slope  # no hockey stick is negative, whatever was computed

    aliased: Array


def _unsmoothed(i: Integrand, s: Array) -> _Unsmoothed:
    """See `losses.engines.discrete_laws.smoothing`: every term times (1 - sum_j w_j e^(-(theta + i w) j r)) / w_0."""
    xp = array_module(s)
    constants = smoothing(s, i.theta)
    damped = constants.owed * xp.exp(-i.theta[:, None] * constants.ahead)
    frequencies = np.arange(i.real.shape[-1]) * i.spacing[:, None]
    real, imag = 1.0, 0.0
    for j in range(damped.shape[-1]):
        phase = frequencies * constants.ahead[:, j, None]
        real = real - damped[:, j, None] * xp.cos(phase)
        imag = imag + damped[:, j, None] * xp.sin(phase)
    kept = constants.kept[:, None]
    real, imag = real / kept, imag / kept
    # Errors of the terms that are taken away count as well, and the rounding of the factor itself.
    more = (1.0 + damped.sum(-1)) / constants.kept
    sizes = xp.hypot(i.real, i.imag)
    phases = UNIT * 16.0 * (4.0 + frequencies * xp.abs(constants.ahead).max(-1)[:, None]) * more[:, None]
    made = i._replace(
        real=i.real * real - i.imag * imag,
        imag=i.real * imag + i.imag * real,
        error=inflated(more * i.error + (sizes * phases).sum(-1), 1e-9),
        phase_error=inflated(more * i.phase_error, 1e-9),
        log_error=i.log_error,
    )
    return _Unsmoothed(made, constants.rest / constants.kept, 1.0 / constants.kept)


def _epsilon(lower: Integrand, upper: Integrand, s: Array, largest: Array, guess: Array, delta: Array):
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta."""
    xp = array_module(delta)
    failed, lost = _both(lower, upper)
    unsmoothed = _unsmoothed(lower, s)

    def above(epsilon: Array) -> tuple[Array, Array]:
        found = summed(upper, epsilon)
        return found.upper + lost, found.slope

    def below(epsilon: Array) -> tuple[Array, Array]:
        value, slope = unsmoothed.at(epsilon)
        return value + failed, slope

    def root(curve: Any, offset: Array, start: Array) -> Array:
        """Newton's method for the logarithm, or half the bracket."""

        def newton(state: tuple[Array, ...]) -> tuple[Array, ...]:
            at, low, high, _ = state
            value, slope = curve(at)
            inside = value <= delta
            low, high = xp.where(inside, low, at), xp.where(inside, at, high)
            part = value - offset
            new = at + part / xp.minimum(slope, -1e-300) * xp.log((delta - offset) / part)
            new = xp.where(new <= 0.0, 0.0, new)
            new = xp.where((new >= low) & (new <= high), new, 0.5 * (low + high))
            return new, low, high, xp.abs(new - at)

        zero = xp.zeros_like(start)
        state = (start, zero, xp.maximum(2.0 * start, 1.0), zero + np.inf)
        return iterated(newton, state, lambda state: state[3] <= _CLOSE * state[0], _ITERATIONS)[0]

    at = root(above, lost, guess)
    high = xp.full_like(at, np.inf)
    for nudge in (1e-12, 1e-9, 1e-6):
        moved = at * (1.0 + nudge) + 1e-14
        high = xp.minimum(high, xp.where(above(moved)[0] <= delta, moved, np.inf))
    zero = xp.zeros_like(at)
    high = xp.where(above(zero)[0] <= delta, 0.0, high)
    high = xp.where((lost <= delta) & (largest < high), xp.maximum(largest, 0.0), high)
    high = xp.where(lost <= delta, high, np.inf)
    at = root(below, failed, at)
    low = zero
    for nudge in (1e-12, 1e-9, 1e-6):
        moved = xp.maximum(at * (1.0 - nudge) - 1e-14, 0.0)
        low = xp.maximum(low, xp.where(below(moved)[0] > delta, moved, 0.0))
    low = xp.where(failed > delta, np.inf, low)
    return xp.minimum(low, high), high
