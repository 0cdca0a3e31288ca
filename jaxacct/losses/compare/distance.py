"""The symmetrised Delta-divergence: a distance between curves that sees crossings.

For profiles, sup over gamma of |H_a - H_b| / (1 + gamma); for trade-off curves, the least Delta such that
f_a(x + Delta) - Delta <= f_b(x) and the same with a and b exchanged. They agree (Kaassis et al. 2024; Appendix C.2 of
the paper on f-DP filters), and convergence in it is pointwise convergence (Theorems C.6 and C.8).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, repeated
from jaxacct._numerics.curve_arrays import as_arrays, compiled, float64, quiet_float64
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.losses.grids.grid import LossGrid

__all__ = ["delta_divergence", "delta_divergence_of_trade_offs"]

_HALVINGS = 60


def delta_divergence(
    a: Any, b: Any, *, relation: str = "add_or_remove", grid: LossGrid | None = None
) -> tuple[Array, Array]:
    """``(lower, upper)`` of sup |H_a - H_b| / (1 + gamma), certified; curves at their word, mechanisms enclosed.

    Between nodes both curves are linear, and a ratio of linear functions has its largest value at an end, so the nodes
    of the grid are enough; beyond the last one the difference is constant and the denominator grows.

    Args:
        a: a mechanism or curve; batches broadcast.
        b: likewise.
        relation: for mechanisms.
        grid: see :func:`jaxacct.losses.compare.order.dominates`.

    Raises:
        ValueError: grids that do not match; no grid for two trade-off curves.
    """
    with quiet_float64():
        common = families.common_grid([a, b], relation, grid)
        first, second = (families.enclose(m, common, relation) for m in (a, b))
        xp, share = array_module(first, second), 1.0 / (1.0 + np.exp(common.losses))
        certain = xp.maximum(first.point - second.upper, second.point - first.upper)
        possible = xp.maximum(first.upper - second.line, second.upper - first.line)
        lower = deflated(xp.maximum(xp.max(certain * share, -1), 0.0), 16.0 * EPS)
        return as_arrays((lower, inflated(xp.max(possible * share, -1), 16.0 * EPS)))


def delta_divergence_of_trade_offs(a: TradeOff, b: TradeOff) -> Array:
    """The same distance from the trade-off curves, by bisection in plain float64 (good to about 1e-13, no bound).

    Both sides of f_a(x + Delta) - Delta <= f_b(x) are piecewise linear, so it is checked at the vertices of both.

    Raises:
        ValueError: curves with batch axes.
    """
    for curve in (a, b):
        if np.ndim(curve.widths) != 1:
            raise ValueError(f"trade-off curves must have no batch axes here, got shape {np.shape(curve.widths)}")
    with quiet_float64():
        return as_arrays(_bisect(*(_polygon(curve) for curve in (a, b))))


def _polygon(curve: TradeOff) -> tuple[Array, Array]:
    alpha, beta = (float64(x) for x in curve.points())
    xp = array_module(alpha, beta)
    beta = xp.concatenate([xp.ones(1), beta])
    alpha = xp.concatenate([xp.zeros(1), alpha])
    # At alpha = 0 the curve is f(0), not the vertical piece's top.
    return alpha, xp.where(alpha == 0, xp.min(xp.where(alpha == 0, beta, np.inf)), beta)


@compiled()
def _bisect(a: tuple[Array, Array], b: tuple[Array, Array]) -> Array:
    xp = array_module(*a, *b)

    def beyond(f: tuple[Array, Array], g: tuple[Array, Array], delta: Array) -> Array:
        """The largest violation of f(x + delta) - delta <= g(x) on [0, 1 - delta]."""
        x = xp.concatenate([g[0], f[0] - delta, xp.stack([xp.zeros(()), 1.0 - delta])])
        inside = (x >= 0) & (x <= 1.0 - delta)
        value = xp.interp(x + delta, *f) - delta - xp.interp(x, *g)
        return xp.max(xp.where(inside, value, -np.inf))

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        enough = xp.maximum(beyond(a, b, middle), beyond(b, a, middle)) <= 0
        return xp.where(enough, low, middle), xp.where(enough, middle, high)

    return repeated(halve, (xp.zeros(()), xp.ones(())), _HALVINGS)[1]
