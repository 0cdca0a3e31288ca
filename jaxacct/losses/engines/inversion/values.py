"""delta(epsilon) of compositions with known transforms as a number without bounds, for derivatives.

The contour may be put anywhere, so it is held fixed while parameters move. Where the transform does not decay it is
multiplied by a window that is 1 for low frequencies and falls smoothly to 0 at the last. That convolves
e^(theta x) delta(x) with a kernel whose moments vanish: wherever delta is smooth around epsilon, further than a few
times 2 pi over the last frequency from every atom of the loss, nothing changes but far digits. A window of half the
width says how many digits are right: that is an estimate, and not proven.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, erfc
from jaxacct.losses.engines.inversion.composed_transform import composition, transforms
from jaxacct.losses.engines.inversion.inversion_bounds import Size, failures, log_moments, parts_of, totals
from jaxacct.losses.engines.inversion.saddle_point import spacing_for, tilts_around
from jaxacct.losses.engines.inversion.tilt_plan import Plan, tilt_plan
from jaxacct.mechanisms.pairs.base import Pair

SIZES = (Size(256, 512), Size(512, 4096), Size(512, 16384), Size(1024, 65536))
"""Sizes, to be tried in turn."""

_MORE = 14.0  # e-foldings that aliases and what is left out are smaller than for bounds
_WINDOWS = (1.0, 2.0)  # narrowings
_EDGE, _STEEP = 0.6, 12.0  # where a window has fallen to 1/2, and how fast


class Place(NamedTuple):
    """A contour for one size of a transform."""

    size: Size
    plan: Plan
    spacing: Array


class Value(NamedTuple):
    """delta, and its derivative in epsilon, by the whole window and by half of it; shape ``(2, B)``."""

    delta: Array
    slope: Array


def placed(size: Size, groups: tuple[Pair, ...], counts: Array, epsilon: Array) -> Place:
    """A contour for these compositions; arguments are those of `inversion_bounds`."""
    plan = tilt_plan("delta", groups, counts, epsilon)
    plan = plan._replace(log_delta=plan.log_delta - _MORE)
    tilts = tilts_around(plan.theta, plan.deviation)
    moments = log_moments(parts_of(size, plan, groups, counts)[1], tilts)
    moments = array_module(moments).where(tilts > 0, moments, 0.0)
    return Place(size, plan, spacing_for(plan.theta, tilts, moments, plan.epsilon, plan.log_delta))


def value(place: Place, groups: tuple[Pair, ...], counts: Array) -> Value:
    """At ``place.plan.epsilon``."""
    plan, spacing, nodes = place.plan, place.spacing, place.size.nodes
    xp = array_module(spacing)
    parts = parts_of(place.size, plan, groups, counts)[1]
    whole, index = composition(transforms(parts, spacing, nodes), spacing), np.arange(nodes)
    theta, frequencies = plan.theta[:, None], index * spacing[:, None]
    z = theta + 1j * frequencies
    phase = whole.angle - frequencies * (plan.epsilon - whole.mean)[:, None]
    terms = whole.power * xp.exp(1j * phase) / (z * (z + 1.0)) * np.where(index > 0, 1.0, 0.5)
    scale = spacing / np.pi * xp.exp(whole.log_total - plan.theta * plan.epsilon)
    windows = [0.5 * erfc(_STEEP * (narrow * index / nodes - _EDGE)) for narrow in _WINDOWS]
    known = totals(parts)
    failed = failures(known, known)[0]
    return Value(
        xp.stack([failed + scale * (terms.real * window).sum(-1) for window in windows]),
        xp.stack([-scale * ((z * terms).real * window).sum(-1) for window in windows]),
    )
