"""delta(epsilon) and epsilon(delta) from the sum that inverts a transform: the theorem of docs/proofs/contour.md."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, iterated, product, shared, xp
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct._numerics.trivial_bounds import possible
from jaxacct.losses.engines.inversion.integrand import Integrand
from jaxacct.losses.engines.inversion.saddle_point import tilt_bound

_ITERATIONS = 16
_CLOSE = 1e-7  # a relative step after which the next one, a square of it, is the last
LEAST = 1e-306  # no upper bound of delta is smaller, whatever underflowed
_NUDGES = np.array([1.5, 50.0])  # how far from the root bounds are tried, in units of their own distance from it,
_ROUNDINGS = np.array([1e-14, 1e-7])  # and of the root


class Known(NamedTuple):
    """What is known of a composition besides its transform, shape ``(B,)``.

    Attributes:
        failed: a lower bound of the probability that the loss is infinite.
        lost: an upper bound of that and of what was left out.
        largest: no sum of finite losses is above.
        floor: a lower bound of the hockey stick of finite losses at the epsilon in question.
    """

    failed: Array
    lost: Array
    largest: Array
    floor: Array | float = 0.0


class Reading(NamedTuple):
    """What is read at some epsilons: a hockey stick and its aliases, shape ``(..., sides, B)``, or delta.

    ``lower`` and ``upper`` enclose it, those of delta with shape ``(..., B)``; ``value`` and ``slope`` in epsilon are
    of every side, and no bounds.
    """

    lower: Array
    upper: Array
    value: Array
    slope: Array


def aliases(integrand: Integrand, epsilon: Array) -> Array:
    """Bound on the sum over k != 0 of e^(theta k c) D(eps + k c) (lemma 2); epsilon of shape ``(..., B)``."""
    n = integrand.tilts.shape[0] // 2
    tilts, log_moments = (
        x.reshape(2 * n, *(1,) * (epsilon.ndim - 1), -1) for x in (integrand.tilts, integrand.log_moments)
    )
    gap = xp.abs(tilts - integrand.theta) * (2.0 * np.pi / integrand.spacing)
    linear = tilts * epsilon
    log_first = log_moments - linear - xp.log1p(tilts) - gap
    log_first = log_first + 8.0 * UNIT * (xp.abs(log_moments) + xp.abs(linear) + gap)
    # A geometric series; D <= 1 with tilt 0.
    each = xp.where(gap > 0.1, xp.exp(log_first) / -xp.expm1(-gap), np.inf)
    each = xp.where(xp.isnan(each), np.inf, each)
    return inflated(each[:n].min(0) + each[n:].min(0), 1e-9)


def bound_by_moments(kind: str, tilts: Array, moments: Array, lost: Array, goal: Array) -> Array:
    """An upper bound of delta or epsilon by upper bounds of log moments at tilts, both of shape ``(N, B)``.

    D(eps) <= M(t) e^(-t eps) max over y > 0 of (1 - e^-y) e^(-t y), which is what ``tilt_bound`` says. A dozen
    operations, each off by a unit of one of these sizes: t log(1 + 1 / t) is at most 1.
    """
    t = xp.where(tilts > 0, tilts, np.inf)
    sizes = xp.abs(moments) + 2.0 + xp.log1p(t) + (t * xp.abs(goal) if kind == "delta" else xp.abs(xp.log(goal)))
    moments = moments + 32.0 * UNIT * sizes
    if kind == "delta":
        found = tilt_bound(kind, t, moments, goal).min(0)
        return xp.minimum(inflated(xp.exp(xp.clip(found, -704.0, 0.0)), 1e-12) + lost, 1.0)  # underflow is no bound
    left = xp.maximum(goal * (1.0 - 4.0 * UNIT) - lost, 0.0)
    return xp.maximum(inflated(tilt_bound(kind, t, moments, left), 16.0 * UNIT).min(0), 0.0)


def summed(integrand: Integrand, epsilon: Array) -> Reading:
    """The sums at ``epsilon``, shape ``(..., sides, B)``."""
    i = integrand
    total, derivative, error = turned_sum(i.real, i.imag, i.spacing, epsilon - i.mean)
    scale = xp.exp(i.log_total - i.theta * epsilon)
    moved = i.mean_error + 4.0 * UNIT * (xp.abs(epsilon) + xp.abs(i.mean))
    error = error + i.error + i.phase_error * (moved + 4.0 * UNIT * xp.abs(epsilon - i.mean))
    log_error = i.log_error + UNIT * (16.0 + 4.0 * xp.abs(i.log_total) + 4.0 * xp.abs(i.theta * epsilon))
    upper = scale * (total + error) * xp.exp(log_error)
    lower = scale * (total - error) * xp.exp(-log_error)
    return Reading(lower, upper, scale * total, scale * (derivative - i.theta * total))


def turned_sum(real: Array, imag: Array, spacing: Array, offset: Array) -> tuple[Array, Array, Array]:
    """The real part of sum_j terms_j exp(-i w_j offset), its derivative in offset, and what the first is off by.

    With j = wide a + b the factors are products u_a v_b of two short tables: for each a the sum over b, then over a.
    Tables are off by 3 units. A sum of n complex products is off by 2 n units of the sum of moduli in either component,
    3 n in all; the outer one has only a real part, of products that are rounded before they are added.
    """
    nodes = real.shape[-1]
    wide = math.gcd(nodes, 1 << (math.isqrt(nodes).bit_length() - 1))
    tall = nodes // wide
    terms = (real + 1j * imag).reshape(*real.shape[:-1], tall, wide)
    step = (spacing * offset)[..., None]
    b, a = np.arange(float(wide)), np.arange(float(tall))
    inner = xp.exp(-1j * (b * step))
    outer = xp.exp(-1j * (wide * a * step))
    both = product(terms, xp.stack([inner, b * inner], -1))
    sums, moments = both[..., 0], wide * a * both[..., 0] + both[..., 1]
    error = (xp.abs(real) + xp.abs(imag)).sum(-1) * UNIT * (16.0 + 3.0 * wide + 2.0 * tall)
    return (outer * sums).sum(-1).real, spacing * (outer * moments).sum(-1).imag, error


def _read(integrand: Integrand, known: Known, epsilon: Array) -> Reading:
    """At ``epsilon`` of shape ``(..., sides, B)``: the lower bound is that of the first side, the upper of the last."""
    found = summed(integrand, epsilon)
    lower = found.lower[..., 0, :] - aliases(integrand, epsilon[..., 0, :])
    # No hockey stick is negative, whatever was computed; and underflow is no upper bound.
    lower = xp.where(lower > 0, lower, 0.0) + known.failed
    upper = xp.maximum(found.upper[..., -1, :] + known.lost, LEAST)
    return Reading(*possible(lower, upper, epsilon[..., -1, :]), found.value + known.failed, found.slope)


@shared
def read_delta(integrand: Integrand, known: Known, epsilon: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta at ``epsilon``, shape ``(..., B)``."""
    *more, rows = epsilon.shape
    sides = xp.broadcast_to(epsilon[..., None, :], (*more, integrand.real.shape[0], rows))
    found = _read(integrand, known, sides)
    tilts, log_moments = (x.reshape(-1, *(1,) * len(more), rows) for x in (integrand.tilts, integrand.log_moments))
    moments = bound_by_moments("delta", tilts, log_moments, known.lost, epsilon)
    high = xp.minimum(found.upper, xp.maximum(moments, LEAST))
    high = xp.where(epsilon >= known.largest, known.lost, high)
    floor = known.floor + known.failed
    low = xp.where(floor > found.lower, floor, found.lower)
    return possible(low, high, epsilon)


def newton(
    state: tuple[Array, ...], value: Array, slope: Array, delta: Array, failed: Array | float = 0.0
) -> tuple[Array, ...]:
    """A step of Newton's method for log delta, or half the bracket: a bad guess's value may be all error.

    The state is epsilon, its bracket, and the size of the last step. Of ``value`` and ``delta``, ``failed`` is the
    probability of an infinite loss.
    """
    at, low, high, _ = state
    below = value <= delta  # what errors made negative was small
    low, high = xp.where(below, low, at), xp.where(below, at, high)
    finite = value - failed
    new = at + finite / xp.minimum(slope, -1e-300) * xp.log((delta - failed) / finite)
    new = xp.where(new <= 0.0, 0.0, new)
    new = xp.where((new >= low) & (new <= high), new, 0.5 * (low + high))
    return new, low, high, xp.abs(new - at)


@shared
def read_epsilon(integrand: Integrand, known: Known, guess: Array, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta."""
    i = integrand
    shape, n = i.mean.shape, len(_NUDGES)
    failed, guess = xp.broadcast_to(known.failed, shape), xp.broadcast_to(guess, shape)
    zero = xp.zeros_like(guess)

    def quick(state: tuple[Array, ...], *given: Array) -> tuple[Array, ...]:
        real, imag, spacing, mean, theta, log_total, delta, failed = given
        total, derivative, _ = turned_sum(real, imag, spacing, state[0] - mean)
        scale = xp.exp(log_total - theta * state[0])
        return newton(state, scale * total + failed, scale * (derivative - theta * total), delta, failed)

    def around(root: Array, read: Reading) -> Array:
        """The root, epsilons above and below, and 0; how far bounds there lie from the value says where they meet."""
        off = xp.maximum(read.upper - read.value[-1], read.value[0] - read.lower)
        nudge = off / xp.maximum(-read.slope, 1e-300)
        sizes = _NUDGES[:, None, None], _ROUNDINGS[:, None, None]
        moved = nudge * sizes[0] + xp.abs(root) * sizes[1]
        return xp.concatenate([root[None], root + moved, xp.maximum(root - moved, 0.0), zero[None]])

    def both(state: tuple[Array, ...]) -> tuple[Array, ...]:
        """A step, and bounds around where the last one led: in a program the integrand is there once."""
        at, *bracket = state[:4]
        read = _read(i, known, at)
        root, *bracket = newton((at[0], *bracket), read.value[0], read.slope[0], delta, failed)
        here = Reading(read.lower[0], read.upper[0], read.value[0], read.slope[0])
        return around(root, here), *bracket, state[3] <= _CLOSE * at[0], at, read.lower, read.upper

    bracket = (zero, xp.maximum(2.0 * guess, 1.0), zero + np.inf)
    if array_module(delta) is np:
        rows = lambda x: np.broadcast_to(x, shape).reshape(-1)  # noqa: E731
        terms = (x.reshape(-1, x.shape[-1]) for x in (i.real, i.imag))
        given = *terms, *(rows(x) for x in (i.spacing, i.mean, i.theta, i.log_total, delta, failed))
        close = lambda state: state[3] <= _CLOSE * state[0]  # noqa: E731
        start = tuple(x.reshape(-1) for x in (guess, *bracket))
        root = iterated(quick, start, close, _ITERATIONS, given)[0].reshape(shape)
        at = around(root, _read(i, known, root))
        found = _read(i, known, at)
        lows, highs = found.lower, found.upper
    else:
        start = xp.stack([guess] * (2 * n + 2))
        reads = xp.zeros((len(start), *delta.shape))
        state = (start, *bracket, zero > 0.0, start, reads, reads)
        at, lows, highs = iterated(both, state, lambda state: state[4], _ITERATIONS + 2)[5:]
    above, below = at[1 : n + 1, -1], at[n + 1 : -1, 0]
    high = xp.where(highs[1 : n + 1] <= delta, above, np.inf).min(0)
    low = xp.where(lows[n + 1 : -1] > delta, below, 0.0).max(0)
    high = xp.where(highs[-1] <= delta, 0.0, high)
    high = xp.minimum(high, bound_by_moments("epsilon", i.tilts, i.log_moments, known.lost, delta))
    # No finite loss is above the largest, and an infinite one that is likelier than delta leaves no epsilon.
    high = xp.where((known.lost <= delta) & (known.largest < high), xp.maximum(known.largest, 0.0), high)
    low = xp.where(known.failed > delta, np.inf, low)
    return xp.minimum(low, high), high
