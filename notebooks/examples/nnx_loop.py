"""A Flax NNX network in a loop of one's own: ``nnx.split`` once, ``nnx.merge`` in the loss, a filter asked every step.

Run with ``python notebooks/examples/nnx_loop.py`` in an environment with ``jaxacct[train]``. Three lines make the loop
private (marked): ask the filter, take the noisy gradient, keep the step only if it was admitted. The noise follows what
was released: one and a half times as much of it while the noisy gradient is long.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxacct import Gaussian, PoissonSampled, filters, training

CLIP, DELTA = 1.0, 1e-5


class Net(nnx.Module):
    """Two dense layers with tanh between: bounded activations keep gradients short."""

    def __init__(self, rngs: nnx.Rngs):
        self.hidden, self.output = nnx.Linear(64, 48, rngs=rngs), nnx.Linear(48, 10, rngs=rngs)

    def __call__(self, x):
        return self.output(jnp.tanh(self.hidden(x)))


def main(epsilon: float = 3.0, sigma: float = 3.0, rate: float = 0.1, most: int = 10_000) -> dict:
    """Trains on scikit-learn's digits until the filter refuses (or ``most`` steps); what came of it."""
    data = training.demo.load_data("digits")
    x, y = jnp.asarray(data.train_x).reshape(-1, 64), jnp.asarray(data.train_y)
    graph, params = nnx.split(Net(nnx.Rngs(0)), nnx.Param)
    levels = np.float32([sigma, 1.5 * sigma])
    budget = filters.menu([PoissonSampled(Gaussian(level), rate) for level in levels], epsilon=epsilon, delta=DELTA)
    optimizer, roots = optax.adam(5e-3), training.fresh_keys()

    def logits(params, x):
        return nnx.merge(graph, params)(x)

    def loss(params, example):  # of one example
        return optax.softmax_cross_entropy_with_integer_labels(logits(params, example[0][None])[0], example[1])

    @jax.jit
    def step(number, level, carry):
        params, opt_state, spent = carry
        admitted, charged = budget.update(PoissonSampled(Gaussian(level), rate), spent)  # 1: ask
        keys = training.step_keys(roots, number)
        # 2: was jax.grad of the mean loss over a batch
        noisy = training.noisy_gradient(loss, params, (x, y), keys, sigma=level, rate=rate, clip_norm=CLIP)
        updates, moved = optimizer.update(noisy, opt_state, params)
        new = optax.apply_updates(params, updates), moved, charged
        carry = training.select(admitted, new, carry)  # 3: parameters, optimiser and account together
        return admitted, carry, jnp.where(admitted, training.global_norm(noisy), 0.0)

    carry, norm, steps = (params, optimizer.init(params), budget.init()), jnp.inf, 0
    while steps < most:
        admitted, carry, norm = step(steps, levels[int(norm > 0.1)], carry)
        if not admitted:
            break
        steps += 1
    return {
        "steps": steps,
        "accuracy": training.accuracy(logits, jnp.reshape(data.test_x, (-1, 64)), data.test_y)(carry[0]),
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
        "is_bound": budget.guarantee.is_bound,
    }


if __name__ == "__main__":
    print(main())
