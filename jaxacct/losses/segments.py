"""Piecewise linear trade-off curves as sorted segments: products, and fewer segments.

A segment is an outcome of the finite experiment behind the curve: ``width`` its probability under P (along alpha),
``drop`` under Q (along beta), sorted by drop / width from steep to flat. Proposition 12 of the residue paper: the
tensor product has a segment for every pair of segments, widths and drops multiplied.

*Fewer segments, leakier*: a group of neighbouring segments becomes two, with the group's steepest and flattest
slopes and its total width and drop (the tangents at its ends). The two weights come from sums of non-negative
terms; what is left of rounding is a shift between the two of a few units of (group's drop) / (difference of slopes),
made in the direction that raises the hockey stick on the group's own side of slope 1 (groups never straddle it) and
leaves the other side alone, so it costs a few units of the group's mass and not more.

*Fewer segments, less leaky*: a group becomes its sum (outcomes that an observer no longer tells apart).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct._rounding import EPS, deflated, inflated

__all__ = ["Segments", "product", "reduce", "sort"]

_TINY = 1e-290  # more than all products of masses that may have underflowed


class Segments(NamedTuple):
    """``widths`` (P-masses) and ``drops`` (Q-masses) of one curve, shape ``(n,)`` each; zeros pad."""

    widths: Array
    drops: Array


def _log_slopes(segments: Segments) -> Array:
    """log(drop / width): inf for a vertical piece, -inf for a flat one, NaN for padding."""
    positive = (segments.widths > 0) | (segments.drops > 0)
    return jnp.where(positive, jnp.log(segments.drops) - jnp.log(segments.widths), jnp.nan)


def sort(segments: Segments) -> Segments:
    """Steep segments first; padding last."""
    order = jnp.argsort(jnp.where(jnp.isnan(_log_slopes(segments)), jnp.inf, -_log_slopes(segments)))
    # A flat piece has key +inf as padding has; either order of those two is the same curve.
    return Segments(segments.widths[order], segments.drops[order])


def product(one: Segments, other: Segments, leakier: bool) -> Segments:
    """The tensor product, unsorted, ``n * m`` segments, masses rounded up (``leakier``) or down."""
    factor = 1.0 + (4.0 if leakier else -4.0) * EPS
    widths = (one.widths[:, None] * other.widths[None]).reshape(-1) * factor
    drops = (one.drops[:, None] * other.drops[None]).reshape(-1) * factor
    if leakier:
        # Underflow loses mass: what may be lost counts as a loss of +inf and one of -inf.
        wide = ((one.widths > 0)[:, None] & (other.widths > 0)[None]).reshape(-1)
        deep = ((one.drops > 0)[:, None] & (other.drops > 0)[None]).reshape(-1)
        lost = jnp.any(wide & (widths < 1e-300)) | jnp.any(deep & (drops < 1e-300))
        charge = jnp.where(lost, _TINY, 0.0)[None]
        none = jnp.zeros(1)
        return Segments(jnp.concatenate([none, widths, charge]), jnp.concatenate([charge, drops, none]))
    return Segments(widths, drops)


@functools.partial(jax.jit, static_argnames=("size", "leakier"))
def reduce(segments: Segments, size: int, leakier: bool) -> Segments:
    """At most ``size`` sorted segments, leakier or less leaky than the given ones (any order); ``size`` >= 16."""
    ordered = sort(segments)
    n = ordered.widths.shape[0]
    if n <= size:
        return Segments(*(jnp.pad(x, (0, size - n)) for x in ordered))
    widths, drops = ordered
    slopes = _log_slopes(ordered)
    vertical, flat, padding = slopes == jnp.inf, slopes == -jnp.inf, jnp.isnan(slopes)
    inner = ~(vertical | flat | padding)
    groups = (size // 2 if leakier else size) - 4
    by_mass, by_slope = groups // 4, groups - groups // 4 - 1
    # Two measures that grow along the curve, added: no group is heavy, and none is wide in log slope.
    mass = jnp.cumsum(widths + drops) / jnp.maximum((widths + drops).sum(), 1e-300)
    top = jnp.max(jnp.where(inner, slopes, -jnp.inf))
    bottom = jnp.min(jnp.where(inner, slopes, jnp.inf))
    span = jnp.where(top > bottom, top - bottom, 1.0)
    # Equal slopes that differ by rounding should not be split: steps of the measure fall between lattice points.
    position = jnp.clip(jnp.where(inner, (top - slopes) / span, 0.0), 0.0, 1.0)
    key = jnp.floor(jnp.clip(mass, 0.0, 1.0) * by_mass) + jnp.floor(position * (by_slope - 1) + 0.5)
    key = key + jnp.where(slopes < 0, 1.0, 0.0)
    last = by_mass + by_slope + 2
    key = jnp.where(vertical, 0.0, jnp.where(flat | padding, last, key + 1.0)).astype(jnp.int32)
    total = last + 1
    summed = lambda x: jax.ops.segment_sum(x, key, num_segments=total)  # noqa: E731
    rounding = 4.0 * n * EPS
    if not leakier:
        return Segments(*(deflated(jnp.pad(summed(x), (0, size - total)), rounding) for x in ordered))
    ratio = jnp.where(inner, drops / jnp.where(inner, widths, 1.0), 0.0)
    high = inflated(jax.ops.segment_max(jnp.where(inner, ratio, -jnp.inf), key, num_segments=total), 2.0 * EPS)
    low = deflated(jax.ops.segment_min(jnp.where(inner, ratio, jnp.inf), key, num_segments=total), 2.0 * EPS)
    used = jnp.isfinite(high) & jnp.isfinite(low)
    high, low = jnp.where(used, high, 1.0), jnp.where(used, low, 0.5)
    difference = high - low  # at least a few units of high
    width, drop = (inflated(summed(jnp.where(inner, x, 0.0)), rounding) for x in ordered)
    steep = summed(jnp.where(inner, jnp.maximum(drops - low[key] * widths, 0.0), 0.0)) / difference
    gentle = summed(jnp.where(inner, jnp.maximum(high[key] * widths - drops, 0.0), 0.0)) / difference
    shift = (2.0 * rounding * width + 16.0 * EPS * (drop + low * width)) / difference
    # Right of slope 1 (high <= 1) the hockey stick sees the flat part: widths are kept, weight goes to the flat one.
    first_width = jnp.maximum(width - jnp.minimum(gentle + shift, width), 0.0)
    right = Segments(
        jnp.stack([first_width, jnp.minimum(gentle + shift, width)], -1),
        jnp.stack([first_width * high, jnp.minimum(gentle + shift, width) * low], -1),
    )
    steep_drop = jnp.minimum((steep + shift) * high, drop)
    rest = jnp.maximum(drop - steep_drop, 0.0)
    left = Segments(
        jnp.stack([steep_drop / high, rest / jnp.maximum(low, 1e-300)], -1),
        jnp.stack([steep_drop, rest], -1),
    )
    on_right = (high <= 1.0 + 4.0 * EPS)[:, None]
    choose = lambda one, other: jnp.where(used[:, None], jnp.where(on_right, one, other), 0.0)  # noqa: E731
    pairs = Segments(choose(right.widths, left.widths), choose(right.drops, left.drops))
    up = 1.0 + rounding
    ends = [jnp.where(vertical, drops, 0.0).sum()[None] * up, jnp.where(flat, widths, 0.0).sum()[None] * up]
    widths = jnp.concatenate([jnp.zeros(1), pairs.widths[1:-1].reshape(-1), ends[1]])
    drops = jnp.concatenate([ends[0], pairs.drops[1:-1].reshape(-1), jnp.zeros(1)])
    return Segments(*(jnp.pad(x, (0, size - x.shape[0])) for x in (widths, drops)))
