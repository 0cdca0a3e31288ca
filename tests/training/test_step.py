"""The filter step: refusals change nothing, the last step is clipped, adaptivity sees releases only."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct import filters, training
from jaxacct.losses.renyi import epsilon_from_renyi, renyi
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.training.schedules import ReleasedValues, adaptive, constant, warmup_decay
from tests.training.small import begun, bits


def loss(params, example):
    x, y = example
    return 0.5 * (jnp.dot(x, params["w"]) - y) ** 2


PARAMS = {"w": jnp.arange(4, dtype=jnp.float32)}
DATA = (
    jnp.asarray(np.random.default_rng(0).normal(size=(60, 4)), jnp.float32),
    jnp.asarray(np.random.default_rng(1).normal(size=60), jnp.float32),
)
OPTIMIZER = optax.sgd(0.1, momentum=0.9)


def made(filter, schedule, physical_batch=8, **options):
    return begun(filter, schedule, loss, PARAMS, OPTIMIZER, physical_batch=physical_batch, **options)


def run(filter, schedule, steps, physical_batch=8):
    step, state = made(filter, schedule, physical_batch)
    states, reports = [state], []
    for _ in range(steps):
        state, report = step(state, DATA)
        states.append(state)
        reports.append(report)
    return states, reports


def worth_three_steps(name):
    """A filter with room for three steps and a half of a schedule, and that schedule."""
    if name == "gdp":
        return filters.gdp(np.sqrt(3.5) / 2), constant(2.0, 1.0, 10)
    rho = 3.5 * float(renyi(PoissonSampled(Gaussian(2.0), np.float32(0.1)), 8.0))
    return filters.renyi(float(epsilon_from_renyi(rho, 8.0, 1e-5)), 1e-5, order=8.0), constant(2.0, 0.1, 10)


@pytest.mark.parametrize("name", ["gdp", "renyi"])
def test_a_refused_step_leaves_everything_bit_for_bit_and_halts(name):
    filter, schedule = worth_three_steps(name)
    states, reports = run(filter, schedule, 6)
    assert [bool(report.admitted) for report in reports] == [True] * 3 + [False] * 3
    for before, after in itertools.pairwise(states[:4]):
        assert bits(before.params) != bits(after.params)
    for after in states[4:]:
        assert bits(states[3]._replace(halted=after.halted)) == bits(after)
        assert bool(after.halted)
    assert int(states[-1].step) == 3
    assert float(reports[-1].gradient_norm) == 0


def test_a_report_says_why_a_step_was_refused_and_a_run_says_it_in_words():
    everyone = constant(2.0, 1.0, 10)
    menu = filters.menu([PoissonSampled(Gaussian(2.0), 0.1)], epsilon=2.0, delta=1e-5)
    cases = {
        filters.Reason.SPENT: (filters.gdp(0.1), everyone),
        filters.Reason.OUTSIDE: (menu, constant(2.0, 0.3, 10)),
        filters.Reason.INVALID: (filters.gdp(5.0), constant(1e9, 1.0, 10)),  # more noise than an exact sum holds
    }
    told = {
        filters.Reason.SPENT: "budget spent",
        filters.Reason.OUTSIDE: "rate 0.3 is above the largest, 0.1, that this filter was made for",
    }
    for reason, (filter, schedule) in cases.items():
        states, (first, second) = run(filter, schedule, 2)
        assert int(first.reason) == reason
        assert int(second.reason) == filters.Reason.HALTED
        assert not bool(first.foreign)
        step, state = made(filter, schedule)
        words = training.fit(step, state, DATA, steps=2, evaluate=lambda params: 0.0).stopped
        assert words == told.get(reason, filters.sentence(reason))
        assert training.fit(step, states[-1], DATA, steps=2, evaluate=lambda params: 0.0).stopped == filters.sentence(
            filters.Reason.HALTED
        )
    states, (first, _) = run(filters.gdp(5.0), everyone, 2)
    assert int(first.reason) == filters.Reason.ADMITTED
    # A halted run stays halted even if a query would fit.
    halted = states[-1]._replace(halted=jnp.bool_(True))
    state, report = made(filters.gdp(5.0), everyone)[0](halted, DATA)
    assert int(report.reason) == filters.Reason.HALTED
    assert bits(state.params) == bits(halted.params)


def test_the_approximate_filter_clips_one_last_step_and_halts():
    query = PoissonSampled(Gaussian(2.0), 0.1)
    whole = 3.5 * 0.1**2 * np.expm1(0.25) / 2
    filter = filters.approximate_gdp(whole)
    states, reports = run(filter, constant(2.0, 0.1, 10), 6)
    assert [bool(report.admitted) for report in reports] == [True] * 4 + [False] * 2
    assert [float(report.clip_scale) for report in reports[:3]] == [1.0] * 3
    expected = float(filter.clip_scale(query, states[3].filter_state))
    assert 0.5 < float(reports[3].clip_scale) < 1
    assert float(reports[3].clip_scale) == pytest.approx(expected, rel=1e-6)
    assert bits(states[3].params) != bits(states[4].params)  # the clipped step is released
    assert bits(states[4].params) == bits(states[6].params)
    assert float(reports[3].budget_left) == pytest.approx(0, abs=1e-6)
    assert bool(states[4].halted)


def test_the_gradient_is_divided_by_the_expected_and_not_the_realised_sample_size():
    ones = (jnp.ones((1000, 4)), jnp.full(1000, -1e6))  # every clipped gradient is the same vector of length 1

    @jax.jit
    def draw(step):
        keys = training.step_keys(training.seeded_keys(0), step)
        return training.noisy_gradient(loss, PARAMS, ones, keys, sigma=1e-3, rate=0.1, clip_norm=1.0)["w"]

    norms = [float(jnp.linalg.norm(draw(step))) for step in range(20)]
    sizes = np.array(norms) * 100
    assert np.std(sizes) > 4  # a binomial's, about 9.5: dividing by the realised size would hide it
    np.testing.assert_allclose(sizes, np.round(sizes), atol=0.05)


def test_a_run_repeats_for_a_seed_whatever_the_physical_batch():
    one, other = (run(filters.gdp(10.0), constant(1.0, 1.0, 5), 5, physical_batch=size)[0][-1] for size in (5, 60))
    np.testing.assert_allclose(one.params["w"], other.params["w"], rtol=1e-6)


def test_a_step_compiles_once_and_keeps_float32():
    filter, schedule = filters.renyi(8.0, 1e-5, order=8.0), adaptive(2.0, 0.1, 20)
    step, state = made(filter, schedule, donate=True)
    chex.clear_trace_counter()
    counted = jax.jit(chex.assert_max_traces(step.whole.__wrapped__, 1))
    for number in range(6):
        state, report = counted(state, DATA)
        state = state.with_accuracy(0.1 * number)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((state.params, state.opt_state)))
    assert bool(report.admitted)
    # A donating step leaves the caller's own parameters alone.
    step, state = made(filter, schedule, donate=True)
    step(state, DATA)
    assert np.array_equal(PARAMS["w"], np.arange(4))


class Careless:
    """A filter that admits everything."""

    def init(self):
        return jnp.int32(0)

    def update(self, query, state):
        return jnp.bool_(True), state + 1

    def spent(self, state):
        return state

    def fraction(self, state):
        return jnp.float32(0.0)


CARELESS = {
    "careless": Careless(),
    "sampled": filters.approximate_gdp(9.0),
    "an account each": filters.per_example(filters.approximate_gdp(0.012), examples=60),
}


@pytest.mark.parametrize("name", CARELESS)
def test_a_schedule_that_proposes_nonsense_is_refused_and_nothing_moves(name):
    wild = constant(2.0, 0.15, 5)._replace(propose=lambda step, asked, released: (*asked, asked))
    step, state = made(CARELESS[name], wild)
    bad = [(sigma, 0.15) for sigma in (0.0, -1.0, np.nan, np.inf, 1e9)]
    for asked in (*bad, *((2.0, rate) for rate in (0.0, -0.5, np.nan, 1.5))):
        before = state._replace(schedule_state=tuple(map(jnp.float32, asked)))
        after, report = step(before, DATA)
        assert not bool(report.admitted), asked
        assert float(report.gradient_norm) == 0.0
        assert bits(before._replace(halted=after.halted)) == bits(after)


PLANS = [
    ("approximate_gdp", 0.1, "constant"), ("approximate_gdp", 0.1, "warmup_decay"),
    ("approximate_gdp", 0.9, "constant"),  # the rate of a warm-up passes where there is no analysis
    ("renyi", 0.1, "constant"), ("renyi", 0.1, "warmup_decay"),
    ("renyi", 0.5, "constant"), ("renyi", 0.5, "warmup_decay"),
    ("gdp", 1.0, "constant"), ("gdp", 1.0, "warmup_decay"),
    ("sampled_gaussian", 0.1, "constant"),
    # In a warm-up both noise and rate move: a table of twenty seconds.
    pytest.param("sampled_gaussian", 0.1, "warmup_decay", marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rate", "schedule"), PLANS)
def test_a_planned_schedule_is_admitted_to_its_end_and_hardly_more(name, rate, schedule):
    budget = training.plan_budget(name, schedule, epsilon=2.0, delta=1e-5, steps=20, rate=rate)
    loose = name == "sampled_gaussian"  # its curve meets the target to 1e-4 of a table's node
    state = budget.filter.init()
    for sigma, planned_rate, steps in budget.schedule.planned:
        query = Gaussian(sigma) if planned_rate == 1 else PoissonSampled(Gaussian(sigma), planned_rate)
        for _ in range(steps):
            admitted, state = budget.filter.update(query, state)
            assert bool(admitted)
    assert float(budget.filter.fraction(state)) == pytest.approx(1, abs=5e-3 if loose else 1e-4)
    assert float(budget.filter.guarantee.epsilon(1e-5)) <= 2.0
    assert float(budget.filter.guarantee.epsilon(1e-5)) == pytest.approx(2.0, rel=1e-4 if loose else 1e-6)
    assert sum(int(count) for _, count in training.planned_mechanism(budget.schedule).parts()) == 20


def test_fixed_schedules_propose_what_they_planned_and_list_every_query_that_they_may_make():
    for schedule in (constant(2.0, 0.1, 37), warmup_decay(2.0, 0.1, 37)):
        assert {(m.mechanism.sigma, m.rate) for m in schedule.menu()} == {(s, q) for s, q, _ in schedule.planned}
        steps = [(sigma, rate) for sigma, rate, count in schedule.planned for _ in range(count)]
        assert len(steps) == schedule.steps == 37
        for number, (sigma, rate) in enumerate(steps):
            proposed = schedule.propose(jnp.int32(number), (), None)
            assert (float(proposed[0]), float(proposed[1])) == (sigma, rate)


def test_the_adaptive_schedule_reacts_to_releases_and_stays_in_its_range():
    schedule = adaptive(2.0, 0.1, 100)
    state, seen = schedule.init(), []
    norm, noise = jnp.float32(2.0), jnp.float32(1.0)
    accuracies = [0.1, 0.5, 0.6, 0.7, 0.8] + [0.8] * 10
    for number, accuracy in enumerate(accuracies):
        released = ReleasedValues(norm, noise, jnp.float32(accuracy), jnp.int32(number + 1), jnp.float32(0))
        sigma, rate, state = schedule.propose(jnp.int32(number), state, released)
        seen.append(float(sigma))
        assert float(rate) == float(np.float32(0.1))
    assert seen[:2] == sorted(seen[:2])
    assert max(seen) == pytest.approx(4.0)
    assert seen[-1] == pytest.approx(2.0 / np.sqrt(2))
    # Without a new evaluation nothing moves.
    assert float(schedule.propose(jnp.int32(99), state, released)[0]) == seen[-1]


def test_an_adaptive_schedule_lists_its_levels():
    menu = adaptive(2.0, 1.0, 9).menu()
    assert all(isinstance(entry, Gaussian) for entry in menu)
    np.testing.assert_allclose([entry.sigma for entry in menu], 2.0 * 2.0 ** (np.arange(-2, 5) / 4), rtol=1e-6)
    with pytest.raises(ValueError, match="schedule must list its levels"):
        constant(2.0, 0.1, 5)._replace(levels=()).menu()
