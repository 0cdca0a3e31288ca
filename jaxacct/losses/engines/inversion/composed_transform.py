"""The transform of a composition's loss from those of its parts, with every error of the powers."""

from __future__ import annotations

import functools
from typing import NamedTuple, cast

import numpy as np

from jaxacct._numerics.arrays import Array, Real, shared, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT
from jaxacct.losses.engines.inversion.transform import Transform, transform
from jaxacct.losses.engines.lines.line import Line, Quadrature
from jaxacct.losses.engines.lines.uniform_layers import decay

Parts = list[tuple[Line, Array]]  # a group's line, and how often each of its parts runs

_CHECKS = 64  # frequencies at which the decay is asked for


class Composition(NamedTuple):
    """The transform of a composition over its value at 0, at equally spaced frequencies; shape ``(B, nodes)``.

    Attributes:
        log_total, mean: of the transform at 0, and of the tilted loss, shape ``(B,)``, with bounds on their errors.
        power, angle: modulus and argument of the transform of the loss less its mean.
        off: bound on the error of the power (docs/proofs/contour.md, lemmas 4 and 5).
        left: bound on the modulus at and beyond the frequencies of `checked`, shape ``(B, checks)``, in logarithms.
    """

    log_total: Array
    log_error: Array
    mean: Array
    mean_error: Array
    power: Array
    angle: Array
    off: Array
    left: Array


class PartTransform(NamedTuple):
    """Of the parts of a group: points and weights, their transform with all its errors, and how often they run."""

    law: Quadrature
    transform: Transform
    counts: Array


def times(counts: Array, value: Real) -> Array:
    """``counts * value``, and 0 for parts that never run; NaN stays NaN."""
    return xp.where(counts != 0, counts * value, 0.0)


def transforms(parts: Parts, spacing: Array, nodes: int) -> list[PartTransform]:
    """The transforms of the parts at ``nodes`` multiples of ``spacing``."""
    made = []
    for line, counts in parts:
        law = line.quadrature(spacing, nodes)
        found = transform(law.losses, law.weights, spacing, nodes)
        made.append(PartTransform(law, found._replace(error=found.error + law.error), counts))
    return made


@functools.cache
def checked(nodes: int) -> np.ndarray:
    """Some of so many frequencies, by number: the decay that is known at one is known for all larger ones."""
    return np.unique(np.geomspace(2, nodes, _CHECKS).astype(int))


@shared
def composition(parts: list[PartTransform], spacing: Array) -> Composition:
    """Of all parts together."""
    unit = UNIT * (8.0 + sum(part.counts.shape[1] for part in parts))  # sums over the parts round once a part
    nodes = parts[0].transform.real.shape[-1]
    checks = checked(nodes)
    log_total = mean = size = mean_size = wrong = log_modulus = angle = turns = growth = left = cast(Array, 0.0)
    for law, found, counts in parts:
        terms, means, many = times(counts, law.log_total), times(counts, law.mean), counts[..., None]
        log_total, size = log_total + terms.sum(-1), size + xp.abs(terms).sum(-1)
        mean, mean_size = mean + means.sum(-1), mean_size + xp.abs(means).sum(-1)
        error_at_0 = law.error[..., 0]
        wrong = wrong + times(counts, xp.where(error_at_0 < 0.5, 1.5 * error_at_0, np.inf)).sum(-1)
        log_moduli = log_modulus_of(found.real, found.imag)
        turned = times(many, xp.arctan2(found.imag, 1.0 + found.real))
        log_modulus, angle = log_modulus + times(many, log_moduli).sum(1), angle + turned.sum(1)
        turns = turns + xp.abs(turned).sum(1)
        growth = growth + times(many, xp.log1p(found.error * xp.exp(-log_moduli))).sum(1)
        if law.layer_masses.shape[-1] > 1:
            at = xp.broadcast_to(checks * spacing[:, None, None], (*counts.shape, checks.size))
            fallen = decay(law.layer_masses, law.layer_lengths, at)
            left = left + times(many, log1p(-xp.minimum(fallen, 1.0 - 1e-16))).sum(1)
    power = xp.exp(log_modulus)
    off = power_error(log_modulus, growth) + power * (unit * 2.0 * (2.0 + xp.abs(log_modulus) + turns))
    left = left + 0.0 * (checks * spacing[:, None])
    errors = wrong + unit * (size + 1.0), unit * mean_size
    return Composition(log_total, errors[0], mean, errors[1], power, angle, off, left)


def log_modulus_of(real: Array, imag: Array) -> Array:
    """log |1 + real + i imag|, without cancellation near 1, at least -345."""
    square = 2.0 * real + real**2 + imag**2
    near = square > -0.5
    direct = xp.log(xp.maximum((1.0 + real) ** 2 + imag**2, 1e-300))
    return 0.5 * xp.where(near, log1p(xp.where(near, square, 0.0)), direct)


def power_error(log_modulus: Array, growth: Array) -> Array:
    """A bound on ``|prod a_k^T_k - prod b_k^T_k|`` for transforms a_k, b_k with ``|a_k - b_k| <= eta_k``, |a_k| <= 1.

    ``log_modulus`` is the sum of T_k log |b_k|, and ``growth`` that of T_k log(1 + eta_k / |b_k|); inf where |b|^T is
    no longer next to 1 or below it (docs/proofs/contour.md, lemma 4).
    """
    found = xp.exp(xp.minimum(log_modulus + growth, 1.2)) * -xp.expm1(-growth)
    return xp.where(log_modulus <= 0.1, found, np.inf)
