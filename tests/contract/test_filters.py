"""What every filter promises, whatever its theorem."""

from __future__ import annotations

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Composed, Gaussian, PoissonSampled, filters
from tests.contract.filter_cases import CASES, leaves

every_filter = pytest.mark.parametrize("name", CASES)
# Around a heavy filter a program of its own is for the slow tests; one that holds much of them runs by default.
in_programs = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if case.heavy else ()) for name, case in CASES.items()]
)
with_traced_noise = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if case.heavy else ()) for name, case in CASES.items() if case.traced],
)


ELSEWHERE = {
    "IndividualFilter": "tests/filters/test_individual.py",
    "IndividualApproximateGDPFilter": "tests/filters/test_individual.py",
    "IndividualPricedMenuFilter": "tests/filters/test_individual.py",
    "IndividualPricedBoxFilter": "tests/filters/test_priced_box.py",
    "PricedBoxFilter": "tests/filters/test_priced_box.py: its table takes seconds",
}


def test_every_public_filter_has_a_case_or_a_place_of_its_own():
    held = {type(case.make()).__name__ for case in CASES.values()}
    public = {name for name in filters.__all__ if name.endswith("Filter") and name != "Filter"}
    assert public - held == set(ELSEWHERE)


def play(ledger, query, steps):
    """Admissions of ``steps`` equal queries, one Python call each."""
    state, history = ledger.init(), []
    for _ in range(steps):
        admitted, state = ledger.update(query, state)
        history.append(bool(admitted))
    return history, state


@every_filter
def test_it_takes_every_kind_of_query_that_it_names(name):
    ledger = CASES[name].make()
    start = ledger.init()
    for query in CASES[name].accepts():
        admitted, state = ledger.update(query, start)
        assert admitted, query
        assert np.any(leaves(state) != leaves(start)), query


@every_filter
def test_what_is_no_law_or_too_leaky_is_refused_and_changes_nothing(name):
    ledger = CASES[name].make()
    _, state = ledger.update(CASES[name].small(1.0), ledger.init())
    for query in CASES[name].refuses():
        admitted, after = ledger.update(query, state)
        assert not admitted, query
        chex.assert_trees_all_equal(state, after)
    for query, message in CASES[name].rejects():
        with pytest.raises(ValueError, match=message):
            ledger.update(query, state)


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


@every_filter
def test_it_satisfies_the_protocol_and_names_its_theorem(name):
    if not CASES[name].promises:
        with pytest.raises(ValueError, match="guarantee"):
            _ = CASES[name].make().guarantee
        return
    guarantee = CASES[name].make().guarantee
    assert isinstance(guarantee, filters.Guarantee)
    assert 0 < float(guarantee.delta(0.9)) <= 1
    target = 1e-5 if np.isfinite(guarantee.epsilon(1e-5)) else 1e-2
    assert float(guarantee.delta(guarantee.epsilon(target))) <= target * (1 + 1e-6)
    assert guarantee.epsilon(np.array([1e-5, 1e-3])).shape == (2,)
    assert guarantee.is_bound == CASES[name].is_bound
    assert ("not a bound" in guarantee.statement) == (not guarantee.is_bound)
    assert any(word in guarantee.statement for word in ("20", "Theorem", "Lemma"))


@in_programs
def test_the_profile_is_the_curve_of_the_guarantee_from_above(name):
    if not CASES[name].promises:
        pytest.skip("there is no guarantee")
    guarantee = CASES[name].make().guarantee
    epsilons = np.array([0.25, 0.5, 0.9, 3.0, 5.0])
    curve, deltas = guarantee.profile().hockey_stick(epsilons), np.asarray(guarantee.delta(epsilons))
    # Never above what `delta` knows (a curve is convex, of which `delta` alone makes no use), hardly below it where
    # it says anything.
    assert np.all(curve <= deltas * (1 + 1e-3) + 1e-16)
    close = (deltas < 0.3) & (deltas > 1e-9)
    np.testing.assert_allclose(curve[close], deltas[close], rtol=1e-3)


@every_filter
def test_update_is_pure_and_a_refusal_changes_nothing(name):
    case = CASES[name]
    ledger, query = case.make(), case.small(1.0)
    start = ledger.init()
    chex.assert_trees_all_equal(ledger.update(query, start), ledger.update(query, start))
    chex.assert_trees_all_equal(start, ledger.init())
    history, state = play(ledger, query, 250)
    assert history[0]
    assert not history[-1]
    assert history == sorted(history, reverse=True), "equal queries are admitted until the budget is spent"
    queries = [query] if case.big is None else [query, case.big]
    for query in queries:
        admitted, after = ledger.update(query, state)
        assert not admitted
        chex.assert_trees_all_equal(state, after)


@every_filter
def test_a_state_goes_through_a_file_and_a_filter_through_its_tree(name, tmp_path):
    case = CASES[name]
    ledger = case.make()
    _, state = ledger.update(case.small(1.0), ledger.init())
    held, structure = jax.tree.flatten(state)
    np.savez(tmp_path / "state.npz", *held)
    with np.load(tmp_path / "state.npz") as file:
        back = jax.tree.unflatten(structure, [file[key] for key in file.files])
    chex.assert_trees_all_equal(ledger.update(case.small(1.0), state), ledger.update(case.small(1.0), back))
    again = jax.tree.unflatten(*jax.tree.flatten(ledger)[::-1])
    assert repr(again) == repr(ledger)
    chex.assert_trees_all_equal(again.update(case.small(1.0), state), ledger.update(case.small(1.0), state))


@every_filter
def test_a_query_that_is_too_big_is_refused_and_closes_no_door(name):
    case = CASES[name]
    if case.big is None:
        pytest.skip("clips the last query instead")
    ledger = case.make()
    admitted, state = ledger.update(case.big, ledger.init())
    assert not admitted
    chex.assert_trees_all_equal(state, ledger.init())
    assert ledger.update(case.small(1.0), state)[0]


@every_filter
def test_spent_rises_remaining_falls_and_both_stay_within_the_budget(name):
    case = CASES[name]
    ledger = case.make()
    state = ledger.init()
    spent, left = leaves(ledger.spent(state)), leaves(ledger.remaining(state))
    assert np.all(spent == 0)
    assert float(ledger.fraction(state)) == 0.0
    for _ in range(20):
        admitted, state = ledger.update(case.small(1.0), state)
        assert admitted
        now, rest = leaves(ledger.spent(state)), leaves(ledger.remaining(state))
        if not case.amounts:
            assert np.all(now >= spent)
            assert np.all(rest <= left)
            continue
        assert np.all(now >= spent)
        assert np.any(now > spent)
        assert np.all(rest <= left)
        assert np.any(rest < left)
        assert 0 < float(ledger.fraction(state)) < 1
        spent, left = now, rest


@in_programs
def test_scan_while_loop_and_python_agree(name):
    case = CASES[name]
    ledger, query = case.make(), case.small(1.0)
    history, state = play(ledger, query, 250)

    @jax.jit
    def scanned(ledger):
        return jax.lax.scan(lambda s, _: ledger.update(query, s)[::-1], ledger.init(), None, length=len(history))

    def check(found):
        if name == "renyi-fractional":  # a difference of two nearly equal numbers: programs round it differently
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
    ledgers = [np.asarray(leaf, np.float64) @ 2.0 ** np.array([64, 32, 0]) for leaf in jax.tree.leaves(state)]
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


@with_traced_noise
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


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.number])
def test_numbers_that_make_no_sense_are_refused(name):
    case = CASES[name]
    ledger = case.make()
    _, state = ledger.update(case.number(1e-8), ledger.init())
    assert not np.array_equal(leaves(state), leaves(ledger.init()))
    for bad in (math.nan, -1.0, -1e-30, math.inf, 1e300):
        admitted, after = ledger.update(case.number(bad), state)
        assert not admitted, bad
        chex.assert_trees_all_equal(state, after)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.number])
def test_nothing_is_too_small_to_be_counted(name):
    case = CASES[name]
    ledger = case.make()
    _, state = ledger.update(case.small(1.0), ledger.init())
    for tiny in (1e-30, 0.0):
        before = leaves(state)
        admitted, state = ledger.update(case.number(tiny), state)
        assert admitted
        assert np.any(leaves(state) > before)


@with_traced_noise
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


def test_concrete_bad_budgets_raise_and_name_the_argument():
    for bad in (0.0, -1.0, math.nan, math.inf, 1e-19, 1e31):
        with pytest.raises(ValueError, match="mu must be"):
            filters.gdp(bad)
        with pytest.raises(ValueError, match="budget must be"):
            filters.approximate_gdp(bad)
    with pytest.raises(ValueError, match="regime must be one of small, large, got 'middle'"):
        filters.approximate_gdp(1.0, regime="middle")
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon must be"):
            filters.renyi(bad, 1e-5, order=8)
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta must be"):
            filters.renyi(1.0, bad, order=8)
    for bad in (1.0, 0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match="order must be"):
            filters.renyi(1.0, 1e-5, order=bad)
    with pytest.raises(ValueError, match=r"epsilon must be above .* at order 2"):
        filters.renyi(1.0, 1e-5, order=2)


def test_queries_of_the_wrong_kind_raise():
    sampled = PoissonSampled(Gaussian(1.0), 0.5)
    gdp, renyi, approximate = (
        filters.gdp(1.0),
        filters.renyi(3.0, 1e-5, order=8),
        filters.approximate_gdp(1.0),
    )
    for query in (sampled, Composed([Gaussian(1.0), sampled])):
        with pytest.raises(ValueError, match="GDP cannot account for a Poisson-sampled"):
            gdp.update(query, gdp.init())
    assert gdp.update(PoissonSampled(Gaussian(2.0), 1.0), gdp.init())[0]
    with pytest.raises(ValueError, match="cannot account for a Poisson-sampled"):
        jax.jit(lambda rate: gdp.update(PoissonSampled(Gaussian(2.0), rate), gdp.init()))(1.0)
    with pytest.raises(ValueError, match=r"rate must be below 0.2 in the regime 'small'"):
        approximate.update(sampled, approximate.init())
    with pytest.raises(ValueError, match=r"rate must be below"):
        approximate.clip_scale(Gaussian(1.0), approximate.init())
    large = filters.approximate_gdp(1.0, regime="large")
    with pytest.raises(ValueError, match=r"rate must be above 0.8"):
        large.update(sampled, large.init())
    assert large.update(Gaussian(5.0), large.init())[0]
    for ledger in (gdp, renyi, approximate):
        with pytest.raises(ValueError, match=r"must be a"):
            ledger.update("gaussian", ledger.init())
    for ledger in (gdp, renyi):
        with pytest.raises(ValueError, match="query must match the state"):
            ledger.update(np.array([0.1, 0.1]), ledger.init())


@pytest.mark.parametrize(("regime", "rates"), [("small", (0.2, 0.5, -0.1, 1.5)), ("large", (0.79, 0.5, 1.1))])
def test_a_traced_rate_outside_the_regime_is_refused_and_clipped_to_nothing(regime, rates):
    ledger = filters.approximate_gdp(1.0, regime=regime)

    @jax.jit
    def run(rate):
        query = PoissonSampled(Gaussian(5.0), rate)
        return ledger.update(query, ledger.init())[0], ledger.clip_scale(query, ledger.init())

    for rate in (*rates, math.nan):
        admitted, scale = run(rate)
        assert not admitted
        assert float(scale) == 0.0
