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
from jaxacct.losses.engines.discrete_laws.bounds import Size, failures, lines, period, totals
from jaxacct.losses.engines.discrete_laws.plan import Plan, plan_of
from jaxacct.losses.engines.discrete_laws.powers import powers
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
    """A contour for these compositions; arguments are those of `universal_bounds`."""
    plan = plan_of("delta", groups, counts, epsilon)
    plan = plan._replace(log_delta=plan.log_delta - _MORE)
    above = lines(size, plan, groups, counts)[1]
    return Place(size, plan, period(plan, above)[2])


def value(place: Place, groups: tuple[Pair, ...], counts: Array) -> Value:
    """At ``place.plan.epsilon``."""
    plan, spacing, nodes = place.plan, place.spacing, place.size.nodes
    xp = array_module(spacing)
    parts = lines(place.size, plan, groups, counts)[1]
    found = powers(parts, spacing, nodes)
    theta, frequencies = plan.theta[:, None], found.index * spacing[:, None]
    z = theta + 1j * frequencies
    phase = found.angle - frequencies * (plan.epsilon - found.mean)[:, None]
    terms = found.power * xp.exp(1j * phase) / (z * (z + 1.0))
    terms = terms * np.where(found.index > 0, 1.0, 0.5)
    scale = spacing / np.pi * xp.exp(found.log_total - plan.theta * plan.epsilon)
    windows = [0.5 * erfc(_STEEP * (narrow * found.index / nodes - _EDGE)) for narrow in _WINDOWS]
    whole = totals(parts)
    failed = failures(whole, whole)[0]
    return Value(
        xp.stack([failed + scale * (terms.real * window).sum(-1) for window in windows]),
        xp.stack([-scale * ((z * terms).real * window).sum(-1) for window in windows]),
    )
