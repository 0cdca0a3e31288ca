"""Noise reduction: the law of the releases, over pytrees, batches and programs of either precision."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxacct import expost

BUDGETS = np.array([0.125, 0.25, 0.25, 1.0, 4.0])
ORDER, SENSITIVITY, RUNS = 8.0, 0.5, 40_000
TIMES = ORDER * SENSITIVITY**2 / (2 * BUDGETS)
GAUSSIAN = {"brownian": expost.Brownian, "precision_weighted": expost.PrecisionWeighted}


@functools.cache
def sample(name, seed):
    """Releases of the value 3, float64[RUNS, m]."""
    laplace = expost.LaplaceReduction(3.0, SENSITIVITY)
    source = laplace if name == "laplace" else GAUSSIAN[name](3.0, SENSITIVITY, ORDER)
    keys = jax.random.split(jax.random.key(seed), RUNS)
    return np.asarray(jax.vmap(lambda key: source.path(key, BUDGETS))(keys), np.float64)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_moments_are_those_of_a_brownian_motion_read_backwards(name):
    noise = sample(name, 1) - 3.0
    want = np.minimum(TIMES[:, None], TIMES[None])
    spread = np.sqrt((np.outer(TIMES, TIMES) + want**2) / RUNS)  # of a sample covariance
    assert np.all(np.abs(noise.T @ noise / RUNS - want) < 4.5 * spread)
    assert np.all(np.abs(noise.mean(0)) < 4.5 * np.sqrt(TIMES / RUNS))
    np.testing.assert_allclose(noise[:, 1], noise[:, 2], atol=1e-5)  # an equal budget repeats the release
    # The fourth moment of one direction that mixes all releases: normal, not only of the right covariance.
    mixed = noise @ np.array([1.0, -1.0, 0.5, -0.5, 2.0])
    assert abs(stats.kurtosis(mixed)) < 4.5 * np.sqrt(24 / RUNS)


def test_both_algorithms_have_one_law():
    one, other = sample("brownian", 2) - 3.0, sample("precision_weighted", 3) - 3.0
    rng = np.random.default_rng(0)
    for direction in [*np.eye(5), *rng.normal(size=(5, 5))]:
        assert stats.ks_2samp(one @ direction, other @ direction).pvalue > 1e-4
    # Not only linear statistics: the number of sign changes and the extremes along a path.
    for statistic in (np.max, np.min, lambda x, axis: np.abs(np.diff(x, axis=axis)).sum(axis)):
        assert stats.ks_2samp(statistic(one, axis=1), statistic(other, axis=1)).pvalue > 1e-4


def stepped(key, epsilon_of):
    """Releases one by one, the second and third budget chosen from the release before."""
    first, second, third = jax.random.split(key, 3)
    one = expost.reduction.brownian_step(first, 3.0, 0.0, 0.0, 0.125, order=ORDER, sensitivity=SENSITIVITY)
    middle = epsilon_of(one)
    two = expost.reduction.brownian_step(second, 3.0, one, 0.125, middle, order=ORDER, sensitivity=SENSITIVITY)
    return one, two, expost.reduction.brownian_step(third, 3.0, two, middle, 4.0, order=ORDER, sensitivity=SENSITIVITY)


def test_steps_have_the_law_of_the_path_and_end_alike_whatever_budget_lies_between():
    keys = jax.random.split(jax.random.key(8), RUNS)
    fixed = np.stack(jax.jit(jax.vmap(lambda key: stepped(key, lambda _: 0.25)))(keys), 1)
    path = sample("brownian", 2)[:, [0, 1, 4]]
    for direction in [*np.eye(3), *np.random.default_rng(1).normal(size=(3, 3))]:
        assert stats.ks_2samp(fixed @ direction, path @ direction).pvalue > 1e-4
    chosen = np.stack(jax.jit(jax.vmap(lambda key: stepped(key, lambda y: jnp.where(y > 3, 0.125, 2.0))))(keys), 1)
    # SciPy 1.18 no longer takes args= for "norm".
    assert stats.kstest(chosen[:, 2], stats.norm(3.0, np.sqrt(TIMES[4])).cdf).pvalue > 1e-4
    above = chosen[:, 0] > 3
    np.testing.assert_allclose(chosen[above, 1], chosen[above, 0], rtol=1e-6)  # an equal budget repeats it
    with pytest.raises(ValueError, match="at least what is spent"):
        expost.reduction.brownian_step(keys[0], 3.0, 0.0, 0.5, 0.1, order=2, sensitivity=1)
    assert np.isnan(
        jax.jit(lambda e: expost.reduction.brownian_step(keys[0], 3.0, 0.0, 0.5, e, order=2, sensitivity=1))(0.1)
    )


def test_laplace_reduction_is_laplace_at_every_budget_and_its_increments_are_independent():
    noise = sample("laplace", 5) - 3.0
    for column, budget in zip(noise.T, BUDGETS, strict=True):
        assert stats.kstest(column, "laplace", args=(0, SENSITIVITY / budget)).pvalue > 1e-4
    steps = noise[:, :-1] - noise[:, 1:]
    kept = (np.abs(steps) < 1e-9).mean(0)
    np.testing.assert_allclose(kept, (BUDGETS[:-1] / BUDGETS[1:]) ** 2, atol=4.5 * 0.5 / np.sqrt(RUNS))
    assert abs(stats.spearmanr(np.abs(noise[:, -1]), np.abs(steps[:, -1])).statistic) < 4.5 / np.sqrt(RUNS)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_trees_and_batches_get_independent_noise_of_the_right_size(name):
    value = {"a": jnp.zeros((3000, 2)), "b": [np.zeros(3000, np.int32)]}
    found = GAUSSIAN[name](value, SENSITIVITY, ORDER).path(jax.random.key(0), BUDGETS)
    assert found["a"].shape == (5, 3000, 2)
    assert found["b"][0].shape == (5, 3000)
    assert {x.dtype for x in jax.tree.leaves(found)} == {jnp.dtype("float32")}
    columns = np.stack([found["a"][0, :, 0], found["a"][0, :, 1], found["b"][0][0]])
    np.testing.assert_allclose(columns.std(1), np.sqrt(TIMES[0]), rtol=0.08)
    assert np.all(np.abs(np.corrcoef(columns)[~np.eye(3, dtype=bool)]) < 0.09)


def test_eager_jit_and_vmap_agree_and_a_float64_program_gets_float64():
    keys = jax.random.split(jax.random.key(7), 4)
    values = jnp.arange(4.0)
    run = lambda key, value, scale: expost.Brownian(value, scale * SENSITIVITY, ORDER).path(key, BUDGETS)  # noqa: E731
    scales = jnp.array([1.0, 2.0, 3.0, 4.0])
    mapped = jax.jit(jax.vmap(run))(keys, values, scales)
    for i in range(4):
        np.testing.assert_allclose(mapped[i], run(keys[i], values[i], float(scales[i])), rtol=2e-5)
    with jax.enable_x64(True):
        wide = run(keys[0], 0.0, 1.0)
    assert wide.dtype == jnp.float64
    np.testing.assert_allclose(wide, mapped[0], rtol=2e-5)
    assert expost.Brownian(jnp.zeros(2, jnp.bfloat16), 1, 2).path(keys[0], BUDGETS).dtype == jnp.bfloat16


@pytest.mark.parametrize("name", GAUSSIAN)
def test_parameters_that_make_no_sense_or_would_underflow_raise_or_release_nothing(name):
    key, kind = jax.random.key(0), GAUSSIAN[name]
    for bad in (np.nan, -1.0, 0.0, np.inf, 1e-310, 1e-200, 1e200):
        with pytest.raises(ValueError, match="sensitivity must be"):
            kind(1.0, bad, ORDER)
        with pytest.raises(ValueError, match="order must be"):
            kind(1.0, 1.0, bad)
        with pytest.raises(ValueError, match="epsilons must be"):
            kind(1.0, 1, ORDER).path(key, [*BUDGETS[:4], bad])
    with jax.enable_x64(True):
        run = jax.jit(lambda e, s: kind(3.0, s, ORDER).path(key, e))
        good = jnp.asarray(BUDGETS)
        assert np.all(np.isfinite(run(good, 1.0)))
        for arguments in (
            (good[::-1], 1.0),
            (good, np.nan),
            (good, 1e-310),
            (good, 1e-200),
            (good.at[-1].set(1e300), 1.0),
        ):
            assert np.all(np.isnan(run(*arguments)))
    with pytest.raises(ValueError, match="value must hold real numbers, got complex"):
        kind(3.0 + 1j, 1, ORDER).path(key, BUDGETS)


KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
# (epsilon, order, sensitivity): each rounds up or down by itself.
NUMBERS = [tuple(RNG.uniform(low, high) for low, high in ((0.05, 3.0), (1.5, 9.0), (0.1, 5.0))) for _ in range(10)]


def single(kind):
    return lambda e, a, s: kind(jnp.zeros(16), s, order=8.0).path(KEY, jnp.reshape(e, 1))[0]


def answered(check):
    """What a check adds to its threshold, and to scores."""
    return lambda e, a, s: jnp.stack(jax.tree.leaves(check(e, s).start(KEY)))


RELEASES = {
    "brownian": single(expost.Brownian),
    "precision_weighted": single(expost.PrecisionWeighted),
    "laplace_reduction": lambda e, a, s: expost.LaplaceReduction(jnp.zeros(16), s).path(KEY, jnp.reshape(e, 1))[0],
    "brownian_step": lambda e, a, s: expost.reduction.brownian_step(
        KEY, jnp.zeros(16), jnp.zeros(16), 0.0, e, order=a, sensitivity=s
    ),
    "doubling": single(expost.Doubling),
    "plain_gaussian_scale": lambda e, a, s: expost.scales.plain_gaussian_scale(e, order=a, sensitivity=s, checks=3),
    "sparse_vector_scales": lambda e, a, s: jnp.stack(expost.scales.sparse_vector_scales(e, order=a, sensitivity=s)),
    "AboveThreshold": answered(lambda e, s: expost.AboveThreshold(0.0, e, s)),
    "SparseVector": answered(lambda e, s: expost.SparseVector(0.0, e, s, order=2.0)),
}


@pytest.mark.parametrize("name", RELEASES)
def test_traced_parameters_draw_no_less_noise_than_the_floats_they_were(name):
    draw = RELEASES[name]
    with jax.enable_x64(True):  # so that the noise of the floats themselves comes out unrounded
        exact = [np.abs(np.asarray(draw(*map(np.float64, numbers)))) for numbers in NUMBERS]
        narrow = jax.jit(draw)
        found = [np.abs(np.asarray(narrow(*map(np.float32, numbers)))) for numbers in NUMBERS]
    for one, other in zip(found, exact, strict=True):
        assert np.all(one.astype(np.float64) >= other * (1 - 1e-15))
        assert np.all(one <= other * (1 + 1e-6))


def test_equal_budgets_repeat_a_release_whichever_of_them_is_traced():
    value, last = jnp.ones(4), jnp.arange(4.0)
    step = lambda s, e: expost.reduction.brownian_step(KEY, value, last, s, e, order=2.0, sensitivity=1.0)  # noqa: E731
    for spent, epsilon in ((0.3, 0.3), (np.float32(0.3), 0.3)):
        both = jax.jit(step)(spent, epsilon)
        one = jax.jit(lambda e, s=spent: step(s, e))(epsilon)
        other = jax.jit(lambda s, e=epsilon: step(s, e))(spent)
        for found in (both, one, other):
            np.testing.assert_array_equal(found, last)
    assert np.isnan(jax.jit(step)(0.31, 0.3)).all()
