"""Pairs given by the tails of their positive and of their negative losses: one run, and finite laws below and above.

A `Half` gives, at a gamma >= 1, the masses of numerator and denominator where the loss exceeds log(gamma). Two
of them make a pair: one for W over O and one for O over W; what both leave out has the loss 0. So one run of a pair is
a closed form, and compositions are enclosed by those of finite laws (Lemmas 11 and 12 of docs/proofs/certificates.md).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from fractions import Fraction

from jaxacct.certificates.balls import arb, ball, ctx, gaussian_tail, laplace_tail, positive_part, up_to
from jaxacct.certificates.laws.atoms import Masses, Pair, positive_masses
from jaxacct.certificates.laws.base import Draws, Half, Joined, Law, Normal, Shifts

_CELLS = 300
_REACH = 9.5  # standard deviations

Edge = tuple[arb, arb, arb]
"""A ratio, and the masses of numerator and denominator where the ratio is larger."""


def shifts_delta(law: Shifts, epsilon: arb, reverse: bool) -> arb:
    """Encloses delta at epsilon for one run."""
    gamma, lost = epsilon.exp(), up_to(ball(law.lost))
    value = half_of(law.reflected() if reverse else law).delta(gamma)
    if not reverse:
        return value + lost
    return value if value == 0 else value - gamma * lost  # with more of W it is no larger


def joined_delta(law: Joined, epsilon: arb, reverse: bool) -> arb:
    """Encloses delta at epsilon for one run of both halves."""
    half = half_of(law.backward if reverse else law.forward)
    return half.delta(epsilon.exp()) + up_to(half.lost)


def halves_of(law: Law) -> Joined:
    """Both halves of a law of moved noise."""
    if isinstance(law, Joined):
        return law
    law = Shifts("normal", ((1, law.square),)) if isinstance(law, Normal) else law
    assert isinstance(law, Shifts)
    return Joined(law, law.reflected())


def joined_cells(law: Law, reverse: bool, upper: bool) -> Masses:
    """A finite law below the pair (each cell of losses is one output) or above it (its masses go to its ends)."""
    pairs: list[Pair] = []
    infinite, lost, rest, law = arb(0), arb(0), arb(1), halves_of(law)
    for side, swapped in ((law.forward, reverse), (law.backward, not reverse)):
        half = half_of(side)
        edges = half.edges(_CELLS)
        cells, beyond = (cells_above if upper else cells_below)(edges)
        if swapped:
            cells = [(o, w) for w, o in cells]
        else:
            infinite += beyond
            lost += half.lost
        pairs += cells
        rest -= edges[0][2] if swapped else edges[0][1]
    # What is left has the loss 0.
    rest = positive_part(rest - lost)
    kept, without = positive_masses([*pairs, (rest, rest)])
    return Masses(kept, positive_part(infinite), lost + without)


def cells_below(edges: list[Edge]) -> tuple[list[Pair], arb]:
    """Masses of a law below the pair, each cell of ratios one output, and its mass of infinite losses."""
    cells = [(positive_part(w - v), positive_part(o - u)) for (_, w, o), (_, v, u) in itertools.pairwise(edges)]
    return [*cells, edges[-1][1:]], arb(0)


def cells_above(edges: list[Edge]) -> tuple[list[Pair], arb]:
    """Masses of a law above the pair, those of each cell at its ends, and its mass of infinite losses."""
    masses = [arb(0) for _ in edges]  # of the denominator
    for k, ((a, w, o), (b, v, u)) in enumerate(itertools.pairwise(edges)):
        there = positive_part((w - v - a * (o - u)) / (b - a))
        masses[k] += positive_part(o - u - there)
        masses[k + 1] += there
    ratio, w, o = edges[-1]
    masses[-1] += o
    return [(edge[0] * mass, mass) for edge, mass in zip(edges, masses, strict=True)], positive_part(w - ratio * o)


def increasing_root(function: Callable[[arb], arb], low: arb, high: arb) -> arb:
    """A ball that holds the zero of an increasing function between two numbers."""
    bits = ctx.prec
    with ctx.workprec(min(bits, 96)):
        for _ in range(60):
            middle = ((low + high) / 2).mid()
            there = function(middle)
            if there < 0:
                low = middle
            elif there > 0:
                high = middle
            else:
                break
    a, b = low.mid(), high.mid()
    first, second = function(a).mid(), function(b).mid()
    for _ in range(8):  # secant
        if first == second:
            break
        a, b = b, (b - second * (b - a) / (second - first)).mid()
        first, second = second, function(b).mid()
        if second == 0 or abs(b - a) < abs(b) * ball(2.0) ** (-bits):
            break
    if low < b < high:
        room = (abs(b) + (high - low)) * ball(2.0) ** (8 - bits)
        for _ in range(12):
            ends = (b - room).mid(), (b + room).mid()
            if function(ends[0]) < 0 < function(ends[1]):
                return ends[0].union(ends[1])
            room *= 16
    return low.union(high)


class _Shifted:
    """Moves of one noise, in the order of the output, with which the ratio increases."""

    lost = arb(0)

    def __init__(self, law: Shifts) -> None:
        self.normal, exact = law.noise == "normal", (law.parts, law.base)
        self.sides = [[(ball(w), self._distance(m)) for w, m in side] for side in exact]
        least, most = (end(m for side in exact for _, m in side) for end in (min, max))
        self.ends = self._distance(least), self._distance(most)
        if not self.normal:
            self.limits = self.ratio(self.ends[0]), self.ratio(self.ends[1])
            return
        # Far out the nearest moves decide.
        low, high = ([end(side, key=lambda part: part[1]) for side in exact] for end in (min, max))
        limit = lambda both, apart: ball(both[0][0]) / ball(both[1][0]) if both[0][1] == both[1][1] else apart  # noqa: E731
        self.limits = limit(low, arb(0)), limit(high, arb("inf"))

    def _distance(self, exact: Fraction) -> arb:
        if not self.normal:
            return ball(exact)
        return ball(abs(exact)).sqrt() * (1 if exact >= 0 else -1)

    def ratio(self, x: arb) -> arb:
        """The likelihood ratio at an output."""
        log = (lambda m: m * x - m * m / 2) if self.normal else (lambda m: -abs(x - m))
        first, second = (sum((w * log(m).exp() for w, m in side), arb(0)) for side in self.sides)
        return first / second

    def above(self, x: arb) -> Pair:
        """Masses of larger outputs."""
        tail = gaussian_tail if self.normal else laplace_tail
        first, second = (sum((w * tail(x - m) for w, m in side), arb(0)) for side in self.sides)
        return first, second

    def outcome(self, gamma: arb) -> arb | None:
        """The output whose ratio is ``gamma``, between the limits; None where the precision does not tell."""
        low, high = self.ends
        if len(self.sides[0]) == len(self.sides[1]) == 1:
            return (low + high) / 2 + gamma.log() / ((high - low) if self.normal else 2)
        if self.normal:
            step = arb(1)
            while not self.ratio(low) < gamma or not self.ratio(high) > gamma:
                low, high, step = low - step, high + step, 2 * step
                if step > 1e200:
                    return None
        return increasing_root(lambda x: self.ratio(x) - gamma, low.mid(), high.mid())

    def tails(self, gamma: arb) -> Pair:
        """Masses where the ratio is at least ``gamma``."""
        least, most = self.limits
        if gamma > most or gamma < least:
            return (arb(0), arb(0)) if gamma > most else (arb(1), arb(1))
        x = self.outcome(gamma) if least < gamma < most else None
        return (arb(0).union(arb(1)), arb(0).union(arb(1))) if x is None else self.above(x)

    def delta(self, gamma: arb) -> arb:
        """The hockey stick at gamma >= 1."""
        most = self.limits[1]
        if not gamma < most:
            return up_to(positive_part(most - gamma))  # the mean of (ratio - gamma)_+ is no larger
        numerator, denominator = self.tails(gamma)
        return positive_part(numerator - gamma * denominator)

    def edges(self, count: int) -> list[Edge]:
        """Ratios from 1 on."""
        # Both sides are samples of one rate, whose moved parts are as likely halfway.
        start = sum((max((m for _, m in side), key=abs) for side in self.sides), arb(0)) / 2
        width = self.ends[1] - start
        if self.normal:
            width = _REACH + max(abs(m) for m in self.ends) - start.min(arb(0))
        inner = [start + width * k / count for k in range(1, count + 1)]
        return [(arb(1), *self.above(start)), *((self.ratio(x), *self.above(x)) for x in inner)]


class _Drawn:
    """Normal noise moved by each of 0, 1, ... draws, the best tests of which share a level (Lemma 12)."""

    def __init__(self, law: Draws) -> None:
        self.move = ball(law.square).sqrt()
        self.weights = [ball(w) for w in law.weights]
        self.lost = ball(law.lost)

    def _at(self, log: arb) -> tuple[arb, list[arb]]:
        """The best x, and that of every number of draws."""
        gamma, shares = log.exp(), list(enumerate(self.weights))[1:]

        def slope(x: arb) -> arb:
            excess = (positive_part((j * self.move * (x - j * self.move / 2)).exp() - gamma) * w for j, w in shares)
            return sum(excess, arb(0)) - (gamma - 1) * self.weights[0]

        # Where the ratio of j draws to none is gamma.
        own = [log / (j * self.move) + j * self.move / 2 for j, _ in shares]
        if gamma == 1:
            # All x below every own one are as good; the largest is the limit of gamma > 1.
            best = min(own, key=float)
        else:
            low = min(own, key=float).mid()
            high, step = low + 1, arb(1)
            while not slope(high) > 0:
                high, step = high + step, 2 * step
            best = increasing_root(slope, low, high)
        return best, [best.max(one) for one in own]

    def delta(self, gamma: arb) -> arb:
        """The hockey stick of what is listed."""
        numerator, denominator = self._of(arb(0) if gamma == 1 else gamma.log())
        return positive_part(numerator - gamma * denominator)

    def _of(self, log: arb) -> Pair:
        best, own = self._at(log)
        still = self.weights[0] * gaussian_tail(best)
        first = sum((w * gaussian_tail(x - (k + 1) * self.move) for k, (w, x) in
                     enumerate(zip(self.weights[1:], own, strict=True))), still)  # fmt: skip
        second = sum((w * gaussian_tail(x) for w, x in zip(self.weights[1:], own, strict=True)), still)
        return first, second

    def edges(self, count: int) -> list[Edge]:
        draws = next((j for j, w in enumerate(self.weights) if j and w < 1e-12), len(self.weights) - 1)
        x = draws * self.move + _REACH
        most = sum((w * (j * self.move * (x - j * self.move / 2)).exp() for j, w in enumerate(self.weights)), arb(0))
        logs = [(most.log() * k * k / count**2).mid() for k in range(count + 1)]
        return [(log.exp(), *self._of(log)) for log in logs]


@functools.lru_cache(maxsize=64)
def _half(law: Half, bits: int) -> _Shifted | _Drawn:
    """The half in balls of so many bits, which is the current precision."""
    del bits
    return _Shifted(law) if isinstance(law, Shifts) else _Drawn(law)


def half_of(law: Half) -> _Shifted | _Drawn:
    """The half at the current precision."""
    return _half(law, ctx.prec)


def tails_of(law: Law) -> Callable[[arb], Pair]:
    """Masses of W and O where the ratio is at least a number, of one run of moved noise."""
    half = half_of(halves_of(law).forward)
    assert isinstance(half, _Shifted)
    return half.tails
