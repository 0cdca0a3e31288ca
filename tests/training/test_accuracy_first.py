"""Training until a private validation set says that it is enough: what it costs, and the noise that it pays for."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct.expost import RenyiExPost
from jaxacct.losses.renyi import renyi
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.training import Rounds, divided, fit_until_accurate, plan_rounds, seeded_keys

ORDER, STEPS = 8, 4
RATE = 0.25
BUDGETS = (0.1, 0.4, 1.6)


def logits(params, x):
    return x @ params["w"] + params["b"]


def loss(params, example):
    x, y = example
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y)


MODEL = SimpleNamespace(params={"w": jnp.zeros((5, 2)), "b": jnp.zeros(2)}, logits=logits, loss=loss)
X = np.random.default_rng(0).normal(size=(1200, 5)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5, 0.0, 1.0]) > 0).astype(np.int32)
ROUNDS = plan_rounds(BUDGETS, order=ORDER, rate=RATE, steps=STEPS)
OPTIMIZER = optax.sgd(2.0)


def run(threshold, rounds=ROUNDS, seed=3, **rest):
    train, validation = divided(jax.random.key(1), (X, Y), 0.7)
    settings = {"check_epsilon": 0.2, "keys": seeded_keys(seed), **rest}
    return fit_until_accurate(MODEL, OPTIMIZER, rounds, train, validation, threshold=threshold, **settings)


def test_a_plan_spends_its_budgets_and_not_more():
    step = PoissonSampled(Gaussian(np.array(ROUNDS.sigmas)), RATE)
    spent = np.cumsum(STEPS * np.asarray(renyi(step, ORDER)))
    assert np.all(spent <= BUDGETS)
    np.testing.assert_allclose(spent, BUDGETS, rtol=1e-5)
    assert all(float(np.float32(sigma)) == sigma for sigma in ROUNDS.sigmas)
    full = plan_rounds([0.5, 1.0], order=2, rate=1.0, steps=10)
    np.testing.assert_allclose(full.sigmas, np.sqrt(2 * 10 / (2 * 0.5)), rtol=1e-6)


def test_it_stops_at_the_first_round_that_passes_and_pays_for_the_rounds_that_ran():
    lines = []
    found = run(0.8, progress=lines.append)
    assert found.passed
    assert len(lines) == found.steps
    assert found.steps < len(BUDGETS)
    assert "0.8" in lines[-1] or "0.9" in lines[-1]
    want = max(BUDGETS[found.steps - 1], 0.2)
    assert want * (1 - 1e-4) <= float(found.result.epsilon) <= want * (1 + 1e-6)
    assert found.result.definition == RenyiExPost(ORDER)
    right = (np.asarray(logits(found.result.output, X)).argmax(-1) == Y).mean()
    assert right > 0.75
    never = run(0.999, sparse=True, check_epsilon=1.5)
    assert (never.steps, never.passed) == (3, False)
    assert np.all(np.isnan(never.scores))
    assert float(never.result.epsilon) == pytest.approx(BUDGETS[-1], rel=1e-4)


def test_the_check_alone_is_paid_for_when_it_costs_more():
    found = run(0.1, check_epsilon=5.0)
    assert (found.steps, float(found.result.epsilon)) == (1, pytest.approx(5.0))
    assert float(found.result.epsilon) >= 5.0


def test_every_step_has_fresh_noise_of_the_size_that_is_charged():
    """With a loss that nobody's record moves, what is released is the noise."""
    model = SimpleNamespace(
        params={"w": jnp.zeros((3000, 2))},
        logits=lambda p, x: x @ p["w"][:5],
        loss=lambda p, example: 0.0 * p["w"].sum(),
    )
    rounds, options = Rounds((2.0, 1.0), 1.0, STEPS, 8.0, (0.1, 0.4)), {"threshold": 0.999, "check_epsilon": 1.0}
    found, again = (
        fit_until_accurate(model, optax.sgd(1.0), rounds, (X[:100], Y[:100]), (X, Y), clip_norm=0.5, **options, **keys)
        for keys in ({"keys": seeded_keys(0)}, {})
    )
    noise, other = (np.asarray(one.result.output["w"]) * 100 / 0.5 for one in (found, again))
    # Two rounds of four steps: variance 4 * 2^2 + 4 * 1^2, if no step repeats another's noise.
    assert noise.var() == pytest.approx(20.0, rel=4.5 * np.sqrt(2 / 6000))
    assert float(found.result.epsilon) == pytest.approx(STEPS * (ORDER / 8 + ORDER / 2), rel=1e-6)
    assert other.var() == pytest.approx(20.0, rel=4.5 * np.sqrt(2 / 6000))
    assert not np.any(other == noise)


def test_coins_divide_record_by_record():
    first, second = divided(jax.random.key(5), {"x": X, "y": Y}, 0.7)
    assert len(first["x"]) + len(second["x"]) == len(X)
    assert abs(len(first["y"]) / len(Y) - 0.7) < 4.5 * np.sqrt(0.21 / len(Y))
    # Another record's contents change nobody else's side.
    other = divided(jax.random.key(5), {"x": np.concatenate([X[:1] + 1, X[1:]]), "y": Y}, 0.7)
    np.testing.assert_array_equal(np.sort(other[1]["x"][:, 0])[:50], np.sort(second["x"][:, 0])[:50])
