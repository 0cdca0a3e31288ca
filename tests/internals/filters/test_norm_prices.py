"""Everybody pays at least the price of their norm, and hardly more."""

from __future__ import annotations

import numpy as np

from jaxacct import Gaussian, LossGrid, PoissonSampled, PrivacyProfile
from jaxacct.filters import amounts
from jaxacct.filters.accounts.table import of_table
from jaxacct.filters.prices.menu import fixed_prices

SIGMA, RATE = np.geomspace(1.0, 4.0, 7).astype(np.float32), np.float32(0.1)
PRICES, BUDGET, NOBODY = np.rint(160 * SIGMA**-2.0).astype(np.int32), 1000, 2**31 - 1
STEP = PoissonSampled(Gaussian(1.0), RATE)
NORMS = np.concatenate(
    [
        [0.0, 1e-45, 1e-38, 1e-6, 0.2499, 0.25, 0.2501, 1.0, np.nextafter(np.float32(1), np.float32(0)), 1.5, 3e32],
        np.random.default_rng(0).uniform(0, 1.2, 500),
    ]
).astype(np.float32)


def menu_ledger(examples, budget=BUDGET):
    """A ledger without its table: only the guarantee needs that."""
    noise, rate = (np.asarray(amounts.split(np.float64(x))) for x in (SIGMA, np.full(7, RATE)))
    common = fixed_prices(PRICES, budget, noise, rate, PrivacyProfile(np.zeros(3), LossGrid(0.1, -1, 3)), (1.0, 1e-5))
    return of_table(common, examples)


def test_everybody_pays_at_least_the_price_of_their_norm_and_hardly_more():
    ledger = menu_ledger(NORMS.size)
    takes_part, state = ledger.update(STEP, NORMS, ledger.init())
    spent = np.asarray(ledger.spent(state))
    norm = np.minimum(NORMS.astype(np.float64), 1.0)
    for n, price, took in zip(norm, spent, np.asarray(takes_part), strict=True):
        assert took == (n > 0)
        if n == 0:
            assert price == 0
        else:
            exact = lambda n: int(ledger.filter.price(PoissonSampled(Gaussian(1.0, n), RATE)))  # noqa: E731
            assert exact(n) <= price <= exact(min(n * (1 + 2.0**-7), 1.0))
    assert spent[NORMS >= 1].tolist() == [PRICES[0]] * int((NORMS >= 1).sum()), "the clip norm itself is not rounded"
    bounds = np.asarray(ledger.bounds(STEP, NORMS, state))
    assert bounds.dtype == np.float32
    assert bounds.tolist() == np.minimum(NORMS, 1).tolist()
