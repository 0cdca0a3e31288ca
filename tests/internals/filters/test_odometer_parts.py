"""Parts of the odometer by themselves: levels, divergences that are rounded up, statements."""

from __future__ import annotations

import dataclasses
import importlib
from fractions import Fraction
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import filters
from jaxacct.filters import amounts

# The package's name for this is the function's.
meter = importlib.import_module("jaxacct.filters.odometer")
RNG = np.random.default_rng(4)


@dataclasses.dataclass(frozen=True)
class Asked:
    """A filter whose guarantee shows the delta that it is asked at."""

    pieces: object

    @property
    def guarantee(self):
        return SimpleNamespace(epsilon=lambda delta: jnp.broadcast_to(delta, (*delta.shape[:-1], 3)))


@jax.enable_x64(True)
def test_levels_share_delta_and_divergences_are_rounded_up():
    counter = SimpleNamespace(filter=Asked(amounts.split(0.7)), levels=3)
    empty = amounts.empty(amounts.split(0.7))
    levels = jax.jit(lambda state, delta: meter._of_levels(counter, state, delta))
    for delta in RNG.uniform(1e-9, 1e-3, 20):
        share = float(levels(empty, delta))
        assert Fraction(delta) * (1 - Fraction(1, 2**49)) <= 3 * Fraction(share) <= Fraction(delta)
    assert float(levels(amounts.full(empty), 0.3)) == pytest.approx(0.1)
    state = amounts.SpentState(jnp.array(RNG.integers(2**20, 2**24, (40, 3)), jnp.uint32))
    for kind, factor in ((filters.renyi(3.0, 1e-5, order=8), None), (filters.zcdp(0.7), 1), (filters.gdp(0.7), 0.5)):
        counter = filters.odometer(kind, orders=None if factor is None else (2.0, 9.0))
        orders, sums = jax.jit(meter._sums)(counter, state)
        budget = Fraction(float(amounts.join(kind.pieces)))
        assert orders.tolist() == ([8.0] if factor is None else [2.0, 9.0])
        for share, row in zip(jax.jit(amounts.used)(state).tolist(), sums.tolist(), strict=True):
            rho = Fraction(share) * (budget * budget / 2 if factor == 0.5 else budget)
            for order, found in zip(orders.tolist(), row, strict=True):
                truth = rho * (1 if factor is None else Fraction(order))
                assert truth <= Fraction(found) <= truth * (1 + Fraction(1, 2**47))


def test_an_odometer_says_by_which_theorem_it_reads():
    for kind, more, name in (
        (filters.pure_dp(1.0), {}, "pure"),
        (filters.renyi(3.0, 1e-5, order=8), {}, "one order"),
        (filters.zcdp(1.0), {"orders": (2.0, 8.0)}, "mixture"),
        (filters.zcdp(1.0), {"levels": 3}, "levels"),
    ):
        assert filters.odometer(kind, **more).statement == meter._STATEMENTS[name]
