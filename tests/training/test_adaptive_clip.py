"""A clip norm that follows a quantile: gradient and count are one query, and the norm is a release."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct import Gaussian, PoissonSampled, filters, training
from tests.refusals import all_refused
from tests.training.small import begun

SIZE, SIGMA = 600, 1.0
DRAW = np.random.default_rng(0)
LENGTHS = np.exp(DRAW.normal(size=SIZE)).astype(np.float32)
DIRECTIONS = DRAW.normal(size=(SIZE, 5)).astype(np.float32)
DATA = LENGTHS[:, None] * DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)
PARAMS = {"w": jnp.zeros(5)}
OPTIMIZER = optax.sgd(0.0)


def loss(params, row):
    return params["w"] @ row


def run(clip, steps, filter=None, rate=0.5, **options):
    filter = filters.renyi(1000.0, 1e-5, order=4.0) if filter is None else filter
    schedule = options["sampler"].schedule(steps) if options else training.schedules.constant(SIGMA, rate, steps)
    step, state = begun(filter, schedule, loss, PARAMS, OPTIMIZER, clip_norm=clip, **options)
    states = [state]
    for _ in range(steps):
        state, _ = step(state, DATA)
        states.append(state)
    return states


@pytest.mark.parametrize(("quantile", "start"), [(0.2, 10.0), (0.5, 0.1), (0.8, 1.0)])
def test_the_norm_settles_at_the_quantile_of_the_gradients_norms(quantile, start):
    last = run(training.adaptive_clip(quantile, start=start), 60)[-1]
    share = np.mean(float(last.released.clip_norm) >= LENGTHS)
    assert share == pytest.approx(quantile, abs=0.05)


def test_gradient_and_count_have_the_noise_of_andrew_and_others():
    clip = training.adaptive_clip(0.5, start=2.0, weight=0.25)
    keys = training.seeded_keys(1)
    options = {"sigma": SIGMA, "rate": 1.0, "full_batch": True, "clip_norm": clip}
    release = lambda n: training.noisy_gradient(loss, PARAMS, DATA, training.step_keys(keys, n), **options)  # noqa: E731
    gradients, after = jax.jit(jax.vmap(release))(jnp.arange(300, dtype=jnp.uint32))
    noise = np.asarray(gradients["w"], float) * SIZE / 2.0
    share = -np.log(np.asarray(after.norm, float) / 2.0) / clip.learning_rate + clip.quantile
    z, s = noise.std(0).mean(), SIZE * share.std()
    assert z == pytest.approx(SIGMA / (1 - 0.25**2) ** 0.5, rel=0.1)
    assert s == pytest.approx(SIGMA / (2 * 0.25), rel=0.15)
    assert share.mean() == pytest.approx(np.mean(LENGTHS <= 2.0), abs=0.01)
    exact = SIGMA / (1 - 0.25**2) ** 0.5, SIGMA / (2 * 0.25)
    assert exact[0] ** -2 + (2 * exact[1]) ** -2 == pytest.approx(SIGMA**-2)


def test_a_refused_step_leaves_the_norm_where_it_was():
    query = filters.gdp(2.5 / SIGMA)  # six steps with everybody
    norms = [float(state.released.clip_norm) for state in run(training.adaptive_clip(0.5, start=9.0), 8, query, 1.0)]
    assert norms[0] == 0.0
    assert norms[1] > norms[2] > norms[6] == norms[7] == norms[8] > 0


def test_it_goes_with_a_sampler_and_a_record_that_is_not_finite():
    sampler = training.sampler(PoissonSampled(Gaussian(SIGMA), 0.2), SIZE)
    broken = DATA.copy()
    broken[0] = np.nan
    clip = training.adaptive_clip(0.5, start=2.0)
    last = run(clip, 20, sampler=sampler)[-1]
    assert 0.5 < float(last.released.clip_norm) < 1.8
    keys = training.step_keys(training.seeded_keys(0), 0)
    gradient, after = training.noisy_gradient(loss, PARAMS, broken, keys, sigma=SIGMA, rate=0.9, clip_norm=clip)
    assert np.isfinite(gradient["w"]).all()
    assert np.isfinite(after.norm)


@pytest.mark.parametrize("summed", [False, True])
def test_the_aggregate_moves_it_as_a_step_does(summed):
    clip, filter = training.adaptive_clip(0.5, start=9.0), filters.gdp(2.5 / SIGMA)  # six steps with everybody
    schedule = training.schedules.constant(SIGMA, 1.0, 8)
    link = training.filtered_aggregate(filter, schedule, training.seeded_keys(0), clip_norm=clip, size=SIZE)
    chain = optax.chain(link, OPTIMIZER)
    everyone = jnp.ones(SIZE, bool)

    @jax.jit
    def update(state):
        present = clip.at(optax.tree.get(state, "clip_norm"))
        given = training.per_example_gradients(loss, PARAMS, DATA)
        if summed:
            given = training.clipped_gradient_sum(loss, PARAMS, DATA, everyone, present)
        return chain.update(given, state, PARAMS, valid=everyone)

    state, norms = chain.init(PARAMS), []
    for _ in range(8):
        step, state = update(state)
        assert step["w"].shape == (5,)
        norms.append(float(optax.tree.get(state, "clip_norm")))
    wanted = [float(one.released.clip_norm) for one in run(clip, 8, filter, 1.0)[1:]]
    assert norms == pytest.approx(wanted, rel=1e-5)
    assert norms[0] > norms[5] == norms[7]


def test_what_cannot_be_is_refused_by_name():
    clip, each = training.adaptive_clip, filters.per_example(filters.approximate_gdp(1.0), examples=SIZE)
    wrong: list[dict[str, Any]] = [{"quantile": 0.0}, {"quantile": 1.0}, {"weight": 1.0}, {"learning_rate": 0.0}]

    def link(own, sums):
        """Of a sum that was clipped in another way."""
        plan, everyone = training.schedules.constant(SIGMA, 1.0, 8), jnp.ones(SIZE, bool)
        made = training.filtered_aggregate(filters.gdp(9.0), plan, training.seeded_keys(0), clip_norm=own, size=SIZE)
        total = training.clipped_gradient_sum(loss, PARAMS, DATA, everyone, sums)
        return made.update(total, made.init(PARAMS), PARAMS, valid=everyone)

    all_refused(
        *((next(iter(given)), lambda given=given: clip(**given)) for given in (*wrong, {"start": 2e6})),
        ("clip_norm must be one number", lambda: run(clip(), 1, each)),
        ("updates must be per-example gradients", lambda: link(1.0, clip())),
        ("updates must be per-example gradients", lambda: link(clip(), 1.0)),
    )
