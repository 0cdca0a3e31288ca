"""Ten training steps as people write them, each right, or with the mistake that its name tells."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from jaxacct import Gaussian, SampledWithoutReplacement

RNG = np.random.default_rng(11)
N, D, SIGMA, CLIP = 12, 4, 1.2, 1.0
X, Y = RNG.normal(size=(N, D)).astype(np.float32), RNG.normal(size=N).astype(np.float32)
ZEROS = {"b": jnp.zeros(()), "w": jnp.zeros(D)}


class Loop(NamedTuple):
    step: object  # step(data, key, wrong)
    mechanism: object = Gaussian(SIGMA)
    data: object = (X, Y)
    relation: str = "add_or_remove"
    steps: int = 1
    keys: object = jax.random.key


def loss(params, example):
    x, y = example
    return optax.huber_loss(x @ params["w"] + params["b"], y)


def clipped(tree, most=CLIP):
    norm = optax.tree.norm(tree)
    finite = jnp.isfinite(norm)
    by = jnp.where(finite, jnp.minimum(1.0, most / jnp.maximum(norm, 1e-12)), 0.0)
    return jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0.0) * by, tree)


def gradients(params, data):
    return jax.vmap(lambda row: clipped(jax.grad(loss)(params, row)))(data)


def summed(tree):
    return jax.tree.map(lambda leaf: jnp.sum(leaf, 0), tree)


def noised(key, tree, scale=SIGMA * CLIP):
    keys = optax.tree.split_key_like(key, tree)
    return jax.tree.map(lambda leaf, own: leaf + scale * jax.random.normal(own, leaf.shape), tree, keys)


def moved(params, release, rate=0.1):
    return jax.tree.map(lambda p, g: p - rate * g / N, params, release)


def microbatches_that_overlap(data, key, wrong):
    """Gradients are accumulated over microbatches, whose last rows are the first of the next."""
    pieces = [slice(start, start + 4 + wrong) for start in range(0, N, 4)]
    total = [summed(gradients(ZEROS, jax.tree.map(lambda leaf, part=part: leaf[part], data))) for part in pieces]
    return moved(ZEROS, noised(key, jax.tree.map(lambda *parts: sum(parts), *total)))


def two_steps_with_one_key(data, key, wrong):
    """A scan over steps that draws each step's noise from the same key."""

    def one(params, number):
        own = key if wrong else jax.random.fold_in(key, number)
        return moved(params, noised(own, summed(gradients(params, data)))), None

    return jax.lax.scan(one, ZEROS, jnp.arange(2))[0]


def users_clipped_by_record(data, key, wrong):
    """Federated averaging: a user's four records are clipped one by one, and not the user."""

    def update(x, y):
        if wrong:
            return summed(gradients(ZEROS, (x, y)))
        return clipped(summed(jax.vmap(jax.grad(loss), (None, 0))(ZEROS, (x, y))))

    return moved(ZEROS, noised(key, summed(jax.vmap(update)(*data))))


def weights_of_classes(data, key, wrong):
    """Examples are weighted by how rare their class is in the batch, after they were clipped."""
    high = data[1] > 0
    share = jnp.mean(high) if wrong else 0.5
    weight = jnp.where(high, 0.5 / jnp.maximum(share, 0.01), 0.5 / jnp.maximum(1 - share, 0.01))
    rows = jax.tree.map(lambda leaf: leaf * weight.reshape(-1, *[1] * (leaf.ndim - 1)), gradients(ZEROS, data))
    return moved(ZEROS, noised(key, summed(rows)))


def clip_that_adapts(data, key, wrong):
    """The next clip norm follows the share of gradients below the present one, which needs noise of its own."""
    grads = jax.vmap(jax.grad(loss), (None, 0))(ZEROS, data)
    norms = jnp.sqrt(grads["b"] ** 2 + jnp.sum(grads["w"] ** 2, 1))
    below = jnp.sum(norms <= CLIP)
    own, other = jax.random.split(key)
    # Two releases at noise sqrt(2) SIGMA are as one at SIGMA.
    scale = 2**0.5 * SIGMA
    if not wrong:
        below = below + scale * jax.random.normal(other)
    release = noised(own, summed(jax.vmap(clipped)(grads)), scale * CLIP)
    return moved(ZEROS, release), CLIP * jnp.exp(-0.2 * (below / N - 0.5))


def replaced_at_half_the_noise(data, key, wrong):
    """A sample of fixed size, where a record takes another one's place, with noise for one that comes."""
    chosen, noise = jax.random.split(key)
    rows = jax.random.permutation(chosen, N)[:4]
    total = summed(gradients(ZEROS, jax.tree.map(lambda leaf: leaf[rows], data)))
    return moved(ZEROS, noised(noise, total, SIGMA * CLIP * (1 if wrong else 2)))


def momentum_of_what_is_private(data, key, wrong):
    """Nesterov's momentum, kept of the sum before it was noised, in a step that may be refused."""
    momentum = optax.trace(0.9, nesterov=True)

    def run():
        total = summed(gradients(ZEROS, data))
        release = noised(key, total)
        updates, _ = momentum.update(release, momentum.init(ZEROS))
        _, state = momentum.update(total if wrong else release, momentum.init(ZEROS))
        return moved(ZEROS, updates), state

    return jax.lax.cond(jax.random.key_data(key)[1] < np.uint32(2**31), run, lambda: (ZEROS, momentum.init(ZEROS)))


def noise_in_another_basis(data, key, wrong):
    """Noise of independent entries is turned by a matrix, which is orthogonal, or has no inverse."""
    total, back = ravel_pytree(summed(gradients(ZEROS, data)))
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(D + 1, D + 1)))
    if wrong:
        basis = (np.eye(D + 1) - np.roll(np.eye(D + 1), 1, axis=0)) / 2**0.5
    return moved(ZEROS, back(total + SIGMA * CLIP * jnp.asarray(basis, jnp.float32) @ jax.random.normal(key, (D + 1,))))


def loop_that_prints(data, key, wrong):
    """A sum in a loop that shows the host how far it is, or what it is at; and the release."""

    def one(carry, row):
        number, total = carry
        gradient = clipped(jax.grad(loss)(ZEROS, row))
        jax.debug.callback(lambda value: None, gradient["b"] if wrong else number)
        return (number + 1, jax.tree.map(jnp.add, total, gradient)), None

    (_, total), _ = jax.lax.scan(one, (0, jax.tree.map(jnp.zeros_like, ZEROS)), data)
    release = noised(key, total)
    jax.debug.callback(lambda value: None, release["b"])
    return moved(ZEROS, release)


USERS = RNG.normal(size=(N, 4, D)).astype(np.float32), RNG.normal(size=(N, 4)).astype(np.float32)
LOOPS = {
    step.__name__: loop
    for step, loop in (
        (made.step, made)
        for made in (
            Loop(microbatches_that_overlap, Gaussian(SIGMA / 2), relation="replace"),
            Loop(noise_in_another_basis),
            Loop(loop_that_prints),
            Loop(two_steps_with_one_key, steps=2),
            Loop(users_clipped_by_record, data=USERS),
            Loop(weights_of_classes, keys=jax.random.PRNGKey),  # of the old form
            Loop(clip_that_adapts),
            Loop(
                replaced_at_half_the_noise,
                SampledWithoutReplacement(Gaussian(SIGMA), sample_size=4, dataset_size=N),
                relation="replace",
            ),
            Loop(momentum_of_what_is_private),
        )
    )
}
