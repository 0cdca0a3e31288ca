"""Prices off the menu: an exact worst case with such queries in it, what they buy, and what is refused."""

import math
from fractions import Fraction as F

import numpy as np

from jaxacct.filters.menus import table as _budget_table
from jaxacct.filters.menus.online import MenuCurves
from tests.internals.filters.test_priced_menu import randomized_response, two_coins


def test_it_dominates_the_exact_worst_case_of_coins_on_and_off_the_menu_in_rational_numbers():
    size, reach, node = 40, 2, 5
    prices = np.array([7, 22])
    coins, lattice = two_coins(size, reach)
    grid = lattice.grid
    target = lambda curve: curve[size + 2] <= 0.7  # noqa: E731
    table = _budget_table.budget_table(lattice, prices, node, target, 2**31 - 2, keep=True)
    assert table.curves is not None
    budget, slack = table.budget, 1e-12
    assert budget > 60
    ledger = MenuCurves(table.curves, node, budget, slack, reach, grid)

    # Off the menu: a louder coin than any, and one that is tossed with probability 1/2 (a loss of 0 otherwise).
    louder = randomized_response(3, size, 3)
    half = {k: p / 2 for k, p in coins[1][0].items()} | {0: F(1, 2)}
    off = [louder, (half, [e / 2 for e in coins[1][1]])]

    def certified(query, left, price):
        one, excess = query
        law = np.array([float(one.get(k, F(0))) * 2.0 ** (-k / 2) for k in range(-3, 4)]) * (1 + 1e-15)
        at = np.array([float(e) for e in excess]) * np.exp(-0.5 * grid.losses) * (1 + 1e-13)
        return ledger.certified(law, -3, at, left, price)

    # The least certified price in every state; a smaller one must not have passed by accident of the search.
    nowhere = budget + 1
    found = [
        [next((p for p in range(1, b + 1) if certified(q, b, p)), nowhere) for b in range(budget + 1)] for q in off
    ]
    assert 22 < min(found[0]) <= max(found[0][-10:]) < nowhere
    assert 7 < min(found[1]) < 22

    def value(known, k):
        return known[k + size] if -size <= k <= size else F(0)

    exact = [[F(0)] * (2 * size + 1)]
    for b in range(1, budget + 1):
        best = list(exact[-1])
        moves = [(query, int(price)) for query, price in zip(coins, prices, strict=True)]
        moves += [(query, prices_[b]) for query, prices_ in zip(off, found, strict=True)]
        for (one, excess), price in moves:
            if price <= b:
                known = exact[b - price]
                for k in range(-size, size + 1):
                    mean = sum(p * value(known, k - loss) for loss, p in one.items())
                    best[k + size] = max(best[k + size], excess[k + size] + mean)
        exact.append([F(math.floor(x * 2**60), 2**60) for x in best])
        promised = ledger.curve(b) * np.exp(0.5 * grid.losses) * (1 + 1e-13)
        assert (promised >= np.array([float(x) for x in exact[-1]])).all()
    assert not certified(off[0], budget, budget + 1)
    assert not certified(off[0], budget, 0)
    assert not certified(off[0], budget + 1, 30)
