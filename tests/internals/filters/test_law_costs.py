"""What PLDs cost: against the mechanisms they are the laws of, and against sums over the law by hand."""

import math

import jax
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from jaxacct import PLD, Gaussian, Laplace, LossGrid, RandomizedResponse
from jaxacct.filters.additive import costs as _costs
from jaxacct.filters.additive.costs_of_plds import (
    approximate_of_law,
    concentrated_of_law,
    gaussian_of_law,
    pure_of_law,
    renyi_of_law,
)
from jaxacct.losses.renyi import renyi
from tests.contract.filter_cases import STEP, law

EPSILON = 4 * STEP


def test_a_response_costs_what_its_mechanism_costs():
    query, mechanism = law(EPSILON), RandomizedResponse(EPSILON)
    assert EPSILON <= float(pure_of_law(query)) <= EPSILON * (1 + 1e-14)
    rho = EPSILON * math.tanh(EPSILON / 2)
    assert rho <= float(concentrated_of_law(query)) <= rho * (1 + 1e-11)
    mu = 2 * -float(jax.scipy.special.ndtri(1 / (1 + np.exp(EPSILON))))
    assert float(gaussian_of_law(query)) == pytest.approx(mu, rel=1e-6)
    orders = np.array([1.5, 2.0, 8.0, 200.0])
    truth = np.array([float(renyi(mechanism, order)) for order in orders])
    found = np.asarray(renyi_of_law(query, orders))
    np.testing.assert_allclose(found, truth, rtol=1e-10)
    assert np.all(found >= truth * (1 - 1e-15))
    rho_too, delta = approximate_of_law(law(EPSILON, 1e-7))
    assert rho <= float(rho_too) <= rho * (1 + 1e-3)
    assert 1e-7 <= float(delta) <= 1e-7 * (1 + 1e-5)  # with the rounding of a sum of 129 masses


def test_a_law_that_is_not_its_own_reversal_costs_the_worse_direction():
    """Loss 2 with probability 0.1, and what Q-mass is left at a loss that makes it a law."""
    p, high = 0.1, 16 * STEP
    low = math.log((1 - p) / (1 - p * math.exp(-high)))
    grid = LossGrid(-low / 8 if low < 0 else low, -200, 401)
    masses = np.zeros(grid.size)
    high = round(high / grid.spacing) * grid.spacing
    low = math.log((1 - p) / (1 - p * math.exp(-high)))  # of the rounded loss: off the lattice by little
    at = np.array([round(x / grid.spacing) for x in (high, low)])
    masses[at + 200] = p, 1 - p
    query = PLD(masses, np.zeros(()), grid)
    q = masses * np.exp(-grid.losses)
    if abs(1 - q.sum()) > 1e-9:  # an atom of Q's: then no pure privacy in the reversed direction
        assert float(pure_of_law(query)) == math.inf or q.sum() > 1
    rho, delta = (float(x) for x in approximate_of_law(query))
    assert delta >= 1 - q.sum()
    a, b = masses / masses.sum(), q / q.sum()
    seen = masses > 0

    def divergences(order):
        a1, b1 = a[seen], b[seen]
        return [math.log(np.sum(x**order * y ** (1 - order))) / (order - 1) / order for x, y in ((a1, b1), (b1, a1))]

    best = max(
        -minimize_scalar(lambda t, i=i: -divergences(1 + math.exp(t))[i], bounds=(-6, 8), method="bounded").fun
        for i in range(2)
    )
    assert best * (1 - 1e-9) <= rho <= best * (1 + 2e-3)


@pytest.mark.slow  # many mechanisms
def test_laws_on_a_lattice_dominate_their_mechanism_and_continuous_ones_are_refused():
    grid = LossGrid(0.01, -150, 301)
    laplace = PLD.from_mechanism(Laplace(2.0))
    assert float(laplace.infinity_mass) == 0.0  # no loss is infinite
    for cost, exact in ((pure_of_law, 0.5), (concentrated_of_law, float(_costs.concentrated_cost(Laplace(2.0))))):
        assert exact <= float(cost(laplace)) <= exact * 1.05
    truth = float(renyi(Laplace(2.0), 8.0))
    assert truth <= float(renyi_of_law(laplace, 8.0)) <= truth * 1.001
    gaussian = PLD.from_mechanism(Gaussian(4.0), grid=grid)
    for cost in (pure_of_law, concentrated_of_law, gaussian_of_law):
        assert float(cost(gaussian)) == math.inf
    rho, delta = approximate_of_law(gaussian)
    assert (1 - 1e-6) / 32 <= float(rho) <= 1.01 / 32
    assert 0 < float(delta) < 1e-7
