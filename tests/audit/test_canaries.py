"""Canaries in a training run: where they are, what their gradients are, and that one run audits itself."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct import Gaussian, audit, filters
from jaxacct.training import init_state, make_step, per_example_gradients, seeded_keys
from jaxacct.training.schedules import constant


def loss(params, example):
    x, y = example
    return 0.5 * (jnp.dot(x, params["w"]) - y) ** 2


PARAMS = {"w": jnp.zeros(4)}
DATA = (
    np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32),
    np.random.default_rng(1).normal(size=40).astype(np.float32),
)
STEPS, SIGMA, NUMBER = 4, 4.0, 400  # mu 1/2
CLAIM = dict(delta=1e-5, mechanism=Gaussian(SIGMA), steps=STEPS)


def placed(number=NUMBER, seed=0, **options):
    given = {"gradient_norm": 10.0} | options
    return audit.canaries(loss, PARAMS, DATA, key=jax.random.key(seed), number=number, **given)


def own_loop(canaries, seed, *, sigma=SIGMA, clip=1.0, copies=1, rate=1.0, reused=False):
    """DP-SGD as somebody writes it who knows nothing of canaries, but for the line that observes."""
    params, scores = canaries.params, canaries.init()
    rows = len(jax.tree.leaves(canaries.data)[0])

    @jax.jit
    def release(params, key, coins):
        gradients = jax.vmap(jax.grad(canaries.loss), (None, 0))(params, canaries.data)
        squares = sum(jnp.sum(leaf**2, axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(gradients))
        factors = copies * jnp.minimum(1.0, clip / jnp.sqrt(squares + 1e-12))
        factors *= jax.random.bernoulli(coins, rate, (rows,))
        total = jax.tree.map(lambda leaf: jnp.tensordot(factors, leaf, 1), gradients)
        noise = optax.tree.random_like(key, total, jax.random.normal)
        return jax.tree.map(lambda a, b: (a + sigma * b) / (rate * rows), total, noise)

    for step in range(STEPS):
        noise, coins = (
            jax.random.fold_in(jax.random.key(seed), number) for number in (0 if reused else step, 9 + step)
        )
        mean = release(params, noise, coins)
        scores = canaries.observe(scores, mean, params)
        params = jax.tree.map(lambda leaf, move: leaf - 0.5 * move, params, mean)
    return scores


def library(canaries, sigma=SIGMA):
    """The library's run under a filter, of problems of the shapes of ``canaries``, by one program: their scores."""
    optimizer = canaries.optimizer(optax.sgd(0.5, momentum=0.9))
    filter, schedule = filters.gdp(10.0), constant(sigma, 1.0, STEPS)
    step = make_step(canaries.loss, optimizer, filter, schedule, clip_norm=1.0)

    def scores(one, seed):
        state = init_state(one.params, optimizer, filter, schedule, seeded_keys(seed))
        for _ in range(STEPS):
            state, report = step(state, one.data)
            assert report.admitted
        return state.opt_state.scores

    return scores


def test_an_honest_step_is_not_refuted_and_one_with_a_quarter_of_the_noise_is():
    canaries = placed()
    assert not canaries.audit(library(canaries)(canaries, 1), **CLAIM).refuted
    assert canaries.audit(library(canaries, SIGMA / 4)(canaries, 1), **CLAIM).refuted


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ({}, False),
        ({"sigma": SIGMA / 4}, True),
        ({"clip": np.inf}, True),
        ({"copies": 4}, True),
        ({"reused": True, "rate": 0.5}, True),
    ],
    ids=str,
)
def test_a_loop_of_ones_own_audits_itself(bug, found):
    canaries = placed(seed=3)
    assert canaries.audit(own_loop(canaries, 5, **bug), **CLAIM).refuted == found


def test_a_canary_that_is_in_has_its_own_gradient_and_one_that_is_out_has_none():
    canaries = placed(50)
    rows, labels = canaries.data
    labels = np.asarray(labels)
    gradients = per_example_gradients(canaries.loss, canaries.params, canaries.data)
    own, model = np.asarray(gradients["canaries"]), np.asarray(gradients["model"]["w"])
    order = [int(np.flatnonzero(labels == number)[0]) for number in np.flatnonzero(canaries.included)]
    np.testing.assert_array_equal(own[order], 10.0 * np.eye(50)[canaries.included])
    records = labels == -1
    assert records.sum() == 40
    assert (labels == -2).sum() == np.sum(~canaries.included)
    assert not own[records].any()
    assert not model[~records].any()
    assert not own[labels == -2].any()
    # Records are the user's, in another order, with their own gradients.
    assert sorted(np.asarray(rows[1])[records].tolist()) == sorted(DATA[1].tolist())
    plain = per_example_gradients(loss, PARAMS, jax.tree.map(lambda leaf: leaf[records], rows))
    np.testing.assert_allclose(model[records], plain["w"], rtol=1e-6)


def test_coins_are_fair_and_places_random():
    several = [placed(200, seed) for seed in range(20)]
    share = np.mean([one.included for one in several])
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(20 * 200)
    at = np.mean([np.mean(np.flatnonzero(np.asarray(one.data[1]) != -1)) for one in several])
    assert abs(at - 239 / 2) < 4
    assert len({one.included.tobytes() for one in several}) == 20


def test_the_model_moves_as_it_would_without_canaries():
    canaries = placed(8)
    inner = optax.adam(0.1)
    gradient = {"model": {"w": jnp.arange(4.0)}, "canaries": jnp.ones(8)}
    updates, state = canaries.optimizer(inner).update(
        gradient, canaries.optimizer(inner).init(canaries.params), canaries.params
    )
    expected, _ = inner.update(gradient["model"], inner.init(PARAMS), PARAMS)
    np.testing.assert_array_equal(updates["model"]["w"], expected["w"])
    assert not np.asarray(updates["canaries"]).any()
    assert canaries.model(updates) is updates["model"]
    np.testing.assert_array_equal(state.scores.total, np.ones(8))


def test_scores_are_sums_and_squared_changes_of_the_releases():
    canaries, scores = placed(3), placed(3).init()
    releases = np.array([[1.0, 2.0, 3.0], [0.0, 2.0, 5.0], [2.0, 2.0, 5.0]])
    for release in releases:
        scores = jax.jit(canaries.observe)(
            scores, {"model": PARAMS, "canaries": jnp.asarray(release, jnp.float32)}, canaries.params
        )
    np.testing.assert_array_equal(scores.total, releases.sum(0))
    np.testing.assert_array_equal(scores.change, (np.diff(releases, axis=0) ** 2).sum(0))


def test_guesses_are_the_highest_and_the_lowest_scores():
    canaries = placed(40)
    perfect = canaries.init()._replace(total=jnp.asarray(canaries.included, jnp.float32))
    found = canaries.audit(perfect, 10, delta=1e-5)
    assert (found.correct, found.guesses, found.canaries, found.scores) == (10, 10, 40, 2)
    upside_down = perfect._replace(total=-perfect.total, change=-perfect.total)
    assert canaries.audit(upside_down, 10, delta=1e-5).correct == 0
    inside = int(canaries.included.sum())
    assert canaries.audit(perfect, (inside, 40 - inside), delta=1e-5).correct == 40
    assert canaries.audit(perfect, (inside, 0), delta=1e-5).correct == inside


def test_examples_of_ones_own_are_read_along_their_gradients():
    # Forty examples in directions of their own; with no noise to speak of every guess is right.
    rows = (np.eye(40, 60, dtype=np.float32), np.full(40, 5.0, np.float32))
    data = (np.zeros((10, 60), np.float32), np.ones(10, np.float32))
    canaries = audit.canaries(loss, {"w": jnp.zeros(60)}, data, key=jax.random.key(2), examples=rows)
    assert canaries.params["w"].shape == (60,)
    gradients = per_example_gradients(canaries.loss, canaries.params, canaries.data)
    scores = canaries.observe(canaries.init(), jax.tree.map(lambda leaf: leaf.sum(0), gradients), canaries.params)
    np.testing.assert_allclose(scores.total, 5.0 * canaries.included, atol=1e-5)
    inside = int(canaries.included.sum())
    assert canaries.audit(scores, (inside, 40 - inside), delta=1e-5).correct == 40


def test_scores_and_guesses_that_make_no_sense_are_named():
    canaries = placed(5)
    sound = canaries.init()
    for scores, guesses, message in (
        (None, 3, "scores must be a Scores"),
        (sound._replace(total=jnp.full(5, jnp.nan)), 3, "scores must hold 5 finite numbers as total"),
        (sound._replace(change=jnp.zeros(4)), 3, "scores must hold 5 finite numbers as change"),
        (sound, 6, "guesses must be a whole number from 1 to 5"),
        (sound, (3, 3), "guesses must be a whole number from 0 to 2"),
        (sound, (1, 2, 3), "guesses must be a number or a pair of numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            canaries.audit(scores, guesses, delta=1e-5)
