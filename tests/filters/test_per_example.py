"""Individual ledgers: what each example pays, who drops out, and what is refused."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, filters

SIGMA, RATE = np.geomspace(1.0, 4.0, 7).astype(np.float32), np.float32(0.1)
STEP = PoissonSampled(Gaussian(1.0), RATE)


def cost(norm, sigma=1.0, rate=RATE, regime="small"):
    """What Algorithm 3 charges, in double precision."""
    mu = np.minimum(np.float64(norm), 1.0) / sigma
    return np.float64(rate) ** 2 * (np.expm1(mu * mu) if regime == "small" else mu * mu) / 2


@pytest.mark.parametrize("regime", ["small", "large"])
def test_algorithm_3_never_charges_less_than_its_formula_and_hardly_more(regime):
    rng = np.random.default_rng(1)
    norms = np.append(10 ** rng.uniform(-7, 0.1, 4000), [1.0, 1e-45, 5e-39]).astype(np.float32)
    for sigma, budget in ((0.3, 1e4), (1.0, 3e-2), (1.0, 1e-18), (40.0, 1e-6), (1e-3, 1e30)):
        low, high = (1e-6, 0.19) if regime == "small" else (0.81, 1.0)
        rate = rng.uniform(low, high, norms.size).astype(np.float32)
        ledger = filters.per_example(filters.approximate_gdp(budget, regime=regime), examples=norms.size)
        query = PoissonSampled(Gaussian(sigma), rate)
        _, state = ledger.update(query, norms, ledger.init())
        allowed = np.asarray(ledger.bounds(query, norms, state)).astype(np.float64)
        with jax.enable_x64(True):
            spent = np.asarray(ledger.spent(state))
        with np.errstate(over="ignore"):
            exact, paid = (cost(n, sigma, rate, regime) for n in (norms, allowed))
        whole = allowed >= np.minimum(norms, 1)
        assert (paid <= spent * (1 + 1e-12)).all(), (sigma, budget)
        assert (spent <= budget * (1 + 1e-12)).all()
        tight = exact * (1 + 4e-5 * (1 + (norms / sigma) ** 2)) + budget * 2.0**-29
        assert (spent[whole] <= tight[whole]).all()
        # Who cannot pay spends all that is left, within rounding.
        cut = ~whole & (norms > 1e-30)
        assert (spent[cut] >= budget).all()
        assert (paid[cut] >= budget * (1 - 1e-4)).all()


def test_the_last_step_of_algorithm_3_spends_what_is_left_and_is_the_last():
    norms = np.float32([1.0, 0.8, 0.3])
    budget = 4.5 * cost(1.0)
    ledger = filters.per_example(filters.approximate_gdp(budget), examples=3)
    common = filters.approximate_gdp(budget)
    each = filters.per_example(common, examples=3)
    state, slow, total = ledger.init(), each.init(), np.zeros(3)
    for step in range(10):
        takes_part, state = ledger.update(STEP, norms, state)
        also, slow = each.update(STEP, norms, slow)
        allowed = np.asarray(ledger.bounds(STEP, norms, state))
        assert takes_part.tolist() == also.tolist() == (allowed > 0).tolist()
        np.testing.assert_allclose(allowed, each.bounds(STEP, norms, slow), rtol=1e-4)
        total += cost(allowed)
        assert (total <= budget).all()
        assert (total <= np.asarray(ledger.spent(state)) * (1 + 1e-6)).all()
        assert (allowed[0] == 1.0) == (step < 4)
        assert (0 < allowed[0] < 1.0) == (step == 4)
    assert total[0] > budget * (1 - 1e-4)
    assert ledger.remaining(state).tolist()[0] == 0.0
    np.testing.assert_allclose(ledger.fraction(state), each.fraction(slow.__class__(*slow)), rtol=1e-4)


def test_everybody_pays_at_least_the_price_of_their_norm_and_hardly_more():
    menu = filters.menu(filters.gaussian_menu((1.0, 4.0), RATE, sigmas=7), epsilon=2.0, delta=1e-3, unit=40, points=256)
    some = [0.0, 1e-45, 1e-38, 1e-6, 0.2499, 0.25, 0.2501, 1.0, np.nextafter(np.float32(1), np.float32(0)), 1.5, 3e32]
    norms = np.append(some, np.random.default_rng(0).uniform(0, 1.2, 200)).astype(np.float32)
    ledger = filters.per_example(menu, examples=norms.size)
    takes_part, state = ledger.update(STEP, norms, ledger.init())
    spent, norm = np.asarray(ledger.spent(state)), np.minimum(norms.astype(np.float64), 1.0)
    assert takes_part.tolist() == (norms > 0).tolist()
    assert (spent[norms == 0] == 0).all()
    price = lambda n: np.asarray(menu.price(PoissonSampled(Gaussian(1.0, n), RATE)))  # noqa: E731
    norm, paid = norm[norms > 0], spent[norms > 0]
    assert np.all((price(norm) <= paid) & (paid <= price(np.minimum(norm * (1 + 2.0**-7), 1.0))))
    assert np.unique(spent).size > 6
    assert (spent[norms >= 1] == price(1.0)).all(), "the clip norm itself is not rounded"


def test_an_example_at_the_clip_norm_takes_part_nearly_as_often_as_the_common_filter_admits():
    query = PoissonSampled(Gaussian(0.8), 0.15)  # each step costs more than 5 % of the budget
    box = filters.sampled_gaussian(sigma=(0.8, 1.0), rate=0.15, epsilon=2.0, delta=3e-3)
    account = filters.per_example(box, examples=1)
    state, count = account.init(), 0
    for _ in range(30):
        takes_part, state = account.update(query, np.ones(1, np.float32), state)
        count += bool(takes_part[0])
    common = int(box.steps_left(query))
    assert 2 <= common < 20
    assert common - 1 <= count <= common


def test_noise_and_clip_norms_out_of_the_range_of_float32_are_nobodys_step():
    # A norm and a sigma of 1e-40 are a mu of 1, whose float32 is lost.
    norms = np.array([1e-40, 1e-30, 1.0, 3e38])
    ledger = filters.per_example(filters.approximate_gdp(0.7), examples=norms.size)

    @jax.jit
    def asked(sigma, clip):
        query = PoissonSampled(Gaussian(sigma, sensitivity=clip), 0.1)
        part, state = ledger.update(query, norms, ledger.init())
        return part, ledger.fraction(state), ledger.bounds(query, norms, state)

    with jax.enable_x64(True):
        for sigma, clip in ((1e-40, 1.0), (9e-21, 1.0), (1.1e20, 1.0), (1e39, 1e39), (1.0, 1e-21), (1.0, np.inf)):
            part, fraction, bounds = asked(sigma, clip)
            assert not part.any()
            assert not fraction.any()
            assert not bounds.any()
        for sigma, clip in ((1.1e-20, 1.0), (9e19, 1e39), (1.0, 1.1e-20)):
            part, fraction, _ = asked(sigma, clip)
            assert part.all()
            square = (np.minimum(norms, clip) / sigma) ** 2
            cost = np.where(square < 500, 0.01 * np.expm1(np.minimum(square, 500)) / 2 / 0.7, np.inf)
            assert np.all(np.asarray(fraction) >= np.minimum(cost, 1))
