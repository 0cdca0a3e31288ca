"""Samplers: who is in a batch, the step that is charged for it, and distinguishers that see many runs of the code."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct import (
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    SampledWithReplacement,
    Shuffled,
    TruncatedPoisson,
    delta,
    epsilon,
    training,
)

N, RUNS = 60, 4000
MECHANISMS = {
    "poisson": PoissonSampled(Gaussian(1.0), 0.1),
    "truncated": TruncatedPoisson(Gaussian(1.0), 0.1, 12, N),
    "without": SampledWithoutReplacement(Gaussian(1.0), 6, N),
    "with": SampledWithReplacement(Gaussian(1.0), 6, N),
    "allocated": RandomAllocation(Gaussian(1.0), 10),
    "allocated twice": RandomAllocation(Gaussian(1.0), 10, 2),
    "shuffled": Shuffled(Gaussian(1.0), 10),
}


@functools.cache
def program(name: str):
    """How often each of N examples is in the samples of many keys."""
    made = training.sampler(MECHANISMS[name], N, piece=4)

    def counts(key, step):
        sample = made.draw(key, step)
        valid = jnp.arange(sample.indices.size) < sample.count
        return jnp.zeros(N, jnp.int32).at[sample.indices].add(valid.astype(jnp.int32))

    return jax.jit(jax.vmap(counts, (0, None)))


def drawn(name: str, step: int = 0, seed: int = 0) -> np.ndarray:
    """Counts of shape (RUNS, N)."""
    return np.asarray(program(name)(jax.random.split(jax.random.key(seed), RUNS), jnp.uint32(step)))


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_example_is_drawn_as_often_as_said(name: str) -> None:
    found = drawn(name)
    rate = {
        "allocated twice": 0.2,
        "truncated": np.minimum(np.random.default_rng(0).binomial(N, 0.1, 10**6), 12).mean() / N,
    }
    wanted = rate.get(name, 0.1)
    error = 5.0 * np.sqrt(wanted / RUNS)
    np.testing.assert_allclose(found.mean(0), wanted, atol=error)
    sizes = found.sum(1)
    if name in ("without", "with", "shuffled"):
        assert (sizes == 6).all()
    if name == "truncated":
        assert sizes.max() == 12
    assert found.max() > 1 if name == "with" else found.max() == 1


@pytest.mark.parametrize(("name", "times"), [("allocated", 1), ("allocated twice", 2), ("shuffled", 1)])
def test_an_epoch_holds_everyone_and_the_next_is_another(name: str, times: int) -> None:
    epoch = np.stack([drawn(name, step)[:3] for step in range(10)])
    assert (epoch.sum(0) == times).all()
    assert (drawn(name, 10)[:3] != epoch[0]).any()


@pytest.mark.parametrize("name", ["poisson", "allocated", "shuffled", "truncated"])
def test_a_distinguisher_of_the_code_stays_below_the_bound(name: str) -> None:
    # The record is example 0, all others are 0: the release of a run is the number of times it is in, plus noise.
    mechanism = MECHANISMS[name]
    made = training.sampler(mechanism, N, piece=4)
    steps = np.stack([drawn(name, step, 1)[:, 0] for step in range(made.steps)], 1)
    rng = np.random.default_rng(2)
    with_record = steps + rng.normal(0.0, made.noise_multiplier, steps.shape)
    without = rng.normal(0.0, made.noise_multiplier, steps.shape)
    score = lambda y: np.log(np.exp(y - 0.5).mean(1))  # noqa: E731
    at, base = score(with_record), score(without)
    level = np.quantile(at, 0.9)
    seen = (at > level).mean() - np.exp(0.3) * (base > level).mean()
    bound = delta(mechanism, 0.3, relation="zero_out")
    noise = 4.0 * np.sqrt(0.1 / RUNS)
    assert seen <= bound.upper + noise
    if name == "allocated":
        # A test that is nearly the best there is: a bound that is half as large would have been beaten.
        assert seen + noise >= 0.5 * bound.lower


def loss(params, example):
    x, y = example
    return 0.5 * (x @ params["w"] - y) ** 2


@pytest.mark.parametrize("name", ["allocated", "with"])
def test_a_step_is_charged_for_what_it_draws(name: str) -> None:
    mechanism = MECHANISMS[name]
    made = training.sampler(mechanism, N, piece=8)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3)).astype(np.float32)
    data = (jnp.asarray(x), jnp.asarray(x @ np.array([1.0, -1.0, 0.5], np.float32)))
    filter = made.filter(3.0, 1e-5)
    optimizer = optax.sgd(0.1)
    state = training.init_state(
        {"w": jnp.zeros(3)}, optimizer, filter, training.constant(1.0, 0.1, 10), training.seeded_keys(0)
    )
    step = training.make_sampled_step(loss, optimizer, filter, made, clip_norm=1.0)
    whole = int(filter.budget) // int(filter.prices[0])
    taken = 0
    for _ in range(whole * made.steps + 1):
        state, report = step(state, data)
        taken += bool(report.admitted)
    assert taken == whole * made.steps
    assert bool(state.halted)
    assert float(jnp.abs(state.params["w"]).sum()) > 0


def test_what_cannot_be_drawn_is_named() -> None:
    with pytest.raises(ValueError, match="mechanism"):
        training.sampler(Gaussian(1.0), N)
    with pytest.raises(ValueError, match="Gaussian"):
        training.sampler(PoissonSampled(Laplace(1.0), 0.1), N)
    with pytest.raises(ValueError, match="records"):
        training.sampler(MECHANISMS["with"], N + 1)


@pytest.mark.parametrize(
    "sampling",
    [
        "fixed",
        "allocation",
        *(
            pytest.param(name, marks=pytest.mark.slow)  # a table for each noise
            for name in ("poisson", "truncated", "replacement", "shuffled")
        ),
    ],
)
def test_a_plan_has_the_least_noise_that_its_filter_admits(sampling: str) -> None:
    plan = training.plan_sampled_budget(sampling, size=N, epsilon=4.0, delta=1e-5, steps=7, rate=0.2)
    made, noise = plan.sampler, plan.schedule.planned[0][0]
    runs = plan.schedule.steps // made.steps
    assert plan.schedule.steps >= 7
    assert int(plan.filter.budget) // int(plan.filter.prices[0]) == runs
    assert noise == made.noise_multiplier == np.float32(noise)
    less = dataclasses.replace(made.mechanism, mechanism=Gaussian(0.97 * float(made.mechanism.mechanism.sigma)))
    assert float(epsilon(made.mechanism, 1e-5, steps=runs).upper) <= 4.0 < float(epsilon(less, 1e-5, steps=runs).upper)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sampling": "sorted"}, "sampling must be"),
        ({"largest": 5}, "largest is for sampling 'truncated'"),
        ({"rate": 1e-3}, "rate must be at least 1 / size"),
        ({"size": 0}, "size must be"),
        ({"epsilon": 101.0}, "epsilon must be .*at most 100"),
    ],
)
def test_a_plan_says_what_is_wrong(changed: dict, message: str) -> None:
    asked = {"sampling": "allocation", "size": N, "epsilon": 4.0, "delta": 1e-5, "steps": 7, "rate": 0.2}
    with pytest.raises(ValueError, match=message):
        training.plan_sampled_budget(**(asked | changed))
