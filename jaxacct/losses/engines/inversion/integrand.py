"""The terms of the sum that inverts a transform, with every error: of the payoff itself, or of two beside it.

The transform of the payoff may be cut off where that of the loss has died down. Where it has not, the payoff is put
between two band-limited functions (:mod:`~jaxacct.losses.engines.inversion.band_limited`), whose sums are finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, pick, running_total, shared, take, xp
from jaxacct._numerics.least import first_least
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.losses.engines.inversion.band_limited import one_sided
from jaxacct.losses.engines.inversion.composed_transform import Composition, checked
from jaxacct.losses.engines.inversion.tilt_plan import Plan

_DENSITY = 0.4  # of a tilted loss, in units of 1 / its standard deviation
_ENOUGH = 1e-8  # error of the payoff's own sum, relative to it, that asks for no other


class Integrand(NamedTuple):
    """The sum ``scale * sum_j Re(terms_j exp(-i w_j (epsilon - mean)))`` and what it may be wrong by.

    Arrays have a leading axis of sides, ``(sides, B)``: a lower and an upper sum, or one that is both.

    Attributes:
        theta: shape ``(B,)``, as ``spacing`` of the frequencies.
        log_total: log of M(theta); ``log_error`` bounds its error.
        mean: of the tilted loss; ``mean_error`` is its rounding error.
        real, imag: the terms, shape ``(sides, B, nodes)``: transform at the frequencies over M(theta), times
            spacing / pi (half of it at 0) and the kernel; 0 where cut off.
        error: bound on the sum's error, relative to M(theta) e^(-theta eps), for phases known exactly.
        phase_error: bound on the sum of |terms_j| w_j, per unit of error in epsilon - mean.
        tilts, log_moments: Chernoff's t and upper bounds of log M(t), shape ``(shifts, B)``, on either side of theta.
    """

    theta: Array
    spacing: Array
    log_total: Array
    log_error: Array
    mean: Array
    mean_error: Array
    real: Array
    imag: Array
    error: Array
    phase_error: Array
    tilts: Array
    log_moments: Array


class _Plain(NamedTuple):
    """The sum of the payoff itself, and at each of the checked frequencies what cutting it off there costs.

    Attributes:
        terms: shape ``(sides, B, nodes)``.
        errors: of the terms before, shape ``(sides, B, checks)``.
        beyond: bound on the terms from there on.
    """

    terms: Array
    errors: Array
    beyond: Array


@shared
def plain_integrand(
    sides: Sequence[Composition], plan: Plan, spacing: Array, tilts: Array, moments: Array
) -> Integrand:
    """Of the payoff itself: the sum is above the hockey stick by aliases only."""
    whole = _stacked(sides)
    return _integrand(whole, plan.theta, spacing, *_cut_off(_plain(whole, plan.theta, spacing), whole), tilts, moments)


@shared
def integrand(sides: Sequence[Composition], plan: Plan, spacing: Array, tilts: Array, moments: Array) -> Integrand:
    """Of a composition, or of the two that are below and above it; in NumPy on one side if that is enough."""
    theta, whole = plan.theta, _stacked(sides)
    plain = _plain(whole, theta, spacing)
    terms, error = _cut_off(plain, whole)
    nodes = terms.shape[-1]
    phase = xp.exp(-1j * _frequencies(nodes, spacing) * (plan.epsilon - whole.mean[-1])[:, None])
    alone = array_module(spacing) is np and len(sides) == 1
    if alone and (error[0] <= _ENOUGH * np.abs((terms[0] * phase).real.sum(-1))).all():
        return _integrand(whole, theta, spacing, terms, error, tilts, moments)
    limit = _limit(plain.errors[-1], checked(nodes), plan, spacing)
    band = one_sided(theta, spacing, limit, nodes)
    weight = xp.where(np.arange(nodes) < limit[:, None], _weights(nodes, spacing), 0.0)
    kernel = weight * xp.stack([band.below, band.above])
    off = xp.abs(kernel).max(0) * whole.off + weight * band.error * whole.power
    banded, wrong = kernel * _turned(whole), xp.where(weight > 0, off, 0.0).sum(-1)
    # How far apart the two sums are where the answer is supposed.
    apart = ((kernel[1] - kernel[0]) * _turned(whole)[-1] * phase).real.sum(-1)
    is_plain = error[-1] < wrong[-1] + xp.maximum(apart, 0.0)
    chosen, wrong = xp.where(is_plain[:, None], terms, banded), xp.where(is_plain, error, wrong)
    return _integrand(whole, theta, spacing, chosen, wrong, tilts, moments)


def _limit(errors: Array, checks: np.ndarray, plan: Plan, spacing: Array) -> Array:
    """How many frequencies the band-limited functions take, shape ``(B,)``: by what errors and width amount to."""
    step = 2.0 * np.pi / (spacing[:, None] * checks)
    apart = step**2 / 8.0 * _DENSITY / plan.deviation[:, None]
    return take(checks.astype(np.float64), first_least(errors + apart))


def _stacked(sides: Sequence[Composition]) -> Composition:
    """Sides on a new first axis."""
    return Composition(*(xp.stack(each) for each in zip(*sides, strict=True)))


def _frequencies(nodes: int, spacing: Array) -> Array:
    return np.arange(nodes) * spacing[:, None]


def _weights(nodes: int, spacing: Array) -> Array:
    return spacing[:, None] / np.pi * np.where(np.arange(nodes) > 0, 1.0, 0.5)


def _turned(whole: Composition) -> Array:
    return whole.power * xp.exp(1j * whole.angle)


def _plain(whole: Composition, theta: Array, spacing: Array) -> _Plain:
    t, nodes = theta[:, None], whole.power.shape[-1]
    z = t + 1j * _frequencies(nodes, spacing)
    kernel = _weights(nodes, spacing) / (z * (z + 1.0))
    checks = checked(nodes)
    errors = running_total(xp.abs(kernel) * whole.off)[..., checks - 1]
    beyond = xp.exp(whole.left) / (np.pi * (checks - 1.0) * spacing[:, None])
    return _Plain(kernel * _turned(whole), errors, beyond)


def _cut_off(plain: _Plain, whole: Composition) -> tuple[Array, Array]:
    """Terms, cut off where errors of further ones would outweigh what the decay bounds, and all errors."""
    total = plain.errors + plain.beyond
    at, nodes = first_least(total), whole.power.shape[-1]
    kept = np.arange(nodes) < take(checked(nodes), at)[..., None]
    return xp.where(kept, plain.terms, 0.0), pick(total, at)


def _integrand(
    whole: Composition, theta: Array, spacing: Array, terms: Array, error: Array, tilts: Array, moments: Array
) -> Integrand:
    sizes = xp.abs(terms)
    sides = lambda x: xp.broadcast_to(x, terms.shape[:-1])  # noqa: E731
    rounding = (sizes * UNIT * 16.0 * (1.0 + xp.abs(whole.angle))).sum(-1)
    return Integrand(
        theta,
        spacing,
        *(sides(x) for x in (whole.log_total, whole.log_error, whole.mean, whole.mean_error)),
        real=xp.real(terms),
        imag=xp.imag(terms),
        error=sides(inflated(error, 1e-9)) + rounding,
        phase_error=(sizes * _frequencies(terms.shape[-1], spacing)).sum(-1),
        tilts=tilts,
        log_moments=moments,
    )
