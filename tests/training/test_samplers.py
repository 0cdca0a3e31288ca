"""Samplers: who is in a batch, the step that is charged for it, and distinguishers that see many runs of the code."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct import Gaussian, Laplace, PoissonSampled, epsilon, filters, training
from jaxacct.training import poisson_sample, sample_pieces, seeded_keys, take_piece
from tests.contract.test_samplers import CASES as MECHANISMS
from tests.contract.test_samplers import N, drawn
from tests.refusals import all_refused
from tests.training.small import begun


@pytest.mark.parametrize(("name", "times"), [("allocated", 1), ("allocated twice", 2), ("shuffled", 1)])
def test_an_epoch_holds_everyone_and_the_next_is_another(name: str, times: int) -> None:
    epoch = np.stack([drawn(name, step)[:3] for step in range(10)])
    assert (epoch.sum(0) == times).all()
    assert (drawn(name, 10)[:3] != epoch[0]).any()


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "with"])
def test_two_examples_come_together_as_often_as_said(name: str) -> None:
    counts = drawn(name)
    sizes = counts.sum(1)
    if name == "truncated":
        heads = np.random.default_rng(0).binomial(N, 0.1, 10**6)
        wanted = np.mean(np.minimum(heads, 12) * (np.minimum(heads, 12) - 1.0)) / (N * (N - 1))
    else:
        rate = training.sampler(MECHANISMS[name], N).expected / N
        wanted = 5 / 59 * rate if name in ("without", "shuffled") else rate**2
    pairs = sizes * (sizes - 1.0) / (N * (N - 1))  # the share of all pairs that a batch holds
    assert abs(pairs.mean() - wanted) <= 5.0 * pairs.std() / np.sqrt(len(pairs)) + 1e-12
    each = np.mean(counts[:, :1] * counts[:, 1:], 0)  # of example 0 and each other one
    np.testing.assert_allclose(each, wanted, atol=5.0 * np.sqrt(wanted / len(counts)))


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
    step, state = begun(filter, made.schedule(10), loss, {"w": jnp.zeros(3)}, sampler=made)
    whole = int(filter.budget) // int(filter.prices[0])
    taken = 0
    for _ in range(whole * made.steps + 1):
        state, report = step(state, data)
        taken += bool(report.admitted)
    assert taken == whole * made.steps
    assert bool(state.halted)
    assert float(jnp.abs(state.params["w"]).sum()) > 0


@pytest.mark.parametrize("sampled", [True, False])
def test_a_last_step_that_is_charged_for_less_is_clipped_to_less(sampled: bool) -> None:
    """However its batch is drawn: what it releases is the gradient that the smaller charge is for."""
    made = training.sampler(PoissonSampled(Gaussian(1.0), 0.1), N)
    data, params = (jnp.full((N, 3), 50.0), jnp.zeros(N)), {"w": jnp.ones(3)}
    drawn: dict[str, Any] = {"sampler": made} if sampled else {}
    step, state = begun(filters.approximate_gdp(0.0175), made.schedule(9), loss, params, optax.sgd(1.0), **drawn)
    while not bool(state.halted):
        before = state
        state, report = step(state, data)
    assert 0 < float(report.clip_scale) < 0.5
    numbers = drawn or {"sigma": made.noise_multiplier, "rate": float(report.rate)}
    keys = training.step_keys(before.keys, before.step)
    gradients = [
        training.noisy_gradient(loss, before.params, data, keys, clip_norm=1.0, clip_scale=scale, **numbers)["w"]
        for scale in (report.clip_scale, 1.0)
    ]
    moved = before.params["w"] - state.params["w"]
    np.testing.assert_allclose(moved, gradients[0], rtol=1e-4)
    assert float(jnp.abs(moved - gradients[1]).max()) > 0.05


def test_what_cannot_be_drawn_is_named() -> None:
    all_refused(
        ("Gaussian", lambda: training.sampler(PoissonSampled(Laplace(1.0), 0.1), N)),
        ("records", lambda: training.sampler(MECHANISMS["with"], N + 1)),
    )


TABLED = ("poisson", "truncated", "replacement", "shuffled")


@pytest.mark.parametrize(
    "sampling",
    ["fixed", "allocation", *(pytest.param(name, marks=pytest.mark.slow) for name in TABLED)],  # a table for each noise
)
def test_a_plan_has_the_least_noise_that_its_filter_admits(sampling: str) -> None:
    plan = training.plan_budget(
        "menu", "constant", sampling=sampling, size=N, epsilon=4.0, delta=1e-5, steps=7, rate=0.2
    )
    made, noise = plan.sampler, plan.schedule.planned[0][0]
    runs = plan.schedule.steps // made.steps
    assert plan.schedule.steps >= 7
    assert int(plan.filter.budget) // int(plan.filter.prices[0]) == runs
    assert noise == made.noise_multiplier == np.float32(noise)
    less = dataclasses.replace(made.mechanism, mechanism=Gaussian(0.97 * float(made.mechanism.mechanism.sigma)))
    assert float(epsilon(made.mechanism, 1e-5, steps=runs).upper) <= 4.0 < float(epsilon(less, 1e-5, steps=runs).upper)


def masks(size, rate, draws, seed=0):
    keys = jax.random.split(jax.random.key(seed), draws)
    return np.asarray(jax.vmap(lambda key: poisson_sample(key, size, rate))(keys))


def test_coins_of_different_examples_are_independent():
    rate = 0.2
    drawn = masks(30, rate, 20_000) - rate
    correlation = drawn.T @ drawn / 20_000 / (rate * (1 - rate))
    assert np.abs(correlation - np.eye(30))[~np.eye(30, dtype=bool)].max() < 5 / np.sqrt(20_000)
    sizes = (drawn + rate).sum(axis=1)  # a binomial: no fixed batch size hides here
    assert sizes.var() == pytest.approx(30 * rate * (1 - rate), rel=0.06)


@pytest.mark.parametrize("key", [None, 0])
@pytest.mark.parametrize(
    ("size", "rate", "piece"),
    [*((100, 0.6, piece) for piece in (1, 7, 16, 100, 300)), (40_000, 0.1, 2**17)],  # index and lane fill two words
)
def test_a_sample_larger_than_a_piece_is_never_truncated(size, rate, piece, key):
    mask = np.random.default_rng(piece).random(size) < rate
    sample = sample_pieces(jnp.asarray(mask), piece, None if key is None else jax.random.key(key))
    assert int(sample.count) == mask.sum()
    seen = []
    for number in range(int(sample.pieces)):
        indices, valid = take_piece(sample, number)
        assert indices.shape == valid.shape == (piece,)
        seen += np.asarray(indices)[np.asarray(valid)].tolist()
    assert sorted(seen) == np.flatnonzero(mask).tolist()


def test_seeds_give_the_same_keys_again_and_use_all_their_bits():
    same, other = seeded_keys(5), seeded_keys(5 + 2**32)
    assert jax.random.key_data(seeded_keys(5).noise).tolist() == jax.random.key_data(same.noise).tolist()
    assert jax.random.key_data(other.noise).tolist() != jax.random.key_data(same.noise).tolist()
    with pytest.raises(ValueError, match="seed must be"):
        seeded_keys(-1)


@pytest.mark.parametrize("mask", [[2, 0, 0, 1], np.array([2**40, 0, 0, -1]), jnp.array([0.5, 0.0, 0.0, 3.0])])
def test_a_mask_of_numbers_says_who_is_in_and_not_how_often(mask):
    for sample in (
        sample_pieces(mask, 2),
        jax.jit(lambda m: sample_pieces(m, 2))(jnp.asarray(np.asarray(mask, float))),
    ):
        taken = [take_piece(sample, number) for number in range(4)]
        assert [int(i) for indices, valid in taken for i, good in zip(indices, valid, strict=True) if good] == [0, 3]
