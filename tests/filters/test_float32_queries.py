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
LEVELS = [(2.8, 1.0), (4.4, 1.0)]


def menu_of(pairs):
    return [PoissonSampled(Gaussian(sigma), rate) for sigma, rate in pairs]


@functools.cache
def menu(online=False):
    return filters.menu(menu_of(PAIRS), **TARGET, unit=32, online=online)


MADE = {
    "menu": (menu, PAIRS),
    "online menu": (functools.partial(menu, True), PAIRS),
    "box": (functools.cache(lambda: filters.sampled_gaussian(sigma=2.8, rate=0.05, **TARGET)), PAIRS[:1]),
    "levels": (
        functools.cache(lambda: training.on_levels(filters.gdp_residue(1.0, 1e-6, steps=100), menu_of(LEVELS))),
        LEVELS,
    ),
}


def queries(sigma, rate):
    """A query of the two numbers by each way into a float32 program."""
    plain, scaled = (
        (jax.jit(lambda s, q: PoissonSampled(Gaussian(s), q))),
        jax.jit(lambda s, c, q: PoissonSampled(Gaussian(s * c, c), q)),
    )
    both = jax.jit(lambda s, c, q: PoissonSampled(Gaussian(s, c), q))
    twice = jax.jit(lambda s, q: PoissonSampled(PoissonSampled(Gaussian(s), q), 0.5))
    found = [plain(sigma, rate), plain(np.float32(sigma), np.float32(rate))]
    found += [twice(sigma, 2 * rate)] if rate < 0.5 else []
    for scale in SCALES:
        found += [scaled(sigma, scale, rate), both(sigma * scale, scale, rate)]
    return found


@pytest.mark.parametrize(("name", "place"), [(name, i) for name, (_, pairs) in MADE.items() for i in range(len(pairs))])
def test_a_float32_programs_numbers_are_charged_as_their_entry_and_louder_ones_are_not(name, place):
    made, (sigma, rate) = MADE[name][0](), MADE[name][1][place]
    update = jax.jit(made.update)
    spent = lambda query: float(made.spent(update(query, made.init())[1]))  # noqa: E731
    entry = spent(PoissonSampled(Gaussian(sigma * (1 + 1e-6)), rate * (1 - 1e-6)))
    assert entry > 0
    if name == "menu":
        assert entry == int(made.prices[place]) == int(made.price(PoissonSampled(Gaussian(sigma), rate)))
    for query in queries(sigma, rate):
        assert spent(query) == (pytest.approx(entry, rel=1e-5) if name == "box" else entry)
    # By more than rounding: the price of a louder entry, or none.
    for query in queries(sigma * (1 - 2.0**-20), rate) + queries(sigma, min(rate * (1 + 2.0**-20), 1.0)) * (rate < 1):
        assert not 0 < spent(query) <= entry


def test_the_loudest_query_that_is_charged_as_an_entry_is_covered_by_the_guarantee():
    made = filters.menu(menu_of(PAIRS[:1]), **TARGET, unit=32)
    loud = PoissonSampled(Gaussian(2.8 * (1 - 2.0**-22) * (1 + 1e-15)), 0.05 * (1 + 2.0**-22) * (1 - 1e-15))
    assert int(made.price(loud)) == int(made.prices[0])
    runs = int(made.budget) // int(made.prices[0])
    cost = epsilon(loud, 1e-5, steps=runs)
    assert 0.98 * 2.0 < float(cost.upper) <= float(made.guarantee.epsilon(1e-5)) <= 2.0


@pytest.mark.parametrize("name", ["menu", "box"])
def test_per_example_accounts_take_the_entrys_numbers_from_a_float32_program(name):
    made = filters.per_example(MADE[name][0](), examples=3)
    update = jax.jit(made.update)
    for scale in SCALES:
        for query in (
            jax.jit(lambda s, c, q: PoissonSampled(Gaussian(s * c, c), q))(2.8, scale, 0.05),
            PoissonSampled(Gaussian(2.8 * scale, scale), 0.05),
        ):
            norms = jnp.array([1.0, 2.0, 0.5], jnp.float32) * np.float32(scale)  # at the clip norm, above and below
            takes_part, _ = update(query, norms, made.init())
            assert np.asarray(takes_part).all(), scale
