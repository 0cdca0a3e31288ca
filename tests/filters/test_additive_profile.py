"""The additive filter and the natural (epsilon, delta) filter: the note's ladder, Theorem 9, and attacks."""

import jax
import numpy as np
import pytest

from jaxacct import PLD, ApproximateDP, LossGrid
from jaxacct.adversary import additive_profile, natural_approximate_dp, natural_filter_cost
from jaxacct.mechanisms import RandomizedResponse


def test_the_additive_filter_charges_bands_and_refuses_what_does_not_fit():
    budget = additive_profile(1.0, 1e-6, rounds=100)
    query = budget.prepare(RandomizedResponse(0.3))
    assert query.tolist() == pytest.approx([0, 0, 0, 0, 0, 0, 1, 0, 0, 0])
    state, answers = budget.init(), []
    for _ in range(6):
        admitted, state = jax.jit(lambda b, q, s: b.update(q, s))(budget, query, state)
        answers.append(bool(admitted))
    # b = 5 for the band (0.25, 0.5], and charges are rounded up: the fifth may fit exactly or not at all.
    assert answers[:4] == [True] * 4
    assert answers[5] is False
    assert float(budget.spent(state)[6]) == pytest.approx(sum(answers), rel=1e-6)
    nothing, state = np.eye(10, dtype=np.float32)[0] * 0.5 + np.eye(10, dtype=np.float32)[1] * 0.5, budget.init()
    admitted = [False] * 101
    for i in range(101):
        admitted[i], state = budget.update(nothing, state)
    assert sum(bool(a) for a in admitted) == 100  # not one round more than T, whatever the bands have left
    with pytest.raises(ValueError, match="delta must be below"):
        additive_profile(0.01, 0.1, rounds=10)


@pytest.mark.slow
def test_the_natural_filter_stops_at_the_exact_composition_and_promises_more_than_its_budget():
    budget = natural_approximate_dp(1.0, 0.01, rounds=40, grid=LossGrid(0.05, -200, 401))
    query = budget.prepare(RandomizedResponse(0.1))
    step = jax.jit(lambda s: budget.update(query, s))
    state, count = budget.init(), 0
    while count < 40:
        admitted, state = step(state)
        if not bool(admitted):
            break
        count += 1
    single = PLD.from_mechanism(RandomizedResponse(0.1), relation="replace", grid=LossGrid(0.05, -20, 41))
    exact = [float(single.self_compose(n).hockey_stick(1.0)) for n in (count, count + 1)]
    assert exact[0] <= 0.01 < exact[1]
    assert float(budget.spent(state)) == pytest.approx(exact[0], rel=1e-6)
    assert float(budget.remaining(state)) == pytest.approx(0.01 - exact[0], rel=1e-5)
    guarantee = budget.guarantee
    assert "NOT" in guarantee.statement
    assert float(guarantee.delta(1.0)) > 0.01


def test_the_guarantee_is_never_above_basic_composition_nor_below_the_true_cost():
    epsilon, delta, rounds = 1.0, 1e-3, 16
    guarantee = natural_approximate_dp(epsilon, delta, rounds=rounds).guarantee
    assert float(guarantee.delta(rounds * epsilon)) <= rounds * delta
    # 37.4 and 16.0 with one ladder, no count of all answers, and (T epsilon, T delta).
    assert float(guarantee.epsilon(2.5 * delta)) < 21.7
    assert float(guarantee.epsilon(20 * delta)) < 14.5
    family = [RandomizedResponse(j / 13) for j in (1, 2, 8)] + [ApproximateDP(0.0, delta / 3)]
    cost = natural_filter_cost(ApproximateDP(epsilon, delta), family, 12)
    at = np.linspace(0.0, 3.0, 13)
    assert np.all(cost.hockey_stick(at).lower <= np.asarray(guarantee.delta(at)))
    assert float(cost.hockey_stick(epsilon).lower) == pytest.approx(2.646201e-3, rel=1e-6)
    # A large epsilon: exponentials of its losses overflow.
    assert float(natural_approximate_dp(4.0, 1e-6, rounds=1000).guarantee.epsilon(2e-3)) < 171.0


def test_a_law_of_one_direction_is_charged_for_both():
    """Nothing of it exceeds epsilon under P, and all of Q's half is seen from the other side: delta is 1/2 there."""
    grid = LossGrid(0.05, -200, 401)
    budget = natural_approximate_dp(1.0, 0.01, rounds=40, grid=grid)
    masses = np.where(np.arange(grid.size) + grid.lowest == 14, 1.0, 0.0)  # loss 0.7: Q has 1/2 elsewhere
    one_sided = PLD(masses, np.zeros(()), grid)
    assert float(one_sided.hockey_stick(1.0)) == pytest.approx(0.0, abs=1e-12)
    assert not bool(budget.update(one_sided, budget.init())[0])


def test_a_prepared_law_is_of_both_directions_until_it_is_tilted_and_a_tree_that_is_rebuilt_unchecked():
    budget = natural_approximate_dp(1.0, 0.01, rounds=40, grid=LossGrid(0.05, -200, 401))
    query = budget.prepare(RandomizedResponse(0.9))
    assert bool(budget.update(query, budget.init())[0])
    shapes = jax.tree.map(np.shape, query)
    assert (type(shapes), shapes.masses, shapes.infinity_mass) == (type(query), (401,), ())
    assert not bool(budget.update(jax.tree.map(lambda x: np.nan * x, query), budget.init())[0])
    # Nearly all of P has loss 0.9 then, and 1 - e^-0.9 of Q is what P never shows.
    tilted = query.tilt(30.0)
    assert float(tilted.hockey_stick(1.0)) == pytest.approx(0.0, abs=1e-9)
    assert not bool(budget.update(tilted, budget.init())[0])
