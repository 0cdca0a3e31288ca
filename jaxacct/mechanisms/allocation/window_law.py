"""The law of a sum of ratios on one window's lattice, by FFT, with every error bounded; see `sums`.

NumPy only, one setting at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, logsumexp
from jaxacct._numerics.fft_powers import difference, eta_of, product, spectrum
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.mechanisms.allocation.chernoff import blocks_of, mass_below, outside
from jaxacct.mechanisms.allocation.plan import Window
from jaxacct.mechanisms.allocation.ratios import RatioCells

_MANY = 256  # ratios
_STEPS = ((14.0, 1.0 / 48.0), (np.inf, 1.0 / 20.0))  # in e-foldings of a call between points of a curve, up to a depth


class Events(NamedTuple):
    """Nested events, from the least likely on: probabilities under the base and the alternative.

    For events of large sums other - gamma base is a lower bound of E[(R - gamma)_+] for every gamma >= 1, and with
    ``other - slack`` for every gamma; for those of small sums gamma base - other is one of E[(gamma - R)_+] for every
    gamma <= 1, and with ``base - slack`` for every gamma.
    """

    base: np.ndarray
    other: np.ndarray
    slack: np.ndarray


class WindowLaw:
    """The law of S on one window's lattice."""

    def __init__(self, cells: RatioCells, window: Window, t: int, k: int) -> None:
        self.cells, self.window, self.t, self.k = cells, window, t, k
        self.kept = slice(0, window.cut + 1)
        # Points of the lattice of sums, as multiples of the step.
        self.places = window.first + np.arange(window.points)
        self.cut = float(cells.right[window.cut])
        base, base_up = (side[window.cut] for side in cells.base_over)
        other, other_up = (side[window.cut] for side in cells.other_over)
        self.over = self._some_over(base, other, -1.0), self._some_over(base_up, other_up, 1.0)

    def _some_over(self, base: float, other: float, sign: float) -> tuple[float, float]:
        """Bounds of Q(A) and P(A)."""
        t, k = self.t, self.k
        logs = np.log1p(-min(base, 1.0)), np.log1p(-min(other, 1.0))
        q, p = -np.expm1(t * logs[0]), -np.expm1(k * logs[1] + (t - k) * logs[0])
        return inflated(q, sign * 2.0**-45), inflated(p, sign * 2.0**-45)

    def _upper_masses(self) -> np.ndarray:
        """The base's law with the means kept, on the lattice of ratios."""
        c, h = self.cells, self.window.step
        left, right = c.left[self.kept], c.right[self.kept]
        (low, high), (least, most) = ([x[self.kept] for x in side] for side in (c.base, c.other))
        if self.window.upper:
            excess = most - left * low + 8.0 * UNIT * (most + left * high)
        else:
            excess = least - left * high - 8.0 * UNIT * (most + left * high)
        # More mass at the right end makes calls larger, more at the left end puts.
        sign = 1.0 if self.window.upper else -1.0
        up = np.clip(inflated(excess / (right - left), sign * 8.0 * UNIT), 0.0, high)
        values, masses = np.concatenate([left, right]), np.concatenate([high - up, up])
        # Next to nothing is in the cell from 0 on, but not with a tilt: it counts as its upper end, or apart.
        masses[0], masses[left.size] = 0.0, (high[0] if self.window.upper else 0.0)
        masses = inflated(masses, 8.0 * UNIT)
        at = values / h
        place = np.floor(at)
        share = np.clip(at - place + sign * 4.0 * UNIT * (at + 1.0), 0.0, 1.0)
        place = place.astype(np.int64)
        size = int(place.max()) + 2
        found = np.bincount(place, masses * (1.0 - share), size) + np.bincount(place + 1, masses * share, size)
        return inflated(found, UNIT * (2.0 * values.size + 16.0))

    def _tilted(self, masses: np.ndarray, kappa: float | None) -> tuple[np.ndarray, float]:
        """``masses`` times exp(theta r - kappa), rounded up, folded to the window's points; kappa makes the total 1."""
        w = self.window
        exponent = w.tilt * w.step * np.arange(masses.size)
        if kappa is None:
            kappa = float(logsumexp(np.where(masses > 0, np.log(np.maximum(masses, 1e-320)), -np.inf) + exponent))
        tilted = masses * np.exp(exponent - kappa)
        tilted = inflated(tilted, UNIT * (8.0 + 4.0 * (np.abs(exponent) + abs(kappa))))
        rows = -(-masses.size // w.points)
        folded = np.zeros(rows * w.points)
        folded[: masses.size] = tilted
        return inflated(folded.reshape(rows, -1).sum(0), UNIT * rows), kappa

    def _tails(self, power: Array, bound: Array, errors: Array, alias: float, kappa: float) -> tuple[np.ndarray, ...]:
        """Tail sums of the untilted law from the outer end of the window inwards, and bounds of their errors.

        ``power`` is the spectrum of the tilted law. With z = exp(-|theta| h) <= 1 a tail is z^j sum_i z^(i - j) w_i,
        a functional of the law whose own transform is at most 2 / |1 - z e^(i omega)| at omega, or the number of
        points. So the spectrum's errors, most of them far from 0, add up to little. What the inverse transform rounds
        by itself counts
        for every entry; of what comes round, ``alias`` in all, no more than all of it is in a tail.
        """
        w, n = self.window, self.window.points
        law = np.roll(np.fft.irfft(power, n), -(w.first % n))
        z = np.exp(-abs(w.tilt) * w.step)
        turn = np.exp(-1j * np.linspace(0.0, np.pi, n // 2 + 1))
        functional = np.minimum(2.001 / np.maximum(np.abs(1.0 - z * turn), 1e-300), float(n))
        ends = np.full(n // 2 + 1, 2.0 / n)
        ends[0] = ends[-1] = 1.0 / n
        length = min(float(n), 1.001 / -np.expm1(-abs(w.tilt) * w.step)) if w.tilt else float(n)
        own = eta_of(n) * float(((bound + errors) * ends).sum())
        error = inflated(float((errors * functional * ends).sum()) + own * length, 1e-9)
        exponent = kappa - w.tilt * w.step * self.places
        units = UNIT * (16.0 + 4.0 * (abs(kappa) + np.abs(w.tilt * w.step * self.places)))
        scale = np.exp(np.minimum(exponent, 690.0))
        inside = self._inside()
        law, scale, units = law[inside], scale[inside], units[inside]
        if w.upper:
            law, scale, units = law[::-1], scale[::-1], units[::-1]
        terms = law * scale
        room = np.cumsum(np.abs(terms)) * UNIT * (2.0 * law.size + 8.0) + np.cumsum(np.abs(terms) * units)
        off = scale * inflated(error, units)
        return np.cumsum(terms), off + room, off + room + alias * inflated(scale, units)

    def _inside(self) -> slice:
        """The part of the lattice of sums that has to do with this window."""
        w = self.window
        if w.upper:
            return slice(max(int(np.floor(w.low / w.step)) - w.first, 0), None)
        return slice(None, min(int(np.ceil(w.high / w.step)) - w.first, w.points - 1) + 1)

    def _upper_tails(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Sums within the window from its outer end on, upper bounds of tails, and what lies outside the lattice.

        That is E[S; S above it] for calls, and the probability of sums below it for puts.
        """
        w, masses = self.window, self._upper_masses()
        tilted, kappa = self._tilted(masses, None)
        sums, off, _ = self._tails(*spectrum(tilted, self.t, w.points), 0.0, self.t * kappa)
        values = (w.step * self.places)[self._inside()]
        if w.upper:
            values = values[::-1]
            lost = outside(w, [(masses, self.t)])[1]
        else:
            logs, low, _ = blocks_of(masses, w.step)
            lost = mass_below(logs, low, w.first * w.step, self.t, w.deviation)
        return values, np.maximum(np.maximum(sums, 0.0) + off, 0.0), lost

    def calls(self) -> tuple[np.ndarray, np.ndarray]:
        """Points gamma and upper bounds of E[(R - gamma)_+]."""
        values, tails, beyond = self._upper_tails()
        w, t = self.window, self.t
        calls = np.append(0.0, np.cumsum(tails)[:-1]) * (w.step / t)
        calls = inflated(calls, 4.0 * UNIT * (tails.size + 8.0)) + inflated(beyond / t, 8.0 * UNIT)
        gamma = values / t
        # E[R - gamma; A], and the put on A.
        apart = self.over[1][1] * (1.0 + 4.0 * UNIT) - deflated(gamma, 4.0 * UNIT) * self.over[0][0]
        calls = inflated(calls + np.maximum(apart, 0.0) + self._put_on_large(), 8.0 * UNIT)
        calls = np.minimum(calls, 1.0)[::-1]
        chosen = thinned(calls, values[::-1], w.low, w.high)
        return gamma[::-1][chosen], calls[chosen]

    def _put_on_large(self) -> float:
        """Bound of E[(gamma - R)_+; A] for gamma up to the window's.

        If r_1 exceeds c it takes S < s, that is a sum of the others below s - c, for a put: E[(s - S)_+; A] is at most
        t Q(r > c) (s - c) Q(S' <= s - c) with S' the sum of t - 1.
        """
        c, count = self.cells, self.t - 1
        rest = inflated(self.window.high + self.window.step, 1e-9) - deflated(self.cut, 1e-9)
        if rest <= 0:
            return 0.0
        # By Chernoff; ratios of the first cell apart.
        used = c.base[1] > 0
        used[0] = False
        masses, values = np.append(c.base[1][used], c.base_over[1][-1:]), np.append(c.left[used], c.right[-1:])
        lost = mass_below(np.log(masses), values, rest, count, self.window.deviation)
        lost = min(lost + inflated(count * c.base[1][0], 8.0 * UNIT), 1.0)
        return c.base_over[1][self.window.cut] * rest * lost * (1.0 + 1e-9)

    def puts(self) -> tuple[np.ndarray, np.ndarray]:
        """Points gamma and upper bounds of E[(gamma - R)_+]."""
        values, tails, lost = self._upper_tails()
        w, t = self.window, self.t
        # Sums below the lattice are as rare as Chernoff says: they count as 0, and so do ratios of the first cell.
        lost = lost + inflated(t * self.cells.base[1][0], 8.0 * UNIT)
        puts = np.append(0.0, np.cumsum(tails)[:-1]) * (w.step / t)
        gamma = values / t
        puts = inflated(puts, 4.0 * UNIT * (tails.size + 8.0)) + inflated(gamma, 4.0 * UNIT) * lost
        apart = np.where(deflated(self.cut, 1e-9) >= values, 0.0, inflated(gamma, 4.0 * UNIT) * self.over[1][0])
        puts = inflated(puts + apart, 8.0 * UNIT)[::-1]
        chosen = thinned(puts, -values[::-1], -w.high, -w.low)
        return gamma[::-1][chosen][::-1], puts[chosen][::-1]

    def events(self) -> Events:
        """Events {S on the lattice is at least, or at most, a point}, with A among the large ones."""
        c, w, t, k = self.cells, self.window, self.t, self.k
        low, high, other_low, other_high = (x[self.kept] for x in (*c.base, *c.other))
        left, right = c.left[self.kept], c.right[self.kept]
        value = np.clip(np.where(high > 0, other_high / high, 0.0), left, right) if k == 1 else 0.5 * (left + right)
        # A test may be randomised: a cell goes to one of its neighbours on the lattice, with a probability that is the
        # same for both measures. So sums of many small ratios keep their mean; of few, the nearest tells more.
        place = np.floor(value / w.step)
        share = np.clip(value / w.step - place, 0.0, 1.0)
        share = share if t >= _MANY else np.rint(share)
        place = place.astype(np.int64)
        size = int(place.max()) + 2
        rounding = UNIT * (2.0 * place.size + 16.0)

        def spread(x: np.ndarray) -> np.ndarray:
            return np.bincount(place, x * (1.0 - share), size) + np.bincount(place + 1, x * share, size)

        laws = [inflated(spread(x), rounding) for x in (high, other_high)]
        lows = [deflated(spread(x), rounding) for x in (low, other_low)]
        share = np.minimum(*(np.where(high > 0, low / high, 0.0) for low, high in zip(lows, laws, strict=True)))
        # A test may leave out places that are not known well: what that loses, and what is not known of the others.
        limits = 2.0 ** np.arange(-44.0, -12.0)
        left_out = np.bincount(np.searchsorted(limits, 1.0 - share), t * laws[0] + laws[1], limits.size + 1)
        left_out = np.cumsum(left_out[:0:-1])[::-1]
        known = share >= 1.0 - limits[int(np.argmin(t * limits + left_out))]
        if not known.any():
            none = np.zeros(0)
            return Events(none, none, none)
        worst = float(np.max(1.0 - share[known])) + 4.0 * UNIT
        laws = [np.where(known, law, 0.0) for law in laws]
        base, kappa = self._tilted(laws[0], None)
        other, own = self._tilted(laws[1], kappa if k == 1 else None)
        sure = np.exp(t * np.log1p(-worst) - 1e-14) if worst < 0.5 else 0.0
        beyond = lambda count: outside(w, [(laws[1], count), (laws[0], t - count)])[0]  # noqa: E731
        alias = lambda count, kappa: float(np.exp(min(beyond(count) - kappa + 1e-12 * abs(kappa), 690.0)))  # noqa: E731
        q_alias, p_alias = alias(0, t * kappa), alias(k, k * own + (t - k) * kappa)
        half = np.ones(w.points // 2 + 1)
        power = spectrum(base, t - k, w.points) if k < t else (half, half, 0.0 * half)
        q, q_up, q_down = self._tails(*product(power, spectrum(base, k, w.points)), q_alias, t * kappa)
        q, most = np.maximum(q, 0.0), np.maximum(q, 0.0) + q_up
        lost, slack = 1.0 - sure, np.zeros(q.shape)
        if k == 1:
            # P - Q is the other factors' law times p - q, whose transform is small where theirs is large. A line is
            # P - Q - (gamma - 1) Q, so for gamma >= 1 no more than P - Q and an upper bound of Q matter (below 1,
            # Q - P and one of P).
            part = product(power, difference(other, base, w.points))
            gain, gain_up, gain_down = self._tails(*part, p_alias + q_alias, t * kappa)
            if w.upper:
                base_mass, other_mass = most, most + gain - gain_down - lost * (most + np.abs(gain) + gain_up)
                slack = 1.01 * (q_up + q_down)
            else:
                other_mass = np.maximum(most + gain, 0.0) + gain_up
                base_mass = other_mass - gain - gain_up - lost * most
                slack = 1.01 * (q_up + q_down + gain_up + gain_down)
        else:
            end = k * own + (t - k) * kappa
            p, p_up, p_down = self._tails(*product(power, spectrum(other, k, w.points)), p_alias, end)
            p = np.maximum(p, 0.0)
            base_mass, other_mass = (most, (p - p_down) * sure) if w.upper else ((q - q_down) * sure, p + p_up)
        p_over, q_over = self.over[0][1], self.over[1][0]
        if w.upper:
            base_mass = inflated(base_mass + q_over, 8.0 * UNIT)
            other_mass = deflated(np.maximum(other_mass + p_over - 8.0 * UNIT * most, 0.0), 8.0 * UNIT)
        else:
            base_mass = deflated(np.maximum(base_mass - 8.0 * UNIT * most, 0.0), 8.0 * UNIT)
            other_mass = inflated(other_mass, 8.0 * UNIT)
        values = (w.step * self.places)[self._inside()]
        # The true curve rises inwards to 1, also where a tilt has lost all digits.
        curve = np.clip(np.maximum.accumulate(other_mass if w.upper else base_mass), 1e-320, 1.0)[::-1]
        chosen = np.sort(values.size - 1 - thinned(curve, values if w.upper else -values[::-1], -np.inf, np.inf))
        return Events(base_mass[chosen], other_mass[chosen], slack[chosen])


def thinned(curve: np.ndarray, values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Indices of points between ``low`` and ``high`` at which a falling positive curve has fallen by enough each."""
    inside = np.flatnonzero((values >= low) & (values <= high) & (curve > 0))
    if not inside.size:
        return inside
    fall = -np.log(curve[inside])
    fall = np.maximum.accumulate(fall)
    marks, start = [], fall[0]
    for depth, step in _STEPS:
        end = min(fall[-1], depth)
        if end > start:
            marks.append(np.arange(start, end, step))
            start = end
    marks = np.concatenate(marks) if marks else np.zeros(0)
    places = np.unique(np.append(np.searchsorted(fall, marks), [0, fall.size - 1]))
    return inside[np.minimum(places, fall.size - 1)]
