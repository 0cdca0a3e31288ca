"""Moments of a composition of (Poisson-sampled) Gaussians at single tilts, and the upper bound that one tilt gives.

Where one direction of a setting is known, the other one often needs no contour: the bound of one tilt is below.
"""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.losses.engines.composition import times
from jaxacct.losses.engines.contour.points import placed
from jaxacct.losses.engines.contour.quadrature import log_moments
from jaxacct.losses.engines.contour.taper import left_out
from jaxacct.losses.engines.saddle_point import tilt_bound
from jaxacct.mechanisms.pairs.gaussian import GaussianPair


def digits_of(counts: Array) -> Array:
    """How many e-foldings below its peak each part's integrand is looked at, shape ``(B, K)``."""
    xp = array_module(counts)
    return xp.broadcast_to((30.0 + xp.log(counts.sum(-1)))[:, None], counts.shape)


def composed(moments: Array, counts: Array) -> Array:
    """Upper bounds of the composition's log moments, shape ``(N, B)``, from those of its parts, ``(N, B, K)``."""
    xp = array_module(moments)
    moments = times(counts, moments)
    return moments.sum(-1) + UNIT * (8.0 + counts.shape[1]) * xp.abs(moments).sum(-1)


def composed_left_out(pairs: GaussianPair, counts: Array, cut: Array) -> Array:
    """How much larger delta may be than that of the tapered laws, shape ``(B,)``."""
    return inflated(times(counts, left_out(pairs, cut)).sum(-1), 1e-12)


def tilted_upper(
    kind: str, size: int, pairs: GaussianPair, theta: Array, cut: Array, counts: Array, goal: Array
) -> Array:
    """The upper bound of delta or epsilon by one tilt, on ``size`` points; NumPy's only.

    D(eps) <= M(t) e^(-t eps) max over y > 0 of (1 - e^-y) e^(-t y), which is what ``tilt_bound`` says.
    """
    wide = np.broadcast_to(theta[:, None], counts.shape)
    points = placed(pairs, wide, size, digits_of(counts), cut)
    moment = composed(log_moments(pairs, wide[None], cut, points), counts)[0]
    missing = composed_left_out(pairs, counts, cut)
    # A dozen operations, each off by a unit of one of these: t log(1 + 1 / t) is at most 1.
    sizes = np.abs(moment) + 2.0 + np.log1p(theta) + (theta * np.abs(goal) if kind == "delta" else np.abs(np.log(goal)))
    moment = moment + 32.0 * UNIT * sizes
    if kind == "delta":
        found = np.exp(np.clip(tilt_bound(kind, theta, moment, goal), -704.0, 0.0))  # underflow is no upper bound
        return np.minimum(inflated(found, 1e-12) + missing, 1.0)
    left = np.maximum(goal * (1.0 - 4.0 * UNIT) - missing, 0.0)
    return np.maximum(inflated(tilt_bound(kind, theta, moment, left), 16.0 * UNIT), 0.0)
