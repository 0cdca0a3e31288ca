"""A training step of one's own with one mistake at a time planted in it, for the tests of `check_step`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxacct import Gaussian, PoissonSampled

RNG = np.random.default_rng(7)
RECORDS, SIGMA, CLIP, RATE = 12, 1.5, 2.0, 0.5
DATA = RNG.normal(size=(RECORDS, 6)).astype(np.float32), RNG.integers(0, 2, RECORDS)
PARAMS = {"v": jnp.full(6, 0.3), "w": jnp.full(6, -0.2)}
FULL, SAMPLED = Gaussian(SIGMA), PoissonSampled(Gaussian(SIGMA), RATE)

OF_ALL = (  # mistakes of a step that everybody takes part in
    "no clip", "clip of the mean", "clip of each leaf", "clip by the largest norm",
    "half the noise", "noise without clip norm", "noise on one leaf",
    "noise scaled by the data", "no noise", "uniform noise", "truncated noise", "sizes of noise",
    "one key for all leaves", "one number for a leaf", "noise of the same key in two leaves of other shapes",
    "a key of its own", "noise of NumPy", "noise is returned", "loss is returned",
    "statistics of the batch",
    "skips what is not finite", "noise whose sum is zero", "bits of the noise are returned",
    "private value goes to a callback", "private value goes to a callback of a loop", "rows cut to a multiple",
    "divided by the number of rows",
)  # fmt: skip
OF_SAMPLES = (
    "one key for coins and noise", "coins of a key that is split for noise", "coins in pairs", "divided by the sample",
    "mean of the sample", "count of the sample is returned", "sample is returned", "fixed size for coins",
    "twice the rate", "only the first are kept", "one coin for all",
)  # fmt: skip
MISTAKES = {name: name in OF_SAMPLES for name in OF_ALL + OF_SAMPLES}  # and whether the step samples


def loss(params, example):
    x, y = example
    hidden = jnp.tanh(x @ params["v"]) + x @ params["w"]
    return jnp.logaddexp(0.0, hidden) - y * hidden


def rows(leaf, by):
    return leaf * by.reshape(-1, *[1] * (leaf.ndim - 1))


def sample(key, count, mistake):
    coins = jax.random.uniform(key, (count,))
    match mistake:
        case "fixed size for coins":
            return jnp.argsort(jnp.argsort(coins)) < RECORDS * RATE
        case "twice the rate":
            return coins < 0.9
        case "only the first are kept":
            heads = coins < 0.9
            return heads & (jnp.cumsum(heads) <= RECORDS * RATE)
        case "one coin for all":
            return jnp.broadcast_to(coins[0] < RATE, (count,))
        case "coins in pairs":
            return jnp.repeat(coins, 2)[:count] < RATE
    return coins < RATE


def step(data, key, mistake=None, sampled=False):
    """New parameters and Adam's state after a private step; with a mistake, perhaps more."""
    x, y = data
    optimizer, more = optax.adam(0.1), {}
    coins, noise = jax.random.split(key)
    if mistake == "coins of a key that is split for noise":
        coins = noise
    if mistake == "rows cut to a multiple":
        x, y = x[: len(x) // 4 * 4], y[: len(x) // 4 * 4]
    if mistake == "statistics of the batch":
        x = (x - x.mean(0)) / (x.std(0) + 1e-3)
    gradients = jax.vmap(jax.grad(loss), (None, 0))(PARAMS, (x, y))
    norms = jnp.sqrt(sum(jnp.sum(leaf**2, 1) for leaf in jax.tree.leaves(gradients)))
    if mistake == "clip of each leaf":
        clipped = jax.tree.map(lambda g: rows(g, jnp.minimum(1, CLIP / jnp.linalg.norm(g, axis=1))), gradients)
    elif mistake in ("no clip", "clip of the mean"):
        clipped = gradients
    else:
        most = jnp.max(norms) if mistake == "clip by the largest norm" else CLIP
        clipped = jax.tree.map(lambda g: rows(g, jnp.minimum(1.0, most / norms)), gradients)
    mask = sample(coins, len(x), mistake) if sampled else jnp.ones(len(x), bool)
    total = jax.tree.map(lambda g: jnp.sum(rows(g, mask), 0), clipped)
    expected = RECORDS * (RATE if sampled else 1)
    if mistake == "clip of the mean":
        mean = jax.tree.map(lambda g: g / RECORDS, total)
        by = jnp.minimum(1.0, CLIP / optax.tree.norm(mean))
        total = jax.tree.map(lambda g: g * by * RECORDS, mean)
    if mistake == "mean of the sample":
        total = jax.tree.map(lambda g: g / jnp.maximum(mask.sum(), 1) * expected, total)
    scale = {
        "half the noise": SIGMA * CLIP / 2,
        "noise without clip norm": SIGMA,
        "noise scaled by the data": SIGMA * jnp.max(norms),
        "no noise": 0.0,
    }.get(mistake, SIGMA * CLIP)
    keys = dict(zip(("v", "w"), jax.random.split(noise), strict=True))
    draws = {name: jax.random.normal(keys[name], (6,)) for name in keys}
    match mistake:
        case "uniform noise":
            draws = {name: 3**0.5 * jax.random.uniform(keys[name], (6,), minval=-1) for name in keys}
        case "truncated noise":
            draws = {name: jax.random.truncated_normal(keys[name], -1.5, 1.5, (6,)) for name in keys}
        case "sizes of noise":
            draws = jax.tree.map(jnp.abs, draws)
        case "one key for all leaves":
            draws = {name: jax.random.normal(noise, (6,)) for name in keys}
        case "noise of the same key in two leaves of other shapes":
            draws["w"] = jax.random.normal(keys["v"], (7,))[:6]
        case "noise whose sum is zero":
            draws = {name: (z - z.mean()) * (6 / 5) ** 0.5 for name, z in draws.items()}
        case "bits of the noise are returned":
            more = jax.random.uniform(noise, (6,), minval=-0.999, maxval=0.999)
            draws["v"] = 2**0.5 * jax.lax.erf_inv(more)
        case "one number for a leaf":
            draws["v"] = jnp.broadcast_to(jax.random.normal(keys["v"]), (6,))
        case "a key of its own":
            draws = {name: jax.random.normal(jax.random.key(number), (6,)) for number, name in enumerate(keys)}
        case "noise of NumPy":
            draws = {name: jnp.asarray(np.random.default_rng().normal(size=6), jnp.float32) for name in keys}
        case "one key for coins and noise":
            draws["v"] = jax.random.normal(coins, (6,))
        case "noise on one leaf":
            draws["w"] = jnp.zeros(6)
    noisy = jax.tree.map(lambda g, z: g + scale * z, total, draws)
    divisor = {"divided by the sample": jnp.maximum(mask.sum(), 1), "divided by the number of rows": len(x)}
    gradient = jax.tree.map(lambda g: g / divisor.get(mistake, expected), noisy)
    updates, state = optimizer.update(gradient, optimizer.init(PARAMS), PARAMS)
    params = optax.apply_updates(PARAMS, updates)
    match mistake:
        case "private value goes to a callback":
            jax.debug.callback(lambda value: None, jnp.mean(y))
        case "private value goes to a callback of a loop":
            jax.lax.map(lambda value: jax.debug.callback(lambda value: None, value), y)
        case "noise is returned":
            more = draws
        case "loss is returned":
            more = jnp.mean(jax.vmap(loss, (None, 0))(PARAMS, (x, y)))
        case "count of the sample is returned":
            more = jnp.sum(mask & (y == 1))
        case "sample is returned":
            more = mask
        case "skips what is not finite":
            params = jax.tree.map(lambda new, old: jnp.where(jnp.all(jnp.isfinite(norms)), new, old), params, PARAMS)
    return {"params": params, "state": state, "more": more}
