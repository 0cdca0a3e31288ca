"""The symmetrised Delta-divergence: a distance between curves that sees crossings.

It is sup over gamma of |H_a - H_b| / (1 + gamma); by trade-off curves, the least Delta such that
f_a(x + Delta) - Delta <= f_b(x), and the same with a and b exchanged (Kaassis et al. 2024; Appendix C.2 of the paper on
f-DP filters). Convergence in it is pointwise convergence (Theorems C.6 and C.8).
"""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.curve_arrays import as_arrays, quiet_float64
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.compare.enclose import Member
from jaxacct.losses.grids.grid import LossGrid

__all__ = ["delta_divergence"]


def delta_divergence(
    a: Member, b: Member, *, relation: str = "add_or_remove", grid: LossGrid | None = None
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
        share = 1.0 / (1.0 + np.exp(common.losses))
        certain = xp.maximum(first.point - second.upper, second.point - first.upper)
        possible = xp.maximum(first.upper - second.line, second.upper - first.line)
        lower = deflated(xp.maximum(xp.max(certain * share, -1), 0.0), 16.0 * EPS)
        return as_arrays((lower, inflated(xp.max(possible * share, -1), 16.0 * EPS)))
