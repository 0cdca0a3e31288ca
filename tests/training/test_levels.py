"""Filters that need concrete queries, under a traced noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import filters
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.training import on_levels

INNER = filters.gdp_residue(1.0, 1e-6, steps=100)
GAUSSIANS = (Gaussian(2.0), Gaussian(4.0))
LEVELS = on_levels(INNER, GAUSSIANS)


@pytest.fixture(scope="module", params=[1.0, pytest.param(0.1, marks=pytest.mark.slow)])
def menu(request):
    """A menu, its levels' compiled update, and its rate."""
    menu = GAUSSIANS if request.param == 1.0 else filters.gaussian_menu((2.0, 4.0), 0.1, sigmas=2)
    levels = on_levels(INNER, menu)
    update = jax.jit(lambda sigma, rate, state: levels.update(PoissonSampled(Gaussian(sigma), rate), state))
    return menu, update, request.param


def test_a_traced_query_is_charged_as_the_cheapest_level_that_dominates_it(menu):
    queries, update, rate = menu
    state = LEVELS.init()
    for sigma, share, level in ((2.0, 1.0, 0), (3.9, 1.0, 0), (4.0, 1.0, 1), (9.0, 0.1, 1)):
        admitted, after = update(jnp.float32(sigma), jnp.float32(rate * share), state)
        there, expected = INNER.update(filters.prepare(queries[level]), state)
        assert bool(admitted) == bool(there) is True
        left, wanted = float(INNER.remaining(after)), float(INNER.remaining(expected))
        assert left == pytest.approx(wanted, rel=1e-7)
        assert left < float(INNER.remaining(state))


def test_what_no_level_dominates_is_refused_and_leaves_the_state(menu):
    _, update, rate = menu
    state = LEVELS.init()
    bad = [(1.9, rate), (4.0, 2 * rate), (np.nan, rate), (2.0, np.nan), (-3.0, rate), (np.inf, rate), (3.0, -rate)]
    for sigma, asked in bad:
        admitted, after = update(jnp.float32(sigma), jnp.float32(asked), state)
        assert not bool(admitted)
        assert all(jax.tree.leaves(jax.tree.map(lambda a, b: np.array_equal(a, b), after, state)))


def test_the_guarantee_and_the_numbers_are_the_inner_filters():
    assert float(LEVELS.guarantee.epsilon(1e-5)) == float(INNER.guarantee.epsilon(1e-5))
    state = LEVELS.init()
    assert float(LEVELS.spent(state)) == float(LEVELS.fraction(state)) == 0.0
    assert float(LEVELS.remaining(state)) == 1.0
