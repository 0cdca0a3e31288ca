"""What every filter promises, whatever its theorem."""

from __future__ import annotations

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Composed, Gaussian, PoissonSampled, filters

# name -> (make(scale of the budget), sigma -> query, a sigma whose query fits some tens of times into make())
CASES = {
    "gdp": (lambda scale=1.0: filters.gdp(scale), lambda sigma: Gaussian(sigma), 10.0),
    "renyi": (
        lambda scale=1.0: filters.renyi(2.0 + scale, 1e-5, order=8),
        lambda sigma: PoissonSampled(Gaussian(sigma), 0.1),
        2.0,
    ),
    "renyi-fractional": (
        lambda scale=1.0: filters.renyi(2.0 + scale, 1e-5, order=6.5),
        lambda sigma: PoissonSampled(Gaussian(sigma), 0.1),
        2.0,
    ),
    "approximate-gdp-small": (
        lambda scale=1.0: filters.approximate_gdp(0.05 * scale),
        lambda sigma: PoissonSampled(Gaussian(sigma), 0.1),
        3.0,
    ),
    "approximate-gdp-large": (
        lambda scale=1.0: filters.approximate_gdp(0.5 * scale, regime="large"),
        lambda sigma: PoissonSampled(Gaussian(sigma), 0.9),
        10.0,
    ),
}
every_filter = pytest.mark.parametrize("name", CASES)


def words(state):
    return int(sum(int(w) << (32 * (2 - i)) for i, w in enumerate(np.asarray(state.words))))


def play(ledger, make_query, sigma, steps):
    """Admissions of ``steps`` equal queries, one Python call each."""
    state, history = ledger.init(), []
    for _ in range(steps):
        admitted, state = ledger.update(make_query(sigma), state)
        history.append(bool(admitted))
    return history, state


@every_filter
def test_it_satisfies_the_protocol_and_names_its_theorem(name):
    ledger = CASES[name][0]()
    guarantee = ledger.guarantee
    assert isinstance(guarantee, filters.Guarantee)
    assert 0 < float(guarantee.delta(1.0)) < 1
    assert float(guarantee.delta(guarantee.epsilon(1e-5))) <= 1e-5 * (1 + 1e-6)
    assert guarantee.epsilon(np.array([1e-5, 1e-3])).shape == (2,)
    assert guarantee.is_bound == (not name.startswith("approximate"))
    assert ("not a bound" in guarantee.statement) == (not guarantee.is_bound)
    assert "20" in guarantee.statement or "Theorem" in guarantee.statement


@every_filter
def test_update_is_pure_and_a_refusal_changes_nothing(name):
    make, query, sigma = CASES[name]
    ledger = make()
    start = ledger.init()
    first = ledger.update(query(sigma), start)
    second = ledger.update(query(sigma), start)
    chex.assert_trees_all_equal(first, second)
    assert words(start) == 0
    history, state = play(ledger, query, sigma, 300)
    assert history[0]
    assert not history[-1]
    assert history == sorted(history, reverse=True), "equal queries are admitted until the budget is spent"
    admitted, after = ledger.update(query(sigma), state)
    assert not admitted
    chex.assert_trees_all_equal(state, after)


@every_filter
def test_spent_rises_remaining_falls_and_both_stay_within_the_budget(name):
    make, query, sigma = CASES[name]
    ledger = make()
    state, spent, left = ledger.init(), 0.0, math.inf
    assert float(ledger.spent(state)) == 0.0
    for _ in range(20):
        admitted, state = ledger.update(query(sigma), state)
        assert admitted
        assert float(ledger.spent(state)) > spent
        assert float(ledger.remaining(state)) < left
        spent, left = float(ledger.spent(state)), float(ledger.remaining(state))
        assert 0 < float(ledger.fraction(state)) < 1


@every_filter
def test_scan_while_loop_and_python_agree(name):
    make, query, sigma = CASES[name]
    ledger = make()
    history, state = play(ledger, query, sigma, 250)

    @jax.jit
    def scanned(ledger):
        return jax.lax.scan(lambda s, _: ledger.update(query(sigma), s)[::-1], ledger.init(), None, length=len(history))

    @jax.jit
    def looped(ledger):
        def more(carry):
            return carry[0]

        def step(carry):
            _, s, n = carry
            admitted, s = ledger.update(query(sigma), s)
            return admitted, s, n + admitted

        return jax.lax.while_loop(more, step, (jnp.array(True), ledger.init(), jnp.int32(0)))

    end, admitted = scanned(ledger)
    assert admitted.tolist() == history
    chex.assert_trees_all_equal(end, state)
    _, end, count = looped(ledger)
    assert int(count) == sum(history)
    chex.assert_trees_all_equal(end, state)


@every_filter
def test_a_thousand_ledgers_under_vmap_are_a_thousand_ledgers(name):
    make, query, sigma = CASES[name]
    scales = np.linspace(0.5, 2.0, 1000)
    ledgers = make(scales)
    sigmas = sigma * np.linspace(0.3, 3.0, 1000)

    def run(ledger, s):
        def body(state, _):
            admitted, state = ledger.update(query(s), state)
            return state, admitted

        return jax.lax.scan(body, ledger.init(), None, length=60)

    end, admitted = jax.jit(jax.vmap(run))(ledgers, sigmas)
    assert admitted.shape == (1000, 60)
    with jax.enable_x64(True):
        for i in (0, 317, 999):
            single, some = run(make(scales[i]), np.float32(sigmas[i]))
            assert some.tolist() == admitted[i].tolist()
            # Batched sums are ordered differently, so costs may differ in the last bits.
            assert words(single) == pytest.approx(words(filters.LedgerState(end.words[i])), rel=1e-12)
    # Without vmap, a ledger with a shape does the same elementwise.
    batched, state = ledgers.update(query(np.asarray(sigmas, np.float32)), ledgers.init())
    assert batched.tolist() == admitted[:, 0].tolist()
    assert state.words.shape == (1000, 3)


@every_filter
def test_a_float32_program_stays_float32_and_gets_the_same_ledger_as_a_float64_one(name):
    make, query, sigma = CASES[name]
    before = jax.config.jax_enable_x64
    assert not before

    @jax.jit
    def train(ledger, params, sigmas):
        def step(carry, s):
            params, state = carry
            admitted, state = ledger.update(query(s), state)
            scale = ledger.clip_scale(query(s), state) if hasattr(ledger, "clip_scale") else ledger.fraction(state)
            assert scale.dtype == jnp.result_type(float)
            params = jnp.where(admitted, params - 0.1 * scale.astype(params.dtype) * params, params)
            return (params, state), (admitted, ledger.remaining(state), ledger.spent(state))

        return jax.lax.scan(step, (params, ledger.init()), sigmas)

    sigmas = jnp.full(40, sigma, jnp.float32)
    (params, state), (_, remaining, spent) = train(make(), jnp.ones(3), sigmas)
    assert {params.dtype, remaining.dtype, spent.dtype} == {jnp.dtype("float32")}
    assert jax.config.jax_enable_x64 == before
    with jax.enable_x64(True):
        (_, wide), _ = train(make(), jnp.ones(3, jnp.float32), sigmas)
    chex.assert_trees_all_equal(state.words, wide.words)


@every_filter
def test_budgets_noise_and_state_change_without_retracing(name):
    make, query, sigma = CASES[name]
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def step(ledger, s, state):
        return ledger.update(query(s), state)

    for scale in (0.5, 0.7, 2.0):
        ledger = make(scale)
        state = ledger.init()
        for factor in (1.0, 2.0, 3.0):
            admitted, state = step(ledger, jnp.float32(sigma * factor), state)
            assert admitted


@every_filter
@pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf, -math.inf, 0.0])
def test_noise_that_makes_no_sense_is_refused(name, bad):
    make, query, sigma = CASES[name]
    ledger = make()
    _, state = ledger.update(query(sigma), ledger.init())
    admitted, after = jax.jit(lambda s, state: ledger.update(query(s), state))(bad, state)
    assert not admitted
    chex.assert_trees_all_equal(state, after)


@pytest.mark.parametrize("name", ["gdp", "renyi"])
@pytest.mark.parametrize("bad", [math.nan, -1.0, -1e-30, math.inf, 1e300])
def test_numbers_that_make_no_sense_are_refused(name, bad):
    ledger = CASES[name][0]()
    _, state = ledger.update(0.01, ledger.init())
    admitted, after = ledger.update(bad, state)
    assert not admitted
    chex.assert_trees_all_equal(state, after)


@every_filter
@pytest.mark.parametrize("bad", [math.nan, -1.0, 0.0, math.inf])
def test_a_traced_budget_that_makes_no_sense_admits_nothing(name, bad):
    make, query, sigma = CASES[name]

    @jax.jit
    def run(scale):
        ledger = make(scale)
        return ledger.update(query(sigma), ledger.init())

    if name.startswith("renyi"):
        bad = {0.0: -2.0, -1.0: -10.0}.get(bad, bad)  # make adds 2 to it
    admitted, state = run(bad)
    assert not admitted
    assert words(state) == 0


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
        with pytest.raises(ValueError, match=r"query must be a Gaussian, got PoissonSampled"):
            gdp.update(query, gdp.init())
    assert gdp.update(PoissonSampled(Gaussian(2.0), 1.0), gdp.init())[0]
    with pytest.raises(ValueError, match=r"got PoissonSampled"):
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
        with pytest.raises(ValueError, match="query must match the ledger"):
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
