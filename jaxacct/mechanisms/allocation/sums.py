"""Sums of independent likelihood ratios, from above and from below: what an epoch of random allocation is made of.

Let r_1, ..., r_t be independent ratios of a pair (P, Q) under the base Q, and S their sum. Every bound comes from a
*window*: a lattice of step h, a tilt theta, and a part [a, b] of the values of S for which they were chosen.

*Above* a ratio is rounded to the lattice at random, its mean kept, which makes calls E[(S - s)_+] and puts
E[(s - S)_+] larger. *Below*, the probabilities of events {the sum of the rounded ratios is in a set} under Q, and under
the alternative in which k of the t ratios are drawn from P, are those of a test. The law of S on the lattice is an FFT
power of the ratio's law, tilted by exp(theta r); ratios above a cut c count apart. docs/proofs/random-allocation.md.

NumPy only, one setting at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.mechanisms.allocation.plan import planned
from jaxacct.mechanisms.allocation.ratios import RatioCells
from jaxacct.mechanisms.allocation.scores import tests_of_scores
from jaxacct.mechanisms.allocation.window_law import Events, WindowLaw, thinned

_ENOUGH = 1e-14  # a call, or a put, of one ratio that is worth a point of the curve of the sum


class SumBounds(NamedTuple):
    """Bounds of one direction, of R = S / t and of the alternative.

    Attributes:
        calls: (points gamma, upper bounds of E[(R - gamma)_+]).
        puts: (points gamma, upper bounds of E[(gamma - R)_+]).
        above: events of large sums.
        below: events of small sums.
        smallest: no ratio is smaller.
    """

    calls: tuple[np.ndarray, np.ndarray]
    puts: tuple[np.ndarray, np.ndarray]
    above: list[Events]
    below: list[Events]
    smallest: float


def sum_of_ratios(cells: RatioCells, t: int, k: int) -> SumBounds:
    """Bounds for ``t`` ratios, ``k`` of them from P in the alternative: of several only events, of sums of scores."""
    if t == 1:
        return _one_ratio(cells)
    smallest = float(cells.left[cells.base[1] > 0][0])
    if k > 1:
        nothing = (np.zeros(0), np.zeros(0))
        return SumBounds(nothing, nothing, *tests_of_scores(cells, t, k), smallest)
    calls, puts, above, below = [], [], [], []
    for window in planned(cells, t):
        found = WindowLaw(cells, window, t, k)
        (above if window.upper else below).append(found.events())
        (calls if window.upper else puts).append(found.calls() if window.upper else found.puts())
    # A mean is no larger, in convex order, than one of its terms; and no sum without A exceeds t c.
    one = _one_ratio(cells)
    for curves, (at, values), side in ((calls, one.calls, 1), (puts, one.puts, -1)):
        # Rarer ones would only make losses larger than any that matter.
        mass = values if side > 0 else values / at
        some = thinned(np.where(mass > _ENOUGH, values, 0.0)[::side], side * at[::side], -np.inf, np.inf)
        curves.append((at[::side][some], values[::side][some]))
    over = cells.other_over[1][-1] + (t - 1) * cells.base_over[1][-1]
    if over == 0.0 or over > _ENOUGH:
        calls.append((cells.right[-1:], np.atleast_1d(inflated(over, 8.0 * UNIT))))
    (x, call), (y, put) = (np.concatenate(parts, -1) for parts in (calls, puts))
    return SumBounds((x, call), (y, put), above, below, smallest)


def _one_ratio(cells: RatioCells) -> SumBounds:
    """Bounds of a single ratio, from the tails at the ends of the cells."""
    (base_low, base_high), (other_low, other_high) = cells.base_over, cells.other_over
    under = [(np.cumsum(low), np.cumsum(high)) for low, high in (cells.base, cells.other)]
    room = UNIT * (2.0 * cells.right.size + 8.0)
    q_low, q_high, p_low, p_high = (
        move(part, room) for side in under for move, part in zip((deflated, inflated), side, strict=True)
    )
    # Edges are known to a few units of themselves: at either end of that a call, or a put, is what it is at the edge.
    outer = cells.right
    inner = np.append(cells.left[1:], cells.right[-1])
    calls = np.maximum(inflated(other_high, room) - deflated(inner * base_low, room), 0.0)
    puts = np.maximum(inflated(outer * q_high, room) - deflated(p_low, room), 0.0)
    return SumBounds(
        (outer, calls),
        (inner, puts),
        [Events(base_high, other_low, np.zeros(outer.size))],
        [Events(q_low, p_high, np.zeros(outer.size))],
        float(cells.left[cells.base[1] > 0][0]),
    )
