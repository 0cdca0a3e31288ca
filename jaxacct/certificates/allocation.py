"""delta(epsilon) of one epoch of random allocation: exact sums over a lattice of likelihood ratios, from both sides.

The ratio of an epoch is R = S / t, S the sum of t independent ratios r_i under O. Rounding every r_i to one of two
neighbours on a lattice such that its mean is kept makes the mean of every convex function of R larger: a bound of delta
from above. The event that the sum of the cells' numbers exceeds a number is one from below (Lemma 13 of
docs/proofs/certificates.md). Both take powers of polynomials, whose coefficients are balls.
"""

from __future__ import annotations

import itertools

from flint import arb_poly

from jaxacct.certificates.balls import arb, positive_part
from jaxacct.certificates.laws.atoms import masses_of
from jaxacct.certificates.laws.base import Atoms, Epoch, Law, Normal, Shifts
from jaxacct.certificates.laws.halves import tails_of
from jaxacct.certificates.limits import NoCertificateError

_CELLS = 6_000


def epoch_delta(law: Epoch, epsilon: arb, reverse: bool) -> tuple[arb, arb]:
    """The lower and the upper end of delta, as balls."""
    gamma, t = epsilon.exp(), law.batches
    level = 1 / gamma if reverse else gamma
    step = level * t / _CELLS
    p, q = _cells(law.law, step)
    # Cell k has ratios from k steps on; what is on its upper end keeps the mean.
    up = [positive_part(w / step - k * o) for k, (w, o) in enumerate(zip(p, q, strict=True))]
    rounded = [positive_part(o - here) for o, here in zip(q, up, strict=True)]
    for k in range(1, len(rounded)):
        rounded[k] += up[k - 1]
    whole = _power(arb_poly(rounded), t)
    put = sum((whole[k] * (_CELLS - k) for k in range(_CELLS)), arb(0)) * step / t
    upper = gamma * put if reverse else 1 - gamma + put
    tests, others = _power(arb_poly(q), t), arb_poly(p) * _power(arb_poly(q), t - 1)
    with_record, without, lower = arb(0), arb(0), arb(0)
    for k in range(_CELLS):
        with_record, without = with_record + others[k], without + tests[k]
        value = without - gamma * with_record if reverse else 1 - with_record - gamma * (1 - without)
        low = value.lower()
        lower = low if low > lower else lower
    return lower, upper


def _power(base: arb_poly, count: int) -> arb_poly:
    """A power of a polynomial, cut off after the degree of the cells."""
    found, square = arb_poly([1]), base
    while count:
        if count % 2:
            found = (found * square).truncate(_CELLS)
        count //= 2
        if count:
            square = (square * square).truncate(_CELLS)
    return found


def _cells(law: Law, step: arb) -> tuple[list[arb], list[arb]]:
    """Masses of W and O in cells of ratios of width ``step``, as many as count."""
    if isinstance(law, Atoms):
        masses = masses_of(law, False)
        if masses.lost != 0:
            raise NoCertificateError("mechanism of RandomAllocation must have finitely many outputs for a certificate")
        p, q = ([arb(0)] * _CELLS for _ in range(2))
        lost = 1 - sum((o for _, o in masses.pairs), arb(0))  # of O, where W has nothing
        q[0] = positive_part(lost)
        for w, o in masses.pairs:
            place = (w / o / step).floor().unique_fmpz()
            if place is None:
                raise NoCertificateError("the precision does not tell the cells of ratios apart")
            if place < _CELLS:
                p[int(place)] += w
                q[int(place)] += o
        return p, q
    if not isinstance(law, Normal | Shifts):
        raise NoCertificateError("mechanism of RandomAllocation must be Gaussian, Laplace or have few outputs")
    tails = tails_of(law)
    ends = [(arb(1), arb(1)), *(tails(step * k) for k in range(1, _CELLS + 1))]
    p, q = ([positive_part(a[side] - b[side]) for a, b in itertools.pairwise(ends)] for side in (0, 1))
    return p, q
