"""A step in which everybody pays for themselves: who is charged, who contributes, and how much."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct import Gaussian, PoissonSampled, filters, training
from jaxacct.training.schedules import constant
from tests.training.small import begun, bits

SIZE, CLIP, SIGMA, RATE = 40, 0.5, 2.0, 0.15


def loss(params, example):
    x, y = example
    return 0.5 * (jnp.dot(x, params["w"]) - y) ** 2


PARAMS = {"w": jnp.arange(4, dtype=jnp.float32) / 4}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(SIZE, 4)).astype(np.float32) / 4
Y = RNG.normal(size=SIZE).astype(np.float32) / 2
X[0] = 0.0  # learns nothing, ever
Y[1] = 50.0  # always at the clip norm
DATA = (jnp.asarray(X), jnp.asarray(Y))
OPTIMIZER = optax.sgd(0.05)
LEDGER = filters.per_example(
    filters.approximate_gdp(0.012), examples=SIZE
)  # room for three steps and a half at the clip norm
PLAN = constant(SIGMA, RATE, 9)


def make(ledger=LEDGER, plan=PLAN, **options):
    return begun(ledger, plan, loss, PARAMS, OPTIMIZER, seed=3, clip_norm=CLIP, **options)


STEP, BEGUN = make(physical_batch=16)


def own_norms(params):
    """By hand: the gradient is (x w - y) x."""
    w = np.asarray(params["w"], np.float64)
    return np.abs(X @ w - Y) * np.linalg.norm(X.astype(np.float64), axis=1)


@pytest.fixture(scope="module")
def run():
    states = [state := BEGUN]
    for _ in range(6):
        state, report = STEP(state, DATA)
        assert float(report.gradient_norm) > 0
        assert float(report.spent) == float(report.budget_left) == -1.0  # everybody's own, and private
        states.append(state)
    return states


def test_everybody_is_charged_in_every_step_for_the_norm_at_the_current_parameters(run):
    total = np.zeros(SIZE)
    for before, after in itertools.pairwise(run):
        mu = np.minimum(own_norms(before.params) / CLIP, 1.0) / SIGMA
        total += RATE**2 * np.expm1(mu**2) / 2
        spent = np.asarray(LEDGER.spent(after.filter_state))
        alive = total < 0.0119
        # Some six of forty are sampled in a step; nobody rides for free.
        np.testing.assert_allclose(spent[alive], total[alive], rtol=2e-3, atol=1e-9)
        assert (spent[~alive] >= 0.0119).all()
        assert (spent[alive] >= total[alive] * (1 - 1e-6)).all()
    assert spent[0] == 0.0
    assert spent[1] >= 0.012
    assert 1 < alive.sum() < SIZE


def test_what_is_exhausted_contributes_nothing_bit_for_bit(run):
    """The same step from the same ledgers with the spent example's data replaced by anything at all."""
    late, fresh = run[-1], run[0]
    assert float(LEDGER.remaining(late.filter_state)[1]) == 0.0
    keys = [jax.random.split(training.step_keys(late.keys, n).sampling)[0] for n in range(80)]
    coins = [training.poisson_sample(key, SIZE, np.float32(RATE))[1] for key in keys]
    sampled = [n for n, coin in enumerate(coins) if coin][:3]
    assert len(sampled) == 3
    other = (DATA[0].at[1].set(jnp.float32([9.0, -9.0, 3.0, 1.0])), DATA[1].at[1].set(-70.0))
    for n in sampled:
        after, again = (STEP(late._replace(step=jnp.int32(n)), data)[0] for data in (DATA, other))
        assert bits((after.params, after.filter_state)) == bits((again.params, again.filter_state))
        # Before it was spent it did contribute: otherwise this would show nothing.
        after, again = (STEP(fresh._replace(step=jnp.int32(n)), data)[0] for data in (DATA, other))
        assert bits(after.params) != bits(again.params)


def test_the_norms_that_are_charged_may_be_the_callers_and_bound_the_contribution():
    half, _ = make(accounts=lambda params, data: jnp.full(SIZE, CLIP / 2))
    spent = np.asarray(LEDGER.spent(half(BEGUN, DATA)[0].filter_state))
    np.testing.assert_allclose(spent, RATE**2 * np.expm1((0.5 / SIGMA) ** 2) / 2, rtol=2e-3)
    wrong, _ = make(accounts=lambda params, data: jnp.ones(3))
    with pytest.raises(ValueError, match=r"accounts must return one norm an example, shape \(40,\)"):
        wrong(BEGUN, DATA)


def test_what_does_not_go_with_accounts_of_each_example_is_named(tmp_path):
    with pytest.raises(ValueError, match="filter must have the methods bounds"):
        make(filters.gdp(1.0), accounts=lambda params, data: jnp.ones(SIZE))
    drawn = training.sampler(PoissonSampled(Gaussian(SIGMA), RATE), SIZE)
    with pytest.raises(ValueError, match="sampler must be left out for a filter with an account for each example"):
        make(LEDGER, drawn.schedule(9), sampler=drawn)
    words = "step must be one whose charges a journal can hold: accounts of each example"
    with pytest.raises(ValueError, match=words), training.durable_run(tmp_path, STEP, BEGUN, LEDGER):
        pass


def test_sums_are_divided_by_a_public_size_and_not_by_the_number_of_rows():
    """Rows that stand for nobody leave the step as it was: how many records there are does not show."""
    wide = SIZE + 7
    padded = tuple(jnp.concatenate([leaf, jnp.zeros((7, *leaf.shape[1:]), leaf.dtype)]) for leaf in DATA)
    moved = []
    for data, count, size in ((DATA, SIZE, 50), (padded, wide, 100)):
        ledger = filters.per_example(filters.approximate_gdp(0.9, regime="large"), examples=count)
        step, state = make(ledger, constant(SIGMA, 1.0, 9), physical_batch=16, size=size)
        moved.append(size * float(step(state, data)[1].gradient_norm))
    assert moved[0] == pytest.approx(moved[1], rel=1e-4)
    with pytest.raises(ValueError, match=f"data must hold one row for each of the filter's {wide} accounts"):
        step(state, DATA)
    for size in (0, -1, 2.5):
        with pytest.raises(ValueError, match="size must be"):
            make(size=size)


def test_a_gradient_that_is_no_number_takes_no_part():
    data = (DATA[0].at[5].set(jnp.nan), DATA[1])
    state = BEGUN
    for _ in range(4):
        state, _ = STEP(state, data)
    assert np.isfinite(np.asarray(state.params["w"])).all()
    assert float(LEDGER.spent(state.filter_state)[5]) == 0.0
