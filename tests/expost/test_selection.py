"""The exponential mechanism with noise reduction: its law at every budget, and what several releases cost together."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Composed, Exponential, Gaussian, expost

SCORES = np.array([0.3, 0.5, 0.1])
EPSILONS = np.array([1.0, 2.0])


def positive_stable(rng, count):
    """Index 1/2, E[e^(-t S)] = e^(-sqrt t), as the first passage of a Brownian motion."""
    return 0.5 / rng.normal(size=(count, 3)) ** 2


def joint(rates, stable):
    """P(first position, second one) for each row of stable variables at budgets 1 and 2, float64[rows, 3, 3].

    With F_j exponential of rates[j], the second is the least F_j, and the first one the least F_j / S_j.
    """
    found = np.zeros((len(stable), 3, 3))
    points, weights = np.polynomial.legendre.leggauss(60)
    for a, b in itertools.product(range(3), repeat=2):
        ratio = stable / stable[:, [a]]
        if a == b:
            found[:, a, a] = rates[a] / np.sum(rates * np.maximum(1.0, ratio), axis=1)
            continue
        c = 3 - a - b
        # F_b = t F_a with S_b / S_a <= t <= 1, in two pieces at t = S_c / S_a; the integral over F_a is in closed form.
        low = np.minimum(ratio[:, b], 1.0)
        middle = np.clip(ratio[:, c], low, 1.0)
        for left, right in ((low, middle), (middle, np.ones_like(low))):
            t = left[:, None] + (right - left)[:, None] * (points + 1) / 2
            rate = rates[a] + rates[b] * t + rates[c] * np.maximum(t, ratio[:, [c]])
            found[:, a, b] += rates[a] * rates[b] * np.sum(weights / rate**2, axis=1) * (right - left) / 2
    return found


def test_each_release_is_the_exponential_mechanism_and_two_have_the_law_of_the_theorem():
    path = jax.vmap(lambda key: expost.reduction.gumbel_path(key, SCORES, EPSILONS, sensitivity=0.5))
    count = 100_000
    chosen = np.asarray(path(jax.random.split(jax.random.key(0), count)))
    for i, epsilon in enumerate(EPSILONS):
        law = np.exp(epsilon * SCORES)
        law /= law.sum()
        seen = np.bincount(chosen[:, i], minlength=3) / count
        assert np.all(np.abs(seen - law) < 5 * np.sqrt(law * (1 - law) / count))
    truth = joint(np.exp(2.0 * SCORES), positive_stable(np.random.default_rng(1), 40_000)).mean(0)
    assert truth.sum() == pytest.approx(1, abs=1e-3)
    seen = np.zeros((3, 3))
    np.add.at(seen, tuple(chosen.T), 1 / count)
    assert np.abs(seen - truth).max() < 0.01


def test_different_positions_cost_their_number_times_the_last_budget_and_no_less():
    """Scores move by the sensitivity at most: rates by e^(epsilon / 2) either way. The bound holds row by row."""
    rng = np.random.default_rng(2)
    stable = positive_stable(rng, 300)
    epsilon, different = 2.0, np.where(np.eye(3, dtype=bool), 1, 2)
    for _ in range(40):
        rates = np.exp(rng.normal(0, 4, 3))
        moved = rates * np.exp(epsilon / 2 * rng.choice([-1.0, 0.3, 1.0], 3))
        p, q = joint(rates, stable), joint(moved, stable)
        seen = p > 0
        assert np.array_equal(seen, q > 0)
        allowed = np.broadcast_to(np.exp(different * epsilon + 1e-9), p.shape)
        assert np.all(p[seen] <= (allowed * q)[seen])
    # Two unlikely positions of three: the product of both ratios.
    rates = np.array([1e-4, 1e-4, 1.0])
    moved = rates * np.exp(epsilon / 2 * np.array([1.0, 1.0, -1.0]))
    ratio = joint(moved, stable).mean(0) / joint(rates, stable).mean(0)
    assert np.log(ratio[0, 1]) > 1.8 * epsilon
    source = expost.GumbelReduction(SCORES, sensitivity=0.5)
    spent = np.asarray(source.spent([1.0, 2.0, 3.0, 4.0], jnp.array([1, 1, 0, 2])))
    assert spent == pytest.approx([1.0, 2.0, 6.0, 8.0])  # never more than two of three count
    assert np.asarray(expost.GumbelReduction(SCORES[:2], sensitivity=1).spent([1.0, 2.0], jnp.array([1, 0])))[1] <= 2.01


def test_a_selection_is_released_until_a_public_score_is_good_enough():
    scores = jnp.array([0.0, 40.0, 10.0, 39.0])
    source = expost.GumbelReduction(scores, sensitivity=1.0)
    budgets = np.geomspace(0.01, 4.0, 12)
    run = lambda key: expost.release_until(  # noqa: E731
        lambda position: jnp.where(position % 2 == 1, 1.0, 0.0), source, budgets, expost.PublicScore(0.5), key=key
    )
    found = run(jax.random.key(5))
    assert found.result.definition == expost.PureExPost()
    assert bool(found.passed)
    assert int(found.result.output) in (1, 3)
    chosen = np.asarray(source.path(jax.random.split(jax.random.key(5))[0], budgets))[: int(found.steps)]
    assert float(found.result.epsilon) == pytest.approx(len(set(chosen.tolist())) * budgets[int(found.steps) - 1])
    traced = jax.jit(run)(jax.random.key(5))
    assert int(traced.steps) == int(found.steps)
    assert float(traced.result.epsilon) == pytest.approx(float(found.result.epsilon), rel=1e-6)


def test_equal_budgets_repeat_a_selection_and_nonsense_selects_the_first():
    key = jax.random.key(3)
    many = jax.vmap(lambda k: expost.reduction.gumbel_path(k, SCORES, [1.0, 1.0, 3.0], sensitivity=1))
    chosen = np.asarray(many(jax.random.split(key, 500)))
    assert np.array_equal(chosen[:, 0], chosen[:, 1])
    assert np.any(chosen[:, 1] != chosen[:, 2])
    traced = jax.jit(lambda s, e: expost.reduction.gumbel_path(key, s, e, sensitivity=1))
    assert traced(jnp.array([jnp.nan, 1.0]), jnp.array([1.0, 2.0])).tolist() == [0, 0]
    assert traced(jnp.array([0.0, 99.0]), jnp.array([2.0, 1.0])).tolist() == [0, 0]
    assert traced(jnp.array([0.0, 99.0]), jnp.array([1.0, 2.0])).tolist() == [1, 1]
    with pytest.raises(ValueError, match="scores must have shape"):
        expost.reduction.gumbel_path(key, [1.0], [1.0], sensitivity=1)
    with pytest.raises(ValueError, match="epsilons must not fall"):
        expost.reduction.gumbel_path(key, SCORES, [2.0, 1.0], sensitivity=1)


def test_adaptive_selection_and_measurement_is_ex_post_renyi_and_zcdp():
    """As AIM: each round selects by the exponential mechanism and measures, with budgets that depend on the answers."""
    order, epsilon, sigma = 8.0, 0.1, 20.0

    def step(key, state, number):
        select, measure = jax.random.split(key)
        louder = jnp.where(state[1] > 0, 2.0, 1.0)  # of the published answer
        best = expost.reduction.gumbel_path(select, SCORES, louder[None] * epsilon, sensitivity=1.0)[0]
        answer = SCORES[best] + sigma / louder * jax.random.normal(measure)
        return (best, answer), Composed([Exponential(louder * epsilon), Gaussian(sigma / louder)])

    never, key = expost.PublicScore(1e9), jax.random.key(0)
    fixed, free = (
        expost.compose_until(step, (0, -1.0), lambda state: state[1], never, order=one, most=4, key=key).result
        for one in (order, None)
    )
    assert (fixed.definition, free.definition) == (expost.RenyiExPost(order), expost.ZCDPExPost())
    single = order * (epsilon**2 / 8 + 1 / (2 * sigma**2))
    assert single * 4 * 0.9 <= float(fixed.epsilon) <= single * 16
    assert float(free.epsilon) == pytest.approx(float(fixed.epsilon) / order, rel=0.05)
