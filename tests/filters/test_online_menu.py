"""Prices off the menu: an exact worst case with such queries in it, what they buy, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import Composed, Gaussian, Laplace, PoissonSampled, filters
from tests.filters.test_menu import DELTA, EPSILON, MENU, POINTS

NOWHERE = 2**31 - 1


@pytest.fixture(scope="module")
def online():
    made = filters.menu(MENU, epsilon=EPSILON, delta=DELTA, points=POINTS, online=True)
    again = filters.menu(MENU, epsilon=EPSILON, delta=DELTA, points=POINTS, online=True)
    assert made.promise is not None
    assert again.promise is not None
    assert (made.promise.curves == again.promise.curves).all()  # from the disk
    assert (
        len(made.promise.curves) == int(made.budget) // made.promise.node + 2
    )  # up to the first node above the budget
    return made


def off_menu(sigma, rate=0.1):
    return PoissonSampled(Gaussian(float(sigma)), rate)


@pytest.mark.slow  # a price takes a table's evaluation
def test_what_lies_between_two_entries_pays_between_their_prices(online):
    prices, sigmas = np.asarray(online.prices), [float(one.mechanism.sigma) for one in MENU]
    budget = int(online.budget)
    for spent in (0, budget // 2):
        state = online.init()._replace(spent=jnp.int32(spent))
        for i, sigma in enumerate(sigmas):
            # On the menu: never more than the menu's price, and not much less, or the table would be slack.
            for asked in (i, off_menu(sigma)):
                assert 0.97 * prices[i] <= online.price(asked, state) <= prices[i]
        for i, middle in enumerate(np.sqrt(np.array(sigmas[1:]) * sigmas[:-1])):
            price = online.price(off_menu(middle), state)
            assert prices[i + 1] < price < 0.9 * prices[i]
            law = online.promise.law(off_menu(middle))
            assert online.promise.certified(*law, budget - spent, price)
        louder, quieter = (online.price(off_menu(s), state) for s in (0.95 * sigmas[0], 1.5 * sigmas[-1]))
        assert prices[0] < louder < 1.5 * prices[0]
        assert 0.25 * prices[-1] < quieter < 0.7 * prices[-1]
    assert [int(online.price(i, state)) for i in (4, -1)] == [NOWHERE, NOWHERE]


@pytest.mark.slow
def test_a_run_off_the_menu_goes_on_for_longer_and_costs_what_was_promised(online):
    query = off_menu(1.35)
    state, runs = online.init(), 0
    while True:
        admitted, after = online.update(query, state)
        if not admitted:
            assert after.spent == state.spent
            break
        assert int(after.spent) > int(state.spent)
        state, runs = after, runs + 1
    assert runs >= 1.08 * (int(online.budget) // int(online.prices[0]))  # snapped to the entry below
    truth = jaxacct.epsilon(query, DELTA, steps=runs)
    claimed = float(online.guarantee.epsilon(DELTA))
    assert truth.lower <= claimed <= EPSILON
    assert truth.upper >= 0.9 * EPSILON
    assert online.guarantee.is_bound
    assert "a query that the table does not have" in online.guarantee.statement
    # Too little is left for any entry of that noise, but not for a much quieter one.
    left = int(online.remaining(state))
    assert online.price(query, state) > left
    assert 0.9 < float(online.fraction(state)) <= 1


def test_what_has_no_price_is_refused_and_what_is_no_query_is_an_error(online):
    state = online.init()
    assert online.price(off_menu(0.3), state) == NOWHERE
    spent = online.init()._replace(spent=online.budget)
    assert not online.update(off_menu(50.0), spent)[0]
    with pytest.raises(ValueError, match="outside of jit"):
        jax.jit(lambda s: online.price(Laplace(20.0), online.init()._replace(spent=s)))(state.spent)
    for wrong in ("gaussian", 0.5, True):
        with pytest.raises(ValueError, match="mechanism"):
            online.price(wrong, state)


def test_compiled_code_and_arrays_pay_the_menus_prices_which_the_same_curves_certify(online):
    query, state = off_menu(1.35), online.init()
    snapped = int(jax.jit(lambda s: online.price(query, online.init()._replace(spent=s)))(state.spent))
    assert snapped == int(online.prices[0])
    assert online.price(query, state) < snapped
    both = online.price(PoissonSampled(Gaussian(np.array([1.35, 0.3])), 0.1), state)
    assert both.tolist() == [snapped, NOWHERE]


@pytest.mark.slow
def test_other_kinds_of_queries_have_prices_as_well(online):
    state = online.init()
    quiet = online.price(Laplace(20.0), state)
    assert 0 < quiet < int(online.prices.max())
    assert quiet < online.price(Laplace(10.0), state)
    two = Composed([off_menu(1.35)], 2)
    one = online.price(off_menu(1.35), state)
    assert 1.9 * one < online.price(two, state) < 2.1 * one
