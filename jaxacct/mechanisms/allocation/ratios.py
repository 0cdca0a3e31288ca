"""The likelihood ratio of one dominating pair, cut into cells.

For a pair (P, Q) the ratio is r = dP/dQ = exp(L). What ``sums`` adds up are independent ratios under the base Q; the
alternative P has r times the mass.

NumPy only, one setting at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, Real
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.cells import cell_masses, placed, with_edge

_EVEN, _PLACED = 2048, 4096  # cells of equal width in the loss, and cells where a survey sees mass
_FARTHEST = 330.0  # the square of exp of any loss up to here is a normal number
_FAINTEST = 3e-4  # a loss for which a cell is worth its rounding
_UNSEEN = 1e-12  # a probability
_RARE = 1e-34  # nothing rarer needs a cell
_NARROWEST = 0.05  # of the mean width
_LEAST = 1e-300  # what underflow may hide
_PROBES = np.concatenate([-np.geomspace(1e-7, _FARTHEST, 400)[::-1], [0.0], np.geomspace(1e-7, _FARTHEST, 400)])


class RatioCells(NamedTuple):
    """Cells of increasing ratio that have all the mass between 0 and the last edge.

    Attributes:
        left, right: every ratio of a cell lies between them, shape ``(cells,)``.
        base, other: (rounded down, rounded up) probability of each cell under the base and the alternative.
        base_over, other_over: likewise, of a ratio above the cell.
    """

    left: np.ndarray
    right: np.ndarray
    base: tuple[np.ndarray, np.ndarray]
    other: tuple[np.ndarray, np.ndarray]
    base_over: tuple[np.ndarray, np.ndarray]
    other_over: tuple[np.ndarray, np.ndarray]


@np.errstate(all="ignore")
def ratio_cells(pair: Pair) -> RatioCells:
    """The cells of a pair with scalar leaves."""
    edges = _edges(pair)
    tails = pair.tails(edges)
    (p, q), (p_off, q_off), (p_above, q_above), (p_below, q_below) = cell_masses(tails)
    error = tails.error
    eta = pair.loss_error() + 4.0 * UNIT * np.abs(edges)
    low, high = edges - eta, edges + eta
    low = deflated(np.exp(low), UNIT * (8.0 + 4.0 * np.abs(low)))
    high = inflated(np.exp(high), UNIT * (8.0 + 4.0 * np.abs(high)))

    def both(mass: np.ndarray, off: np.ndarray, first: Real) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the cells' masses; the first cell, from 0 on, has what lies under all others."""
        least = np.append(deflated(first, error[0]), np.maximum(deflated(mass - off, 4.0 * UNIT), 0.0))
        most = np.append(inflated(first, 2.0 * error[0]), inflated(mass + off, 4.0 * UNIT))
        return np.maximum(deflated(least, 4.0 * UNIT) - _LEAST, 0.0), np.where(most > 0, most + _LEAST, 0.0)

    def tail(above: Array) -> tuple[np.ndarray, np.ndarray]:
        least = np.maximum(deflated(above, error) - _LEAST, 0.0)
        return least, np.where(above > 0, inflated(above, 2.0 * error) + _LEAST, 0.0)

    return RatioCells(
        np.append(0.0, low[:-1]),
        high,
        both(q, q_off, q_below[0]),
        both(p, p_off, p_below[0]),
        tail(q_above),
        tail(p_above),
    )


@np.errstate(all="ignore")
def has_cells(pair: Pair, least: float = 0.0) -> bool:
    """Whether losses of a pair with scalar leaves are neither too large for cells of ratios nor below ``least``."""
    least = max(least, _FAINTEST)
    tails = pair.tails(np.array([-least, least, _FARTHEST]))
    seen = max(float(tails.p_above[1]), float(tails.q_below[0])) > _UNSEEN
    return seen and float(tails.p_above[2]) - float(pair.infinity()) < _UNSEEN


def _edges(pair: Pair) -> np.ndarray:
    """Edges in the loss, increasing."""
    tails = pair.tails(_PROBES)
    # Infinite losses of either sign are not rare, and lie beyond all cells.
    over = tails.p_above < _RARE + inflated(tails.p_above[-1], 1e-12)
    under = tails.q_below < _RARE + inflated(tails.q_below[0], 1e-12)
    error = float(pair.loss_error())
    high = _PROBES[np.argmax(over)] if over.any() else _FARTHEST
    low = _PROBES[::-1][np.argmax(under[::-1])] if under.any() else -_FARTHEST
    most = float(pair.max_loss()) + 2.0 * error
    high = min(high, max(most, low + 1e-9)) if most < np.inf else high
    high = high if high > low else low + 1e-6
    survey = pair.survey()
    kept = survey.log_masses > -np.inf
    order = np.argsort(survey.losses[kept])
    losses, logs = survey.losses[kept][order], survey.log_masses[kept][order]
    weights = np.exp(logs) + np.exp(np.minimum(logs - losses, 0.0))
    ends = np.asarray(low), np.asarray(high)
    near = placed(losses, weights, ends, _PLACED) if losses.size > 1 else np.array([low, high])
    edges = np.unique(np.concatenate([near, np.linspace(low, high, _EVEN + 1)]))
    # A cell that is much narrower than the others only loses digits.
    wide = np.append(True, np.diff(edges) > _NARROWEST * (high - low) / edges.size)
    wide[-1] = True
    return np.asarray(with_edge(edges[wide], np.asarray(pair.anchor() + 2.0 * error)))
