"""What every filter promises in compiled programs: the ledger that Python has, in either precision, traced once."""

from __future__ import annotations

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import (
    ApproximateDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    PoissonSampled,
    PureDP,
    RandomAllocation,
    RandomizedResponse,
    Shuffled,
    filters,
)
from jaxacct.filters import Reason
from tests.contract.filter_cases import CASES, in_programs, play

with_traced_noise = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if case.heavy else ()) for name, case in CASES.items() if case.traced],
)


# A budget that is certified is made of concrete numbers.
with_traced_budget = pytest.mark.parametrize(
    "name", [one for one in with_traced_noise.args[1] if one.values != ("closed-form",)]
)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.heavy])
def test_a_float32_program_scans_over_several_ledgers_at_once(name):
    """What the tests below look at one by one, in one program: scan, vmap over states, float32."""
    case = CASES[name]
    ledger, query = case.make(), case.small(1.0)
    history, end = play(ledger, query, 3)

    @jax.jit
    @jax.vmap
    def run(skipped):
        def body(state, i):
            admitted, after = ledger.update(query, state)
            return jax.tree.map(lambda new, old: jnp.where(i < skipped, old, new), after, state), admitted

        state, admitted = jax.lax.scan(body, ledger.init(), jnp.arange(3))
        return state, admitted, ledger.spent(state), ledger.fraction(state)

    states, admitted, *read = run(jnp.arange(2))
    assert admitted.tolist() == [history, history]
    assert not {leaf.dtype for leaf in jax.tree.leaves((states, read))} & {jnp.dtype("float64"), jnp.dtype("int64")}
    for which, steps in ((0, 3), (1, 2)):
        _, alone = play(ledger, query, steps)
        # Compiled transforms round otherwise than NumPy does: composed masses agree to that.
        chex.assert_trees_all_close(jax.tree.map(lambda leaf: leaf[which], states), alone, rtol=1e-6, atol=1e-11)  # noqa: B023
    chex.assert_trees_all_close(jax.tree.map(lambda leaf: leaf[0], states), end, rtol=1e-6, atol=1e-11)


@in_programs
def test_scan_while_loop_and_python_agree(name):
    case = CASES[name]
    ledger, query = case.make(), case.small(1.0)
    history, state = play(ledger, query, 250)

    @jax.jit
    def scanned(ledger):
        return jax.lax.scan(lambda s, _: ledger.update(query, s)[::-1], ledger.init(), None, length=len(history))

    def check(found):
        # Programs round a difference of two nearly equal numbers differently, and the transforms of a composition.
        if name in ("renyi-fractional", "natural-undeclared", "natural-approximate-dp"):
            np.testing.assert_allclose(ledger.remaining(found), ledger.remaining(state), atol=1e-7)
        else:
            chex.assert_trees_all_equal(found, state)

    end, admitted = scanned(ledger)
    assert admitted.tolist() == history
    check(end)
    halted = jax.jit(lambda f: filters.halting_scan(lambda n, _: (query, lambda: n + 1), f, jnp.int32(0)))(ledger)
    assert int(halted.steps) == int(halted.carry) == sum(history)
    assert halted.refused
    check(halted.state)


@with_traced_noise
def test_a_thousand_ledgers_under_vmap_are_a_thousand_ledgers(name):
    case = CASES[name]
    if not case.batched:
        pytest.skip("one budget at a time")
    scales = np.linspace(0.5, 2.0, 1000)
    ledgers = case.make(scales)
    noise = np.linspace(0.3, 3.0, 1000).astype(np.float32)

    def run(ledger, t):
        def body(state, _):
            admitted, state = ledger.update(case.small(t), state)
            return state, admitted

        return jax.lax.scan(body, ledger.init(), None, length=60)

    end, admitted = jax.jit(jax.vmap(run))(ledgers, noise)
    assert admitted.shape == (1000, 60)
    assert not admitted.all()
    with jax.enable_x64(True):
        for i in (0, 317, 999):
            single, some = run(case.make(scales[i]), noise[i])
            assert some.tolist() == admitted[i].tolist()
            # Batched sums are ordered differently, so costs may differ in the last bits.
            one = jax.tree.map(lambda leaf: leaf[i], end)  # noqa: B023
            assert totals(single) == pytest.approx(totals(one), rel=1e-12)
    # Without vmap, a ledger with a shape does the same elementwise.
    batched, state = ledgers.update(case.small(noise), ledgers.init())
    assert batched.tolist() == admitted[:, 0].tolist()
    assert all(leaf.shape[0] == 1000 for leaf in jax.tree.leaves(state))


def totals(state):
    """What each ledger of a state holds, one number each."""
    words = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(state) if np.ndim(leaf)]  # all but marks
    ledgers = [one @ 2.0 ** np.array([64, 32, 0]) for one in words]
    return np.concatenate([np.ravel(ledger) for ledger in ledgers])


@with_traced_noise
def test_a_float32_program_stays_float32_and_gets_the_same_ledger_as_a_float64_one(name):
    case = CASES[name]
    before = jax.config.jax_enable_x64
    assert not before

    @jax.jit
    def train(ledger, params, noise):
        def step(carry, t):
            params, state = carry
            query = case.small(t)
            admitted, state = ledger.update(query, state)
            scale = ledger.clip_scale(query, state) if hasattr(ledger, "clip_scale") else ledger.fraction(state)
            assert scale.dtype == jnp.result_type(float)
            params = jnp.where(admitted, params - 0.1 * scale.astype(params.dtype) * params, params)
            return (params, state), (admitted, ledger.remaining(state), ledger.spent(state))

        return jax.lax.scan(step, (params, ledger.init()), noise)

    noise = jnp.ones(40, jnp.float32)
    (params, state), (_, remaining, spent) = train(case.make(), jnp.ones(3), noise)
    assert {leaf.dtype for leaf in jax.tree.leaves((params, remaining, spent))} == {jnp.dtype("float32")}
    assert jax.config.jax_enable_x64 == before
    with jax.enable_x64(True):
        (_, wide), _ = train(case.make(), jnp.ones(3, jnp.float32), noise)
    chex.assert_trees_all_equal(state, wide)


@with_traced_budget
def test_budgets_noise_and_state_change_without_retracing_and_noise_that_makes_no_sense_is_refused(name):
    case = CASES[name]
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def step(ledger, t, state):
        return ledger.update(case.small(t), state)

    for scale in (0.5, 0.7, 2.0):
        ledger = case.make(scale)
        state = ledger.init()
        for noise in (1.0, 2.0, 3.0):
            admitted, state = step(ledger, jnp.float32(noise), state)
            assert admitted
    for bad in (math.nan, -1.0, math.inf, -math.inf, 0.0):
        admitted, after = step(ledger, jnp.float32(bad), state)
        assert not admitted, bad
        chex.assert_trees_all_equal(state, after)


@with_traced_budget
def test_a_traced_budget_that_makes_no_sense_admits_nothing(name):
    case = CASES[name]

    @jax.jit
    def run(scale):
        ledger = case.make(scale)
        return ledger.update(case.small(1.0), ledger.init()), ledger.init()

    for bad in (math.nan, -1.0, 0.0, math.inf):
        (admitted, state), start = run(bad - case.offset)
        assert not admitted, bad
        chex.assert_trees_all_equal(state, start)


@pytest.mark.parametrize(("regime", "rates"), [("small", [0.2, 0.5, -0.1, 1.5]), ("large", [0.79, 0.5, 1.1])])
def test_traced_rates_outside_the_regime_are_refused_and_clipped_to_nothing(regime, rates):
    ledger = filters.approximate_gdp(1.0, regime=regime)

    def ask(rate):
        query = PoissonSampled(Gaussian(5.0), rate)
        return ledger.update(query, ledger.init())[0], ledger.clip_scale(query, ledger.init())

    admitted, scale = jax.jit(jax.vmap(ask))(np.array([*rates, math.nan]))
    assert not admitted.any()
    assert not scale.any()


PARAMETERS = {
    "RandomizedResponse": (RandomizedResponse(0.5, 3), ["pure-dp", "zcdp", "approximate-zcdp", "renyi"]),
    "DiscreteLaplace": (DiscreteLaplace(2.0, 1), ["pure-dp", "zcdp", "approximate-zcdp", "renyi"]),
    "DiscreteGaussian": (DiscreteGaussian(2.0, 1), ["zcdp", "approximate-zcdp", "renyi"]),
    "ApproximateDP": (ApproximateDP(0.5, 1e-8), ["approximate-zcdp"]),
    "PureDP": (PureDP(0.5), ["pure-dp", "zcdp", "approximate-zcdp", "renyi"]),
    "Composed": (Composed([Gaussian(2.0)], [2]), ["zcdp", "approximate-zcdp", "gdp", "renyi"]),
    "Shuffled": (Shuffled(Gaussian(2.0), 4), ["renyi"]),
    "RandomAllocation": (RandomAllocation(Gaussian(2.0), 4, 2), ["renyi"]),
    "PoissonSampled": (PoissonSampled(Gaussian(2.0), 0.1), ["renyi"]),
    "PoissonSampled response": (PoissonSampled(RandomizedResponse(0.5, 3), 0.1), ["pure-dp", "zcdp", "renyi"]),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_traced_parameter_that_makes_no_sense_is_refused_by_every_filter(name):
    """Categories that are NaN, and 1.5 steps, were admitted; the least negative numbers are read as 0."""
    mechanism, takes = PARAMETERS[name]
    held, structure = jax.tree.flatten(mechanism)
    budgets = {one: CASES[one].make(500.0) for one in takes}

    @jax.jit
    def run(values):
        query = jax.tree.unflatten(structure, list(values))
        return {one: budget.update(query, budget.init())[0] for one, budget in budgets.items()}

    good = [np.float32(value) for value in held]
    assert all(run(good).values())
    for place, value in enumerate(held):
        counts = [1.5, 0.0] if isinstance(value, int) else []
        for bad in (math.nan, -1.0, -1e-45, math.inf, *counts):
            if bad == math.inf and not counts:
                continue  # infinite noise is refused or costs next to nothing, as each family has it
            found = run([np.float32(bad) if i == place else one for i, one in enumerate(good)])
            assert not any(found.values()), (place, bad, found)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.traced and case.number is not None])
def test_a_parameter_that_is_none_is_invalid_inside_a_program(name):
    budget = CASES[name].make()
    ask = jax.jit(lambda number, state: budget.reason(CASES[name].small(number), state))
    for bad in (np.nan, -1.0):
        assert int(ask(jnp.float32(bad), budget.init())) == Reason.INVALID
    assert int(ask(jnp.float32(1.0), budget.init())) == Reason.ADMITTED
