"""Trade-off curves between two bounds, from bounds of delta at several epsilons."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from jax.typing import ArrayLike

from jaxacct import accounting
from jaxacct.mechanisms.base import Mechanism

POINTS = 160  # of every query, so that they share a compiled program
_FARTHEST = 256.0
_REVERSED = {"add": "remove", "remove": "add"}
_UNIT = 2.0**-48


def single(values: ArrayLike, size: int) -> np.ndarray:
    """``values`` as the numbers of one curve at ``size`` points."""
    array = np.asarray(values, np.float64)
    if array.shape != (size,):
        raise ValueError(f"curve must be one curve, not a batch, got values of shape {array.shape} for {size} points")
    return array


def deltas(mechanism: Mechanism, epsilon: np.ndarray, steps: int, relation: str) -> accounting.Bounds:
    """Bounds of delta of one mechanism; where they are wide the picture shows it, so there is no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        bounds = accounting.delta(mechanism, epsilon, steps=steps, relation=relation)
    return accounting.Bounds(*(single(side, epsilon.size) for side in bounds))


def reach(delta: Callable[[np.ndarray], np.ndarray], least: float) -> float:
    """An epsilon by which a curve is down to ``least``, or a little beyond the last of its fall.

    Asks ``delta`` at `POINTS` epsilons at a time, as the picture will: a query of another shape compiles anew.
    """
    top = 1.0
    while True:
        at = np.linspace(0.0, top, POINTS)
        values = delta(at)
        if values[-1] <= least:
            found = float(at[np.argmax(values <= least)])
            if found > 0.25 * top or found == 0.0 or top < 1e-6:
                return found or top
            top = found
        elif top >= _FARTHEST or (values[-1] >= (1.0 - 1e-6) * values[-POINTS // 4] and values[-1] < 0.5):
            last = float(at[np.argmax(values <= (1.0 + 1e-6) * values[-1])])
            return 1.2 * last if last > 1e-3 else top
        else:
            top *= 2.0


def enclosed_trade_off(
    mechanism: Mechanism, alpha: np.ndarray, steps: int, relation: str
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) of f(alpha) = sup over g of (1 - alpha - H(g)) / g, with H enclosed at points g = e^epsilon.

    For g >= 1 as it stands, and for g < 1 with H(g) = 1 - g + g H'(1 / g), H' of the reversed relation, as
    1 - alpha G - H'(G), G = 1 / g: no digits cancel. A supremum over some points only is too small: the lower curve.
    For the upper one see `_below`: the supremum over a cell is then at one of its ends or where two lines cross, as
    either expression is monotone along a line.

    Source: Dong, Roth, Su 2022, Proposition 2.12; the reflection is Lemma 16 of the residue paper.
    """
    top = reach(lambda at: np.asarray(deltas(mechanism, at, steps, relation).upper), 1e-15)
    epsilon = np.linspace(0.0, top, POINTS)
    if deltas(mechanism, epsilon, steps, relation).upper[-1] > 1e-12:
        epsilon[-1] = _FARTHEST  # some loss is infinite: its mass is seen far out
    back = _REVERSED.get(relation, relation)
    forward = deltas(mechanism, epsilon, steps, relation)
    backward = forward if back == relation else deltas(mechanism, epsilon, steps, back)
    g, a = np.exp(epsilon), alpha[:, None]
    lower = np.maximum(((1.0 - a - forward.upper) / g).max(-1), (1.0 - a * g - backward.upper).max(-1))
    (at, h), (at_back, h_back) = _below(g, forward), _below(g, backward)
    upper = np.maximum(((1.0 - a - h) / at).max(-1), (1.0 - a * at_back - h_back).max(-1))
    return np.clip(lower - _UNIT, 0.0, 1.0 - alpha), np.clip(upper + _UNIT, 0.0, 1.0 - alpha)


def _below(g: np.ndarray, bounds: accounting.Bounds) -> tuple[np.ndarray, np.ndarray]:
    """Points and values of a function below every convex, falling H >= 0 with H(0) = 1 that the bounds enclose.

    In a cell, H lies above the line through the two points left of it, prolonged, and above the one through the two
    points right of it. With ``upper`` at the far point and ``lower`` at the near one, the line is below all H within
    the bounds. The points are the cells' ends (with ``lower``) and the crossings of each cell's two lines.
    """
    lower, upper = bounds
    falling = np.diff(np.r_[0.0, g[:-1]]), np.diff(g)[1:]
    left = (lower[:-1] - np.r_[1.0, upper[:-2]]) / falling[0]
    right = np.r_[np.minimum((upper[2:] - lower[1:-1]) / falling[1], 0.0), 0.0]
    difference = np.where(left < right, right - left, np.inf)
    along = (lower[:-1] - lower[1:] + right * np.diff(g)) / difference
    along = np.clip(along, 0.0, np.diff(g))
    crossing = np.minimum(lower[:-1] + left * along, lower[1:] - right * (np.diff(g) - along))
    # Beyond the last point H is at least 0.
    return np.r_[g, g[:-1] + along, g[-1]], np.r_[lower, np.maximum(crossing, 0.0), 0.0]
