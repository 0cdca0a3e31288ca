"""Twenty records and a loss that compiles at once, and what a tree holds, bit by bit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxacct import training

PARAMS = {"w": jnp.zeros(3), "nothing": jnp.zeros((0, 2))}
DATA = jnp.asarray(np.random.default_rng(0).normal(size=(20, 3)), jnp.float32)
SGD = optax.sgd(0.1)


def loss(params, row):
    return jnp.sum((params["w"] - row) ** 2)


def begun(filter, schedule, loss=loss, params=PARAMS, optimizer=SGD, *, seed=0, clip_norm=1.0, **options):
    """A step, and the state that a run of it begins with."""
    step = training.make_step(loss, optimizer, filter, schedule, clip_norm=clip_norm, **options)
    return step, training.init_state(params, optimizer, filter, schedule, training.seeded_keys(seed))


def bits(tree):
    """Of all leaves; of keys their words."""
    leaves = jax.tree.leaves(tree)
    words = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]
    return b"".join(np.asarray(one).tobytes() for one in words)
