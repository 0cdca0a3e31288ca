"""Piecewise linear trade-off curves as sorted segments: products, and fewer segments.

A segment is an outcome of the finite experiment behind the curve: ``width`` its probability under P (along alpha),
``drop`` under Q (along beta), sorted by drop / width from steep to flat. Proposition 12 of the residue paper: the
tensor product has a segment for every pair of segments, widths and drops multiplied.

*Fewer segments, leakier*: a group of neighbouring segments, which never straddles slope 1, becomes two with the group's
steepest and flattest slopes and its total width and drop. Rounding is shifted in the direction that raises the hockey
stick on the group's own side of slope 1: it costs a few units of the group's mass.

*Fewer segments, less leaky*: a group becomes its sum (outcomes that an observer no longer tells apart).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, histogram, xp
from jaxacct._numerics.curve_arrays import compiled
from jaxacct._numerics.rounding import EPS, deflated, inflated

_TINY = 1e-290  # more than all products of masses that may have underflowed


class Segments(NamedTuple):
    """``widths`` (P-masses) and ``drops`` (Q-masses) of one curve, shape ``(n,)`` each; zeros pad."""

    widths: Array
    drops: Array


def _log_slopes(segments: Segments) -> Array:
    """log(drop / width): inf for a vertical piece, -inf for a flat one, NaN for padding."""
    positive = (segments.widths > 0) | (segments.drops > 0)
    return xp.where(positive, xp.log(segments.drops) - xp.log(segments.widths), np.nan)


@np.errstate(all="ignore")
def sort(segments: Segments) -> Segments:
    """Steep segments first; padding last."""
    slopes = _log_slopes(segments)
    order = xp.argsort(xp.where(xp.isnan(slopes), np.inf, -slopes))
    # A flat piece has key +inf as padding has; either order of those two is the same curve.
    return Segments(segments.widths[order], segments.drops[order])


def balanced(one: Segments, leakier: bool) -> Segments:
    """The same curve, leakier or less leaky, with equal sums of widths and drops: at least 1, or at most 1.

    Only then is what is above a curve on either side of slope 1 above it in a product, where both sides meet: the law's
    curve at gamma < 1 is the sum of widths less gamma times that of drops, and the excess.
    """
    xp, (widths, drops) = array_module(*one), one
    steep = drops > widths
    flatter, steeper = (xp.where(side, xp.abs(widths - drops), 0.0) for side in (~steep, steep))
    gap = flatter.sum() - steeper.sum()
    share = lambda part, whole: xp.where(whole > 0, part / xp.where(whole > 0, whole, 1.0), 0.0)  # noqa: E731
    less, more = xp.maximum(gap, 0.0), xp.maximum(-gap, 0.0)  # what drops and widths lack
    if leakier:
        held, kept = xp.where(steep, 0.0, widths).sum(), xp.where(steep, drops, 0.0).sum()
        # A curve that has nothing on one side is above none but that of no loss.
        widths, drops = (
            xp.where(steep, xp.where((more > 0) & (held <= 0), drops, widths), widths * (1.0 + share(more, held))),
            xp.where(steep, drops * (1.0 + share(less, kept)), xp.where((less > 0) & (kept <= 0), widths, drops)),
        )
        scale = xp.minimum(xp.maximum(widths.sum(), drops.sum()), 1.0)
    else:
        widths = widths - flatter * xp.minimum(share(less, flatter.sum()), 1.0)
        drops = drops - steeper * xp.minimum(share(more, steeper.sum()), 1.0)
        scale = xp.maximum(xp.maximum(widths.sum(), drops.sum()), 1.0)
    scale = xp.where(scale > 0, scale, 1.0)
    return Segments(widths / scale, drops / scale)


def product(one: Segments, other: Segments, leakier: bool) -> Segments:
    """The tensor product, unsorted, ``n * m`` segments, masses rounded up (``leakier``) or down."""
    factor = 1.0 + (4.0 if leakier else -4.0) * EPS
    widths = (one.widths[:, None] * other.widths[None]).reshape(-1) * factor
    drops = (one.drops[:, None] * other.drops[None]).reshape(-1) * factor
    if leakier:
        # Underflow loses mass: what may be lost counts as a loss of +inf and one of -inf.
        wide = ((one.widths > 0)[:, None] & (other.widths > 0)[None]).reshape(-1)
        deep = ((one.drops > 0)[:, None] & (other.drops > 0)[None]).reshape(-1)
        lost = xp.any(wide & (widths < 1e-300)) | xp.any(deep & (drops < 1e-300))
        charge = xp.where(lost, _TINY, 0.0)[None]
        none = xp.zeros(1)
        return Segments(xp.concatenate([none, widths, charge]), xp.concatenate([charge, drops, none]))
    return Segments(widths, drops)


@compiled("size", "leakier")
def reduce(segments: Segments, size: int, leakier: bool) -> Segments:
    """At most ``size`` sorted segments, leakier or less leaky than the given ones (any order); ``size`` >= 16."""
    ordered = sort(segments)
    n = ordered.widths.shape[0]
    if n <= size:
        return Segments(*(xp.pad(x, (0, size - n)) for x in ordered))
    widths, drops = ordered
    slopes = _log_slopes(ordered)
    vertical, flat, padding = slopes == np.inf, slopes == -np.inf, xp.isnan(slopes)
    inner = ~(vertical | flat | padding)
    groups = (size // 2 if leakier else size) - 4
    by_mass, by_slope = groups // 4, groups - groups // 4 - 1
    # Two measures that grow along the curve, added: no group is heavy, and none is wide in log slope.
    mass = xp.cumsum(widths + drops) / xp.maximum((widths + drops).sum(), 1e-300)
    top = xp.max(xp.where(inner, slopes, -np.inf))
    bottom = xp.min(xp.where(inner, slopes, np.inf))
    span = xp.where(top > bottom, top - bottom, 1.0)
    # Equal slopes that differ by rounding should not be split: steps of the measure fall between lattice points.
    position = xp.clip(xp.where(inner, (top - slopes) / span, 0.0), 0.0, 1.0)
    key = xp.floor(xp.clip(mass, 0.0, 1.0) * by_mass) + xp.floor(position * (by_slope - 1) + 0.5)
    key = key + xp.where(slopes < 0, 1.0, 0.0)
    last = by_mass + by_slope + 2
    key = xp.where(vertical, 0.0, xp.where(flat | padding, last, key + 1.0)).astype(np.int32)
    total = last + 1
    summed = lambda x: histogram(key, x, total)  # noqa: E731
    rounding = 4.0 * n * EPS
    if not leakier:
        return Segments(*(deflated(xp.pad(summed(x), (0, size - total)), rounding) for x in ordered))
    ratio = xp.where(inner, drops / xp.where(inner, widths, 1.0), 0.0)
    high = inflated(_greatest(xp.where(inner, ratio, -np.inf), key, total), 2.0 * EPS)
    low = deflated(-_greatest(xp.where(inner, -ratio, -np.inf), key, total), 2.0 * EPS)
    used = xp.isfinite(high) & xp.isfinite(low)
    high, low = xp.where(used, high, 1.0), xp.where(used, low, 0.5)
    difference = high - low  # at least a few units of high
    width, drop = (inflated(summed(xp.where(inner, x, 0.0)), rounding) for x in ordered)
    steep = summed(xp.where(inner, xp.maximum(drops - low[key] * widths, 0.0), 0.0)) / difference
    gentle = summed(xp.where(inner, xp.maximum(high[key] * widths - drops, 0.0), 0.0)) / difference
    shift = (2.0 * rounding * width + 16.0 * EPS * (drop + low * width)) / difference
    # Right of slope 1 (high <= 1) the hockey stick sees the flat part: widths are kept, weight goes to the flat one.
    first_width = xp.maximum(width - xp.minimum(gentle + shift, width), 0.0)
    right = Segments(
        xp.stack([first_width, xp.minimum(gentle + shift, width)], -1),
        xp.stack([first_width * high, xp.minimum(gentle + shift, width) * low], -1),
    )
    steep_drop = xp.minimum((steep + shift) * high, drop)
    rest = xp.maximum(drop - steep_drop, 0.0)
    left = Segments(xp.stack([steep_drop / high, rest / xp.maximum(low, 1e-300)], -1), xp.stack([steep_drop, rest], -1))
    on_right = (high <= 1.0 + 4.0 * EPS)[:, None]
    choose = lambda one, other: xp.where(used[:, None], xp.where(on_right, one, other), 0.0)  # noqa: E731
    pairs = Segments(choose(right.widths, left.widths), choose(right.drops, left.drops))
    up = 1.0 + rounding
    ends = [xp.where(vertical, drops, 0.0).sum()[None] * up, xp.where(flat, widths, 0.0).sum()[None] * up]
    widths = xp.concatenate([xp.zeros(1), pairs.widths[1:-1].reshape(-1), ends[1]])
    drops = xp.concatenate([ends[0], pairs.drops[1:-1].reshape(-1), xp.zeros(1)])
    return Segments(*(xp.pad(x, (0, size - x.shape[0])) for x in (widths, drops)))


def _greatest(values: Array, key: Array, size: int) -> Array:
    """The greatest value of each key below ``size``, -inf where there is none."""
    if array_module(values, key) is not np:
        return jax.ops.segment_max(values, key, num_segments=size)
    found = np.full(size, -np.inf)
    np.maximum.at(found, key, values)
    return found
