"""delta(epsilon) of compositions as a number without bounds, for derivatives: by known transforms, or else by laws.

The contour may be put anywhere, so it is held fixed while parameters move. Where the transform does not decay it is
multiplied by a window that is 1 for low frequencies and falls smoothly to 0 at the last. That convolves
e^(theta x) delta(x) with a kernel whose moments vanish: wherever delta is smooth around epsilon, further than a few
times 2 pi over the last frequency from every atom of the loss, nothing changes but far digits. A window of half the
width says how many digits are right: that is an estimate, and not proven.

Where transforms hardly decay, laws from above whose edges stay where they are move smoothly with the parameters of a
pair. What they exceed the truth by falls with the square of the number of points, and is extrapolated from two numbers
of points. That is an estimate, good to some parts in a thousand, and not proven.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, erfc, xp
from jaxacct.losses.engines.inversion.composed_transform import composition, transforms
from jaxacct.losses.engines.inversion.inversion_bounds import Size, failures, log_moments, parts_of, totals
from jaxacct.losses.engines.inversion.saddle_point import spacing_for, tilts_around
from jaxacct.losses.engines.inversion.tilt_plan import Plan, tilt_plan
from jaxacct.losses.engines.laws.aim import Aim
from jaxacct.losses.engines.laws.bounds import Runs, spread_of
from jaxacct.losses.engines.laws.composer import LEAST_POINTS, Composer
from jaxacct.losses.engines.laws.of_two import delta_from_above
from jaxacct.mechanisms.pairs.base import Pair

SIZES = (Size(256, 512), Size(512, 4096), Size(512, 16384), Size(1024, 65536))
"""Sizes, to be tried in turn."""

_MORE = 14.0  # e-foldings that aliases and what is left out are smaller than for bounds
_WINDOWS = (1.0, 2.0)  # narrowings
_EDGE, _STEEP = 0.6, 12.0  # where a window has fallen to 1/2, and how fast
_POINTS = (256, 512)  # of laws
_AGREE = 0.03  # relative difference of derivatives by the two, whose extrapolation is given out


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
    moments = xp.where(tilts > 0, moments, 0.0)
    return Place(size, plan, spacing_for(plan.theta, tilts, moments, plan.epsilon, plan.log_delta))


def value(place: Place, groups: tuple[Pair, ...], counts: Array) -> Value:
    """At ``place.plan.epsilon``."""
    plan, spacing, nodes = place.plan, place.spacing, place.size.nodes
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
    delta = failed + scale * xp.stack([(terms.real * window).sum(-1) for window in windows])
    slope = -scale * xp.stack([((z * terms).real * window).sum(-1) for window in windows])
    possible = (delta >= 0.0) & (delta <= 1.0)  # where rounding has taken over, windows may agree on any number
    return Value(*(xp.where(possible, x, np.nan) for x in (delta, slope)))


class Curve:
    """delta of runs on edges that were put for ``epsilon``; what moves must keep its structure."""

    def __init__(self, runs: Runs, epsilon: float) -> None:
        self.runs, self.epsilon = runs, epsilon
        total, spread, delta = float(sum(count for _, count in runs)), spread_of(runs), 1e-5
        for size in (LEAST_POINTS, LEAST_POINTS):
            halves = Composer(Aim.at(epsilon, delta, total, spread), size).halves(runs)
            delta = delta_from_above(*halves, epsilon) if halves else delta
        self._composers = []
        for size in _POINTS:
            composer = Composer(Aim.at(epsilon, delta, total, spread), size)
            composer.halves(runs)
            self._composers.append(composer)

    def at(self, runs: Runs, epsilon: float) -> np.ndarray:
        """By either number of points, shape ``(2,)``; NaN where a number is none."""
        found = []
        for composer in self._composers:
            halves = Composer(composer.aim, composer.size, composer.edges).halves(runs)
            found.append(np.nan if halves is None else delta_from_above(*halves, epsilon))
        return np.array(found)


def extrapolated(slopes: np.ndarray) -> float:
    """The derivative that two numbers of points say, or NaN."""
    rough, fine = slopes
    return float(fine + (fine - rough) / 3.0) if abs(fine - rough) <= _AGREE * abs(fine) else np.nan
