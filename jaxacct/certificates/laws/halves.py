"""Pairs given by the tails of their positive and of their negative losses: one run, and finite laws below and above.

A `Half` gives, at a gamma >= 1, the masses of numerator and denominator where the loss exceeds log(gamma). Two
of them make a pair: one for W over O and one for O over W; what both leave out has the loss 0. So one run of a pair is
a closed form, and compositions are enclosed by those of finite laws (Lemmas 11 and 12 of docs/proofs/certificates.md).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

from jaxacct.certificates.balls import arb, ball, ctx, gaussian_tail, positive_part, up_to
from jaxacct.certificates.laws.atoms import Masses, Pair, positive_masses
from jaxacct.certificates.laws.base import DrawsHalf, Half, Joined, LaplaceHalf, NormalHalf

_CELLS = 300
_REACH = 9.5  # standard deviations

Edge = tuple[arb, arb, arb]
"""A ratio, and the masses of numerator and denominator where the ratio is larger."""


def joined_delta(law: Joined, epsilon: arb, reverse: bool) -> arb:
    """Encloses delta at epsilon for one run of both halves."""
    half = _half(law.backward if reverse else law.forward, ctx.prec)
    gamma = epsilon.exp()
    numerator, denominator = half.tails(gamma)
    value = positive_part(numerator - gamma * denominator)
    return value + arb(half.lost / 2, half.lost / 2) if half.lost else value


def joined_cells(law: Joined, reverse: bool, upper: bool) -> Masses:
    """A finite law below the pair (each cell of losses is one output) or above it (its masses go to its ends)."""
    pairs: list[Pair] = []
    infinite, lost, rest = arb(0), arb(0), arb(1)
    for side, swapped in ((law.forward, reverse), (law.backward, not reverse)):
        half = _half(side, ctx.prec)
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


class _Spaced:
    """Laws of one number, whose ratio increases from ``start`` on, where it is 1."""

    lost = arb(0)
    start: arb

    def _ratio(self, x: arb) -> arb:
        raise NotImplementedError

    def _tails(self, x: arb) -> Pair:
        raise NotImplementedError

    def _edges(self, width: arb, count: int) -> list[Edge]:
        inner = [self.start + width * k / count for k in range(1, count + 1)]
        return [(arb(1), *self._tails(self.start)), *((self._ratio(x), *self._tails(x)) for x in inner)]


class _Normals(_Spaced):
    """Mixtures of moves of one normal law."""

    def __init__(self, law: NormalHalf) -> None:
        move = ball(law.square).sqrt()
        self.sides = [[(ball(w), k * move) for w, k in side if k or w] for side in (law.numerator, law.denominator)]
        ends = [max((k for _, k in side), key=abs) for side in (law.numerator, law.denominator)]
        self.start = move * (ends[0] + ends[1]) / 2
        self.reach = move * max(abs(k) for side in (law.numerator, law.denominator) for _, k in side) + _REACH

    def _ratio(self, x: arb) -> arb:
        first, second = (sum((w * (m * x - m * m / 2).exp() for w, m in side), arb(0)) for side in self.sides)
        return first / second

    def _tails(self, x: arb) -> Pair:
        first, second = (sum((w * gaussian_tail(x - m) for w, m in side), arb(0)) for side in self.sides)
        return first, second

    def tails(self, gamma: arb) -> Pair:
        if gamma == 1:
            return self._tails(self.start)
        most = self.limit()
        if most is not None and not gamma < most:
            # At every x numerator less gamma denominator is not positive.
            return (arb(0) if gamma > most else up_to(most - gamma)), arb(0)
        high, step = self.start + 1, arb(1)
        while not self._ratio(high) > gamma:
            high, step = high + step, 2 * step
            if step > 1e200:
                return arb(0).union(arb(1)), arb(0)
        return self._tails(increasing_root(lambda x: self._ratio(x) - gamma, self.start.mid(), high.mid()))

    def limit(self) -> arb | None:
        """The supremum of the ratio, if it is finite."""
        if any(m > 0 for _, m in self.sides[0]):
            return None
        still = [sum((w for w, m in side if m == 0), arb(0)) for side in self.sides]
        return still[0] / still[1] if still[1] > 0 else None

    def edges(self, count: int) -> list[Edge]:
        return self._edges(self.reach - self.start.min(arb(0)), count)


class _Laplace(_Spaced):
    """Laplace noise of scale 1 on a sample, moved by ``most`` one way, or against one moved the other way."""

    def __init__(self, law: LaplaceHalf) -> None:
        self.most, self.rate = ball(law.epsilon), ball(law.rate)
        self.apart = law.replaced
        rest = 1 - self.rate
        # Below x = most the ratio is (rest + rate exp(2 x - most)) / scale; above it is constant.
        self.scale = rest + self.rate * (-self.most).exp() if self.apart else arb(1)
        self.start = arb(0) if self.apart else self.most / 2

    def _tails(self, x: arb) -> Pair:
        q, still = self.rate, (-x).exp() / 2
        first = (1 - q) * still + q * (1 - (x - self.most).exp() / 2)
        return first, (1 - q) * still + q * (-x - self.most).exp() / 2 if self.apart else still

    def _ratio(self, x: arb) -> arb:
        return (1 - self.rate + self.rate * (2 * x - self.most).exp()) / self.scale

    def tails(self, gamma: arb) -> Pair:
        if gamma == 1:
            return self._tails(self.start)
        inner = (gamma * self.scale - (1 - self.rate)) / self.rate
        if not inner > 0:
            return self._tails(self.start.union(self.most))
        x = (inner.log() + self.most) / 2
        if x > self.most:
            return arb(0), arb(0)
        return self._tails(x if x < self.most else x.min(self.most))

    def edges(self, count: int) -> list[Edge]:
        return self._edges(self.most - self.start, count)


class _Draws:
    """Normal noise moved by each of 0, 1, ... draws, the best tests of which share a level (Lemma 12)."""

    def __init__(self, law: DrawsHalf) -> None:
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

    def tails(self, gamma: arb) -> Pair:
        return self._of(arb(0) if gamma == 1 else gamma.log())

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
def _half(law: Half, bits: int) -> _Normals | _Laplace | _Draws:
    """The half in balls of so many bits, which is the current precision."""
    del bits
    if isinstance(law, NormalHalf):
        return _Normals(law)
    return _Laplace(law) if isinstance(law, LaplaceHalf) else _Draws(law)
