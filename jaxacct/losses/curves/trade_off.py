"""`TradeOff`: the smallest type II error of a test of P against Q at a given type I error."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module, ranks, running_greatest, take, xp
from jaxacct._numerics.curve_arrays import as_arrays, compiled, float64, mapped, put, rows
from jaxacct._numerics.pytree import mechanism as checked_tree
from jaxacct._numerics.pytree import replaced, unchecked
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct._types import Float, Float64
from jaxacct.losses.curves import checks as validity
from jaxacct.losses.curves import from_tails as nodes
from jaxacct.losses.curves import segments
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.segments import Segments
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.pairs.base import Tails

__all__ = ["TradeOff", "arrays", "padded"]

_MOST = 2**24  # segments that a product is given room for beyond what it takes


@checked_tree
class TradeOff:
    """A piecewise linear trade-off curve, as its segments from alpha = 0 to alpha = 1, steepest first.

    Segment i is an outcome that P has with probability ``widths[i]`` and Q with ``drops[i]``; a vertical first one
    (width 0) is mass that only Q has, a flat last one (drop 0) mass that only P has. Zeros pad. So the curve is a
    finite experiment, the tensor product is a product of outcomes (Proposition 12), and the reflection an exchange.

    ``bound = "lower"`` (f is at most the true curve: a guarantee, as an upper profile is) or ``"upper"``. Masses are
    rounded up on the lower side and down on the upper one, so their sums miss 1 by rounding; what is meant is the
    curve f(alpha) = sup over gamma of (1 - alpha - H(gamma)) / gamma with the excess of H over (1 - gamma)_+ taken
    from the segments with drop > width for gamma < 1 and from the others for gamma >= 1. Scaling masses up raises
    that excess everywhere, so it lowers f.

    Attributes:
        widths: shape ``(..., segments)``, float64; JAX's array if it was made from one, else NumPy's.
        drops: shape ``(..., segments)``.
        bound: ``"lower"`` or ``"upper"``, static.

    Raises:
        ValueError: concrete arrays that are no such experiment: NaN, negative, a sum beyond 1 or, for a lower curve,
            below 1 (by more than 1e-6), or not sorted, which would not be convex. Traced ones of that kind are no
            privacy (lower) or perfect privacy (upper).

    Source: Dong, Roth, Su 2022, section 2; the residue paper's Definition 9 and Propositions 7 to 12.
    """

    widths: Float[Array, "*batch segments"]
    drops: Float[Array, "*batch segments"]
    bound: str = dataclasses.field(default="lower", metadata={"static": True})

    def __post_init__(self) -> None:
        _validate.one_of(("lower", "upper"), bound=self.bound)
        good = validity.check_segments(self.widths, self.drops, self.bound)
        widths, drops = kept_where(good, self.widths, self.drops, self.bound)
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "drops", drops)

    @classmethod
    def from_points(cls, alpha: ArrayLike, beta: ArrayLike, bound: str = "lower") -> TradeOff:
        """The curve through vertices (alpha, beta), from alpha = 0 to (1, 0); shape ``(..., points)``.

        The differences of neighbouring points are exact to a unit of each, and taken at their word.

        Raises:
            ValueError: points that are NaN, not decreasing, not convex, above 1 - alpha, or that do not span [0, 1]
                (Theorem 2.3 of the paper on f-DP filters), saying what is wrong and where. Traced points of that
                kind give no privacy (lower) or perfect privacy (upper).
        """
        _validate.one_of(("lower", "upper"), bound=bound)
        _validate.numbers(alpha=alpha, beta=beta)
        if not _validate.is_traced((alpha, beta)):
            validity.check_trade_off_points(np.asarray(alpha, np.float64), np.asarray(beta, np.float64))
        found = _of_points(alpha, beta, bound)
        return unchecked(cls, widths=found.widths, drops=found.drops, bound=bound)

    @classmethod
    def from_profile(cls, profile: PrivacyProfile) -> TradeOff:
        """The trade-off curve of a profile, exactly but for rounding: an atom at loss l is a segment of slope -e^-l.

        An upper profile gives a lower curve and the other way round (Proposition 9 of the residue paper). For one
        with loss atoms on a grid of n points it has n + 2 segments.
        """
        _validate.instance(PrivacyProfile, profile=profile)
        found = _of_profile(profile)
        bound = "lower" if profile.bound == "upper" else "upper"
        return unchecked(cls, widths=found.widths, drops=found.drops, bound=bound)

    def profile(self, grid: LossGrid) -> PrivacyProfile:
        """The privacy profile on ``grid``: chords of this curve's own profile (lower), or its supporting lines.

        A segment whose loss log(width / drop) is a point of the grid keeps its kink. One between two points loses it,
        which moves H by up to a quarter of the spacing times the segment's width, and the way back (`from_profile`,
        which adds nothing) is off by as much. A curve of few segments wants a grid through its losses.

        Raises:
            ValueError: a grid that is not fit for profiles.
        """
        validity.check_grid(grid)
        bound = "upper" if self.bound == "lower" else "lower"
        excess = _excess(*arrays(self), grid.losses, bound)
        return unchecked(PrivacyProfile, excess=excess, grid=grid, bound=bound)

    def trade_off(self, alpha: ArrayLike) -> Float64[Array, "*shape"]:
        """f(alpha), rounded to the side of ``bound``; shape ``batch + alpha.shape``."""
        _validate.rate(alpha=alpha)
        return _read(*arrays(self), alpha, self.bound)[0]

    def power(self, alpha: ArrayLike) -> Float64[Array, "*shape"]:
        """1 - f(alpha), the power of the best test at false positive rate ``alpha``, with the digits of a small one.

        Rounded so that it bounds from the other side: up where f is a lower bound.
        """
        _validate.rate(alpha=alpha)
        return _read(*arrays(self), alpha, self.bound)[1]

    def points(self) -> tuple[Float64[Array, "*batch points"], Float64[Array, "*batch points"]]:
        """``(alpha, beta)`` of the vertices from alpha = 0 on, for pictures: sums in float64, not rounded to a side."""
        return _points(self)

    def reflect(self) -> TradeOff:
        """The trade-off curve of (Q, P), the mirror image across the diagonal; exact."""
        # Padding stands at the end, so after the flip at the beginning; the order of the rest is right.
        widths, drops = (as_arrays(x)[..., ::-1] for x in (self.drops, self.widths))
        return replaced(self, widths=widths, drops=drops)

    def compose(self, other: TradeOff, size: int | None = None) -> TradeOff:
        """The tensor product f x g (Proposition 12), exact but for the last bits, or leakier / less leaky if cut.

        Args:
            other: of the same bound; batches broadcast.
            size: segments of the result, static, at least 16. Without it, room for every product. With fewer,
                neighbouring segments are merged to the safe side of ``bound``.

        Raises:
            ValueError: different bounds, or a ``size`` below 16 or of more than 2^24 and than all products.
        """
        _validate.instance(TradeOff, other=other)
        if self.bound != other.bound:
            raise ValueError(f"bounds must agree, got {self.bound!r} and {other.bound!r}")
        room: int = self.widths.shape[-1] * other.widths.shape[-1] + (2 if self.bound == "lower" else 0)
        size = room if size is None else size
        _validate.whole(size=size)
        if size < min(16, room):
            raise ValueError(f"size must be at least 16, got {size}")
        if size > max(room, _MOST):
            raise ValueError(f"size must be at most {_MOST} or the {room} that every product takes, got {size}")
        found = _compose(*arrays(self), *arrays(other), size, self.bound)
        return replaced(self, widths=found.widths, drops=found.drops)


def arrays(curve: TradeOff) -> tuple[Array, Array]:
    """Both arrays in float64; where a float32 program has rounded them, moved to the safe side.

    Rounding two masses of a segment apart changes its slope, so scaling alone would not do: the mass that counts on
    the segment's side of slope 1 goes up (or down) and the other one the other way. Of two masses that are now equal
    either may have been the larger: a lower curve gets a segment more, in front, for what the drops may have had more.
    The masses of an upper curve come closer, and do not pass each other.
    """
    return _wide(curve)


@compiled()
def _wide(curve: TradeOff) -> tuple[Array, Array]:
    widths, drops = xp.asarray(curve.widths), xp.asarray(curve.drops)
    a, b = widths.astype(np.float64), drops.astype(np.float64)
    if widths.dtype != np.float64 or drops.dtype != np.float64:
        sign = 1.0 if curve.bound == "lower" else -1.0
        more, less = 1.0 + sign * 2.0**-23, 1.0 - sign * 2.0**-23
        flat, even = a >= b, a == b
        a, b = xp.where(flat, a * more, a * less), xp.where(flat, b * less, b * more)
        if curve.bound == "lower":
            lost = xp.where(even, b * 2.0**-22, 0.0).sum(-1, keepdims=True)
            a, b = xp.concatenate([xp.zeros_like(lost), a], -1), xp.concatenate([lost, b], -1)
        else:
            a, b = xp.where(flat, a, xp.minimum(a, b)), xp.where(flat, xp.minimum(a, b), b)
    return kept_where(~(xp.isnan(a).any(-1) | xp.isnan(b).any(-1)), a, b, curve.bound)


def kept_where(good: Array, widths: Array, drops: Array, bound: str) -> tuple[Array, Array]:
    """The segments of the curves that are ``good``; of the others no privacy (lower), or one outcome (upper)."""
    if array_module(good, widths, drops) is np and np.all(good):
        return widths, drops
    one = xp.zeros_like(widths)
    worst = put(one, (..., -1), 1.0), put(one, (..., 0 if bound == "lower" else -1), 1.0)
    return tuple(xp.where(good[..., None], x, y) for x, y in zip((widths, drops), worst, strict=True))


def padded(curve: TradeOff) -> tuple[Array, Array]:
    """The arrays, with zeros up to a power of 2 of at least 32: curves of many sizes share compiled programs."""
    widths, drops = arrays(curve)
    n = widths.shape[-1]
    more = ((0, 0),) * (widths.ndim - 1) + ((0, max(32, 1 << (n - 1).bit_length()) - n),)
    return xp.pad(widths, more), xp.pad(drops, more)


@compiled("bound")
def _of_points(alpha: Array, beta: Array, bound: str) -> Segments:
    a, b = float64(alpha), float64(beta)
    widths = xp.concatenate([xp.zeros_like(a[..., :1]), xp.diff(a, axis=-1)], -1)
    drops = xp.concatenate([1.0 - b[..., :1], -xp.diff(b, axis=-1)], -1)
    good = xp.all((widths >= 0) & (drops >= -1e-14), -1)
    cross = drops[..., 2:] * widths[..., 1:-1] <= drops[..., 1:-1] * widths[..., 2:] + 1e-9
    good &= xp.all(cross, -1) & (xp.abs(a[..., -1] - 1.0) + xp.abs(b[..., -1]) < 1e-9)
    widths, drops = kept_where(good, widths, xp.maximum(drops, 0.0), bound)
    return rows(lambda w, d: segments.sort(Segments(w, d)), widths, drops)


@compiled()
def _of_profile(profile: PrivacyProfile) -> Segments:
    law, losses = profile.to_pld(), profile.grid.losses
    sign = 1.0 if profile.bound == "upper" else -1.0
    rounding = 1.0 + sign * 8.0 * EPS * (1.0 + np.abs(losses))
    singular = profile.float64()[..., :1] * np.exp(-losses[0]) * rounding[0]
    none = xp.zeros_like(singular)
    widths = xp.concatenate([none, law.masses * rounding, law.infinity_mass[..., None]], -1)
    drops = xp.concatenate([singular, law.masses * np.exp(-losses) * rounding, none], -1)
    return Segments(widths, drops)


@compiled()
def _points(curve: TradeOff) -> tuple[Array, Array]:
    widths, drops = float64(curve.widths), float64(curve.drops)
    alpha = xp.cumsum(widths, -1)
    beta = xp.flip(xp.cumsum(xp.flip(drops, -1), -1), -1)
    return alpha, xp.concatenate([beta[..., 1:], xp.zeros_like(beta[..., :1])], -1)


@compiled("size", "bound")
def _compose(a_widths: Array, a_drops: Array, b_widths: Array, b_drops: Array, size: int, bound: str) -> Segments:
    leakier = bound == "lower"
    n, m = a_widths.shape[-1], b_widths.shape[-1]

    def one(first: Any, second: Any) -> Segments:
        a, b = Segments(first[:n], first[n:]), Segments(second[:m], second[m:])
        every = segments.product(segments.balanced(a, leakier), segments.balanced(b, leakier), leakier)
        return segments.reduce(every, size, leakier)

    return rows(one, xp.concatenate([a_widths, a_drops], -1), xp.concatenate([b_widths, b_drops], -1))


def _lines(along: Array, across: Array) -> tuple[Array, Array, Array, Array]:
    """Where the lines that carry segments begin (``a``, ``b``), their slopes, and which of them there are.

    After all of them stands the line of slope 1: beyond it the other side of the curve takes over.
    """
    start = xp.zeros((*along.shape[:-1], 1))
    a, b = (xp.concatenate([start, xp.cumsum(x, -1)[..., :-1], x.sum(-1, keepdims=True)], -1) for x in (along, across))
    carrying = along > 0
    slope = xp.where(carrying, across / xp.where(carrying, along, 1.0), 0.0)
    slope = xp.concatenate([slope, start + 1.0], -1)
    return a, b, slope, xp.concatenate([carrying, start == 0.0], -1)


@compiled("bound")
def _read(widths: Array, drops: Array, alpha: Array, bound: str) -> tuple[Array, Array]:
    """f(alpha) and 1 - f(alpha): the highest of the lines that carry the segments."""
    alpha = float64(alpha)
    sign = -1.0 if bound == "lower" else 1.0  # the sign of f's own margin
    margin = 4.0 * (widths.shape[-1] + 4) * EPS
    steep = drops > widths
    left = _lines(xp.where(steep, widths, 0.0), xp.where(steep, drops, 0.0))
    right = _lines(*(xp.flip(xp.where(steep, 0.0, x), -1) for x in (widths, drops)))

    def values(lines: tuple[Any, Any, Any, Any], where: Array, side: float, none: float) -> Array:
        a, b, slope, carrying = lines
        return xp.where(carrying, b + slope * (where - a) + side * (margin * (b + slope * (where + a))), none)

    def at(x: Any) -> tuple[Any, Any]:
        x = x.reshape(-1, *(1,) * widths.ndim)  # (alphas, *batch, lines)
        # Left of slope -1, from (0, 1): power = b + r (x - a) for segments of slope -r after (a, 1 - b).
        power = xp.maximum(xp.min(values(left, x, -sign, np.inf), -1), 0.0)
        # Right of it, from (1, 0): f = b + r (1 - x - a), the largest line; flat pieces have slope 0.
        miss = xp.maximum(xp.max(values(right, 1.0 - x, sign, -np.inf), -1), 0.0)
        x = x[..., 0]
        f = xp.maximum(miss, 1.0 - power + sign * EPS)
        most = inflated(1.0 - x, max(sign, 0.0) * EPS)
        return xp.clip(f, 0.0, most), xp.clip(xp.minimum(power, 1.0 - miss - sign * EPS), x, 1.0)

    found = mapped(at, alpha.reshape(-1), 16)
    shape = (*widths.shape[:-1], *alpha.shape)
    return jax.tree.map(lambda v: xp.moveaxis(v, 0, -1).reshape(shape), found)


@compiled("bound")
def _excess(widths: Array, drops: Array, losses: Array, bound: str) -> Array:
    limit = xp.minimum(inflated(xp.exp(losses), 16.0 * EPS), 1.0)
    if bound == "upper":
        found = nodes.nodes_above(losses, _tails(widths, drops, nodes.widened(losses)), np.zeros(()))
    else:
        middles = 0.5 * (losses[:-1] + losses[1:])
        safe = 1.0 - 8.0 * widths.shape[-1] * EPS
        infinite = xp.where(drops == 0, widths, 0.0).sum(-1) * safe
        singular = xp.where(widths == 0, drops, 0.0).sum(-1) * safe
        found = nodes.nodes_below(losses, _tails(widths, drops, middles), infinite, singular)
    return xp.clip(found, 0.0, limit)


def _tails(widths: Array, drops: Array, losses: Array) -> Tails:
    """Tails of the experiment's loss log(width / drop); the segments are sorted by it, upwards."""
    each = xp.where(drops > 0, xp.log(widths) - xp.log(drops), xp.where(widths > 0, np.inf, np.nan))
    # Padding takes its neighbour's loss so that the order stays.
    each = running_greatest(xp.where(xp.isnan(each), -np.inf, each))
    index = ranks(each, losses)
    zero = xp.zeros((*widths.shape[:-1], 1))
    below = lambda x: take(xp.concatenate([zero, xp.cumsum(x, -1)], -1), index)  # noqa: E731
    above = lambda x: take(xp.concatenate([xp.flip(xp.cumsum(xp.flip(x, -1), -1), -1), zero], -1), index)  # noqa: E731
    error = xp.full(index.shape, 2.0 * widths.shape[-1] * EPS)
    return Tails(above(widths), below(widths), above(drops), below(drops), error)
