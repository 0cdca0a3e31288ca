"""Trade-off curves f(alpha): the smallest type II error of a test of P against Q at type I error alpha."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._rounding import EPS, inflated
from jaxacct.losses import nodes, segments, validity
from jaxacct.losses.conversions import concrete
from jaxacct.losses.grid import LossGrid
from jaxacct.losses.profile import PrivacyProfile
from jaxacct.losses.segments import Segments
from jaxacct.mechanisms._pair import Tails

__all__ = ["TradeOff", "arrays", "padded"]

_MOST = 2**24  # segments that a product is given room for beyond what it takes


@functools.partial(jax.tree_util.register_dataclass, data_fields=["widths", "drops"], meta_fields=["bound"])
@dataclasses.dataclass(frozen=True, eq=False)
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
        widths: shape ``(..., segments)``, float64; a NumPy array outside a trace.
        drops: shape ``(..., segments)``.
        bound: ``"lower"`` or ``"upper"``, static.

    Source: Dong, Roth, Su 2022, section 2; the residue paper's Definition 9 and Propositions 7 to 12.
    """

    widths: Array
    drops: Array
    bound: str = "lower"

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
        traced = _validate.is_traced((alpha, beta))
        if not traced:
            alpha, beta = np.asarray(alpha, np.float64), np.asarray(beta, np.float64)
            validity.check_trade_off_points(alpha, beta)
        with jax.enable_x64(True):
            a, b = jnp.asarray(alpha, jnp.float64), jnp.asarray(beta, jnp.float64)
            widths = jnp.concatenate([jnp.zeros_like(a[..., :1]), jnp.diff(a, axis=-1)], -1)
            drops = jnp.concatenate([1.0 - b[..., :1], -jnp.diff(b, axis=-1)], -1)
            good = jnp.all((widths >= 0) & (drops >= -1e-14), -1, keepdims=True)
            cross = drops[..., 2:] * widths[..., 1:-1] <= drops[..., 1:-1] * widths[..., 2:] + 1e-9
            good &= jnp.all(cross, -1, keepdims=True) & (jnp.abs(a[..., -1:] - 1.0) + jnp.abs(b[..., -1:]) < 1e-9)
            # No privacy: P and Q are disjoint. Perfect privacy: one outcome.
            one = jnp.zeros_like(widths)
            worst = (one.at[..., -1].set(1.0), one.at[..., 0 if bound == "lower" else -1].set(1.0))
            widths, drops = jnp.where(good, widths, worst[0]), jnp.where(good, jnp.maximum(drops, 0.0), worst[1])
            return concrete(_sorted(cls(widths, drops, bound)))

    @classmethod
    def from_profile(cls, profile: PrivacyProfile) -> TradeOff:
        """The trade-off curve of a profile, exactly but for rounding: an atom at loss l is a segment of slope -e^-l.

        An upper profile gives a lower curve and the other way round (Proposition 9 of the residue paper). For one
        with loss atoms on a grid of n points it has n + 2 segments.
        """
        _validate.instance(PrivacyProfile, profile=profile)
        law = profile.to_pld()
        with jax.enable_x64(True):
            losses = jnp.asarray(profile.grid.losses)
            sign = 1.0 if profile.bound == "upper" else -1.0
            rounding = 1.0 + sign * 8.0 * EPS * (1.0 + jnp.abs(losses))
            masses = jnp.asarray(law.masses)
            singular = profile.float64()[..., :1] * jnp.exp(-losses[0]) * rounding[0]
            none = jnp.zeros_like(singular)
            widths = jnp.concatenate([none, masses * rounding, jnp.asarray(law.infinity_mass)[..., None]], -1)
            drops = jnp.concatenate([singular, masses * jnp.exp(-losses) * rounding, none], -1)
            return concrete(cls(widths, drops, "lower" if profile.bound == "upper" else "upper"))

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
        with jax.enable_x64(True):
            excess = _excess(*arrays(self), jnp.asarray(grid.losses), bound)
            return PrivacyProfile(concrete(excess), grid, bound)

    def trade_off(self, alpha: ArrayLike) -> Array:
        """f(alpha), rounded to the side of ``bound``; shape ``batch + alpha.shape``."""
        _validate.numbers(alpha=alpha)
        _validate.rate(alpha=alpha)
        with jax.enable_x64(True):
            value, _ = _read(*arrays(self), jnp.asarray(alpha, jnp.float64), self.bound)
            return concrete(value)

    def power(self, alpha: ArrayLike) -> Array:
        """1 - f(alpha), the power of the best test at false positive rate ``alpha``, with the digits of a small one.

        Rounded so that it bounds from the other side: up where f is a lower bound.
        """
        _validate.numbers(alpha=alpha)
        _validate.rate(alpha=alpha)
        with jax.enable_x64(True):
            _, value = _read(*arrays(self), jnp.asarray(alpha, jnp.float64), self.bound)
            return concrete(value)

    def points(self) -> tuple[Array, Array]:
        """``(alpha, beta)`` of the vertices from alpha = 0 on, for pictures: sums in float64, not rounded to a side."""
        with jax.enable_x64(True):
            alpha = jnp.cumsum(jnp.asarray(self.widths), -1)
            beta = jnp.flip(jnp.cumsum(jnp.flip(jnp.asarray(self.drops), -1), -1), -1)
            return concrete((alpha, jnp.concatenate([beta[..., 1:], jnp.zeros_like(beta[..., :1])], -1)))

    def reflect(self) -> TradeOff:
        """The trade-off curve of (Q, P), the mirror image across the diagonal; exact."""
        with jax.enable_x64(True):
            flip = lambda x: jnp.flip(jnp.asarray(x), -1)  # noqa: E731
            # Padding stands at the end, so after the flip at the beginning; the order of the rest is right.
            return concrete(TradeOff(flip(self.drops), flip(self.widths), self.bound))

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
        room = self.widths.shape[-1] * other.widths.shape[-1] + (2 if self.bound == "lower" else 0)
        size = room if size is None else size
        _validate.whole(size=size)
        if size < min(16, room):
            raise ValueError(f"size must be at least 16, got {size}")
        if size > max(room, _MOST):
            raise ValueError(f"size must be at most {_MOST} or the {room} that every product takes, got {size}")
        with jax.enable_x64(True):
            widths, drops = _compose(*arrays(self), *arrays(other), size, self.bound)
            return concrete(TradeOff(widths, drops, self.bound))


def arrays(curve: TradeOff) -> tuple[Array, Array]:
    """Both arrays in float64; where a float32 program has rounded them, moved to the safe side.

    Rounding two masses of a segment apart changes its slope, so scaling alone would not do: the mass that counts on
    the segment's side of slope 1 goes up (or down) and the other one the other way. Of two masses that are now equal
    either may have been the larger: a lower curve gets a segment more, in front, for what the drops may have had more.
    The masses of an upper curve come closer, and do not pass each other.
    """
    widths, drops = jnp.asarray(curve.widths), jnp.asarray(curve.drops)
    a, b = widths.astype(jnp.float64), drops.astype(jnp.float64)
    if widths.dtype != jnp.float64 or drops.dtype != jnp.float64:
        sign = 1.0 if curve.bound == "lower" else -1.0
        more, less = 1.0 + sign * 2.0**-23, 1.0 - sign * 2.0**-23
        flat, even = a >= b, a == b
        a, b = jnp.where(flat, a * more, a * less), jnp.where(flat, b * less, b * more)
        if curve.bound == "lower":
            lost = jnp.where(even, b * 2.0**-22, 0.0).sum(-1, keepdims=True)
            a, b = jnp.concatenate([jnp.zeros_like(lost), a], -1), jnp.concatenate([lost, b], -1)
        else:
            a, b = jnp.where(flat, a, jnp.minimum(a, b)), jnp.where(flat, jnp.minimum(a, b), b)
    broken = jnp.isnan(a).any(-1, keepdims=True) | jnp.isnan(b).any(-1, keepdims=True)
    one = jnp.zeros_like(a)
    worst = (one.at[..., -1].set(1.0), one.at[..., 0 if curve.bound == "lower" else -1].set(1.0))
    return jnp.where(broken, worst[0], a), jnp.where(broken, worst[1], b)


def padded(curve: TradeOff) -> tuple[Array, Array]:
    """The arrays, with zeros up to a power of 2 of at least 32: curves of many sizes share compiled programs."""
    widths, drops = arrays(curve)
    n = widths.shape[-1]
    more = ((0, 0),) * (widths.ndim - 1) + ((0, max(32, 1 << (n - 1).bit_length()) - n),)
    return jnp.pad(widths, more), jnp.pad(drops, more)


def _batched(function, *arrays: Array):
    """Maps ``function`` of rows over the broadcast leading axes of ``arrays``."""
    shape = np.broadcast_shapes(*(x.shape[:-1] for x in arrays))
    rows = [jnp.broadcast_to(x, (*shape, x.shape[-1])).reshape(-1, x.shape[-1]) for x in arrays]
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), jax.vmap(function)(*rows))


def _sorted(curve: TradeOff) -> TradeOff:
    found = _batched(lambda w, d: segments.sort(Segments(w, d)), curve.widths, curve.drops)
    return TradeOff(found.widths, found.drops, curve.bound)


@functools.partial(jax.jit, static_argnames=("size", "bound"))
def _compose(a_widths: Array, a_drops: Array, b_widths: Array, b_drops: Array, size: int, bound: str) -> Segments:
    leakier = bound == "lower"
    n, m = a_widths.shape[-1], b_widths.shape[-1]

    def one(first: Array, second: Array) -> Segments:
        every = segments.product(Segments(first[:n], first[n:]), Segments(second[:m], second[m:]), leakier)
        return segments.reduce(every, size, leakier)

    return _batched(one, jnp.concatenate([a_widths, a_drops], -1), jnp.concatenate([b_widths, b_drops], -1))


def _sums(x: Array) -> Array:
    """Sums of all entries before each one."""
    return jnp.concatenate([jnp.zeros(1), jnp.cumsum(x)[:-1]])


@functools.partial(jax.jit, static_argnames="bound")
def _read(widths: Array, drops: Array, alpha: Array, bound: str) -> tuple[Array, Array]:
    """f(alpha) and 1 - f(alpha): the highest of the lines that carry the segments."""
    sign = -1.0 if bound == "lower" else 1.0  # the sign of f's own margin
    n = widths.shape[-1]
    margin = 4.0 * (n + 4) * EPS

    def curve(w: Array, d: Array) -> tuple[Array, Array]:
        steep = d > w
        left_w, left_d = jnp.where(steep, w, 0.0), jnp.where(steep, d, 0.0)
        right_w, right_d = jnp.flip(jnp.where(steep, 0.0, w)), jnp.flip(jnp.where(steep, 0.0, d))

        def at(x: Array) -> tuple[Array, Array]:
            # Left of slope -1, from (0, 1): power = b + r (x - a) for segments of slope -r after (a, 1 - b).
            def lines(along: Array, across: Array, where: Array) -> Array:
                a, b = _sums(along), _sums(across)
                carrying = along > 0
                slope = jnp.where(carrying, across / jnp.where(carrying, along, 1.0), 0.0)
                a, b = jnp.append(a, along.sum()), jnp.append(b, across.sum())
                # After all of them the line of slope 1: beyond it the other side takes over.
                slope, carrying = jnp.append(slope, 1.0), jnp.append(carrying, True)
                value = b + slope * (where - a)
                error = margin * (b + slope * (where + a))
                return jnp.where(carrying, value - sign * error, jnp.inf)

            power = jnp.maximum(jnp.min(lines(left_w, left_d, x)), 0.0)
            # Right of it, from (1, 0): f = b + r (1 - x - a), the largest line; flat pieces have slope 0.
            rest = 1.0 - x
            a, b = _sums(right_w), _sums(right_d)
            carrying = right_w > 0
            slope = jnp.where(carrying, right_d / jnp.where(carrying, right_w, 1.0), 0.0)
            a, b = jnp.append(a, right_w.sum()), jnp.append(b, right_d.sum())
            slope, carrying = jnp.append(slope, 1.0), jnp.append(carrying, True)
            value = b + slope * (rest - a)
            error = margin * (b + slope * (rest + a))
            miss = jnp.maximum(jnp.max(jnp.where(carrying, value + sign * error, -jnp.inf)), 0.0)
            f = jnp.maximum(miss, 1.0 - power + sign * EPS)
            return jnp.clip(f, 0.0, rest), jnp.clip(jnp.minimum(power, 1.0 - miss - sign * EPS), x, 1.0)

        flat = jax.lax.map(at, alpha.reshape(-1), batch_size=256)
        return jax.tree.map(lambda v: v.reshape(alpha.shape), flat)

    shape = widths.shape[:-1]
    found = jax.vmap(curve)(widths.reshape(-1, n), drops.reshape(-1, n))
    return jax.tree.map(lambda v: v.reshape(*shape, *alpha.shape), found)


@functools.partial(jax.jit, static_argnames="bound")
def _excess(widths: Array, drops: Array, losses: Array, bound: str) -> Array:
    limit = jnp.minimum(inflated(jnp.exp(losses), 16.0 * EPS), 1.0)

    def row(w: Array, d: Array) -> Array:
        if bound == "upper":
            found = nodes.nodes_above(losses, _tails(w, d, nodes.widened(losses)), jnp.zeros(()))
        else:
            middles = 0.5 * (losses[:-1] + losses[1:])
            safe = 1.0 - 8.0 * w.shape[0] * EPS
            infinite, singular = jnp.where(d == 0, w, 0.0).sum() * safe, jnp.where(w == 0, d, 0.0).sum() * safe
            found = nodes.nodes_below(losses, _tails(w, d, middles), infinite, singular)
        return jnp.clip(found, 0.0, limit)

    return _batched(row, widths, drops)


def _tails(widths: Array, drops: Array, losses: Array) -> Tails:
    """Tails of the experiment's loss log(width / drop); the segments are sorted by it, upwards."""
    each = jnp.where(drops > 0, jnp.log(widths) - jnp.log(drops), jnp.where(widths > 0, jnp.inf, jnp.nan))
    # Padding takes its neighbour's loss so that the order stays.
    each = jnp.where(jnp.isnan(each), -jnp.inf, each)
    each = jax.lax.cummax(each)
    index = jnp.searchsorted(each, losses, side="right")
    zero = jnp.zeros(1)
    below = lambda x: jnp.concatenate([zero, jnp.cumsum(x)])[index]  # noqa: E731
    above = lambda x: jnp.concatenate([jnp.flip(jnp.cumsum(jnp.flip(x))), zero])[index]  # noqa: E731
    error = jnp.full(losses.shape, 2.0 * widths.shape[0] * EPS)
    return Tails(above(widths), below(widths), above(drops), below(drops), error)
