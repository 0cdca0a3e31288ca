"""Filters and states print what a person asks of them: the budget, and how much of it is spent."""

import jax
import jax.numpy as jnp

from jaxacct import Gaussian, Laplace, LossGrid, expost, filters


def test_a_filter_prints_as_the_call_that_makes_it():
    assert repr(filters.gdp(1.0)) == "gdp(mu=1)"
    assert repr(filters.pure_dp(0.5)) == "pure_dp(epsilon=0.5)"
    assert repr(filters.gdp(jnp.array([1.0, 2.0]))) == "gdp(mu=1 to 2, shape (2,))"
    assert repr(filters.per_example(filters.gdp(1.0), examples=10)) == "per_example(filter=gdp(mu=1), examples=10)"
    assert repr(filters.natural(Gaussian(1.0), [Gaussian(5.0), Gaussian(8.0)], 2)) == "natural(members=2, rounds=2)"


def test_a_state_prints_what_is_spent_or_left():
    budget = filters.gdp(1.0)
    _, state = budget.update(Gaussian(2.5), budget.init())
    assert repr(state) == "SpentState(spent 0.16 of the budget)"
    residue = filters.gdp_residue(1.0)
    _, left = residue.update(Laplace(20.0), residue.init())
    assert repr(left).startswith("ResidueState(mu=0.9")
    members = filters.natural(Gaussian(1.0), [Gaussian(5.0), Gaussian(8.0)], 2)
    _, state = members.update(1, members.init())
    assert repr(state) == "NaturalState(runs of each member: [0, 1])"
    composed = filters.natural(Gaussian(1.0), grid=LossGrid(0.01, -300, 601))
    _, state = composed.update(Gaussian(5.0), composed.init())
    assert repr(state) == "ComposedState(1 queries composed)"
    odometer = expost.RenyiOdometer(order=8.0)
    assert repr(odometer.update(Gaussian(2.0), odometer.init())).startswith("RenyiOdometerState(divergence 1")


def test_a_private_state_prints_no_account():
    budget = filters.per_example(filters.gdp(1.0), examples=4)
    assert repr(budget.init()) == "ExamplesState(private accounts, shape (4,))"


def test_traced_filters_and_states_print_too():
    printed = []

    @jax.jit
    def program(mu):
        budget = filters.gdp(mu)
        printed.append(f"{budget} {budget.init()} {jax.tree.map(lambda x: None, budget)}")
        return mu

    program(1.0)
    assert printed[0].startswith("gdp(mu=")
