"""One program on four devices: examples are spread over them, and the parameters are those of one device, to the bit.

Run with ``python notebooks/examples/four_devices.py`` in an environment with ``jaxacct[train]``. The devices are those
of a CPU that plays four; on a machine with several accelerators, leave the first line of ``main`` out.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxacct import Gaussian, PoissonSampled, filters, training

CLIP, DELTA = 1.0, 1e-5


def main(epsilon: float = 3.0, sigma: float = 3.0, rate: float = 0.1, most: int = 100) -> dict:
    """Trains on scikit-learn's digits for ``most`` steps, on one device and on four; what came of it."""
    jax.config.update("jax_num_cpu_devices", 4)  # before anything else of JAX
    data = training.demo.load_data("digits")
    x, y = np.reshape(data.train_x, (-1, 64)), np.asarray(data.train_y)
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(64, 48, rngs=rngs), jnp.tanh, nnx.Linear(48, 10, rngs=rngs))
    network = training.from_flax(model)
    schedule, optimizer = training.schedules.constant(sigma, rate, most), optax.adam(5e-3)
    budget = filters.menu([PoissonSampled(Gaussian(sigma), rate)], epsilon=epsilon, delta=DELTA)
    step = training.make_step(network.loss, optimizer, budget, schedule, clip_norm=CLIP)
    state = training.init_state(network.params, optimizer, budget, schedule, training.fresh_keys())

    examples = training.shard_examples((x, y))  # over all devices: a multiple of them is filled up with empty rows
    runs = {1: ((jnp.asarray(x), jnp.asarray(y)), state), 4: (examples, training.replicate(state, examples))}
    ends = []
    for rows, each in runs.values():
        for _ in range(most):
            each, report = step(each, rows)
        assert report.admitted
        ends.append(each)
    one, four = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(end.params)]) for end in ends)
    return {
        "devices": len(examples.mesh.devices),
        "steps": int(ends[1].step),
        "accuracy": training.accuracy(network.logits, jnp.reshape(data.test_x, (-1, 64)), data.test_y)(ends[0].params),
        "same_bits": one.tobytes() == four.tobytes(),
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
        "is_bound": budget.guarantee.is_bound,
    }


if __name__ == "__main__":
    print(main())
