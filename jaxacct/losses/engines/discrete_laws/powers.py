"""The transform of a composition: powers of its parts' transforms, pointwise, with a bound on their error."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT
from jaxacct.losses.engines.contour.layers import decay
from jaxacct.losses.engines.contour.quadrature import Quadrature
from jaxacct.losses.engines.contour.transform import Transform, log_modulus_of, power_error, transform
from jaxacct.losses.engines.lines.base import Closed, Line

Parts = list[tuple[Line, Array]]  # a group's line, and how often each of its parts runs

_NEGLIGIBLE = 52.0  # e-foldings of a power below 1 from which on its term is dropped
_CHECKS = 48  # frequencies at which the decay is asked for


class Composition(NamedTuple):
    """The transform of a composition over its value at 0; shape ``(B, n)``.

    Attributes:
        log_total, mean: of the transform at 0, and of the tilted loss, shape ``(B,)``, with bounds on their errors.
        power, angle: modulus and argument of the transform of the loss less its mean.
        off: bound on the error of the power (docs/proofs/contour.md, lemmas 4 and 5).
    """

    log_total: Array
    log_error: Array
    mean: Array
    mean_error: Array
    power: Array
    angle: Array
    off: Array


class Powers(NamedTuple):
    """A composition at the frequencies that matter.

    Attributes:
        whole: its transform there; ``index`` says which they are, shape ``(n,)``.
        dropped: bound on the modulus at any other frequency, shape ``()``.
        left: bound on the modulus at and beyond frequencies ``checks``, shape ``(B, checks)``, in logarithms.
    """

    whole: Composition
    index: np.ndarray  # pyright: ignore[reportIncompatibleMethodOverride]
    dropped: float
    checks: np.ndarray
    left: Array


def times(counts: Array, value: Array) -> Array:
    """``counts * value``, and 0 for parts that never run; NaN stays NaN."""
    return array_module(counts).where(counts != 0, counts * value, 0.0)


def composition(parts: list[tuple[Quadrature | Closed, Transform, Array]]) -> Composition:
    """Of groups: what each part's law is, its transform with all its errors, and how often it runs."""
    xp = array_module(parts[0][2])
    unit = UNIT * (8.0 + sum(counts.shape[1] for *_, counts in parts))  # sums over the parts round once a part
    log_total = mean = size = mean_size = wrong = log_modulus = angle = turns = growth = 0.0
    for each, found, counts in parts:
        terms, means, many = times(counts, each.log_total), times(counts, each.mean), counts[..., None]
        log_total, size = log_total + terms.sum(-1), size + xp.abs(terms).sum(-1)
        mean, mean_size = mean + means.sum(-1), mean_size + xp.abs(means).sum(-1)
        error_at_0 = each.error[..., 0]
        wrong = wrong + times(counts, xp.where(error_at_0 < 0.5, 1.5 * error_at_0, np.inf)).sum(-1)
        log_moduli = log_modulus_of(found.real, found.imag)
        turned = times(many, xp.arctan2(found.imag, 1.0 + found.real))
        log_modulus, angle = log_modulus + times(many, log_moduli).sum(1), angle + turned.sum(1)
        turns = turns + xp.abs(turned).sum(1)
        growth = growth + times(many, log1p(found.error * xp.exp(-log_moduli))).sum(1)
    power = xp.exp(log_modulus)
    off = power_error(log_modulus, growth) + power * (unit * 2.0 * (2.0 + xp.abs(log_modulus) + turns))
    return Composition(log_total, wrong + unit * (size + 1.0), mean, unit * mean_size, power, angle, off)


def powers(parts: Parts, spacing: Array, nodes: int) -> Powers:
    """The transform of the composition at ``nodes`` multiples of ``spacing``."""
    xp = array_module(spacing)
    quadratures = [line.quadrature(spacing, nodes) for line, _ in parts]
    found, every = [_transform(each, spacing, nodes) for each in quadratures], [count for _, count in parts]
    index, dropped = _that_matter(found, every)
    some = [Transform._make(x[..., index] for x in other) for other in found]

    # The decay is known for all larger frequencies, so a few will do.
    checks = np.unique(np.geomspace(2, nodes - 1, _CHECKS).astype(int))
    left = xp.zeros_like(checks * spacing[:, None])
    for each, counts in zip(quadratures, every, strict=True):
        if each.layer_masses.shape[-1] > 1:
            at = xp.broadcast_to(checks * spacing[:, None, None], (*counts.shape, checks.size))
            fallen = decay(each.layer_masses, each.layer_lengths, at)
            left = left + times(counts[..., None], log1p(-xp.minimum(fallen, 1.0 - 1e-16))).sum(1)
    return Powers(composition(list(zip(quadratures, some, every, strict=True))), index, dropped, checks, left)


def _transform(each: Quadrature | Closed, spacing: Array, nodes: int) -> Transform:
    if isinstance(each, Closed):
        return Transform(each.real, each.imag, each.error)
    found = transform(each.losses, each.weights, spacing, nodes)
    return found._replace(error=found.error + each.error)


def _that_matter(found: list[Transform], every: list[Array]) -> tuple[np.ndarray, float]:
    """Which frequencies have a power that is not negligible, and a bound on all others; all of them in a program."""
    nodes = found[0].real.shape[-1]
    if array_module(found[0].real) is not np:
        return np.arange(nodes), 0.0
    log_bound: Array = 0.0
    for other, counts in zip(found, every, strict=True):
        modulus = np.sqrt((1.0 + other.real) ** 2 + other.imag**2) + other.error
        log_bound = log_bound + times(counts[..., None], np.log(modulus)).sum(1)
    matter = ~(log_bound < -_NEGLIGIBLE).all(0)  # NaN matters
    matter[0] = True
    return np.flatnonzero(matter), 1.01 * float(np.exp(-_NEGLIGIBLE)) * nodes
