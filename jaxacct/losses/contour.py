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

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct._least import first_least
from jaxacct._log1p import log1p
from jaxacct.losses.contour_read import Integrand, aliases, read_delta, read_epsilon
from jaxacct.losses.plan import saddle_log_delta
from jaxacct.losses.transform import Transform, transform
from jaxacct.mechanisms._gaussian_quadrature import Quadrature, decay, log_moment, quadrature, rough_cumulants
from jaxacct.mechanisms._pair import UNIT

__all__ = ["Plan", "Prepared", "Size", "contour_bounds", "finish", "plan", "prepare", "smooth_delta"]

_COARSE, _FINE = 32, 12  # tilts tried: over all magnitudes, then between two of the first
_DIGITS = 18.0  # e-foldings between delta and each error that a plan aims at
# How far from theta Chernoff's bounds are tried, in units of 1 / standard deviation and of theta. The second kind
# serves rare sampling, where a slightly larger tilt lets rare and large losses take over.
_SHIFTS = (0.5, 1.0, 2.0, 4.0, 6.0)
_STRETCHES = (0.02, 0.06, 0.15, 0.4, 0.8)
_STRIDE = 4
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


class Prepared(NamedTuple):
    """What precedes the transform: the plan, every part's tilted loss, Chernoff's bounds, spacing of frequencies."""

    plan: Plan
    parts: Quadrature
    tilts: Array
    log_moments: Array
    spacing: Array


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
    prepared = prepare(kind, size, pairs, counts, goal)
    return finish(kind, prepared, counts, goal, _transformed(size, prepared))


def finish(kind: str, prepared: Prepared, counts: Array, goal: Array, found: Transform) -> tuple[Array, Array]:
    """Bounds from the transform; see :func:`contour_bounds`."""
    integrand = _integrand(prepared, counts, found)
    if kind == "delta":
        return read_delta(integrand, goal)[:2]
    return read_epsilon(integrand, prepared.plan.epsilon, goal)


def _transformed(size: Size, prepared: Prepared) -> Transform:
    return transform(prepared.parts.losses, prepared.parts.weights, prepared.spacing, size.nodes)


def smooth_delta(plan: Plan, size: Size, pairs: Any, counts: Array, epsilon: Array) -> tuple[Array, Array]:
    """delta(epsilon) without bounds, to be differentiated in pairs, counts and epsilon; ``plan`` is held fixed.

    Returns:
        The value, and whether its derivatives are to be trusted. That is judged by the last terms and not proven:
        rare losses of a few steps have transforms that hardly decay, and then a derivative may have no right digit.
    """
    prepared = _prepared(jax.lax.stop_gradient(plan), size, pairs, counts)
    i = _integrand(prepared, counts, _transformed(size, prepared))
    _, _, value, slope = read_delta(i, epsilon)
    index = jnp.arange(size.nodes)
    kept = jnp.sum(jnp.where(i.terms != 0, 1.0, 0.0))
    last = jnp.max(jnp.where(index >= 0.85 * kept - 1.0, jnp.abs(i.terms), 0.0))
    # A derivative multiplies a term by its frequency, and by no more than about theta in what is aliased.
    cut_off = jnp.exp(i.log_total - i.theta * epsilon) * last * kept * (i.theta + kept * i.spacing)
    wrong = cut_off + aliases(i, epsilon) * i.theta
    trusted = (wrong <= _TRUSTED * jnp.abs(slope)) & (i.log_error < _TRUSTED) & (kept > 8)
    return value, jax.lax.stop_gradient(trusted)


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
        bound = cumulants(t)[0] - log1p(t) - t * log1p(1.0 / t)
        value = bound - t * goal if kind == "delta" else (bound - jnp.log(goal)) / t
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    low, high = jnp.log(jnp.asarray(1e-6)), jnp.log(jnp.asarray(1e6))
    for count in (_COARSE, _FINE):
        grid = jnp.linspace(low, high, count)
        value = jax.vmap(judged)(jnp.exp(grid))
        at = grid[first_least(value)]
        low, high = at - (grid[1] - grid[0]), at + (grid[1] - grid[0])
    theta = jnp.exp(at)
    k0, _, k2 = cumulants(theta)
    if kind == "delta":
        log_delta = jnp.minimum(saddle_log_delta(theta, k0, k2, goal), 0.0)
        return Plan(theta, goal, log_delta, jnp.sqrt(k2))
    epsilon = (saddle_log_delta(theta, k0, k2, jnp.zeros(())) - jnp.log(goal)) / theta
    return Plan(theta, jnp.clip(epsilon, 0.0, jnp.maximum(judged(theta), 0.0)), jnp.log(goal), jnp.sqrt(k2))


def prepare(kind: str, size: Size, pairs: Any, counts: Array, goal: Array) -> Prepared:
    """Chooses the contour and puts every part's tilted loss on points: all that comes before the transform."""
    return _prepared(plan(kind, pairs, counts, goal), size, pairs, counts)


def _prepared(chosen: Plan, size: Size, pairs: Any, counts: Array) -> Prepared:
    theta = chosen.theta
    digits = 30.0 + jnp.log(counts.sum())
    parts = jax.vmap(lambda pair: quadrature(pair, theta, size.points, digits))(pairs)
    used = counts > 0

    # Chernoff's bounds at tilts around theta, for the aliases.
    shift = jnp.asarray(_SHIFTS) / jnp.maximum(chosen.deviation, 1e-300)
    shift = jnp.concatenate([shift, jnp.asarray(_STRETCHES) * theta])
    tilts = jnp.concatenate([theta + shift, jnp.maximum(theta - shift, 0.0)])
    moments = jax.vmap(lambda pair: jax.vmap(lambda t: log_moment(pair, t, size.points // 2, digits))(tilts))(pairs)
    moments = jnp.where(used[:, None], counts[:, None] * moments, 0.0).sum(0)
    log_moments = jnp.where(tilts > 0, moments + UNIT * (8.0 + counts.shape[0]) * jnp.abs(moments), 0.0)

    # The period c: every alias that far away should be e^-DIGITS of delta.
    n = shift.shape[0]
    excess = log_moments - tilts * chosen.epsilon - log1p(tilts) - chosen.log_delta + _DIGITS
    gap = jnp.abs(tilts - theta)
    needed = jnp.where(gap > 0, jnp.maximum(excess, 1.0) / gap, jnp.inf)
    period = jnp.maximum(needed[:n].min(), needed[n:].min()) * 1.05
    return Prepared(chosen, parts, tilts, log_moments, jax.lax.stop_gradient(2.0 * jnp.pi / period))


def _log_modulus(real: Array, imag: Array) -> Array:
    """log |1 + real + i imag|, without cancellation near 1, at least -345."""
    square = 2.0 * real + real**2 + imag**2
    near = square > -0.5
    direct = jnp.log(jnp.maximum((1.0 + real) ** 2 + imag**2, 1e-300))
    return 0.5 * jnp.where(near, log1p(jnp.where(near, square, 0.0)), direct)


def _integrand(prepared: Prepared, counts: Array, transform: Transform) -> Integrand:
    """The powers of the transform, every error, and where to cut off."""
    chosen, parts, spacing = prepared.plan, prepared.parts, prepared.spacing
    theta, nodes = chosen.theta, transform.real.shape[-1]
    unit = UNIT * (8.0 + counts.shape[0])  # sums over the parts round once a part
    used = counts > 0
    terms = jnp.where(used, counts * parts.log_total, 0.0)
    error_at_0 = jax.vmap(lambda part: part.error(jnp.zeros(())))(parts)
    log_error = (counts * 1.5 * jnp.minimum(error_at_0, 0.5)).sum() + unit * (jnp.abs(terms).sum() + 1.0)
    log_error = jnp.where((jnp.where(used, error_at_0, 0.0) < 0.5).all(), log_error, jnp.inf)
    means = jnp.where(used, counts * parts.mean, 0.0)
    index = jnp.arange(nodes)
    frequencies = index * spacing

    powered = lambda logs: jnp.where(used[:, None], counts[:, None] * logs, 0.0)  # noqa: E731
    eta = jax.vmap(lambda part: part.error(frequencies))(parts) + transform.error
    log_moduli = _log_modulus(transform.real, transform.imag)
    log_modulus = powered(log_moduli).sum(0)
    angles = powered(jnp.arctan2(transform.imag, 1.0 + transform.real))
    # log((|b| + eta)^T) - log(|b|^T), and the rounding of the power itself. As neither |a| nor |b| exceeds 1 by more
    # than rounding, the difference of powers is also at most 2 and at most T eta: growth may be cut at 1.
    growth = powered(log1p(eta * jnp.exp(-log_moduli))).sum(0)
    rounding = unit * 2.0 * (2.0 + jnp.abs(log_modulus) + jnp.abs(angles).sum(0))
    power = jnp.exp(log_modulus)
    off = jnp.exp(jnp.minimum(log_modulus + growth, 1.0)) * -jnp.expm1(-growth) + power * rounding
    size_of = jnp.hypot(theta, frequencies) * jnp.hypot(theta + 1.0, frequencies)
    angle = angles.sum(0) - jnp.arctan2(frequencies, theta) - jnp.arctan2(frequencies, theta + 1.0)
    weight = spacing / jnp.pi * jnp.where(index > 0, 1.0, 0.5) / size_of

    # Cut off where errors of further terms would outweigh what the decay bounds.
    # The decay is known for all larger frequencies, so every eighth will do.
    some = frequencies[::_STRIDE]
    fallen = jax.vmap(lambda part: decay(part.layer_masses, part.layer_lengths, some))(parts)
    fallen = jnp.repeat(fallen, _STRIDE, axis=-1)
    left = powered(log1p(-jnp.minimum(fallen, 1.0 - 1e-16))).sum(0)
    beyond = jnp.exp(left) / jnp.pi / jnp.maximum(frequencies - spacing, 1e-300)
    beyond = jnp.where(index >= 2, beyond, jnp.inf)
    total = jnp.cumsum(weight * off)[:-1] + beyond[1:]  # if terms 0 to j are kept
    last = first_least(total)
    best, kept = total[last], index <= last
    amplitude = jnp.where(kept, weight * power, 0.0)
    return Integrand(
        theta,
        means.sum(),
        unit * jnp.abs(means).sum(),
        terms.sum(),
        log_error,
        spacing,
        jax.lax.complex(amplitude * jnp.cos(angle), amplitude * jnp.sin(angle)),
        best * (1.0 + 1e-9) + (amplitude * UNIT * 16.0 * (1.0 + jnp.abs(angle))).sum(),
        (amplitude * frequencies).sum(),
        prepared.tilts,
        prepared.log_moments,
    )
