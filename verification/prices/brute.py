"""Every adaptive play of a few coins in rational numbers, against what a menu and a box promise in every state.

A coin is randomized response at a multiple of log 2, so all losses are whole numbers of log 2 and all masses rational.
A state is a number of units left; what is promised there must be above the best play from there, at every power of 2.
Orders below 1 are those of `add`: the reversed pair's delta(epsilon) is e^epsilon E(-epsilon).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction as F
from typing import Any

import jax
import numpy as np

from jaxacct import RandomizedResponse, filters
from jaxacct._numerics.host import on_device
from jaxacct.filters.prices import family as families
from jaxacct.filters.prices import kernels, lines
from jaxacct.filters.prices.family import UNITS, Family
from jaxacct.filters.prices.look_up import charge_of, left_after_run
from jaxacct.losses.grids.grid import LossGrid

__all__ = ["box_of_coins", "box_of_gaussians", "menu"]

_SIZE = 9  # losses up to 9 log 2
_STEP = 48  # lattice points to log 2
_NOTCHES, _PRICES = 12, (3, 7)  # what the budget and two coins take, in the units of `_coin_curves`

Coin = tuple[dict[int, F], list[F]]
"""Masses under P by loss, and excesses at gamma = 2^k, |k| <= 9."""


def coin(offset: int) -> Coin:
    """Randomized response at epsilon = offset log 2."""
    ratio = F(2) ** offset
    law = {offset: ratio / (1 + ratio), -offset: 1 / (1 + ratio)}
    excess = []
    for k in range(-_SIZE, _SIZE + 1):
        gamma = F(2) ** k
        stick = sum((max(p - gamma * p / F(2) ** loss, F(0)) for loss, p in law.items()), F(0))
        excess.append(stick - max(1 - gamma, F(0)))
    return law, excess


def rarely(one: Coin, chance: F) -> Coin:
    """A coin that is thrown with this chance, in public."""
    law, excess = one
    return {loss: chance * p for loss, p in law.items()} | {0: 1 - chance}, [chance * e for e in excess]


COINS = [coin(1), coin(2), rarely(coin(2), F(1, 2)), coin(3)]


def worst(best: list[F], known: list[F], one: Coin) -> list[F]:
    """The larger one, at every gamma, of ``best`` and a coin followed by ``known``."""
    law, excess = one
    value = lambda k: known[k + _SIZE] if -_SIZE <= k <= _SIZE else F(0)  # noqa: E731
    return [
        max(best[k + _SIZE], excess[k + _SIZE] + sum((p * value(k - loss) for loss, p in law.items()), F(0)))
        for k in range(-_SIZE, _SIZE + 1)
    ]


def largest_ratio(
    coins: Sequence[Coin],
    after: Callable[[np.ndarray], list[np.ndarray]],
    starts: Iterable[int],
    promised: Callable[[int], np.ndarray],
) -> dict[str, Any]:
    """The best play over the promise, the largest over all states that plays from ``starts`` come to.

    Args:
        coins: what may be played.
        after: for an array of states, what each coin leaves of each; below 0 where it is refused.
        starts: states, in units left.
        promised: excesses at gamma = 2^k of a state.
    """
    edges: dict[int, tuple[int, ...]] = {}
    frontier = np.array(sorted(set(starts)))
    while frontier.size:
        found = np.stack(after(frontier))
        if (found >= frontier).any():
            raise ArithmeticError("a play that costs nothing")
        edges |= {int(x): tuple(map(int, row)) for x, row in zip(frontier, found.T, strict=True)}
        frontier = np.array(sorted(set(found[found >= 0].tolist()) - edges.keys()), np.int64)
    best: dict[int, list[F]] = {}
    most, where = 0.0, (0, 0)
    for left in sorted(edges):
        curve = [F(0)] * (2 * _SIZE + 1)
        for one, to in zip(coins, edges[left], strict=True):
            if to >= 0:
                curve = worst(curve, best[to], one)
        best[left] = curve
        if any(curve):
            ratios = np.array([float(x) for x in curve]) / promised(left)
            if ratios.max() > most:
                most, where = float(ratios.max()), (left, int(ratios.argmax()) - _SIZE)
    return {"states": len(edges), "largest ratio to the promise": most, "at (units left, power of 2)": where}


def menu(scale: float = 1.0) -> dict[str, Any]:
    """Two coins on a menu and one off it, at each state's price; a budget of hundreds of units, all of them states.

    A coin of the menu is played at the lower one of its fixed price and its price in the state.
    """
    queries = [RandomizedResponse(k * math.log(2)) for k in (1, 3)]
    with jax.enable_x64(True):
        ledger = filters.menu(
            queries, epsilon=6 * math.log(2), delta=3e-2, unit=100, points=512, online=True, cache=False
        )
        budget, promise = int(ledger.budget), ledger.promise
        assert promise is not None
        grid = promise.grid
        spent = [ledger.init()._replace(spent=on_device(np.int32(budget - left))) for left in range(budget + 1)]
        between = RandomizedResponse(2 * math.log(2))
        prices = np.array([[int(ledger.price(asked, state)) for state in spent] for asked in (0, between, 1)])
        fixed = np.asarray(ledger.prices)
    prices[[0, 2]] = np.minimum(prices[[0, 2]], fixed[:, None])
    curves = promise.curves * np.exp(0.5 * grid.losses)
    points = math.log(2) * np.arange(-_SIZE, _SIZE + 1)

    def promised(left: int) -> np.ndarray:
        node, rest = divmod(left, promise.node)
        share = rest / promise.node
        row = (1 - share) * curves[node] + share * curves[min(node + 1, len(curves) - 1)]
        # Between lattice points E is linear in gamma away from gamma = 1.
        found = np.interp(np.exp(points), np.exp(grid.losses), row)
        return found + promise.slack * left * np.minimum(1.0, np.exp(points))

    def after(left: np.ndarray) -> list[np.ndarray]:
        asked = np.maximum((prices[:, left] * scale).astype(np.int64), 1)
        return list(np.where(prices[:, left] < 2**31 - 1, left - asked, -1))

    found = largest_ratio([COINS[0], COINS[1], COINS[3]], after, range(budget + 1), promised)
    return {f"menu of two coins, a third online, {budget} units, prices times {scale:g}": found}


def _prices_of(one: Coin, family: Family, scale: float) -> np.ndarray:
    """A coin's lines in units, times ``scale``."""
    law = one[0]
    losses, grid = sorted(law), family.grid
    atoms = kernels.Ratios(math.log(2) * np.array(losses), np.array([float(law[k]) / 2.0**k for k in losses]), 0.0)
    kernel = kernels.kernel_of(atoms, family.half_width, grid.spacing, grid.size)
    count = int(np.searchsorted(family.nodes, 1.0))
    found = np.stack(lines.price_lines(kernel, family)[:2])[:, :count]
    return np.where(found <= 1, np.ceil(found * UNITS * scale), 2**31 - 1).astype(np.int32)


def _box(name: str, family: Family, coins: Sequence[Coin], starts: int, scale: float) -> dict[str, Any]:
    count = int(np.searchsorted(family.nodes, 1.0))
    whole = np.rint(family.nodes[: count + 1] * UNITS).astype(np.int32)
    charges = [charge_of(_prices_of(one, family, scale)) for one in coins]
    root = np.exp(0.5 * family.grid.losses[::_STEP])
    after = lambda left: [np.asarray(left_after_run(one, whole, left), np.int64) for one in charges]  # noqa: E731
    promised = lambda left: family.curve(left / UNITS, family.width)[::_STEP] * root  # noqa: E731
    found = largest_ratio(coins, after, [UNITS * i // starts for i in range(starts + 1)], promised)
    return {f"{name}, prices times {scale:g}": found}


def box_of_gaussians(scale: float = 1.0) -> dict[str, Any]:
    """Three coins at their prices against Gaussian curves, which have nothing to do with them."""
    grid = LossGrid(math.log(2) / _STEP, -_STEP * _SIZE, 2 * _STEP * _SIZE + 1)
    nodes = np.rint(UNITS * np.linspace(0, 1.1, 67)) / UNITS
    nodes[60] = 1.0
    excess = np.stack([kernels.gaussian_excess(2.0 * math.sqrt(max(b, 1e-9)), grid.losses) for b in nodes])
    excess[0] = 0.0
    family = families.prepared(grid, nodes, excess, 5 * grid.spacing, 1e-3, 0.2)
    return _box("box for three coins, Gaussian curves", family, COINS[:3], 1, scale)


def box_of_coins(scale: float = 1.0) -> dict[str, Any]:
    """Three coins against the exact worst case of two of them at whole prices: nothing to spare but the slack.

    Budgets from 0 in steps of a thousandth are states to begin in.
    """
    grid = LossGrid(math.log(2) / _STEP, -_STEP * _SIZE, 2 * _STEP * _SIZE + 1)
    exact = [[F(0)] * (2 * _SIZE + 1)]
    for notch in range(1, _NOTCHES + 2):
        best = exact[-1]
        for one, price in zip(COINS, _PRICES, strict=False):
            if notch >= price:
                best = worst(best, exact[notch - price], one)
            else:  # a ramp up to the first run
                best = [max(x, y * F(notch, price)) for x, y in zip(best, one[1], strict=True)]
        exact.append(best)
    # Between powers of 2 the curves are linear in gamma.
    gammas = 2.0 ** np.arange(-_SIZE, _SIZE + 1)
    rows = np.array([[float(x) for x in row] for row in exact])
    excess = np.stack([np.interp(np.exp(grid.losses), gammas, row) for row in rows]) * np.exp(-0.5 * grid.losses)
    nodes = np.rint(UNITS * np.arange(len(exact)) / _NOTCHES) / UNITS
    family = families.prepared(grid, nodes, excess, 5 * grid.spacing, 1e-4, 0.2)
    return _box("box for three coins, curves of two of them", family, COINS[:3], 1000, scale)
