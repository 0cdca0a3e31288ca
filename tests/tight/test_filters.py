"""Filters charge little more than what a schedule that is fixed in advance costs."""

import jax
import numpy as np
import pytest

from jaxacct import Gaussian, LossGrid, PoissonSampled, filters
from jaxacct.losses.renyi.zcdp import zcdp_epsilon


def number(pieces):
    """The float64 number of a state, whatever the program's precision."""
    return np.asarray(pieces, np.float64).sum(-1)


@pytest.mark.slow
def test_adaptivity_costs_little_more_than_the_dearest_constant_schedule():
    menu = filters.gaussian_menu((1.2, 2.4), 0.1, sigmas=2)
    ledger = filters.menu(menu, epsilon=1.5, delta=1e-3, points=2048)
    bounds = filters.constant_schedules(ledger, menu, 1e-3)
    claimed = float(ledger.guarantee.epsilon(1e-3))
    assert bounds.lower.max() <= claimed <= 1.5
    assert claimed <= bounds.lower.max() * 1.07  # some tens of runs, of which only whole ones count


@pytest.mark.parametrize("filter", [filters.zcdp(3.0), filters.gdp(2.5)], ids=["zcdp", "gdp"])
def test_the_mixture_reads_little_more_than_a_sum_fixed_in_advance_would(filter):
    counter = filters.odometer(filter)
    _, state = counter.update(Gaussian(1.0), counter.init())
    reading, fixed = float(counter.epsilon(state, 1e-6)), float(zcdp_epsilon(0.5, 1e-6))
    assert fixed < reading < 1.15 * fixed


@pytest.mark.slow  # many laws
def test_sampled_gaussians_cost_what_the_prototype_measured():
    """Relative to the central limit, q = 0.01 and a slack of 1.4e-9."""
    mus = np.array([1, 0.6, 0.35, 0.2, 0.1])
    budget = filters.gdp_residue(mus, 1.4e-6, steps=1000)
    admitted, state = budget.update(filters.prepare(PoissonSampled(Gaussian(1.414), 0.01)), budget.init())
    assert np.all(admitted)
    ratio = (mus**2 - number(state.mu) ** 2) / (1e-4 * np.expm1(1 / 1.414**2))
    np.testing.assert_allclose(ratio, [1.009, 1.027, 1.063, 1.150, 1.62], rtol=0.012)
    # Above all never below what the truth costs: the exact residues are those of the table, to its digits.
    assert np.all(ratio > np.array([1.0085, 1.0265, 1.0625, 1.1495, 1.615]))


@pytest.mark.slow  # compiles for seconds; bench/residue_showcase.py has all of it
def test_a_short_showcase_costs_little_more_than_the_central_limit():
    """The first levels of the DP-SGD showcase in one compiled loop; bench/residue_showcase.py has all 3,650 steps."""
    sigmas = 1.5 + np.sin(np.pi / 3650 * 150 * np.array([1.0, 8.0, 16.0, 24.0]))
    queries = filters.prepare(PoissonSampled(Gaussian(sigmas), 0.01), grid=LossGrid(6 / 4096, -4096, 8193))
    budget = filters.gdp_residue(0.3378, 1e-6, steps=3650)

    def step(state, level):
        admitted, state = budget.update(jax.tree.map(lambda x: x[level], queries), state)
        return state, admitted

    state, admitted = jax.jit(lambda s: jax.lax.scan(step, s, np.arange(100) % 4))(budget.init())
    assert np.all(admitted)
    charged = number(budget.init().mu) ** 2 - number(state.mu) ** 2
    assert 1.0 < charged / (25e-4 * np.expm1(1 / sigmas**2).sum()) < 1.07
    assert 0.97 * 100 / 3650 < 1 - number(state.delta) / 1e-6 < 1.03 * 100 / 3650
