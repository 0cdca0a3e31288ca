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


class Powers(NamedTuple):
    """The transform of a composition over its value at 0, at the frequencies that matter; shape ``(B, n)``.

    Attributes:
        log_total, mean: of the transform at 0, and of the tilted loss, shape ``(B,)``, with bounds on their errors.
        index: which frequencies, shape ``(n,)``.
        power, angle: modulus and argument of the transform of the loss less its mean.
        off: bound on the error of the power.
        dropped: bound on the modulus at any other frequency, shape ``()``.
        left: bound on the modulus at and beyond frequencies ``checks``, shape ``(B, checks)``, in logarithms.
    """

    log_total: Array
    log_error: Array
    mean: Array
    mean_error: Array
    index: np.ndarray  # pyright: ignore[reportIncompatibleMethodOverride]
    power: Array
    angle: Array
    off: Array
    dropped: float
    checks: np.ndarray
    left: Array


def times(counts: Array, value: Array) -> Array:
    """``counts * value``, and 0 for parts that never run; NaN stays NaN."""
    return array_module(counts).where(counts != 0, counts * value, 0.0)


def powers(parts: Parts, spacing: Array, nodes: int) -> Powers:
    """The transform of the composition at ``nodes`` multiples of ``spacing``."""
    xp = array_module(spacing)
    number = sum(count.shape[1] for _, count in parts)
    unit = UNIT * (8.0 + number)
    quadratures = [line.quadrature(spacing, nodes) for line, _ in parts]
    found = [_transform(each, spacing, nodes) for each in quadratures]
    etas = [other.error for other in found]
    every = [count for _, count in parts]
    index, dropped = _that_matter(found, etas, every)

    log_total = mean = size = mean_size = wrong = log_modulus = angle = turns = growth = 0.0
    for each, other, eta, counts in zip(quadratures, found, etas, every, strict=True):
        real, imag, eta = (x[..., index] for x in (other.real, other.imag, eta))
        summed = lambda x: times(counts[..., None], x).sum(1)  # noqa: B023, E731
        terms, means = times(counts, each.log_total), times(counts, each.mean)
        log_total, size = log_total + terms.sum(-1), size + xp.abs(terms).sum(-1)
        mean, mean_size = mean + means.sum(-1), mean_size + xp.abs(means).sum(-1)
        error_at_0 = each.error[..., 0]
        wrong = wrong + times(counts, xp.where(error_at_0 < 0.5, 1.5 * error_at_0, np.inf)).sum(-1)
        log_moduli = log_modulus_of(real, imag)
        turned = times(counts[..., None], xp.arctan2(imag, 1.0 + real))
        log_modulus, angle = log_modulus + summed(log_moduli), angle + turned.sum(1)
        turns = turns + xp.abs(turned).sum(1)
        growth = growth + summed(log1p(eta * xp.exp(-log_moduli)))
    power = xp.exp(log_modulus)
    rounding = unit * 2.0 * (2.0 + xp.abs(log_modulus) + turns)
    off = power_error(log_modulus, growth) + power * rounding

    # The decay is known for all larger frequencies, so a few will do.
    checks = np.unique(np.geomspace(2, nodes - 1, _CHECKS).astype(int))
    left = 0.0
    for each, counts in zip(quadratures, every, strict=True):
        if each.layer_masses.shape[-1] > 1:
            at = xp.broadcast_to(checks * spacing[:, None, None], (*counts.shape, checks.size))
            fallen = decay(each.layer_masses, each.layer_lengths, at)
            left = left + times(counts[..., None], log1p(-xp.minimum(fallen, 1.0 - 1e-16))).sum(1)
    left = left + xp.zeros_like(checks * spacing[:, None])
    error = wrong + unit * (size + 1.0)
    return Powers(log_total, error, mean, unit * mean_size, index, power, angle, off, dropped, checks, left)


def _transform(each: Quadrature | Closed, spacing: Array, nodes: int) -> Transform:
    if isinstance(each, Closed):
        return Transform(each.real, each.imag, each.error)
    found = transform(each.losses, each.weights, spacing, nodes)
    return found._replace(error=found.error + each.error)


def _that_matter(found: list[Transform], etas: list[Array], every: list[Array]) -> tuple[np.ndarray, float]:
    """Which frequencies have a power that is not negligible, and a bound on all others; all of them in a program."""
    nodes = found[0].real.shape[-1]
    if array_module(found[0].real) is not np:
        return np.arange(nodes), 0.0
    log_bound: Array = 0.0
    for other, eta, counts in zip(found, etas, every, strict=True):
        modulus = np.sqrt((1.0 + other.real) ** 2 + other.imag**2) + eta
        log_bound = log_bound + times(counts[..., None], np.log(modulus)).sum(1)
    matter = ~(log_bound < -_NEGLIGIBLE).all(0)  # NaN matters
    matter[0] = True
    return np.flatnonzero(matter), 1.01 * float(np.exp(-_NEGLIGIBLE)) * nodes
