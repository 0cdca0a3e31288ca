"""The symmetrised Delta-divergence, a distance of curves that sees crossings, in both of its forms.

For profiles, sup over gamma of |H_a - H_b| / (1 + gamma); for trade-off curves, the least Delta such that
f_a(x + Delta) - Delta <= f_b(x) and the same with a and b exchanged. They agree (Kaassis et al. 2024; Appendix C.2 of
the paper on f-DP filters), and convergence in it is pointwise convergence (Theorems C.6 and C.8).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct._rounding import EPS, deflated, inflated
from jaxacct.losses import families
from jaxacct.losses.conversions import concrete
from jaxacct.losses.grid import LossGrid
from jaxacct.losses.tradeoff import TradeOff

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
        grid: see :func:`jaxacct.losses.order.dominates`.

    Raises:
        ValueError: grids that do not match; no grid for two trade-off curves.
    """
    with jax.enable_x64(True):
        common = families.common_grid([a, b], relation, grid)
        first, second = (families.enclose(m, common, relation) for m in (a, b))
        share = jax.nn.sigmoid(-jnp.asarray(common.losses))  # 1 / (1 + gamma)
        certain = jnp.maximum(first.point - second.upper, second.point - first.upper)
        possible = jnp.maximum(first.upper - second.line, second.upper - first.line)
        lower = deflated(jnp.maximum(jnp.max(certain * share, -1), 0.0), 16.0 * EPS)
        return concrete((lower, inflated(jnp.max(possible * share, -1), 16.0 * EPS)))


def delta_divergence_of_trade_offs(a: TradeOff, b: TradeOff) -> Array:
    """The same distance from the trade-off curves, by bisection in plain float64 (good to about 1e-13, no bound).

    Both sides of f_a(x + Delta) - Delta <= f_b(x) are piecewise linear, so it is checked at the vertices of both.

    Raises:
        ValueError: curves with batch axes.
    """
    for curve in (a, b):
        if jnp.ndim(curve.widths) != 1:
            raise ValueError(f"trade-off curves must have no batch axes here, got shape {jnp.shape(curve.widths)}")
    with jax.enable_x64(True):
        return concrete(_bisect(*(_polygon(curve) for curve in (a, b))))


def _polygon(curve: TradeOff) -> tuple[Array, Array]:
    alpha, beta = (jnp.asarray(x) for x in curve.points())
    beta = jnp.concatenate([jnp.ones(1), beta])
    alpha = jnp.concatenate([jnp.zeros(1), alpha])
    # At alpha = 0 the curve is f(0), not the vertical piece's top.
    return alpha, jnp.where(alpha == 0, jnp.min(jnp.where(alpha == 0, beta, jnp.inf)), beta)


@jax.jit
def _bisect(a: tuple[Array, Array], b: tuple[Array, Array]) -> Array:
    def beyond(f: tuple[Array, Array], g: tuple[Array, Array], delta: Array) -> Array:
        """The largest violation of f(x + delta) - delta <= g(x) on [0, 1 - delta]."""
        x = jnp.concatenate([g[0], f[0] - delta, jnp.stack([jnp.zeros(()), 1.0 - delta])])
        inside = (x >= 0) & (x <= 1.0 - delta)
        value = jnp.interp(x + delta, *f) - delta - jnp.interp(x, *g)
        return jnp.max(jnp.where(inside, value, -jnp.inf))

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        enough = jnp.maximum(beyond(a, b, middle), beyond(b, a, middle)) <= 0
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    return jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros(()), jnp.ones(())))[1]
