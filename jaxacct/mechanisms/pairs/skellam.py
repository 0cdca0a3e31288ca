"""The pair of the Skellam mechanism."""

from __future__ import annotations

import functools
import math
from typing import TypeVar, cast

import numpy as np

from jaxacct._numerics.arrays import Array, Real, array_module, column, logsumexp, ranks, shared, take, xp
from jaxacct._numerics.manual_axes import scan
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, two_sides
from jaxacct.mechanisms.pairs.table import MOST_LISTED, Atoms, Window

_Kind = TypeVar("_Kind", bound=Array)
_Number = TypeVar("_Number", bound=Real)

LEAST = 1e-290
"""The smallest mu: its outcomes' ratios are floats."""

MOST = 2**16
"""Outcomes a side, where parameters are concrete."""

_EXPONENT = 710.0  # what lies beyond the window is at most exp(-706), about the least normal float64
_TRACED = 2**13  # and inside a trace, where shapes do not follow values
_POINTS = 256  # survey atoms a side
_NEAR = 192  # of them so many within
_LIKELY = 16.0  # standard deviations


@mechanism
class SkellamPair(Pair):
    """P = D + X against Q = X on the integers, Pr[X = x] = p(x) = exp(-z) I_x(z) with z = 2 mu.

    Ratios q_x = I_(x-1) / I_x come from the downward recurrence q_x = x / mu + 1 / q_(x+1); a product of n of them is
    off by 3 n units (docs/proofs/families.md, theorem 8). The loss log p(x - D) - log p(x) increases in x. Beyond the
    window, at T = M - D, Chernoff's bound takes the place of the tail. It counts as error, and is next to the least
    float64; where it is more, nothing is known.

    Attributes:
        mu: above 0; float64.
        sensitivity: D, a whole number >= 1; float64.
    """

    mu: Array
    sensitivity: Array

    def _size(self, order: Real = 0.0) -> int:
        """M: outcomes from -M to M are in the window."""
        if array_module(self.mu, self.sensitivity, order) is not np:
            return _TRACED
        size = np.nanmax(outcomes(self.mu, self.sensitivity) + order * self.sensitivity, initial=2.0)
        return int(min(np.ceil(size), MOST))

    @shared(static=("size",))
    def _logs(self, size: int) -> tuple[Array, Array]:
        """log p(x) - log p(0) for x from 0 to ``size``, shape ``(..., size + 1)``, and the absolute error of each.

        NaN where the parameters are invalid, or do not fit.
        """
        mu, gap = column(self.mu), column(self.sensitivity)
        xp = array_module(mu, gap)
        start = size + size // 32 + 2
        if xp is np:
            logs = np.empty((*np.shape(self.mu), size + 1))
            for at, one in np.ndenumerate(self.mu):
                logs[at] = _host_logs(float(one), size, start)
        else:
            logs = _running_sums(-xp.log(_traced_ratios(xp.asarray(self.mu, np.float64), start)[..., :size]))
        fits = (mu >= LEAST) & (gap >= 1.0) & (size - gap >= 2.0)
        fits &= _chernoff(2.0 * mu, size - gap) <= 6.0 - _EXPONENT
        logs = xp.where(fits, logs, np.nan)
        # Neighbouring ratios beyond the window, each at most this: what is left of the start.
        ratio = xp.exp(-2.0 * xp.arcsinh((size + 0.5) / (2.0 * mu)))
        left = 2.0 * size * ratio ** (start - size - 1)
        roundings = 2.0 * math.isqrt(size) + 8.0  # of two short sums
        error = 3.0 * UNIT * (start + 2.0) + roundings * UNIT * (2.0 - logs[..., -1:]) + left
        return logs, error

    def tails(self, losses: Edges) -> Tails:
        size = self._size()
        z, gap = 2.0 * column(self.mu), column(self.sensitivity)
        logs, log_error = self._logs(size)
        weights = xp.exp(logs)
        after = xp.flip(xp.cumsum(xp.flip(weights[..., 1:], -1), -1), -1)
        # What lies beyond the window, or is no normal number.
        rest = xp.exp(xp.maximum(_chernoff(z, size - gap), -700.0)) * (1.0 + 1e-9)
        above = rest + xp.concatenate([after, xp.zeros_like(rest)], -1) / (1.0 + 2.0 * after[..., :1])

        def sides(n: Array) -> tuple[Array, Array]:
            small = take(above, xp.clip(xp.where(n >= 0, n, -n - 1.0), 0.0, size).astype(np.int64))
            return two_sides(n >= 0, small)

        # A NaN in a table would not be sorted: it is put back by the masses.
        at, shifted = _window_logs(logs, gap)
        table = xp.where(xp.isnan(shifted - at), 0.0, shifted - at)
        last = ranks(table, losses) - (size + 1.0)
        gap = xp.where(xp.isnan(gap), 1.0, gap)
        p_above, p_below = sides(last - gap)
        q_above, q_below = sides(last)
        least = xp.minimum(xp.minimum(p_above, p_below), xp.minimum(q_above, q_below))
        error = 2.0 * log_error + UNIT * (3.0 * size + 32.0) + 2.0 * rest / least
        return Tails(p_above, p_below, q_above, q_below, xp.broadcast_to(error, p_above.shape))

    def window(self, log_share: Array) -> Window:
        """See :class:`jaxacct.mechanisms.pairs.table.Window`; NumPy's, about exp(``log_share``) left out."""
        size = self._size()
        z, gap = 2.0 * column(self.mu), column(self.sensitivity)
        logs, log_error = self._logs(size)
        weights = np.exp(logs)
        after = np.cumsum(weights[..., :0:-1], -1)[..., ::-1]  # from each x >= 1 on
        total = 1.0 + 2.0 * after[..., :1]
        many = (after > np.exp(np.maximum(log_share - 2.0, -720.0))[..., None] * total).sum(-1) + 1.0
        room = np.floor(0.5 * (MOST_LISTED - 1.0 - self.sensitivity))
        reach = np.clip(np.minimum(many, room), 1.0, size - 2.0 - self.sensitivity)
        reach = np.where(np.isfinite(reach), reach, 1.0)
        k = np.arange(np.nanmax(2.0 * reach + self.sensitivity, initial=1.0) + 1.0)
        last = 2.0 * reach[..., None] + gap
        x = np.minimum(k, last) - reach[..., None]
        at, shifted = _at(logs, x), _at(logs, x - gap)
        p, q = (np.where(k <= last, np.exp(one), 0.0 * one) / total for one in (shifted, at))
        error = 2.0 * log_error + UNIT * (3.0 * size + 32.0)
        off = 2.0 * log_error + 4.0 * UNIT * (2.0 - at - shifted)
        beyond = np.exp(np.maximum(_chernoff(z, size - gap), -700.0))
        ends = np.stack([reach, reach + self.sensitivity], -1)  # after[n] holds what is above n
        rest = (take(after, ends.astype(np.int64)) / total).sum(-1) + 2.0 * beyond[..., 0]
        rest = inflated(rest, 1e-9) + 1e-300
        return Window(Atoms(shifted - at, p, q, error, off), rest, rest)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`: every integer or every few of them, fewer in the far tail.

        There is next to no mass there, but Rényi curves of samples are as good as the largest loss is large.
        """
        size = self._size()
        mu, gap = column(self.mu), column(self.sensitivity)
        logs, _ = self._logs(size)
        step = xp.ceil(_LIKELY * xp.sqrt(2.0 * mu) / _NEAR)
        rest = xp.minimum(size - gap, outcomes(mu, 0.0)) - _NEAR * step
        stride = xp.maximum(xp.floor(rest / (_POINTS - _NEAR)), 1.0)
        k = np.arange(-_POINTS, _POINTS + 1.0)
        far = np.maximum(np.abs(k) - _NEAR, 0.0)
        away = np.sign(k) * ((np.abs(k) - far) * step + far * stride)
        inside = (xp.abs(away) <= size) & (xp.abs(away + gap) <= size)
        log_mass = _at(logs, away)
        losses = xp.where(inside, log_mass - _at(logs, away + gap), 0.0)
        log_mass = xp.where(inside, log_mass, -np.inf)
        return Survey(losses + 0.0 * mu, log_mass - logsumexp(log_mass)[..., None])

    def log_moment(self, order: PerSetting) -> PerSetting:
        """An upper bound of log E_Q[(P/Q)^order], order > 1, which broadcasts with the leaves; inf where none is known.

        The terms p(x - D)^a p(x)^(1 - a) of the window, and bounds of what lies outside (docs/proofs/families.md).
        """
        size = self._size(order)
        z, gap, a = 2.0 * column(self.mu), column(self.sensitivity), column(order)
        logs, log_error = self._logs(size)
        # That of 0, and of all others twice.
        mass = logsumexp(xp.concatenate([logs, logs[..., 1:]], -1))[..., None]
        at, shifted = _window_logs(logs, gap)
        inner = xp.where(shifted == -np.inf, -np.inf, a * shifted + (1.0 - a) * at) - mass
        u, top = xp.arcsinh(size / z), size + 0.5
        beyond = a * gap * xp.arcsinh(top / z) + _chernoff(z, size + 0.0 * z) + 1e-9
        beyond = xp.where(u >= a * gap / xp.sqrt(top**2 + z**2), beyond, np.inf)
        below = _chernoff(z, size - gap) + 0.0 * beyond
        total = logsumexp(xp.concatenate([inner, beyond, below], -1))[..., None]
        margin = (2.0 * a + 2.0) * (log_error + 8.0 * UNIT * (2.0 - logs[..., -1:])) + 1e-13 + 4.0 * UNIT * size
        total = xp.maximum(total, 0.0) + margin
        return xp.where(xp.isnan(total) | ~(a > 1.0), np.inf, total)[..., 0]

    def loss_error(self) -> PerSetting:
        """Two logarithms and their difference; shifts of less than an outcome move no mass."""
        logs, error = self._logs(self._size())
        return (2.0 * error + 4.0 * UNIT * (2.0 - logs[..., -1:]))[..., 0]

    def anchor(self) -> PerSetting:
        """P's mode."""
        logs, _ = self._logs(self._size())
        return -_at(logs, column(self.sensitivity))[..., 0]


def outcomes(mu: Array, gap: Real) -> Array:
    """A window that leaves out exp(-710) at most, by Bernstein's inequality, and room for the shift on either side."""
    third = _EXPONENT / 3.0
    return 2.0 * gap + 2.0 + third + xp.sqrt(third**2 + 4.0 * _EXPONENT * mu)


def _chernoff(z: Array, t: Array) -> Array:
    """An upper bound of log Pr[X >= t]: z (cosh u - 1) - u t with sinh u = t / z, for t > 0."""
    s = t / z
    # cosh u - 1 = s^2 / (1 + sqrt(1 + s^2)); where s^2 overflows, s itself is that.
    lifted = t * (s / (1.0 + xp.hypot(1.0, s)))
    return lifted - t * xp.arcsinh(s)


@functools.lru_cache(maxsize=64)
def _host_logs(mu: float, size: int, start: int) -> np.ndarray:
    """The logarithms of :meth:`SkellamPair._logs` for one mu; the recurrence in plain floats."""
    if not mu > 0.0:
        return np.full(size + 1, np.nan)
    ratios = [0.0] * start
    ratio = _first(mu, start)
    for x in range(start, 0, -1):
        ratio = x / mu + 1.0 / ratio
        ratios[x - 1] = ratio
    return _running_sums(-np.log(np.array(ratios[:size])))


def _traced_ratios(mu: Array, start: int) -> Array:
    """q_x = I_(x-1) / I_x for x from 1 to ``start``, downwards for all settings at once; shape ``(..., start)``."""

    def step(ratio: Array, x: Array) -> tuple[Array, Array]:
        ratio = x / mu + 1.0 / ratio
        return ratio, ratio

    outcomes = np.arange(1.0, start + 1.0)
    _, ratios = scan(step, _first(mu, start), outcomes, reverse=True)
    return xp.moveaxis(ratios, 0, -1)


def _first(mu: _Number, x: int) -> _Number:
    """I_x / I_(x+1), nearly."""
    half = (x + 0.5) / (2.0 * mu)
    return cast(_Number, half + (half * half + 1.0) ** 0.5)


def _running_sums(values: _Kind) -> _Kind:
    """0, and the sums up to each entry of numbers of one sign: two short sums of the root's length, not a long one."""
    size = values.shape[-1]
    width = math.isqrt(size) + 1
    padding = xp.zeros((*values.shape[:-1], width * width - size))
    blocks = xp.concatenate([values, padding], -1).reshape(*values.shape[:-1], width, width)
    inner = xp.cumsum(blocks, -1)
    before = xp.cumsum(inner[..., -1], -1)
    before = xp.concatenate([xp.zeros_like(before[..., :1]), before[..., :-1]], -1)
    sums = (inner + before[..., None]).reshape(*values.shape[:-1], -1)[..., :size]
    return xp.concatenate([xp.zeros_like(sums[..., :1]), sums], -1)


def _at(logs: Array, x: Array) -> Array:
    """Entries for whole x of either sign, shape ``(..., n)``; those outside are the last."""
    x = xp.where(xp.isnan(x), 0.0, xp.minimum(xp.abs(x), logs.shape[-1] - 1.0))
    return take(logs, x.astype(np.int64))


def _window_logs(logs: Array, gap: Array) -> tuple[Array, Array]:
    """log p(x) and log p(x - D) for x from -M to M; the second is -inf where x - D is outside."""
    size = logs.shape[-1] - 1
    x = np.arange(-size, size + 1.0)
    shifted = xp.where(xp.abs(x - gap) <= size, _at(logs, x - gap), -np.inf)
    return _at(logs, x + 0.0 * gap), shifted
