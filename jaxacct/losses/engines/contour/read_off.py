"""delta(epsilon) and epsilon(delta) from the powers of a transform: the theorem of docs/proofs/contour.md."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, iterated, product
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct._numerics.trivial_bounds import possible

_ITERATIONS = 16
_CLOSE = 1e-7  # a relative step after which the next one, a square of it, is the last
LEAST = 1e-306  # no upper bound of delta is smaller, whatever underflowed
_NUDGES = np.array([1.5, 50.0])  # how far from the root bounds are tried, in units of their own distance from it,
_ROUNDINGS = np.array([1e-14, 1e-7])  # and of the root


class Integrand(NamedTuple):
    """The sum ``scale * sum_j Re(terms_j exp(-i w_j (epsilon - mean)))`` and what it may be wrong by.

    Attributes:
        theta, mean: shape ``(B,)``, as all that is not said to have another one.
        log_total: log of M(theta); ``log_error`` bounds its error.
        spacing: of the frequencies.
        real, imag: the terms, shape ``(B, nodes)``: transform at the frequencies over M(theta), times spacing / pi
            (half of it at 0); 0 where cut off.
        error: bound on the sum's error, relative to M(theta) e^(-theta eps), for phases known exactly.
        phase_error: bound on the sum of |terms_j| w_j, per unit of error in epsilon - mean.
        mean_error: rounding error of ``mean``.
        tilts, log_moments: Chernoff's t and upper bounds of log M(t), shape ``(shifts, B)``, on either side of theta.
        left_out: how much larger delta may be than that of the tapered laws.
        index: which multiples of ``spacing`` the terms belong to, shape ``(nodes,)``; None for 0, 1, 2, ...
    """

    theta: Array
    mean: Array
    mean_error: Array
    log_total: Array
    log_error: Array
    spacing: Array
    real: Array
    imag: Array
    error: Array
    phase_error: Array
    tilts: Array
    log_moments: Array
    left_out: Array
    index: Array | None = None  # pyright: ignore[reportIncompatibleMethodOverride]


def trimmed(integrand: Integrand) -> Integrand:
    """Without frequencies at which all settings were cut off, up to seven; NumPy's only."""
    if array_module(integrand.real) is not np:
        return integrand
    used = np.flatnonzero(((integrand.real != 0) | (integrand.imag != 0)).any(0))
    end = 8 * (int(used.max(initial=0)) // 8 + 1)
    return integrand._replace(real=integrand.real[:, :end], imag=integrand.imag[:, :end])


def aliases(integrand: Integrand, epsilon: Array) -> Array:
    """Bound on the sum over k != 0 of e^(theta k c) D(eps + k c) (lemma 2); epsilon of shape ``(..., B)``."""
    xp = array_module(epsilon)
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


def chernoff(integrand: Integrand, epsilon: Array) -> Array:
    """Chernoff's bound M(t) e^(-t eps) of delta, at the tilts for which M is known; far out nothing else is left."""
    i = integrand
    xp = array_module(epsilon)
    linear = i.tilts * epsilon
    log_bound = i.log_moments - linear + 4.0 * UNIT * (xp.abs(i.log_moments) + xp.abs(linear))
    log_bound = xp.where(xp.isnan(log_bound), np.inf, log_bound).min(0)
    # Underflow is no upper bound.
    bound = inflated(xp.exp(xp.clip(log_bound, -704.0, 700.0)), 1e-12) + i.left_out
    return xp.where(xp.isnan(bound), np.inf, bound)


class Sums(NamedTuple):
    """The full sum over the frequencies, which is delta and its aliases, shape ``(..., B)``.

    ``lower`` and ``upper`` enclose it; ``value`` and ``slope`` in epsilon are no bounds.
    """

    lower: Array
    upper: Array
    value: Array
    slope: Array


def summed(integrand: Integrand, epsilon: Array) -> Sums:
    """The sum at ``epsilon``, shape ``(..., B)``."""
    i = integrand
    xp = array_module(i.real)
    turned = _turned if i.index is None else functools.partial(_turned_one_by_one, i.index)
    total, derivative, error = turned(i.real, i.imag, i.spacing, epsilon - i.mean)
    log_scale = i.log_total - i.theta * epsilon
    scale = xp.exp(log_scale)
    moved = i.mean_error + 4.0 * UNIT * (xp.abs(epsilon) + xp.abs(i.mean))
    error = error + i.error + i.phase_error * (moved + 4.0 * UNIT * xp.abs(epsilon - i.mean))
    log_error = i.log_error + UNIT * (16.0 + 4.0 * xp.abs(i.log_total) + 4.0 * xp.abs(i.theta * epsilon))
    upper = scale * (total + error) * xp.exp(log_error)
    lower = scale * (total - error) * xp.exp(-log_error)
    return Sums(lower, upper, scale * total, scale * (derivative - i.theta * total))


def _turned(real: Array, imag: Array, spacing: Array, offset: Array) -> tuple[Array, Array, Array]:
    """The real part of sum_j terms_j exp(-i w_j offset), its derivative in offset, and what the first is off by.

    With j = wide a + b the factors are products u_a v_b of two short tables: for each a the sum over b, then over a.
    Tables are off by 3 units. A sum of n complex products is off by 2 n units of the sum of moduli in either component,
    3 n in all; the outer one has only a real part, of products that are rounded before they are added.
    """
    xp = array_module(real)
    nodes = real.shape[-1]
    wide = math.gcd(nodes, 1 << (math.isqrt(nodes).bit_length() - 1))
    tall = nodes // wide
    terms = (real + 1j * imag).reshape(-1, tall, wide)
    step = (spacing * offset)[..., None]
    b, a = np.arange(float(wide)), np.arange(float(tall))
    inner = xp.exp(-1j * (b * step))
    outer = xp.exp(-1j * (wide * a * step))
    both = product(terms, xp.stack([inner, b * inner], -1))
    sums, moments = both[..., 0], wide * a * both[..., 0] + both[..., 1]
    error = (xp.abs(real) + xp.abs(imag)).sum(-1) * UNIT * (16.0 + 3.0 * wide + 2.0 * tall)
    return (outer * sums).sum(-1).real, spacing * (outer * moments).sum(-1).imag, error


def _turned_one_by_one(index: Array, real: Array, imag: Array, spacing: Array, offset: Array) -> tuple[Array, ...]:
    """The same of frequencies that do not follow one another."""
    xp = array_module(real)
    phase = (index * spacing[:, None]) * offset[..., None]
    terms = (real + 1j * imag) * xp.exp(-1j * phase)
    # Each term, and a sum in any order.
    error = (xp.abs(real) + xp.abs(imag)).sum(-1) * (16.0 + real.shape[-1]) * UNIT
    return terms.real.sum(-1), spacing * (index * terms.imag).sum(-1), error


def read_delta(integrand: Integrand, epsilon: Array) -> tuple[Array, Array, Array, Array]:
    """``(lower, upper, value, slope)`` of delta at epsilon, shape ``(..., B)``; the last two are no bounds."""
    xp = array_module(epsilon)
    found = summed(integrand, epsilon)
    lower, upper = found.lower - aliases(integrand, epsilon), found.upper + integrand.left_out
    lower, upper = possible(lower, xp.maximum(upper, LEAST), epsilon)  # underflow is no upper bound
    return lower, upper, found.value, found.slope


def newton(
    state: tuple[Array, ...], value: Array, slope: Array, delta: Array, failed: Array | float = 0.0
) -> tuple[Array, ...]:
    """A step of Newton's method for log delta, or half the bracket: a bad guess's value may be all error.

    The state is epsilon, its bracket, and the size of the last step. Of ``value`` and ``delta``, ``failed`` is the
    probability of an infinite loss.
    """
    xp = array_module(value)
    at, low, high, _ = state
    below = value <= delta  # what errors made negative was small
    low, high = xp.where(below, low, at), xp.where(below, at, high)
    finite = value - failed
    new = at + finite / xp.minimum(slope, -1e-300) * xp.log((delta - failed) / finite)
    new = xp.where(new <= 0.0, 0.0, new)
    new = xp.where((new >= low) & (new <= high), new, 0.5 * (low + high))
    return new, low, high, xp.abs(new - at)


def read_epsilon(integrand: Integrand, guess: Array, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta."""
    xp = array_module(delta)

    def quick(state: tuple[Array, ...], *given: Array) -> tuple[Array, ...]:
        real, imag, spacing, mean, theta, log_total, delta = given
        total, derivative, _ = _turned(real, imag, spacing, state[0] - mean)
        scale = xp.exp(log_total - theta * state[0])
        return newton(state, scale * total, scale * (derivative - theta * total), delta)

    def around(root: Array, read: tuple[Array, ...]) -> Array:
        """The root, epsilons above and below, and 0; how far bounds there lie from the value says where they meet."""
        low, high, value, slope = (x[0] for x in read)
        nudge = xp.maximum(high - value, value - low) / xp.maximum(-slope, 1e-300)
        moved = nudge * _NUDGES[:, None] + xp.abs(root) * _ROUNDINGS[:, None]
        return xp.concatenate([root[None], root + moved, xp.maximum(root - moved, 0.0), zero[None]])

    def both(state: tuple[Array, ...]) -> tuple[Array, ...]:
        """A step, and bounds around where the last one led: in a program the integrand is there once."""
        at, *bracket = state[:4]
        read = read_delta(integrand, at)
        root, *bracket = newton((at[0], *bracket), read[2][0], read[3][0], delta)
        return around(root, read), *bracket, state[3] <= _CLOSE * at[0], at, *read[:2]

    zero, n = xp.zeros_like(guess), len(_NUDGES)
    bracket = (zero, xp.maximum(2.0 * guess, 1.0), zero + np.inf)
    if xp is np:
        i = integrand
        given = (i.real, i.imag, i.spacing, i.mean, i.theta, i.log_total, delta)
        close = lambda state: state[3] <= _CLOSE * state[0]  # noqa: E731
        root = iterated(quick, (guess, *bracket), close, _ITERATIONS, given)[0]
        at = around(root, read_delta(integrand, root[None]))[1:]
        lows, highs, _, _ = read_delta(integrand, at)
    else:
        start = xp.stack([guess] * (2 * n + 2))
        state = (start, *bracket, zero > 0.0, start, start, start)
        at, lows, highs = (x[1:] for x in iterated(both, state, lambda state: state[4], _ITERATIONS + 2)[5:])
    above, below = at[:n], at[n:-1]
    high = xp.where(highs[:n] <= delta, above, np.inf).min(0)
    low = xp.where(lows[n:-1] >= delta, below, 0.0).max(0)
    high = xp.where(highs[-1] <= delta, 0.0, high)
    return xp.minimum(low, high), high
