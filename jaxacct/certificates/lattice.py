"""delta(epsilon) of many runs of a law whose losses are equally spaced: one period of the transform is enough.

With losses ``first + k step`` the sum over all k with a loss above epsilon is a geometric series under the integral,
which then runs over one period of the imaginary part; the trapezoid rule's error is as on the whole line (Lemma 10).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jaxacct.certificates.balls import acb, arb, around_zero, ball, ctx, positive_part
from jaxacct.certificates.contour import MOST_NODES, aliases, goal_of, growth, log_moment, period_for, saddle
from jaxacct.certificates.laws.atoms import AtomTransform, Masses
from jaxacct.certificates.limits import NoCertificateError


def lattice_of(masses: Masses) -> tuple[arb, arb] | None:
    """(first loss, step > 0) of the outputs; two outputs are always a lattice."""
    if len(masses.pairs) == 2:
        losses = [(w / o).log() for w, o in masses.pairs]
        if losses[1] > losses[0]:
            return losses[0], losses[1] - losses[0]
        return (losses[1], losses[0] - losses[1]) if losses[0] > losses[1] else None
    if masses.lattice is None:
        return None
    first, step = masses.lattice
    return (first, step) if step > 0 else (first + step * (len(masses.pairs) - 1), -step)


def lattice_delta(transform: AtomTransform, steps: int, lattice: tuple[arb, arb], epsilon: arb, digits: float) -> arb:
    """delta(epsilon) less the mass of infinite losses, of ``steps`` runs."""
    parts = [(transform, steps)]
    first, step = lattice
    start = first * steps
    last = start + step * (len(transform.losses) - 1) * steps
    if epsilon > last:
        return arb(0)
    # The first loss above epsilon. Where balls do not decide which it is, the term in question is as small as they are.
    place = ((epsilon - start) / step).mid().floor() + 1
    lowest = start + step * place
    if lowest < epsilon or lowest - step > epsilon:
        raise NoCertificateError("the lattice is too fine for the precision")
    c = saddle(parts, epsilon)
    if not c > 1:
        with ctx.workprec(64 + growth(parts)):
            spread = float((log_moment(parts, arb(2)) / 2).abs_upper()) ** 0.5
        c = ball(1 + min(1.0, 1.0 / max(spread, 1e-300)))
    goal = goal_of(parts, c, epsilon, digits)
    size = math.ceil(float(ball(period_for(parts, c, epsilon, goal)) / step)) + 1
    size += size % 2
    turn = 2 * arb.pi() / (step * size)
    modulus = _falling(transform, c)
    kernel_most = sum((part.abs_upper() for part in _geometric(acb(c), lowest, step, epsilon)), arb(0))

    def beyond(count: int) -> arb:
        with ctx.workprec(64 + growth(parts)):
            return (modulus(turn * count).log() * steps).exp() * kernel_most * size

    whole = size // 2 + 1
    count = min(whole, 8)
    while count < whole and not beyond(count) < goal:
        count = min(whole, 2 * count)
        if count > 4 * MOST_NODES:
            raise NoCertificateError(f"a certificate would take more than {4 * MOST_NODES} values of the transform")
    total = arb(0)
    for k, one in enumerate(transform.line(c, turn, count)):
        above, below = _geometric(acb(c, turn * k), lowest, step, epsilon)
        term = (one**steps * (above - below)).real
        total += term if k in (0, size // 2) else 2 * term
    doubt = positive_part((lowest - step - epsilon).upper()) + positive_part((epsilon - lowest).upper())
    room = aliases(parts, c, epsilon, step * size, step) + doubt.expm1()
    if count < whole:
        room += beyond(count)
    return total / size + around_zero(room)


def _geometric(z: acb, lowest: arb, step: arb, epsilon: arb) -> tuple[acb, acb]:
    """sum_k (1 - exp(epsilon - l)) exp(-(z - 1) l) over the losses l from ``lowest`` on, as a difference.

    Both sums have their largest modulus at real z.
    """
    one = (-(z - 1) * lowest).exp() / (1 - (-(z - 1) * step).exp())
    return one, (epsilon - z * lowest).exp() / (1 - (-z * step).exp())


def _falling(transform: AtomTransform, c: arb) -> Callable[[arb], arb]:
    """A bound on the transform's modulus that falls up to half a period: disjoint pairs of neighbours cancel."""
    ordered = sorted(zip(transform.losses, transform.tilted(c), strict=True), key=lambda item: float(item[0]))
    weights = [weight for _, weight in ordered]
    gap = ordered[1][0] - ordered[0][0]
    whole = sum(weights, arb(0))

    def limit(y: arb) -> arb:
        angle = y * gap
        if angle > arb.pi():
            angle = arb.pi()
        apart = 2 * (angle / 2).sin() ** 2
        less = arb(0)
        for a, b in zip(weights[::2], weights[1::2], strict=False):
            both = a + b
            # (a + b) - |a + b exp(i angle)|, without cancellation.
            square = 2 * a * b * apart
            less += square / (both + positive_part(both * both - square).sqrt())
        return whole - less

    return limit
