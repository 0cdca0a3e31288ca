"""Adversaries who know everything and choose each query after seeing all outputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct.losses.renyi import renyi


def even(loss, left, noise):
    """No attack: twelve equal parts, which must reproduce the guarantee itself."""
    return jnp.float32(0.28867)


def greedy(loss, left, noise):
    """Spends large when the loss so far helps the attack, small when it does not."""
    return jnp.where(loss > 0.3, left, 0.1)


def save_then_splurge(loss, left, noise):
    """Tiny queries until the loss is high by luck, then all that is left at once."""
    return jnp.where((loss > 0.15) | (noise > 0.9), left, 0.05)


def reckless(loss, left, noise):
    """Random sizes, NaN, infinities and negatives among them; runs whatever is admitted."""
    bad = [jnp.nan, -1.0, jnp.inf]
    return jnp.select([noise < 0.1, noise < 0.2, noise < 0.3], bad, noise * left * 2)


@pytest.mark.parametrize("play", [even, greedy, save_then_splurge, reckless])
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_no_adaptive_play_against_the_gdp_filter_exceeds_its_delta(play, epsilon):
    """Simulated delta of the whole interaction (200,000 plays) against the guarantee's delta."""
    ledger, rounds, plays = filters.gdp(1.0), 12, 200_000

    def one(key):
        def body(carry, key):
            loss, state = carry
            a, b = jax.random.split(key)
            mu = play(loss, ledger.remaining(state), jax.random.uniform(a))
            admitted, state = ledger.update(mu, state)
            # Under the first dataset, the loss of N(mu, 1) against N(0, 1) is N(mu^2 / 2, mu^2).
            mu = jnp.where(admitted, mu, 0.0)
            return (loss + mu * mu / 2 + mu * jax.random.normal(b), state), None

        (loss, _), _ = jax.lax.scan(body, (jnp.float32(0), ledger.init()), jax.random.split(key, rounds))
        return jnp.maximum(1 - jnp.exp(epsilon - loss), 0.0)

    excess = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), plays))
    mean, error = float(jnp.mean(excess)), float(jnp.std(excess)) / plays**0.5
    bound = float(ledger.guarantee.delta(epsilon))
    assert mean <= bound + 4 * error
    if play is even:
        assert mean >= bound * (1 - 1e-4) - 4 * error


@pytest.mark.parametrize("make", [lambda: filters.gdp(1.0), lambda: filters.renyi(3.0, 1e-5, order=8)])
def test_a_million_tiny_queries_leave_no_room_for_a_large_one(make):
    ledger = make()
    unit = float(ledger.remaining(ledger.init()))
    # Half the budget in pieces that a float32 sum would stop counting.
    squared = isinstance(ledger, filters.GDPFilter)
    part = np.float32(unit * (5e-7**0.5 if squared else 5e-7))
    state, admitted = jax.jit(
        lambda f: jax.lax.scan(lambda s, _: f.update(part, s)[::-1], f.init(), None, length=1_000_000)
    )(ledger)
    assert admitted.all()
    assert float(ledger.fraction(state)) == pytest.approx(0.5, rel=1e-6)
    whole = unit * (0.51**0.5 if squared else 0.51)
    assert not ledger.update(np.float32(whole), state)[0]


def test_a_refused_query_does_not_close_the_door_to_a_smaller_one():
    ledger = filters.gdp(1.0)
    _, state = ledger.update(0.8, ledger.init())
    admitted, state = ledger.update(0.7, state)
    assert not admitted
    assert ledger.update(0.59, state)[0]


def test_varying_rate_and_noise_by_looking_never_overdraws_the_renyi_budget():
    ledger = filters.renyi(3.0, 1e-5, order=8)

    @jax.jit
    def run(key):
        def body(carry, key):
            state, total = carry
            a, b = jax.random.split(key)
            query = PoissonSampled(Gaussian(jnp.exp(jax.random.normal(a))), jax.random.uniform(b))
            admitted, state = ledger.update(query, state)
            cost = renyi(query, 8).astype(jnp.float32)
            return (state, total + jnp.where(admitted, cost, 0.0)), admitted

        return jax.lax.scan(body, (ledger.init(), jnp.float32(0)), jax.random.split(key, 500))

    for seed in range(3):
        (state, total), admitted = run(jax.random.key(seed))
        assert 0 < int(admitted.sum()) < 500
        assert float(total) <= float(ledger.guarantee.rho) * (1 + 1e-5)
        assert float(ledger.spent(state)) == pytest.approx(float(total), rel=1e-5)
