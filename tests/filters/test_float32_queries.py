"""Filters whose entries are Python floats take the same numbers from a float32 program, at the entry's price."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, epsilon, filters, training

TARGET = {"epsilon": 2.0, "delta": 1e-5}
# Each rounds to float32 in another direction: 2.8 to less noise, 4.4 to more; 0.05 to a larger rate, 0.06 to a smaller.
PAIRS = [(2.8, 0.05), (2.8, 0.06), (4.4, 0.05), (4.4, 0.06)]
SCALES = (1.0, 0.7, 1.1, 3.0)


def test_the_numbers_of_these_tests_round_both_ways():
    below = [float(np.float32(x)) < x for x in (2.8, 4.4, 0.05, 0.06)]
    assert below == [True, False, False, True]


def menu_of(pairs):
    return [PoissonSampled(Gaussian(sigma), rate) for sigma, rate in pairs]


@functools.cache
def menu():
    return filters.menu(menu_of(PAIRS), **TARGET, unit=32)


@functools.cache
def online():
    return filters.menu(menu_of(PAIRS), **TARGET, unit=32, online=True)


@functools.cache
def levels():
    return training.on_levels(filters.gdp_residue(1.0, 1e-6, steps=100), [Gaussian(2.8), Gaussian(4.4)])


@functools.cache
def box():
    return filters.sampled_gaussian(sigma=2.8, rate=0.05, **TARGET)


def queries(sigma, rate):
    """A query of the two numbers by each way into a float32 program."""
    plain, scaled = (
        (jax.jit(lambda s, q: PoissonSampled(Gaussian(s), q))),
        jax.jit(lambda s, c, q: PoissonSampled(Gaussian(s * c, c), q)),
    )
    both = jax.jit(lambda s, c, q: PoissonSampled(Gaussian(s, c), q))
    twice = jax.jit(lambda s, q: PoissonSampled(PoissonSampled(Gaussian(s), q), 0.5))
    found = [plain(sigma, rate), plain(np.float32(sigma), np.float32(rate)), twice(sigma, 2 * rate)]
    for scale in SCALES:
        found += [scaled(sigma, scale, rate), both(sigma * scale, scale, rate)]
    return found


@pytest.mark.parametrize(("sigma", "rate"), PAIRS)
def test_a_menu_charges_a_float32_programs_numbers_as_their_entry(sigma, rate):
    for made in (menu(), online()):
        price = jax.jit(made.price)
        entry = int(made.prices[PAIRS.index((sigma, rate))])
        for query in queries(sigma, rate):
            assert int(price(query)) == entry
            admitted, after = jax.jit(made.update)(query, made.init())
            assert bool(admitted)
            assert int(after.spent) == entry
        # Concretely too, at no more than the entry's price.
        assert int(made.price(PoissonSampled(Gaussian(np.float32(sigma)), np.float32(rate)))) <= entry
        assert int(menu().price(PoissonSampled(Gaussian(sigma), rate))) == int(menu().price(PAIRS.index((sigma, rate))))


def test_what_is_louder_than_an_entry_by_more_than_rounding_is_not_charged_as_it():
    price, entry = jax.jit(menu().price), int(menu().prices[0])
    for query in queries(2.8 * (1 - 2.0**-20), 0.05) + queries(2.8, 0.05 * (1 + 2.0**-20)):
        assert int(price(query)) > entry


def test_the_loudest_query_that_is_charged_as_an_entry_is_covered_by_the_guarantee():
    made = filters.menu(menu_of(PAIRS[:1]), **TARGET, unit=32)
    loud = PoissonSampled(Gaussian(2.8 * (1 - 2.0**-22) * (1 + 1e-15)), 0.05 * (1 + 2.0**-22) * (1 - 1e-15))
    assert int(made.price(loud)) == int(made.prices[0])
    runs = int(made.budget) // int(made.prices[0])
    cost = epsilon(loud, 1e-5, steps=runs)
    assert 0.98 * 2.0 < float(cost.upper) <= float(made.guarantee.epsilon(1e-5)) <= 2.0


@pytest.mark.parametrize("sigma", [2.8, 4.4])
def test_levels_charge_a_float32_programs_numbers_as_their_level(sigma):
    made = levels()
    update = jax.jit(made.update)
    wanted, _ = update(Gaussian(sigma * 1.001), made.init())
    assert bool(wanted)
    left = float(made.remaining(update(Gaussian(sigma * 1.001), made.init())[1]))
    for scale in SCALES:
        query = jax.jit(lambda s, c: Gaussian(s * c, c))(sigma, scale)
        admitted, after = update(query, made.init())
        assert bool(admitted)
        assert float(made.remaining(after)) == left


def test_a_box_takes_its_loudest_corner_from_a_float32_program():
    update = jax.jit(box().update)
    prices = set()
    for query in queries(2.8, 0.05):
        admitted, after = update(query, box().init())
        assert bool(admitted)
        prices.add(int(after.spent))
    assert len(prices) == 1
    assert not any(bool(update(query, box().init())[0]) for query in queries(2.8 * (1 - 2.0**-20), 0.05))


@pytest.mark.parametrize("make", ["menu", "box"])
def test_per_example_accounts_take_the_entrys_numbers_from_a_float32_program(make):
    if make == "menu":
        made = filters.per_example(filters.menu(menu_of([(2.8, 0.05)]), **TARGET), examples=3)
    else:
        made = filters.per_example(filters.sampled_gaussian(sigma=2.8, rate=0.05, **TARGET), examples=3)
    update = jax.jit(made.update)
    for scale in SCALES:
        for query in (
            jax.jit(lambda s, c, q: PoissonSampled(Gaussian(s * c, c), q))(2.8, scale, 0.05),
            PoissonSampled(Gaussian(2.8 * scale, scale), 0.05),
        ):
            norms = jnp.array([1.0, 2.0, 0.5], jnp.float32) * np.float32(scale)  # at the clip norm, above and below
            takes_part, _ = update(query, norms, made.init())
            assert np.asarray(takes_part).all(), scale
