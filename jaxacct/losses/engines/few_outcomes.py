"""Compositions of mechanisms with few outcomes, as exact sums over sums of losses.

T runs of a pair with n outcomes of finite loss l_j and probability p_j have one sum of losses for each way to write T
as c_1 + ... + c_n: the loss sum_j c_j l_j, of P-probability T! / (c_1! ... c_n!) prod_j p_j^c_j. Several parts of a
schedule multiply. While there are a few thousand of such sums they are all written down, with bounds on the error of
each loss and each mass, and

    delta(epsilon) = infinite + sum_c w_c (1 - e^(epsilon - L_c))_+

is summed; no lattice, so nothing is lost to one. The smallest epsilon at delta is, over all events A of finite loss,
max_A log((P(A) + infinite - delta) / Q(A)): every event bounds it from below, and those that hold the k largest sums
come to it. From above the curve itself is asked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct._numerics.trivial_bounds import possible
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.table import LEAST, lists_outcomes

_MOST = 2**14  # sums
_ENTRIES = 2**18  # of the table of counts
_EXACT = 64  # factorials whose logarithm is taken of the whole number; Stirling's series is good to 1e-16 from there on
_CERTAIN = 1.0 - 1e-6  # an infinite loss likelier than this is left to others
_ROWS = 64  # between two reports
_UNDERFLOW = 2.0**-1072  # what two products and an exponential lose below the normal numbers


class _Part(NamedTuple):
    """Outcomes of one run, NumPy's: losses and P-masses ``(outcomes,)``; relative error of these, absolute of those."""

    losses: np.ndarray
    masses: np.ndarray
    mass_error: float
    loss_error: np.ndarray | float


class Sums(NamedTuple):
    """The sums of one composition, arrays of one shape ``(sums,)``; the infinite loss apart.

    Attributes:
        losses: sums of losses.
        masses: their probabilities under P.
        loss_error: absolute, of the losses.
        mass_error: relative, of the masses.
        infinite: bounds of the probability that a loss is infinite.
        top: no finite loss is above.
        hidden: bound on the mass of finite losses that the sums lack.
    """

    losses: np.ndarray
    masses: np.ndarray
    loss_error: np.ndarray
    mass_error: np.ndarray
    infinite: tuple[float, float]
    top: float
    hidden: float


def enumerable(groups: tuple[Pair, ...]) -> bool:
    """Whether all parts have outcomes that can be listed."""
    return all(lists_outcomes(group) for group in groups)


def sum_bounds(
    kind: str, groups: tuple[Pair, ...], counts: np.ndarray, goal: np.ndarray, report: Callable[[int], None]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``(answered, lower, upper)`` of delta or epsilon for a flat concrete batch, each of shape ``(batch,)``.

    Groups are of :func:`enumerable` pairs, leaves of shape ``(batch, parts of the group)``; ``counts`` has shape
    ``(batch, parts)``. ``report`` is told now and then how many more are answered.
    """
    lower, upper = np.zeros(goal.shape), np.full(goal.shape, np.inf if kind == "epsilon" else 1.0)
    answered = np.zeros(goal.shape, bool)
    few = np.flatnonzero((counts + 1.0).prod(-1) <= _MOST)
    if few.size:
        parts = [part for group in groups for part in _parts(group, few)]
        read = _delta if kind == "delta" else _epsilon
        for row, i in enumerate(few):
            runs = zip(parts, counts[i], strict=True)
            sums = _composed([(_Part(*(x[row] for x in part)), int(count)) for part, count in runs])
            if sums is not None:
                answered[i] = True
                with np.errstate(all="ignore"):  # NaN fails closed
                    lower[i], upper[i] = read(sums, float(goal[i]))
            if row % _ROWS == _ROWS - 1:
                report(int(answered[few[row + 1 - _ROWS : row + 1]].sum()))
        report(int(answered[few[few.size - few.size % _ROWS :]].sum()))
    return answered, lower, upper


def _parts(group: Pair, members: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """Each part's :class:`_Part`, for all members."""
    atoms = jax.tree.map(lambda x: x[members], group).atoms()
    losses, shape = atoms.losses, atoms.losses.shape
    error = np.broadcast_to(atoms.error, shape).max(-1)
    found = (losses, atoms.p, error, np.broadcast_to(atoms.loss_error, shape))
    return [tuple(x[:, k] for x in found) for k in range(shape[1])]


@np.errstate(all="ignore")  # what overflows has no small error
def _composed(parts: list[tuple[_Part, int]]) -> Sums | None:
    """All sums, None where there are too many, or where a number is none."""
    if any(not np.isfinite(part.masses).all() or np.isnan(part.losses).any() for part, _ in parts):
        return None
    finite = [np.isfinite(part.losses) & (part.masses > LEAST) for part, _ in parts]
    total = 1
    for some, (_, runs) in zip(finite, parts, strict=True):
        ways = math.comb(runs + max(some.sum(), 1) - 1, runs)
        total *= ways
        if total > _MOST or ways * some.sum() > _ENTRIES:
            return None
    losses, logs, loss_error, log_error = (np.zeros(1) for _ in range(4))
    survival = survival_error = top = farthest = rare = 0.0
    for some, (part, runs) in zip(finite, parts, strict=True):
        table, ways, ways_error = counted(int(some.sum()), runs)
        at, log_p, off = part.losses[some], np.log(part.masses[some]), np.broadcast_to(part.loss_error, some.shape)
        rounding = (at.size + len(parts) + 4) * EPS  # of this part's, and of adding it to others that may cancel it
        each = (
            table @ at,
            ways + table @ log_p,
            inflated(table @ off[some] + rounding * (table @ np.abs(at)), rounding),
            1.01 * runs * part.mass_error + rounding * (table @ np.abs(log_p)) + ways_error,
        )
        both = zip((losses, logs, loss_error, log_error), each, strict=True)
        losses, logs, loss_error, log_error = ((old[:, None] + new).reshape(-1) for old, new in both)
        known = np.isfinite(part.losses)
        largest = (part.losses + off)[known].max(initial=-np.inf)
        top += runs * largest
        farthest += runs * abs(largest)
        failing = part.masses[part.losses == np.inf]
        infinite = float(failing.sum())
        if infinite > _CERTAIN:
            return None
        rare += runs * LEAST * ((failing > 0) & (failing <= LEAST)).sum()
        lost, units = runs * math.log1p(-infinite), part.mass_error + part.masses.size * EPS
        survival += lost
        survival_error += runs * units * infinite / (1.0 - infinite) - (len(parts) + 4) * EPS * lost
    # Additions of the parts, and the exponential.
    loss_error = loss_error + (len(parts) + 2) * EPS * np.abs(losses)
    mass_error = 1.01 * (log_error + (len(parts) + 2) * EPS * np.abs(logs)) + 4 * EPS
    if not (np.all(mass_error < 1e-3) and np.all(loss_error < 1e-3) and survival_error < 1e-3):
        return None
    failed, doubt = -math.expm1(survival), 1.01 * math.exp(survival) * survival_error
    ends = max(deflated(failed, 4 * EPS) - doubt - rare, 0.0), min(inflated(failed, 4 * EPS) + doubt + rare, 1.0)
    top = top + (2 * len(parts) + 4) * EPS * farthest if math.isfinite(top) else top
    hidden = LEAST * (losses.size + sum(runs * part.masses.size for part, runs in parts))
    return Sums(losses, np.exp(logs), loss_error, mass_error, ends, top, hidden)


@functools.lru_cache(maxsize=64)
def counted(outcomes: int, runs: int) -> tuple[np.ndarray, np.ndarray, float]:
    """How often each outcome comes in ``runs`` runs: every possibility, and the logarithm of its number of orders.

    ``(counts, ways, error)``, of shapes ``(sums, outcomes)`` and ``(sums,)``, and the absolute error of ``ways``.
    Without outcomes there is one possibility where nothing runs, and else none.
    """
    if not outcomes:
        return np.zeros((int(runs == 0), 0)), np.zeros(int(runs == 0)), 0.0
    if outcomes == 1:
        return np.full((1, 1), float(runs)), np.zeros(1), 0.0
    table, left = np.zeros((1, 0), np.int64), np.array([runs])
    for _ in range(outcomes - 1):
        row = np.repeat(np.arange(left.size), left + 1)
        taken = np.arange(row.size) - np.repeat(np.cumsum(left + 1) - (left + 1), left + 1)
        table, left = np.column_stack([table[row], taken]), left[row] - taken
    table = np.column_stack([table, left])
    logs = log_factorials(runs)
    # Counts of one sum have k_1 log k_1 + ... <= T log T, so all factorials together are off by twice what T! may be.
    size = (runs + 1) * math.log(runs + 1)
    return table.astype(float), logs[runs] - logs[table].sum(-1), (16 + 2 * outcomes) * EPS * size


def log_factorials(most: int) -> np.ndarray:
    """log k! for k = 0 .. most, each within 4 EPS (k + 1) log(k + 1)."""
    exact = [math.log(math.factorial(k)) for k in range(min(most, _EXACT) + 1)]
    k = np.arange(_EXACT + 1, most + 1, dtype=float)
    series = 1 / (12 * k) - 1 / (360 * k**3) + 1 / (1260 * k**5)  # the next term is below 1 / (1680 * 65^7)
    return np.concatenate([exact, (k + 0.5) * np.log(k) - k + 0.5 * math.log(2 * math.pi) + series])


def _delta(sums: Sums, epsilon: float) -> tuple[float, float]:
    lower, upper = possible(_curve(sums, epsilon, False), _curve(sums, epsilon, True), epsilon)
    return float(lower), float(upper)


def _curve(sums: Sums, epsilon: float, up: bool) -> float:
    """A bound of delta(epsilon).

    A loss that is off by E changes 1 - e^(epsilon - L) by at most E e^(epsilon - L) from above, E where it was not
    positive before, and by (e^E - 1) e^(epsilon - L) < 1.01 E e^(epsilon - L) from below.
    """
    off = 1.01 * (sums.loss_error + 2 * EPS * (abs(epsilon) + np.abs(sums.losses)))
    over = np.minimum(epsilon - sums.losses, 1.0)
    gain, change = -np.expm1(over), off * np.exp(np.minimum(over, 0.0))
    rounding = (sums.masses.size + 8) * EPS
    if up:
        terms = inflated(sums.masses, sums.mass_error)
        each = np.where(sums.losses > epsilon - off, np.maximum(inflated(gain, 4 * EPS), 0.0) + change, 0.0)
        hidden = sums.hidden if epsilon < sums.top else 0.0
        return inflated((terms * each).sum() + sums.infinite[1] + hidden, rounding)
    each = np.maximum(deflated(gain, 4 * EPS) - change, 0.0)
    found = deflated((deflated(sums.masses, sums.mass_error) * each).sum() + sums.infinite[0], rounding)
    return found - sums.masses.size * _UNDERFLOW


def _epsilon(sums: Sums, delta: float) -> tuple[float, float]:
    if sums.infinite[0] > delta:
        return np.inf, np.inf
    order = np.argsort(-sums.losses)
    order = order[sums.losses[order] > 0]
    losses, masses, off = sums.losses[order], sums.masses[order], sums.loss_error[order]
    error, rounding = sums.mass_error[order], (order.size + 8) * EPS
    p = deflated(np.cumsum(deflated(masses, error)), rounding) - order.size * _UNDERFLOW
    more = p + sums.infinite[0] - delta
    more = np.maximum(deflated(more, 4 * EPS) - 4 * EPS * (p + delta), 0.0)
    # Q has e^-L of P's masses, which no float64 may hold: they are taken times e^near, near the answer. Any event is
    # a bound, and the best one holds only losses above the answer.
    near = np.log(more) - np.logaddexp.accumulate(np.log(masses) - losses)
    near = float(near.max(initial=0.0, where=near < np.inf))
    some = losses > near - 1.0
    # P's masses over e^(L - near), whatever the loss is within its error.
    blur = inflated(1.0, 1.01 * (off[some] + 2 * EPS * (near + losses[some])) + 4 * EPS)
    q = np.cumsum(inflated(masses[some], error[some]) * np.exp(near - losses[some]) * blur + 4 * LEAST)
    at = np.where(more[some] > 0, np.log(more[some]) - np.log(inflated(q, rounding)), -np.inf)
    at = near + at - 8 * EPS * (1.0 + near + np.abs(at) + np.abs(np.log(q)))
    lower = max(float(at.max(initial=0.0)), 0.0)
    if sums.infinite[1] > delta:
        return lower, np.inf
    if _curve(sums, 0.0, True) <= delta:
        return 0.0, 0.0
    top = max(sums.top, 0.0)  # above it there is only the infinite loss
    step = 16 * EPS * (1.0 + lower)
    while lower + step < top:
        if _curve(sums, lower + step, True) <= delta:
            return lower, lower + step
        step *= 4
    return min(lower, top), top
