"""Every adaptive play of a few coins in rational numbers, against what a menu and a box promise."""

from __future__ import annotations

import functools
import math
from fractions import Fraction as F
from typing import Any

import jax
import numpy as np

from jaxacct import RandomizedResponse, filters
from jaxacct.filters.boxes import family as families
from jaxacct.filters.boxes import kernels, lines
from jaxacct.filters.boxes.family import UNITS
from jaxacct.filters.boxes.priced_box import left_by_lines
from jaxacct.losses.grids.grid import LossGrid

__all__ = ["boxes", "menus"]

_SIZE = 9  # losses up to 9 log 2


def coin(offset: int) -> tuple[dict[int, F], list[F]]:
    """Randomized response at epsilon = offset log 2, and its excess at gamma = 2^k, |k| <= 9."""
    ratio = F(2) ** offset
    law = {offset: ratio / (1 + ratio), -offset: 1 / (1 + ratio)}
    excess = []
    for k in range(-_SIZE, _SIZE + 1):
        gamma = F(2) ** k
        stick = sum((max(p - gamma * p / F(2) ** loss, F(0)) for loss, p in law.items()), F(0))
        excess.append(stick - max(1 - gamma, F(0)))
    return law, excess


def worst(best: list[F], known: list[F], law: dict[int, F], excess: list[F]) -> list[F]:
    """The larger one, at every gamma, of ``best`` and a coin followed by ``known``."""
    value = lambda k: known[k + _SIZE] if -_SIZE <= k <= _SIZE else F(0)  # noqa: E731
    return [
        max(best[k + _SIZE], excess[k + _SIZE] + sum((p * value(k - loss) for loss, p in law.items()), F(0)))
        for k in range(-_SIZE, _SIZE + 1)
    ]


def menus() -> dict[str, Any]:
    """The worst case of a menu of two coins in every state, both directions: orders below 1 are those of `add`."""
    coins = [coin(k) for k in (1, 2)]
    queries = [RandomizedResponse(k * math.log(2)) for k in (1, 2)]
    found = {}
    for delta, at in ((1e-2, 6), (1e-1, 4)):
        with jax.enable_x64(True):
            given = {"epsilon": at * math.log(2), "delta": delta, "unit": 16, "points": 512}
            ledger = filters.priced_menu(queries, **given, cache=False)
            prices = [int(x) for x in np.asarray(ledger.prices)]
            budget = int(ledger.budget)

            @functools.cache
            def exact(left: int, prices: tuple[int, ...] = tuple(prices)) -> list[F]:
                best = [F(0)] * (2 * _SIZE + 1)
                for (law, excess), price in zip(coins, prices, strict=True):
                    if price <= left:
                        best = worst(best, exact(left - price), law, excess)
                return best

            ratios = []
            for k in range(_SIZE):
                claimed = float(ledger.guarantee.delta(k * math.log(2)))
                both = max(exact(budget)[k + _SIZE], exact(budget)[_SIZE - k] * F(2) ** k)
                ratios.append(float(both) / claimed)
        found[f"menu of two coins, delta {delta:g}"] = {
            "states": exact.cache_info().currsize,
            "largest ratio to the promise": max(ratios),
        }
    return found


def boxes(scale: float = 1.0) -> dict[str, Any]:
    """Prices of coins, certified against curves that have nothing to do with them, in every state that a play comes to.

    Args:
        scale: what prices are multiplied by.
    """
    step = 48  # lattice points to log 2
    grid = LossGrid(math.log(2) / step, -step * _SIZE, 2 * step * _SIZE + 1)
    nodes = np.rint(UNITS * np.linspace(0, 1.1, 67)) / UNITS
    nodes[60] = 1.0
    excess = np.stack([kernels.gaussian_excess(2.0 * math.sqrt(max(b, 1e-9)), grid.losses) for b in nodes])
    excess[0] = 0.0
    family = families.prepared(grid, nodes, excess, 5 * grid.spacing, 1e-3, 0.2)
    coins = [coin(k) for k in (1, 2)]
    half = {k: p / 2 for k, p in coins[1][0].items()} | {0: F(1, 2)}
    coins.append((half, [e / 2 for e in coins[1][1]]))
    tables = []
    for law, _ in coins:
        losses = sorted(law)
        gains, masses = (np.array(x) for x in ([2.0**k - 1 for k in losses], [float(law[k]) / 2.0**k for k in losses]))
        kernel = kernels.kernel_of(kernels.Atoms(gains, masses, 0.0), family.half_width, grid.spacing, grid.size)
        found = np.stack(lines.price_lines(kernel, family)[:2])[:, :60]
        tables.append(np.where(found <= 1, np.ceil(found * UNITS * scale), 2**31 - 1).astype(np.int32))
    whole = np.rint(nodes[:61] * UNITS).astype(np.int32)
    ratios = []

    @functools.cache
    def exact(left: int) -> list[F]:
        best = [F(0)] * (2 * _SIZE + 1)
        for (law, own), table in zip(coins, tables, strict=True):
            after = int(left_by_lines(table, whole, np.int64(left)))
            if after >= 0:
                best = worst(best, exact(after), law, own)
        promised = family.curve(left / UNITS, family.width)[::step] * np.exp(0.5 * grid.losses[::step])
        ratios.append(float((np.array([float(x) for x in best]) / promised).max()))
        return best

    exact(UNITS)
    return {
        f"box for three coins, prices times {scale:g}": {
            "states": len(ratios),
            "largest ratio to the promise": max(ratios),
        }
    }
