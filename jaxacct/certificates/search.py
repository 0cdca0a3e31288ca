"""The least epsilon at a delta, enclosed: delta is above the target at the lower end, and not at the upper one."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from jaxacct.certificates.limits import NoCertificateError
from jaxacct.certificates.written import decimal_text, fraction_of

if TYPE_CHECKING:
    from jaxacct.certificates.enclosures import Enclosure

__all__ = ["epsilon_enclosure"]

_MOST = 10**4
_ROUGH = 5.0  # digits of delta while the search is far from its end


def epsilon_enclosure(
    delta: Callable[[Fraction, float], Enclosure], target: Fraction, digits: float, infinite: Any
) -> tuple[str, str, str, int]:
    """(lower, upper, method, bits) of the least epsilon >= 0 with delta(epsilon) <= ``target``.

    Args:
        delta: encloses delta at an epsilon to so many digits.
        target: a number in (0, 1).
        digits: of the answer.
        infinite: an exact ball that delta is not below at any epsilon.

    Raises:
        NoCertificateError: no epsilon up to 10,000 on whose side of the target an enclosure decides.
    """
    places = math.ceil(digits) + 3

    def side(epsilon: Fraction, precise: float) -> tuple[int, float, Enclosure]:
        """1 where delta is above the target, -1 where it is not, 0 undecided; log(delta / target), roughly."""
        found = delta(epsilon, precise)
        low, high = fraction_of(found.lower), fraction_of(found.upper)
        middle = (low + high) / 2
        size = math.log(middle / target) if middle and middle / target > Fraction(1, 10**300) else -700.0
        return (1 if low > target else -1 if high <= target else 0), size, found

    if fraction_of(infinite) > target:
        return "inf", "inf", "infinite losses", 64
    first, size, found = side(Fraction(0), _ROUGH)
    if first == -1:
        return "0", "0", found.method, found.bits
    low, below = Fraction(0), size
    high = Fraction(1)
    while True:
        where, above, found = side(high, _ROUGH)
        if where == -1:
            break
        low, below = (high, above) if where == 1 else (low, below)
        high *= 2
        if high > _MOST:
            if where == 1 and size > 0:
                return decimal_text(low, places, up=False), "inf", found.method, found.bits
            raise NoCertificateError("no epsilon up to 10,000 was decided")
    best = found
    wanted = Fraction(1, 10 ** math.ceil(digits))
    for turn in range(200):
        width = high - low
        if width <= wanted * high:
            break
        # Secant of log(delta); its error is about the square of the width, and a step to either side encloses.
        near = below > 0 > above and turn % 4 != 3
        share = below / (below - above) if near else 0.5
        guess = low + width * Fraction(min(max(share, 1e-12), 1 - 1e-12))
        relative = float(width / high)
        around = max(wanted * high / 3, width * Fraction(min(0.03, relative)))
        slope = max((below - above) / float(width), 1e-3 / float(high))
        precise = min(digits + 8.0, max(_ROUGH, 1.5 - math.log10(min(1.0, slope * float(around)))))
        moved = False
        for point in (guess - around, guess + around) if near else (guess,):
            point = Fraction(decimal_text(point, places + 6, up=False)) if low < point < high else low
            if not low < point < high:
                continue
            where, value, found = side(point, precise)
            if where == 1:
                low, below, moved = point, max(value, 1e-300), True
            elif where == -1:
                high, above, best, moved = point, min(value, -1e-300), found, True
                break
        if not moved and not near:
            break
    return decimal_text(low, places, up=False), decimal_text(high, places, up=True), best.method, best.bits
