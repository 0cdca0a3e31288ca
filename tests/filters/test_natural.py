"""The natural filter: free families keep the budget, others do not, and the filter says which."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from jaxacct import LossGrid
from jaxacct.filters import natural
from jaxacct.mechanisms import Gaussian, RandomizedResponse
from tests.contract.filter_cases import STEP, law

MU = 1.11326725
RATIOS = (1.5, 2.0, 2.4)


def hockey_stick(mu, epsilon):
    return norm.sf(epsilon / mu - mu / 2) - np.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)


def responses():
    return tuple(RandomizedResponse(float(np.log(g))) for g in RATIOS)


def test_outside_a_free_family_the_attack_beats_the_budget_and_the_guarantee_knows():
    """Two plans need a mu of 1.1133 and 1.0828; choosing between them by the first outcome needs 1.1558."""
    budget = natural(Gaussian(1 / MU), responses(), 3)
    play = jax.jit(lambda i, s: budget.update(i, s))
    gamma0 = 1.464
    best = 0.0
    for first, mass in ((1.5, 0.6), (1 / 1.5, 0.4)):
        plans = []
        for plan in ((1, 1), (2,)):
            admitted, state = play(0, budget.init())
            assert bool(admitted)
            for member in plan:
                admitted, state = play(member, state)
                assert bool(admitted)
            g = RATIOS[plan[0]]
            law = _twice(g) if len(plan) == 2 else {g: g / (1 + g), 1 / g: 1 / (1 + g)}
            plans.append(sum(m * max(1 - gamma0 / first / x, 0) for x, m in law.items()))
        best += mass * max(plans)
    allowed = hockey_stick(MU, np.log(gamma0))
    assert best > allowed + 0.016
    guarantee = budget.guarantee
    assert "NOT the budget" in guarantee.statement
    assert best - 1e-9 <= float(guarantee.delta(np.log(gamma0))) <= best + 1e-3
    order = np.linspace(0, 3, 31)
    assert np.all(np.asarray(guarantee.delta(order)) <= hockey_stick(1.155779390, order) + 1e-3)


def _twice(g):
    return {g * g: (g / (1 + g)) ** 2, 1.0: 2 * g / (1 + g) ** 2, 1 / g**2: 1 / (1 + g) ** 2}


def test_gaussians_are_free_and_the_guarantee_is_the_budget():
    family = (Gaussian(2.0), Gaussian(4.0))
    budget = natural(Gaussian(1.0), family, 6)
    state, answers = budget.init(), []
    for member in (0, 0, 0, 1, 1, 1):
        admitted, state = budget.update(member, state)
        answers.append(bool(admitted))
    assert answers == [True, True, True, True, True, True]  # 3/4 + 3/16 <= 1
    assert not any(budget.remaining(state))
    assert int(budget.spent(state)) == 6
    guarantee = budget.guarantee
    assert "Gaussian" in guarantee.statement
    assert "NOT" not in guarantee.statement
    assert hockey_stick(1.0, 1.0) <= float(guarantee.delta(1.0)) <= hockey_stick(1.0, 1.0) + 1e-6
    assert float(guarantee.epsilon(hockey_stick(1.0, 1.0) + 1e-6)) == pytest.approx(1.0, abs=1e-4)


def test_without_a_family_it_runs_and_promises_nothing():
    grid = LossGrid(0.05, -100, 201)
    budget = natural(RandomizedResponse(1.1), grid=grid)
    query = budget.prepare(RandomizedResponse(0.25))
    step = jax.jit(lambda s: budget.update(query, s))
    state, count = budget.init(), 0
    for _ in range(6):
        admitted, state = step(state)
        count += bool(admitted)
    assert count == 4  # four times 0.25 is within RR(1.1); a fifth is not
    assert jnp.asarray(state.masses).dtype == jnp.float32
    with pytest.raises(ValueError, match="rounds must be given"):
        natural(Gaussian(1.0), responses())


def test_what_was_declared_is_no_array_that_others_write_into():
    """Else a member that is written over is admitted as often as the one that was declared."""
    budget, member, louder = (law(n * STEP) for n in (10, 1, 8))
    made = natural(budget, (member,), 20)
    assert made.update(member, made.init())[0]
    for curve in (budget, member):
        np.asarray(curve.masses)[...] = louder.masses
    with pytest.raises(ValueError, match="query must be a member"):
        made.update(member, made.init())
    assert float(made.guarantee.epsilon(1e-6)) == pytest.approx(10 * STEP, abs=1e-4)
