"""delta(epsilon) of a composition by the inversion of its transform along a vertical line.

With M(z) = E_O[exp(z L)] over the finite losses (Lemma 1 of docs/proofs/certificates.md; c is not 0 or 1)

    delta = 1 - finite + [c < 1] finite + (1 / 2 pi i) int M(z) exp(-(z - 1) epsilon) / (z (z - 1)) dz

over the line from c - i infinity to c + i infinity.

The trapezoid rule for this integral has an error that is known exactly and bounded by moments (Lemma 2), and what is
left out beyond an imaginary part is bounded by `limit` of the transforms (Lemma 5).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence

from scipy.optimize import minimize_scalar

from jaxacct.certificates.balls import acb, arb, around_zero, ball, ctx
from jaxacct.certificates.limits import NoCertificateError
from jaxacct.certificates.transforms import Transform

MOST_NODES = 30_000
Transforms = Sequence[tuple[Transform, int]]
_ZERO = arb(0)


def log_moment(parts: Transforms, c: arb) -> arb:
    """The logarithm of the composition's moment at a real ``c``."""
    return sum((steps * one.moment(c).log() for one, steps in parts), arb(0))


def saddle(parts: Transforms, epsilon: arb) -> arb:
    """Where the integrand's modulus on the real line is least, on the side of 1 that suits ``epsilon``.

    Every other number would do: the bounds hold on every line.
    """
    with ctx.workprec(64 + growth(parts)):
        at, slope = float(epsilon), 1e-4
        mean = float((log_moment(parts, ball(1 + slope)) - log_moment(parts, ball(1 - slope))).mid()) / (2 * slope)

        def size(c: float) -> float:
            return float(log_moment(parts, ball(c)).mid()) - (c - 1) * at - math.log(abs(c * (c - 1)))

        if at < mean:
            inside = min((1 - 2.0**-k for k in range(1, 40)), key=size)
            low, high = max(1e-3, 1 - 3 * (1 - inside)), 1 - (1 - inside) / 3
            c = _least(lambda t: size(1 - math.exp(t)), math.log(1 - high), math.log(1 - low))
            return ball(1 - math.exp(c))
        k, here = -10, size(1 + 2.0**-10)
        while k < 60 and (above := size(1 + 2.0 ** (k + 1))) < here:
            k, here = k + 1, above
        while k > -60 and (below := size(1 + 2.0 ** (k - 1))) < here:
            k, here = k - 1, below
        c = _least(lambda t: size(1 + math.exp(t)), (k - 1) * math.log(2), (k + 1) * math.log(2))
        return ball(1 + math.exp(c))


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """About where a function is least."""
    return minimize_scalar(function, bounds=(low, high), method="bounded", options={"maxiter": 20}).x


def growth(parts: Transforms) -> int:
    """Bits that the powers of moments cost."""
    return math.ceil(math.log2(1 + sum(steps for _, steps in parts)))


def aliases(parts: Transforms, c: arb, epsilon: arb, period: arb, shift: arb = _ZERO) -> arb:
    """A bound on what the trapezoid rule of step 2 pi / ``period`` adds to the integral (Lemma 2).

    ``shift`` is by how much smaller an epsilon the integral may be about, where it is a mean over several.
    """
    with ctx.workprec(64 + growth(parts)):
        side = c > 1
        away = c - 1 if side else 1 - c
        toward = (-away * period).exp()
        # Losses on the other side are rarer than the moment at another point says.
        found = arb("inf")
        for k in (-3, -2, -1, 0, 1):
            other = away * 2.0**k
            if not side and not other < c:
                continue
            at = c + other if side else c - other
            ratio = (-other * period).exp()
            chernoff = (log_moment(parts, at) - (at - 1) * epsilon + abs(at - 1) * shift).exp()
            one = chernoff * ratio / (1 - ratio)
            if one < found:
                found = one
        return (found + (away * shift).exp() * toward / (1 - toward)).abs_upper()


def goal_of(parts: Transforms, c: arb, epsilon: arb, digits: float) -> arb:
    """What errors may be for so many digits, three more to be safe."""
    scale = (log_moment(parts, c) - (c - 1) * epsilon).exp() / abs(c * (c - 1))
    return (scale * ball(10.0) ** (-digits - 3)).abs_upper()


def on_line(parts: Transforms, c: arb, epsilon: arb, digits: float) -> arb:
    """An enclosure of delta less 1 - finite, to about ``digits``, on the line through ``c``; the moduli must fall."""
    goal = goal_of(parts, c, epsilon, digits)
    step = (2 * arb.pi() / period_for(parts, c, epsilon, goal)).mid()
    count = _count(parts, c, epsilon, step, goal)
    value = summed(parts, c, epsilon, step, count, lambda z: 1 / (z * (z - 1)), [arb(0)])[0]
    if c < 1:
        value += finite_of(parts)
    rest = left_out(parts, c, epsilon, step, count)
    return value + around_zero(rest + aliases(parts, c, epsilon, 2 * arb.pi() / step))


def near_one(parts: Transforms, epsilon: arb, digits: float) -> arb | None:
    """The enclosure [finite - B, finite] of D by the bound of B at c' = 1/2 (Lemma 2), where that is enough."""
    half = arb(0.5)
    lost = (log_moment(parts, half) + epsilon / 2).exp()
    finite = finite_of(parts)
    if not lost < finite * ball(10.0) ** (-digits - 1):
        return None
    return finite - lost * arb(0.5, 0.5)


def tail_bound(parts: Transforms, epsilon: arb) -> arb:
    """An upper bound of D at epsilon, Chernoff's (Lemma 2): what is left where no line is within reach."""
    found = arb("inf")
    for k in range(16):
        with contextlib.suppress(NoCertificateError):
            away = ball(2.0**k)
            one = (log_moment(parts, 1 + away) - away * epsilon).exp().abs_upper()
            found = one if one < found else found
    return found


def finite_of(parts: Transforms) -> arb:
    """The mass of the composition's finite losses."""
    found = arb(1)
    for one, steps in parts:
        found *= one.finite**steps
    return found


def period_for(parts: Transforms, c: arb, epsilon: arb, goal: arb) -> float:
    """A period whose aliases are below ``goal``."""
    low, high = 0.0, 1.0 / abs(float(c) - 1)
    while not aliases(parts, c, epsilon, ball(high)) < goal:
        low, high = high, 2 * high
        if high > 1e300:
            raise NoCertificateError("the losses are too far apart for a certificate")
    for _ in range(6):
        middle = (low + high) / 2
        low, high = (low, middle) if aliases(parts, c, epsilon, ball(middle)) < goal else (middle, high)
    return high


def left_out(parts: Transforms, c: arb, epsilon: arb, step: arb, count: int) -> arb:
    """A bound on the terms from number ``count`` on: the k-th is at most limit / (k step)^2."""
    with ctx.workprec(64 + growth(parts)):
        modulus = sum((steps * one.limit(c, step * count).log() for one, steps in parts), arb(0))
        return (modulus - (c - 1) * epsilon).exp() / (arb.pi() * step * (count - 1))


def _count(parts: Transforms, c: arb, epsilon: arb, step: arb, goal: arb) -> int:
    low, high = 1, 4
    while not left_out(parts, c, epsilon, step, high) < goal:
        low, high = high, 2 * high
        if low > MOST_NODES:
            raise NoCertificateError(f"a certificate would take more than {MOST_NODES} values of the transform")
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (low, middle) if left_out(parts, c, epsilon, step, middle) < goal else (middle, high)
    return high


def summed(
    parts: Transforms, c: arb, epsilon: arb, step: arb, count: int, kernel: Callable[[acb], acb], shifts: list[arb]
) -> list[arb]:
    """The trapezoid sums at epsilon and at so much larger ones, over ``count`` nodes of the upper half-line."""
    lines = [(one.line(c, step, count), steps) for one, steps in parts]
    totals = [arb(0) for _ in shifts]
    for k in range(count):
        z = acb(c, step * k)
        value = kernel(z)
        for line, steps in lines:
            value = value * line[k] ** steps
        for place, shift in enumerate(shifts):
            term = (value * (-(z - 1) * (epsilon + shift)).exp()).real
            totals[place] += term / 2 if k == 0 else term
    return [total * step / arb.pi() for total in totals]
