"""The loop: what it costs, that it is the same loop in Python, jit and vmap, and that its checks have their noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from jaxacct import Gaussian, expost
from jaxacct.expost import PureExPost, RenyiExPost
from tests.refusals import all_refused

BUDGETS = np.logspace(-2, 0, 7)
ORDER = 20
VALUE = 0.5


def accurate(release):
    return 1.0 - jnp.abs(release - VALUE)


SOURCES = {
    "brownian": expost.Brownian(VALUE, sensitivity=0.01, order=ORDER),
    "precision_weighted": expost.PrecisionWeighted(VALUE, sensitivity=0.01, order=ORDER),
    "laplace": expost.LaplaceReduction(VALUE, sensitivity=0.01),
    "doubling": expost.Doubling(VALUE, sensitivity=0.01, order=ORDER),
}
CHECKS = {
    "plain": expost.PlainGaussian(0.97, epsilon=0.05, sensitivity=1e-4, order=ORDER, checks=6),
    "sparse": expost.SparseVector(0.97, epsilon=0.05, sensitivity=1e-4, order=ORDER),
    "above": expost.AboveThreshold(0.97, epsilon=0.05, sensitivity=1e-4),
    "public": expost.PublicScore(0.97),
}


def spent_after(source, steps):
    return np.cumsum(BUDGETS)[steps - 1] if source == "doubling" else BUDGETS[steps - 1]


def release(source, check, score=accurate, budgets=BUDGETS, seed=0, **rest):
    """A run of the loop with one of the sources and checks above."""
    key = jax.random.key(seed) if isinstance(seed, int) else seed
    return expost.release_until(
        score, SOURCES[source], budgets, CHECKS[check] if isinstance(check, str) else check, key=key, **rest
    )


PAIRS = [
    *(("brownian", check) for check in CHECKS),
    *(("laplace", check) for check in ("above", "public", "sparse")),
    ("precision_weighted", "plain"),
    ("doubling", "sparse"),
]


@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize(("source", "check"), PAIRS)
def test_the_cost_is_the_sum_or_with_disjoint_data_the_larger_one(source, check, disjoint):
    found = release(source, check, seed=3, disjoint=disjoint)
    asked = 0.0 if check == "public" else 0.05
    parts = spent_after(source, found.steps), asked
    want = max(parts) if disjoint else sum(parts)
    assert want <= found.result.epsilon <= want * (1 + 1e-13)
    pure = source == "laplace" and check in ("above", "public")
    assert found.result.definition == (PureExPost() if pure else RenyiExPost(ORDER))
    assert found.passed == (found.steps < 7) or found.steps == 7
    published = np.isfinite(found.scores).sum()
    assert published == (found.steps if check == "public" else min(found.steps, 6) if check == "plain" else 0)


@functools.cache
def ten_thousand(source, check):
    keys = jax.random.split(jax.random.key(11), 10_000)
    return keys, jax.jit(jax.vmap(lambda key: release(source, check, seed=key, disjoint=True)))(keys)


@pytest.mark.parametrize(
    ("source", "check"),
    [("brownian", "plain"), ("laplace", "above"), pytest.param("doubling", "sparse", marks=pytest.mark.slow)],
)  # a program of seconds each
def test_python_jit_and_vmap_are_one_loop(source, check):
    keys, mapped = ten_thousand(source, check)
    assert mapped.result.epsilon.dtype == jnp.float32
    assert len(set(mapped.steps.tolist())) > 2
    for i in range(6):
        one = release(source, check, seed=keys[i], disjoint=True)
        assert one.steps == mapped.steps[i]
        assert one.passed == mapped.passed[i]
        np.testing.assert_allclose(one.scores, mapped.scores[i], rtol=1e-5)
        np.testing.assert_allclose(one.result.output, mapped.result.output[i], rtol=1e-5)
        assert one.result.epsilon <= float(mapped.result.epsilon[i]) <= one.result.epsilon * (1 + 1e-6)


def test_ten_thousand_repetitions_stop_where_they_should():
    _, found = ten_thousand("brownian", "plain")
    # The first release passes where |noise + noise of the check| stays within 0.03 of the value.
    sigma, check = 0.01 * np.sqrt(20 / (2 * 0.01)), 1e-4 * np.sqrt(20 * 6 / (2 * 0.05))
    chance = integrate.quad(
        lambda x: stats.norm.pdf(x, 0, sigma) * stats.norm.sf(0.97, 1 - abs(x), check), -1, 1, points=[0], limit=200
    )[0]
    share = float((found.steps == 1).mean())
    assert abs(share - chance) < 4.5 * np.sqrt(chance * (1 - chance) / 10_000)
    assert bool((found.passed | (found.steps == 7)).all())


@pytest.mark.parametrize("name", ["brownian", "precision_weighted"])
def test_what_comes_back_keeps_the_definition_and_not_one_tenth_less(name):
    """E_Q[e^((1 - order) epsilon) (p / q)^order] is exactly 1 for Gaussian releases, wherever the loop stops."""
    order, runs, budgets = 2.0, 100_000, np.array([0.05, 0.1, 0.3])
    kind = {"brownian": expost.Brownian, "precision_weighted": expost.PrecisionWeighted}[name]

    def run(key):
        source = kind(0.0, sensitivity=1.0, order=order)  # the neighbour's value is 1
        return expost.release_until(lambda release: release, source, budgets, expost.PublicScore(1.0), key=key)

    found = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(6), runs))
    steps, release = np.asarray(found.steps), np.asarray(found.result.output, np.float64)
    assert len(set(steps.tolist())) == 3
    # The last release holds all earlier ones, so that the likelihood ratio is that of one Gaussian.
    loss = (release - 0.5) / (order / (2 * budgets[steps - 1]))
    for claimed, holds in ((budgets, True), (0.9 * budgets, False), (budgets[[0, 0, 0]], False)):
        moment = np.exp((1 - order) * claimed[steps - 1] + order * loss)
        far = (moment.mean() - 1) / (moment.std() / np.sqrt(runs))
        assert (abs(far) < 4.5) if holds else (far > 4.5)


@pytest.mark.parametrize("margin", [-3e-3, 0.0, 4e-3])
def test_a_sparse_vector_passes_as_often_as_its_noise_says(margin):
    check, runs = CHECKS["sparse"], 20_000

    @jax.jit
    @jax.vmap
    def passes(key):
        first, second = jax.random.split(key)
        return check.ask(second, check.start(first), 0.97 + margin, 0)[0]

    share = float(passes(jax.random.split(jax.random.key(1), runs)).mean())
    sigma, scale = (float(v) for v in expost.scales.sparse_vector_scales(0.05, order=ORDER, sensitivity=1e-4))
    density = lambda z: stats.norm.pdf(z, 0, sigma) * stats.laplace.sf(z - margin, scale=scale)  # noqa: E731
    chance = integrate.quad(density, -10 * sigma, 10 * sigma, points=[margin])[0]
    assert abs(share - chance) < 4.5 * np.sqrt(0.25 / runs)


def test_a_plain_check_answers_no_once_its_checks_are_used_up():
    check = expost.PlainGaussian(0.0, epsilon=0.05, sensitivity=1e-6, order=ORDER, checks=2)
    assert bool(check.ask(jax.random.key(0), None, 1.0, 1)[0])
    passes, score = check.ask(jax.random.key(0), None, 1.0, 2)
    assert not passes
    assert np.isnan(score)


def test_progress_says_only_what_is_published_and_the_report_rounds_up():
    lines = []
    found = release("brownian", "sparse", lambda _: 0.123456, disjoint=True, progress=lines.append)
    assert len(lines) == 7
    assert lines[0].startswith("release 1 of 7: epsilon 0.01")
    assert not any("0.1234" in line for line in lines)
    assert (found.steps, found.passed) == (7, False)
    report = found.report()
    assert "7 of 7 releases" in report
    assert "1.60595" in report, "1.605943 rounded up"
    with pytest.raises(ValueError, match="progress must be None inside a trace"):
        jax.jit(lambda key: release("brownian", "plain", seed=key, progress=print).steps)(jax.random.key(0))


def test_private_trees_and_any_python_score_go_through_the_loop():
    value = {"counts": jnp.arange(6.0).reshape(2, 3), "total": jnp.float32(15.0)}
    seen = []

    def score(release):
        seen.append(float(release["total"]))  # not traceable on purpose
        return 1.0 if len(seen) == 3 else 0.0

    source = expost.Brownian(value, sensitivity=1.0, order=ORDER)
    found = expost.release_until(score, source, BUDGETS, CHECKS["public"], key=jax.random.key(0))
    assert (found.steps, found.passed) == (3, True)
    assert found.result.output["counts"].shape == (2, 3)
    assert float(found.result.output["total"]) == seen[-1]


def test_nothing_is_promised_for_what_makes_no_sense():
    check = lambda epsilon: expost.PlainGaussian(0.5, epsilon=epsilon, sensitivity=1e-4, order=ORDER, checks=6)  # noqa: E731
    run = jax.jit(lambda budgets, epsilon: release("brownian", check(epsilon), budgets=budgets, disjoint=True))
    good = jnp.asarray(BUDGETS, jnp.float32)
    assert bool(run(good, 0.05).passed)
    found = run(good[::-1], 0.05)
    assert np.isnan(found.result.output)
    for bad in (np.nan, -1.0):
        found = run(good, bad)
        assert not found.passed
        assert np.all(np.isnan(found.scores))
        assert np.isinf(found.result.epsilon)
    plain = lambda order, checks: expost.PlainGaussian(0.5, 0.05, 1e-4, order=order, checks=checks)  # noqa: E731
    all_refused(
        ("one definition and order", lambda: release("brownian", plain(8, 6))),
        ("epsilons must have shape", lambda: release("doubling", "plain", budgets=0.1)),
        ("checks must be", lambda: plain(ORDER, 0)),
        ("returns must be one number, got an array of", lambda: release("brownian", "plain", lambda _: np.ones(3))),
    )


ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(400, 2)), jnp.float32)
LABELS = jnp.sign(ROWS @ jnp.array([2.0, -1.0]))


def private_step(key, weights, number):
    """One full-batch gradient step, clipped to 1 a row; noise falls with the step's number."""
    sigma = 8.0 / (1.0 + number)
    gradients = jax.vmap(jax.grad(lambda w, x, y: jax.nn.softplus(-y * (x @ w))), (None, 0, 0))(weights, ROWS, LABELS)
    norms = jnp.linalg.norm(gradients, axis=1, keepdims=True)
    total = (gradients / jnp.maximum(norms, 1.0)).sum(0) + sigma * jax.random.normal(key, weights.shape)
    return weights - total / 100, Gaussian(sigma)


def test_training_until_accurate_costs_the_steps_that_ran():
    checks = jnp.asarray(np.random.default_rng(1).normal(size=(500, 2)), jnp.float32)
    truth = jnp.sign(checks @ jnp.array([2.0, -1.0]))
    check = expost.SparseVector(475, epsilon=0.5, sensitivity=1, order=ORDER)

    def run(key, progress=None):
        accuracy = lambda weights: (jnp.sign(checks @ weights) == truth).sum()  # noqa: E731  a count: exact
        return expost.compose_until(
            private_step, jnp.zeros(2), accurate=accuracy, check=check, order=ORDER, most=8, key=key, disjoint=True,
            progress=progress,
        )  # fmt: skip

    lines = []
    key = jax.random.key(4)
    found, traced = run(key, lines.append), jax.jit(run)(key)
    assert found.passed
    assert len(lines) == found.steps == traced.steps
    want = max(0.5, sum(ORDER * (1 + i) ** 2 / (2 * 64) for i in range(found.steps)))
    assert float(found.result.epsilon) == pytest.approx(want, rel=1e-6)
    assert float(found.result.epsilon) >= want
    assert float(traced.result.epsilon) == pytest.approx(want, rel=1e-6)
    np.testing.assert_allclose(found.result.output, traced.result.output, rtol=1e-4)
    assert found.result.definition == RenyiExPost(ORDER)
    with pytest.raises(ValueError, match="most must be"):
        expost.compose_until(private_step, jnp.zeros(2), accurate, check, order=ORDER, most=0, key=key)
