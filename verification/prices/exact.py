"""The inequality at one point in ball arithmetic: certainly true, certainly false, or not decided.

With G's curve in closed form V is a sum over the lattice's points, and T_L V is one integral over the query's noise,
for which Arb's integration returns a ball. Budgets, nodes and excesses are the rational numbers that the floats are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import acb, arb, ctx

__all__ = ["margin_at"]

_END = 14  # standard deviations at which the integral is cut; the rest is bounded


def margin_at(family: Any, sigma: float, rate: float, before: int, after: int, units: int, loss: float) -> arb:
    """V_b - T_L V_a at gamma = exp(loss) over what the slack adds for the price, as a ball."""
    ctx.prec = 192
    grid = family.grid
    h, width, far = arb(float(grid.spacing)), arb(float(family.width)), arb(float(family.far))
    gammas = [(h * k).exp() for k in range(grid.lowest, grid.lowest + grid.size)]

    def row(budget: int) -> list[arb]:
        """Changes of slope of the hockey-stick curve U at every gamma of the lattice, times gamma."""
        nodes = [round(float(x) * units) for x in family.nodes]
        i = min(int(np.searchsorted(nodes, budget, side="right")) - 1, len(nodes) - 2)
        t = (arb(budget) - nodes[i]) / (nodes[i + 1] - nodes[i])
        values = [
            ((1 - t) * arb(float(x)) + t * arb(float(y))) * g.sqrt()
            for x, y, g in zip(family.excess[i], family.excess[i + 1], gammas, strict=True)
        ]
        # Proportional to gamma below the first point, constant above the last one.
        slopes = [values[0] / gammas[0]]
        slopes += [(y - x) / (d - c) for x, y, c, d in zip(values, values[1:], gammas, gammas[1:], strict=False)]
        slopes.append(arb(0))
        bends = [(second - first) * g for first, second, g in zip(slopes, slopes[1:], gammas, strict=False)]
        bends[-grid.lowest] += 1
        return bends

    def steady(gamma: Any) -> Any:
        return (1 - _stick(width, gamma) + far * (1 + gamma)) / 2

    def curve(bends: list[arb], budget: arb, gamma: Any) -> Any:
        # U(gamma) = U(infinity) + sum of bend_k (1 - gamma / gamma_k)_+, and U(0) = 1.
        kept = [(p, g) for p, g in zip(bends, gammas, strict=True) if p != 0]
        total = 1 - sum((p for p, _ in kept), arb(0))
        return total + sum((p * _stick(width, gamma / g) for p, g in kept), budget * slack * steady(gamma))

    slack, gamma = arb(float(family.slack)), arb(loss).exp()
    b_before, b_after = arb(before) / units, arb(after) / units
    left, later = curve(row(before), b_before, gamma), row(after)
    mean, spread = -1 / (2 * arb(sigma) ** 2), 1 / arb(sigma)

    def integrand(z: acb, _: Any) -> acb:
        y = 1 + arb(rate) * ((z * spread + mean).exp() - 1)
        return (-z * z / 2).exp() / (2 * arb.pi()).sqrt() * y * curve(later, b_after, gamma / y)

    inside = acb.integral(integrand, -_END, _END, rel_tol=arb(2) ** -60, abs_tol=arb(2) ** -90).real
    # y V(gamma / y) <= (1 + slack) (y + gamma); the tails of y in closed form.
    tail = _normal(arb(_END))
    tilted = _normal(_END - spread) + _normal(_END + spread)
    outside = (2 * tail + arb(rate) * tilted) * (1 + gamma) * (1 + slack)
    right = inside + outside.union(arb(0))
    return (left - right) / (slack * (b_before - b_after) * steady(gamma))


def _normal(x: Any) -> Any:
    """The standard normal distribution function at -x."""
    return (x / arb(2).sqrt()).erfc() / 2


def _stick(width: arb, gamma: Any) -> Any:
    """The hockey-stick curve of G."""
    loss = gamma.log()
    return _normal(loss / width - width / 2) - gamma * _normal(loss / width + width / 2)
