"""delta and epsilon by inverting the Laplace transform of the composed loss, every error bounded.

With M(z) = prod_k E[exp(z L_k)]^T_k, any theta > 0 and D(eps) = delta(eps),

    integral of e^(theta x) D(x) e^(i w x) dx = M(theta + i w) / ((theta + i w) (theta + 1 + i w)).

*Aliasing.* Poisson's summation formula turns the trapezoid sum of the inverse transform, with step h = 2 pi / c, into

    sum over k of e^(theta k c) D(eps + k c),

exactly. Every term is non-negative, so the full sum is an upper bound of D(eps); the terms k > 0 are bounded by
D(x) <= M(t) e^(-t x) / (1 + t) with a t above theta, the terms k < 0 by the same with t below theta, or by D <= 1.

*Truncation.* The terms with |w| >= W are at most prod_k (1 - decay_k(W))^T_k e^(-theta eps) M(theta) / (pi W).

*Evaluation.* M(z) is known within the quadrature's certified error eta_k(w), and
|a^T - b^T| <= (|b| + eta)^T - |b|^T for |a - b| <= eta.

The work does not depend on the number of steps, and the relative error is some 1e-9, not a grid's spacing.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct.mechanisms._gaussian_quadrature import decay, log_moment, quadrature, rough_cumulants
from jaxacct.mechanisms._pair import UNIT

__all__ = ["Plan", "Size", "contour_bounds", "plan", "smooth_delta"]

_COARSE, _FINE = 32, 12  # tilts tried: over all magnitudes, then between two of the first
_DIGITS = 18.0  # e-foldings between delta and each error that a plan aims at
# How far from theta Chernoff's bounds are tried, in units of 1 / standard deviation and of theta. The second kind
# serves rare sampling, where a slightly larger tilt lets rare and large losses take over.
_SHIFTS = (0.5, 1.0, 2.0, 4.0, 6.0)
_STRETCHES = (0.02, 0.06, 0.15, 0.4, 0.8)
_TRUSTED = 1e-6  # relative error of a derivative, roughly, that is still given out


class Size(NamedTuple):
    """How many points; static."""

    points: int
    """Points of a step's quadrature."""
    nodes: int
    """Frequencies; a square of a power of 2."""


class Plan(NamedTuple):
    """Where to put the contour: tilt, epsilon and log delta (the wanted one a guess), deviation of the tilted loss."""

    theta: Array
    epsilon: Array
    log_delta: Array
    deviation: Array


class _Integrand(NamedTuple):
    """The sum ``scale * sum_j Re(terms_j exp(-i w_j (epsilon - mean)))`` and what it may be wrong by.

    Attributes:
        theta, mean: scalars.
        log_total: log of M(theta); ``log_error`` bounds its error.
        log_error: scalar.
        spacing: of the frequencies.
        terms: transform at the frequencies over M(theta), times spacing / pi (half of it at 0); 0 where cut off.
        error: bound on the sum's error, relative to M(theta) e^(-theta eps), for phases known exactly.
        phase_error: bound on the sum of |terms_j| w_j, per unit of error in epsilon - mean.
        mean_error: rounding error of ``mean``.
        tilts, log_moments: Chernoff's t and upper bounds of log M(t), shape ``(shifts,)``, on either side of theta.
    """

    theta: Array
    mean: Array
    mean_error: Array
    log_total: Array
    log_error: Array
    spacing: Array
    terms: Array
    error: Array
    phase_error: Array
    tilts: Array
    log_moments: Array


def contour_bounds(kind: str, size: Size, pairs: Any, counts: Array, goal: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta or epsilon for one composition.

    Args:
        kind: ``"delta"`` (``goal`` is epsilon) or ``"epsilon"`` (``goal`` is delta).
        size: static sizes.
        pairs: GaussianPairs, leaves of shape ``(K,)``.
        counts: whole numbers >= 0, shape ``(K,)``.
        goal: scalar.

    Returns:
        Bounds that always hold; useless ones (0 and 1, 0 and inf) where the contour does not suit the query.
    """
    chosen = plan(kind, pairs, counts, goal)
    integrand = _integrand(chosen, size, pairs, counts)
    if kind == "delta":
        return _delta(integrand, goal)[:2]
    return _epsilon(integrand, chosen.epsilon, goal)


def smooth_delta(plan: Plan, size: Size, pairs: Any, counts: Array, epsilon: Array) -> tuple[Array, Array]:
    """delta(epsilon) without bounds, to be differentiated in pairs, counts and epsilon; ``plan`` is held fixed.

    Returns:
        The value, and whether its derivatives are to be trusted. That is judged by the last terms and not proven:
        rare losses of a few steps have transforms that hardly decay, and then a derivative may have no right digit.
    """
    i = _integrand(jax.lax.stop_gradient(plan), size, pairs, counts)
    _, _, value, slope = _delta(i, epsilon)
    index = jnp.arange(size.nodes)
    kept = jnp.sum(jnp.where(i.terms != 0, 1.0, 0.0))
    last = jnp.max(jnp.where(index >= 0.85 * kept - 1.0, jnp.abs(i.terms), 0.0))
    # A derivative multiplies a term by its frequency, and by no more than about theta in what is aliased.
    cut_off = jnp.exp(i.log_total - i.theta * epsilon) * last * kept * (i.theta + kept * i.spacing)
    wrong = cut_off + _aliases(i, epsilon) * i.theta
    trusted = (wrong <= _TRUSTED * jnp.abs(slope)) & (i.log_error < _TRUSTED) & (kept > 8)
    return value, jax.lax.stop_gradient(trusted)


def _saddle_log_delta(t: Array, k0: Array, k2: Array, epsilon: Array) -> Array:
    spread = k2 + 1.0 / t**2 + 1.0 / (t + 1.0) ** 2
    return k0 - t * epsilon - jnp.log(t) - jnp.log1p(t) - 0.5 * jnp.log(2 * jnp.pi * spread)


def plan(kind: str, pairs: Any, counts: Array, goal: Array) -> Plan:
    """A tilt near the saddle point: an error there costs digits only in proportion to its square.

    For delta, the tilt of the best bound N(t) - t eps + t log t - (1 + t) log(1 + t) on log delta; for epsilon, that
    of the best conversion from Renyi divergence. Both stay sensible where the saddle-point approximation does
    not: losses that are rare and large.
    """

    def cumulants(t: Array):
        each = jax.vmap(rough_cumulants, (0, None))(pairs, t)
        return [(jnp.where(counts > 0, counts * one, 0.0)).sum() for one in each]

    def judged(t: Array) -> Array:
        bound = cumulants(t)[0] - jnp.log1p(t) - t * jnp.log1p(1.0 / t)
        value = bound - t * goal if kind == "delta" else (bound - jnp.log(goal)) / t
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    low, high = jnp.log(jnp.asarray(1e-6)), jnp.log(jnp.asarray(1e6))
    for count in (_COARSE, _FINE):
        grid = jnp.linspace(low, high, count)
        value = jax.vmap(judged)(jnp.exp(grid))
        # Never ``value <= value.min()``: XLA may compute the two values apart, and none be the least.
        at = grid[jax.lax.argmin(value, 0, jnp.int32)]
        low, high = at - (grid[1] - grid[0]), at + (grid[1] - grid[0])
    theta = jnp.exp(at)
    k0, _, k2 = cumulants(theta)
    if kind == "delta":
        log_delta = jnp.minimum(_saddle_log_delta(theta, k0, k2, goal), 0.0)
        return Plan(theta, goal, log_delta, jnp.sqrt(k2))
    epsilon = (_saddle_log_delta(theta, k0, k2, jnp.zeros(())) - jnp.log(goal)) / theta
    return Plan(theta, jnp.clip(epsilon, 0.0, jnp.maximum(judged(theta), 0.0)), jnp.log(goal), jnp.sqrt(k2))


def _integrand(plan: Plan, size: Size, pairs: Any, counts: Array) -> _Integrand:
    theta = plan.theta
    runs = counts.sum()
    unit = UNIT * (8.0 + counts.shape[0])  # sums over the parts round once a part
    digits = 30.0 + jnp.log(runs)
    parts = jax.vmap(lambda pair: quadrature(pair, theta, size.points, digits))(pairs)
    used = counts > 0
    terms = jnp.where(used, counts * parts.log_total, 0.0)
    log_total = terms.sum()
    error_at_0 = jax.vmap(lambda part: part.error(jnp.zeros(())))(parts)
    log_error = (counts * 1.5 * jnp.minimum(error_at_0, 0.5)).sum() + unit * (jnp.abs(terms).sum() + 1.0)
    log_error = jnp.where((jnp.where(used, error_at_0, 0.0) < 0.5).all(), log_error, jnp.inf)
    means = jnp.where(used, counts * parts.mean, 0.0)

    # Chernoff's bounds at tilts around theta, for the aliases.
    shift = jnp.asarray(_SHIFTS) / jnp.maximum(plan.deviation, 1e-300)
    shift = jnp.concatenate([shift, jnp.asarray(_STRETCHES) * theta])
    tilts = jnp.concatenate([theta + shift, jnp.maximum(theta - shift, 0.0)])
    moments = jax.vmap(lambda pair: jax.vmap(lambda t: log_moment(pair, t, size.points // 2, digits))(tilts))(pairs)
    moments = jnp.where(used[:, None], counts[:, None] * moments, 0.0).sum(0)
    log_moments = jnp.where(tilts > 0, moments + unit * jnp.abs(moments), 0.0)

    # The period c: every alias that far away should be e^-DIGITS of delta.
    n = len(_SHIFTS) + len(_STRETCHES)
    excess = log_moments - tilts * plan.epsilon - jnp.log1p(tilts) - plan.log_delta + _DIGITS
    gap = jnp.abs(tilts - theta)
    needed = jnp.where(gap > 0, jnp.maximum(excess, 1.0) / gap, jnp.inf)
    period = jnp.maximum(needed[:n].min(), needed[n:].min()) * 1.05
    spacing = 2.0 * jnp.pi / period
    spacing = jax.lax.stop_gradient(spacing)
    frequencies = jnp.arange(size.nodes) * spacing

    side = round(size.nodes**0.5)
    small = frequencies[:side]
    large = frequencies[::side]
    phases = lambda w: parts.losses[:, None, :] * w[:, None]  # noqa: E731
    inner, outer = phases(small), phases(large)
    # exp(i w_j loss) for j = side a + b as a product: two short tables and a matrix product instead of a long table.
    ci, si, co, so = jnp.cos(inner), jnp.sin(inner), jnp.cos(outer), jnp.sin(outer)
    ci, si = ci * parts.weights[:, None, :], si * parts.weights[:, None, :]
    product = functools.partial(jnp.einsum, "kai,kbi->kab", precision="highest")
    real = (product(co, ci) - product(so, si)).reshape(-1, size.nodes)
    imag = (product(co, si) + product(so, ci)).reshape(-1, size.nodes)

    eta = jax.vmap(lambda part: part.error(frequencies))(parts) + (32.0 + 2.0 * size.points) * UNIT
    modulus = jnp.hypot(real, imag)
    exponent = counts[:, None]
    log_modulus = jnp.where(used[:, None], exponent * jnp.log(jnp.maximum(modulus, 1e-300)), 0.0).sum(0)
    angles = jnp.where(used[:, None], exponent * jnp.arctan2(imag, real), 0.0)
    angle = angles.sum(0)
    # log((|b| + eta)^T) - log(|b|^T), and the rounding of the power itself. As neither |a| nor |b| exceeds 1 by more
    # than rounding, the difference of powers is also at most 2 and at most T eta: growth may be cut at 1.
    growth = jnp.where(used[:, None], exponent * jnp.log1p(eta / jnp.maximum(modulus, 1e-300)), 0.0).sum(0)
    rounding = unit * 2.0 * (2.0 + jnp.abs(log_modulus) + jnp.abs(angles).sum(0))
    power = jnp.exp(log_modulus)
    off = jnp.exp(jnp.minimum(log_modulus + growth, 1.0)) * -jnp.expm1(-growth) + power * rounding
    size_of = jnp.hypot(theta, frequencies) * jnp.hypot(theta + 1.0, frequencies)
    angle = angle - jnp.arctan2(frequencies, theta) - jnp.arctan2(frequencies, theta + 1.0)
    weight = spacing / jnp.pi * jnp.where(jnp.arange(size.nodes) > 0, 1.0, 0.5) / size_of

    # Cut off where errors of further terms would outweigh what the decay bounds.
    small_part = jax.vmap(lambda part: decay(part.layer_masses, part.layer_lengths, frequencies))(parts)
    left = jnp.where(used[:, None], exponent * jnp.log1p(-jnp.minimum(small_part, 1.0 - 1e-16)), 0.0).sum(0)
    beyond = jnp.exp(left) / jnp.pi / jnp.maximum(frequencies - spacing, 1e-300)
    beyond = jnp.where(jnp.arange(size.nodes) >= 2, beyond, jnp.inf)
    before = jnp.cumsum(weight * off)
    total = before[:-1] + beyond[1:]  # if terms 0 to j are kept
    last = jax.lax.argmin(total, 0, jnp.int32)
    best = total[last]
    kept = jnp.arange(size.nodes) <= last
    amplitude = jnp.where(kept, weight * power, 0.0)
    return _Integrand(
        theta,
        means.sum(),
        unit * jnp.abs(means).sum(),
        log_total,
        log_error,
        spacing,
        jax.lax.complex(amplitude * jnp.cos(angle), amplitude * jnp.sin(angle)),
        best * (1.0 + 1e-9) + (amplitude * UNIT * 16.0 * (1.0 + jnp.abs(angle))).sum(),
        (amplitude * frequencies).sum(),
        tilts,
        log_moments,
    )


def _aliases(integrand: _Integrand, epsilon: Array) -> Array:
    """Bound on the sum over k != 0 of e^(theta k c) D(eps + k c)."""
    n = len(_SHIFTS) + len(_STRETCHES)
    period = 2.0 * jnp.pi / integrand.spacing
    gap = jnp.abs(integrand.tilts - integrand.theta) * period
    linear = integrand.tilts * epsilon
    log_first = integrand.log_moments - linear - jnp.log1p(integrand.tilts) - gap
    log_first += 4.0 * UNIT * (jnp.abs(integrand.log_moments) + jnp.abs(linear) + gap)
    # A geometric series; D <= 1 with tilt 0.
    each = jnp.where(gap > 0.1, jnp.exp(log_first) / -jnp.expm1(-gap), jnp.inf)
    each = jnp.where(jnp.isnan(each), jnp.inf, each)
    return (each[:n].min() + each[n:].min()) * (1.0 + 1e-9)


def _delta(integrand: _Integrand, epsilon: Array) -> tuple[Array, Array, Array, Array]:
    """``(lower, upper, value, slope)`` of delta at epsilon; the last two are no bounds."""
    i = integrand
    frequencies = jnp.arange(i.terms.shape[-1]) * i.spacing
    offset = epsilon - i.mean
    phase = frequencies * offset
    real = i.terms.real * jnp.cos(phase) + i.terms.imag * jnp.sin(phase)
    imag = i.terms.imag * jnp.cos(phase) - i.terms.real * jnp.sin(phase)
    total = real.sum()
    log_scale = i.log_total - i.theta * epsilon
    scale = jnp.exp(log_scale)
    moved = i.mean_error + 4.0 * UNIT * (jnp.abs(epsilon) + jnp.abs(i.mean))
    error = i.error + i.phase_error * (moved + 4.0 * UNIT * jnp.abs(offset))
    # Each term, and a sum in any order.
    error += (jnp.abs(real) + jnp.abs(imag)).sum() * (16.0 + real.shape[0]) * UNIT
    log_error = i.log_error + 4.0 * UNIT * (1.0 + jnp.abs(i.log_total) + jnp.abs(i.theta * epsilon))
    floor = jnp.maximum(-jnp.expm1(epsilon), 0.0)
    upper = scale * (total + error) * jnp.exp(log_error)
    lower = scale * (total - error) * jnp.exp(-log_error) - _aliases(i, epsilon)
    upper = jnp.where(jnp.isnan(upper), 1.0, jnp.clip(upper, floor, 1.0))
    # Underflow is no upper bound.
    upper = jnp.maximum(upper, 1e-300)
    under = floor * (1.0 - 2.0**-50)
    lower = jnp.where(jnp.isnan(lower), under, jnp.clip(lower, under, upper))
    slope = -scale * (i.theta * total - (frequencies * imag).sum())
    return lower, upper, scale * total, slope


def _epsilon(integrand: _Integrand, guess: Array, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta."""

    def newton(epsilon: Array, _: Any) -> tuple[Array, None]:
        _, _, value, slope = _delta(integrand, epsilon)
        step = value / jnp.minimum(slope, -1e-300) * jnp.log(delta / value)
        step = jnp.where(jnp.isfinite(step), step, 0.0)
        return jnp.maximum(epsilon + jnp.clip(step, -1.0 - epsilon, 1.0 + epsilon), 0.0), None

    root, _ = jax.lax.scan(newton, guess, None, length=5)
    _, _, value, slope = _delta(integrand, root)
    lower, upper, _, _ = _delta(integrand, root)
    # How far the bounds lie from the value says how far from the root they meet the target.
    nudge = jnp.maximum(upper - value, value - lower) / jnp.maximum(-slope, 1e-300)
    nudges = nudge * jnp.asarray([1.5, 5.0, 100.0]) + jnp.abs(root) * jnp.asarray([1e-14, 1e-11, 1e-6])
    above = root + nudges
    below = jnp.maximum(root - nudges, 0.0)
    highs = jax.vmap(lambda e: _delta(integrand, e)[1])(above)
    lows = jax.vmap(lambda e: _delta(integrand, e)[0])(below)
    high = jnp.min(jnp.where(highs <= delta, above, jnp.inf))
    low = jnp.max(jnp.where(lows >= delta, below, 0.0))
    at_zero = _delta(integrand, jnp.zeros(()))[1] <= delta
    high = jnp.where(at_zero, 0.0, high)
    return jnp.minimum(low, high), high
