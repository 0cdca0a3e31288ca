"""Adaptive analysts played by Monte Carlo against every filter, by a test that notices a guarantee 2 % too optimistic.

A policy decides by what came out so far; the filter is asked along every branch of its decisions; then a million plays
on either of two neighbouring datasets are simulated. Two statistics judge them, both blind to how a guarantee was made:

- at an epsilon, the event "the loss exceeds epsilon": P(S) - e^epsilon Q(S) is at most delta(epsilon). Exact binomial
  (Clopper-Pearson) bounds, wrong with a probability of 1e-6 each. It has power where a guarantee is attained.
- where a guarantee is a Rényi divergence, which no event attains, the divergence: E_P[(P / Q)^(order - 1)] is at most
  exp((order - 1) rho). Five standard errors; orders and budgets are so small that the variable has a small variance.

That they notice is shown on every arena by a plant: mechanisms that are 2 % louder than what was charged (in epsilon,
mu or, by the root, rho), which is a guarantee that is 2 % too optimistic in that parameter.
"""

from __future__ import annotations

import dataclasses

import jax
import pytest

from jaxacct import filters
from jaxacct.filters import amounts
from tests.filters.test_simulation import (
    ARENAS,
    LOUDER,
    alarms,
    asked,
    even,
)

PLAYS, ROUNDS = 1_000_000, 3
pytestmark = pytest.mark.slow  # some twenty compilations, and a billion coins


def test_a_filter_that_charges_2_percent_too_little_is_noticed():
    """A plant in the filter itself: its ledger holds 2 % more than its guarantee says."""
    arena = ARENAS["gdp"]
    with jax.enable_x64(True):
        wide = filters.GDPFilter(amounts.split(LOUDER))
    _, tree = asked(dataclasses.replace(arena, make=lambda: wide), even, ROUNDS)
    assert alarms(arena, filters.gdp(1.0).guarantee, tree)
