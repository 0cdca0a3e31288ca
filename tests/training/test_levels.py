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


def update_of(levels):
    return jax.jit(lambda sigma, rate, state: levels.update(PoissonSampled(Gaussian(sigma), rate), state))


@pytest.fixture(scope="module", params=["gaussians", pytest.param("sampled", marks=pytest.mark.slow)])
def menu(request):
    """A menu, its levels' compiled update, and its rate."""
    if request.param == "gaussians":
        return GAUSSIANS, update_of(LEVELS), 1.0
    menu = filters.gaussian_menu((2.0, 4.0), 0.1, sigmas=2)
    return menu, update_of(on_levels(INNER, menu)), 0.1


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
