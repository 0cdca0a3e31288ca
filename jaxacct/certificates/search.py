"""The least epsilon at a delta, enclosed: delta is above the target at the lower end, and not at the upper one."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from jaxacct.certificates.balls import arb
from jaxacct.certificates.enclosures import Enclosure
from jaxacct.certificates.limits import NoCertificateError
from jaxacct.certificates.written import decimal_text, fraction_of

_MOST = 10**4
_ROUGH = 5.0  # digits of delta while the search is far from its end
_TURNS = 200


class _Point(NamedTuple):
    """``side`` is 1 where delta is above the target, -1 where it is not, 0 undecided; ``size`` about log(delta /
    target)."""

    at: Fraction
    side: int
    size: float
    found: Enclosure


def epsilon_enclosure(
    delta: Callable[[Fraction, float], Enclosure], target: Fraction, digits: float, infinite: arb
) -> tuple[str, str, str, int]:
    """(lower, upper, method, bits) of the least epsilon >= 0 with delta(epsilon) <= ``target``, to ``digits`` digits.

    ``delta`` encloses delta at an epsilon to so many digits; ``infinite`` is an exact ball that it is not below
    anywhere.
    """
    places = math.ceil(digits) + 3

    def ask(epsilon: Fraction, precise: float) -> _Point:
        found = delta(epsilon, precise)
        low, high = fraction_of(found.lower), fraction_of(found.upper)
        middle = (low + high) / 2
        size = math.log(middle / target) if middle and middle / target > Fraction(1, 10**300) else -700.0
        return _Point(epsilon, 1 if low > target else -1 if high <= target else 0, size, found)

    if fraction_of(infinite) > target:
        return "inf", "inf", "infinite losses", 64
    low = ask(Fraction(0), _ROUGH)
    if low.side == -1:
        return "0", "0", low.found.method, low.found.bits
    low = low._replace(size=max(low.size, 1e-300))
    high = ask(Fraction(1), _ROUGH)
    while high.side != -1:
        low = high if high.side == 1 else low
        if 2 * high.at > _MOST:
            if high.side == 1:
                return decimal_text(low.at, places, up=False), "inf", high.found.method, high.found.bits
            raise NoCertificateError("no epsilon up to 10,000 was decided")
        high = ask(2 * high.at, _ROUGH)
    low, high = _narrowed(ask, low, high, digits, places)
    found = high.found
    return decimal_text(low.at, places, up=False), decimal_text(high.at, places, up=True), found.method, found.bits


def _narrowed(
    ask: Callable[[Fraction, float], _Point], low: _Point, high: _Point, digits: float, places: int
) -> tuple[_Point, _Point]:
    """The bracket made as narrow as wanted, or as the enclosures of delta decide.

    log(delta) is interpolated through the latest points. Few digits of delta do until the interpolation is as good as
    wanted, and then one point to either side of it is decided.
    """
    wanted = Fraction(1, 10 ** math.ceil(digits))
    points, undecided = [low, high], 0
    for turn in range(_TURNS):
        width = high.at - low.at
        if width <= wanted * high.at or undecided > 3:
            break
        guess, doubt = _interpolated(points, low, high, halve=turn % 5 == 4)
        close = wanted * high.at / 3
        slope = max((low.size - high.size) / float(width), 1e-3 / float(high.at))
        around = max(close, doubt)
        if around >= width / 4:
            tried = [(guess, _ROUGH)]
        else:
            precise = min(digits + 8.0, max(_ROUGH, 1.5 - math.log10(min(1.0, slope * float(around)))))
            tried = [(guess - around, precise), (guess + around, precise)] if around == close else [(guess, precise)]
        moved = False
        for at, precise in tried:
            place = Fraction(decimal_text(at, places + 6, up=False)) if at > 0 else low.at
            if not low.at < place < high.at:
                continue
            point = ask(place, precise)
            points = [*points[-2:], point]
            if point.side == 1:
                low, moved = point._replace(size=max(point.size, 1e-300)), True
            elif point.side == -1:
                high, moved = point._replace(size=min(point.size, -1e-300)), True
        undecided = 0 if moved else undecided + 1
    return low, high


def _interpolated(points: list[_Point], low: _Point, high: _Point, halve: bool) -> tuple[Fraction, Fraction]:
    """Where log(delta / target) is about 0, between ``low`` and ``high``, and about how far off that may be."""
    width = high.at - low.at
    middle = low.at + width / 2
    if halve:
        return middle, width
    last = [one for one in points[-3:] if one.size > -700.0]
    if len({one.size for one in last}) == len(last) >= 2:
        # At log = 0 of the polynomial in log(delta / target) through the points (inverse interpolation).
        guess = Fraction(0)
        for one in last:
            share = math.prod(other.size / (other.size - one.size) for other in last if other is not one)
            guess += one.at * Fraction(share)
        if low.at < guess < high.at:
            errors = sorted(abs(one.at - guess) for one in last)
            doubt = math.prod(float(error / high.at) for error in errors)
            return guess, high.at * Fraction(min(1.0, 4.0 * doubt))
    return middle, width
