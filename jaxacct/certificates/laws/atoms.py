"""Laws of finitely many outputs: their masses as balls, one run, exact sums over counts, transforms.

Where the outputs are all whole numbers, those beyond a window are left out; ``lost`` bounds what W or O has there, and
delta is larger than that of the kept outputs by at most the lost mass of each run (Lemma 7 of the proof).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from jaxacct.certificates.balls import acb, arb, ball, ctx, key_of, positive_part, up_to
from jaxacct.certificates.laws.base import Atoms
from jaxacct.certificates.limits import NoCertificateError
from jaxacct.certificates.sums import power_sums
from jaxacct.certificates.transforms import Transform

Pair = tuple[arb, arb]
"""Masses of the numerator and of the denominator."""


class Masses(NamedTuple):
    """Masses with finite loss, (numerator, denominator) of each output; the numerator's other masses.

    ``infinite`` is what the denominator does not have; ``lost`` bounds what was cut; ``lattice`` is (first loss, step)
    where the losses of the outputs are ``first + k step`` in order.
    """

    pairs: list[Pair]
    infinite: arb
    lost: arb
    lattice: Pair | None = None


def masses_of(law: Atoms, reverse: bool) -> Masses:
    """The masses at the current precision; W over O, or O over W with ``reverse``."""
    pairs, lost, lattice = _FAMILIES[law.kind](*law.parameters)
    rate = ball(law.rate)
    if law.form == "replaced":
        pairs, lost = _mirrored(_by_loss(law, pairs), rate, lost)
    elif law.form == "joined":
        pairs, lost = _joined(pairs, rate, lost)
    elif law.rate != 1:
        pairs = [((1 - rate) * o + rate * w, o) for w, o in pairs]
    if law.form != "plain" or law.rate != 1:
        lattice = None
    if reverse:
        pairs = [(o, w) for w, o in pairs]
        lattice = None if lattice is None else (-lattice[0], -lattice[1])
    kept = [(w, o) for w, o in pairs if not (w == 0 or o == 0)]
    if len(kept) != len(pairs):
        lattice = None
    infinite = sum((w for w, o in pairs if o == 0), arb(0))
    return Masses(kept, infinite, lost, lattice)


_Family = tuple[list[Pair], arb, Pair | None]  # masses of all outputs, what was cut, the lattice


def _response(epsilon: Fraction, categories: int, lost: Fraction) -> _Family:
    ratio, rest = ball(epsilon).exp(), 1 - ball(lost)
    total = ratio + categories - 1
    pairs = [(rest / total, rest * ratio / total), (rest * ratio / total, rest / total)]
    if categories > 2:
        between = rest * (categories - 2) / total
        pairs.insert(1, (between, between))
    step = ball(epsilon) * (1 if categories > 2 else 2)
    if lost:
        return [*pairs, (ball(lost), arb(0)), (arb(0), ball(lost))], arb(0), None
    return pairs, arb(0), (-ball(epsilon), step) if epsilon else None


def _table(p: tuple[Fraction, ...], q: tuple[Fraction, ...]) -> _Family:
    together: dict[object, tuple[Fraction, Fraction]] = {}
    for one, other in zip(p, q, strict=True):
        key = (one > 0, other > 0, one / other if other else None)
        w, o = together.get(key, (Fraction(0), Fraction(0)))
        together[key] = (w + one, o + other)
    return [(ball(w), ball(o)) for w, o in together.values()], arb(0), None


def _laplace(scale: Fraction, gap: int) -> _Family:
    ratio = (-1 / ball(scale)).exp()
    inside = (1 - ratio) / (1 + ratio)
    pairs = [(inside * ratio ** (gap - x), inside * ratio**x) for x in range(1, gap)]
    first, last = (ratio**gap / (1 + ratio), 1 / (1 + ratio)), (1 / (1 + ratio), ratio**gap / (1 + ratio))
    return [first, *pairs, last], arb(0), (-gap / ball(scale), 2 / ball(scale))


def _gaussian(sigma: Fraction, gap: int) -> _Family:
    # From distance x of the mode to x + 1 a mass falls by exp(-(2 x + 1) / (2 sigma^2)), and faster further out.
    half = 2 * ball(sigma) ** 2
    near = math.ceil(float(sigma) * math.sqrt(2.0 * (ctx.prec + 16) * math.log(2.0))) + 2
    far = near + gap
    weights = [(-ball(x * x) / half).exp() for x in range(far + 1)]
    beyond = [weights[x] / ((ball(2 * x + 1) / half).exp() - 1) for x in (near, far)]
    total = weights[0] + 2 * sum(weights[1:], arb(0)) + 2 * beyond[1] * arb(0.5, 0.5)
    pairs = [(weights[abs(x - gap)] / total, weights[abs(x)] / total) for x in range(-near, far + 1)]
    # O is cut at distances near and far of its mode, and W at far and near.
    first = ball(-2 * near * gap - gap * gap) / half
    return pairs, (beyond[0] + beyond[1]) / total, (first, ball(2 * gap) / half)


def _skellam(mu: Fraction, gap: int) -> _Family:
    two = 2 * ball(mu)
    # Chernoff: Pr[X >= t] <= exp(2 mu (cosh u - 1) - u t) at sinh u = t / (2 mu).
    size, n = float(2 * mu), 4.0
    while size * (math.sqrt(1 + (n / size) ** 2) - 1) - math.asinh(n / size) * n > -(ctx.prec + 16) * math.log(2.0):
        n *= 1.1
    near = math.ceil(n)
    far = near + gap
    tilt = (ball(near) / two).asinh()
    beyond = (two * (tilt.cosh() - 1) - tilt * near).exp()
    # I_(x-1) = I_(x+1) + (2 x / (2 mu)) I_x, downwards: sums of positive terms.
    values = [two.bessel_i(x) * (-two).exp() for x in (far + 1, far)]
    for x in range(far, 0, -1):
        values.append(values[-2] + 2 * x / two * values[-1])
    values = values[:0:-1]
    pairs = [(values[abs(x - gap)], values[abs(x)]) for x in range(-near, far + 1)]
    return pairs, 2 * beyond, None


_FAMILIES = {"response": _response, "table": _table, "laplace": _laplace, "gaussian": _gaussian, "skellam": _skellam}


def _by_loss(law: Atoms, pairs: list[Pair]) -> list[Pair]:
    """Sorts atoms by loss, the largest first."""
    if law.kind == "table":
        exact = [(w / o if o else None, w, o) for w, o in zip(*law.parameters, strict=True)]
        exact.sort(key=lambda one: (one[0] is not None, -(one[0] or 0)))
        return [(ball(w), ball(o)) for _, w, o in exact]

    def loss(pair: Pair) -> float:
        w, o = pair
        return math.inf if o == 0 else -math.inf if w == 0 else float((w / o).log().mid())

    return sorted(pairs, key=loss, reverse=True)


def positive_masses(pairs: list[Pair]) -> tuple[list[Pair], arb]:
    """The pairs of two positive masses, and what the others have of the numerator."""
    lost = sum((w.abs_upper() for w, o in pairs if not (w > 0 and o > 0)), arb(0))
    return [(w, o) for w, o in pairs if w > 0 and o > 0], lost


def _joined(pairs: list[Pair], rate: arb, lost: arb) -> tuple[list[Pair], arb]:
    """Losses above 0 of the sample of a symmetric law, as many below 0, and the rest at 0."""
    up: list[Pair] = []
    for w, o in pairs:
        if w > o:
            up.append(((1 - rate) * o + rate * w, o))
        elif not w < o and key_of(w) != key_of(o):
            raise NoCertificateError("the precision does not tell which losses are above 0")
    rest = 1 - sum((w + o for w, o in up), arb(0))
    found, lost = [*up, *((o, w) for w, o in up)], 2 * lost
    return ([*found, (rest, rest)], lost) if rest > 0 else (found, lost + rest.abs_upper())


def _mirrored(pairs: list[Pair], rate: arb, lost: arb) -> tuple[list[Pair], arb]:
    """Samples of the law and of its mirror image in the ranks of O (docs/proofs/replaced-records.md), and what is cut.

    Ranks are counted from their own end, so that small ones keep their digits; the other half is the mirror image.
    """
    # No rank has what O has not: it is at the end where the loss is largest, and for the mirror image at the other one.
    alone = [(rate * w, arb(0)) for w, o in pairs if o == 0]
    found = [*alone, *((o, w) for w, o in alone)]
    ranked = [(w, o) for w, o in pairs if not o == 0]  # noqa: SIM201  (a ball around 0 is neither)
    start = up_to(lost)
    rising, falling = _ranks(ranked, start), _ranks(ranked[::-1], start)
    # Ranks without a cell are at either end, as many as O lost; W's density there is that of the first cell at most.
    cut = arb(0) if lost == 0 else lost * (4 + 2 * max((one[2].abs_upper() for one in rising), key=float))
    for a, b, first in rising:
        for c, d, second in falling:
            width = b.min(d).min(arb(0.5)) - a.max(c)
            if width <= 0:
                continue
            w, o = (width * (1 - rate + rate * ratio) for ratio in (first, second))
            if width > 0:
                found += [(w, o), (o, w)]
            else:
                cut += w.abs_upper() + o.abs_upper()
    return found, cut


def _ranks(pairs: list[Pair], start: arb) -> list[tuple[arb, arb, arb]]:
    """First and last rank of every outcome, and its ratio."""
    found = []
    for w, o in pairs:
        found.append((start, start + o, w / o))
        start = start + o
    return found


def count_of_sums(parts: list[tuple[int, int]]) -> float:
    """How many counts of outputs there are: (outputs, steps) of each part."""
    found = 1.0
    for outputs, steps in parts:
        if outputs > 1:
            log = math.lgamma(steps + outputs) - math.lgamma(outputs) - math.lgamma(steps + 1)
            found *= math.exp(min(log, 300.0))
    return found


def atoms_delta(parts: list[tuple[Masses, int]], gamma: arb) -> arb:
    """delta of a composition by a sum over all counts of outputs (Lemma 6)."""
    finite = arb(1)
    for masses, steps in parts:
        finite *= (1 - masses.infinite) ** steps
    lost = sum((masses.lost * steps for masses, steps in parts), arb(0))
    within = sum((positive_part(w - gamma * o) for w, o in _counted(parts)), arb(0))
    return 1 - finite + within + up_to(lost)


def _counted(parts: list[tuple[Masses, int]]) -> Iterator[Pair]:
    """Masses of every vector of counts."""
    if not parts:
        yield arb(1), arb(1)
        return
    masses, steps = parts[0]
    mine = list(_of_counts(masses.pairs, steps))
    for w, o in _counted(parts[1:]):
        for more, other in mine:
            yield w * more, o * other


def _of_counts(pairs: Sequence[Pair], steps: int) -> Iterator[Pair]:
    if not pairs:
        return
    if steps < 2:
        yield from pairs if steps else [(arb(1), arb(1))]
        return
    w, o = pairs[0]
    if len(pairs) == 1:
        yield w**steps, o**steps
        return
    many, first, second = arb(1), arb(1), arb(1)
    for n in range(steps + 1):
        for more, other in _of_counts(pairs[1:], steps - n):
            yield many * first * more, many * second * other
        many, first, second = many * (steps - n) / (n + 1), first * w, second * o


class AtomTransform(Transform):
    """Moments of the kept outputs, in the direction of ``masses``."""

    def __init__(self, masses: Masses) -> None:
        self.masses, self.infinite, self.lost = masses, masses.infinite, masses.lost
        self.finite = sum((w for w, _ in masses.pairs), arb(0))
        self.losses = [(w / o).log() for w, o in masses.pairs]

    def tilted(self, c: arb) -> list[arb]:
        """The terms of the moment."""
        return [o * (c * loss).exp() for (_, o), loss in zip(self.masses.pairs, self.losses, strict=True)]

    def moment(self, c: arb) -> arb:
        """A sum over the outputs."""
        return sum(self.tilted(c), arb(0))

    def line(self, c: arb, h: arb, count: int) -> list[acb]:
        """The sums over all outputs along a line."""
        return power_sums(self.tilted(c), [h * loss for loss in self.losses], count)
