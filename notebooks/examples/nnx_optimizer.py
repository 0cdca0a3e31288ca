"""A Flax NNX network with ``nnx.jit``, ``nnx.Optimizer`` and ``nnx.cond``, trained until a filter refuses.

Run with ``python notebooks/examples/nnx_optimizer.py`` in an environment with ``jaxacct[train]``. Model and optimiser
stay objects that are changed in place; a refused step does not enter the branch that changes them.
"""

import jax.numpy as jnp
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
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(5e-3), wrt=nnx.Param)
    query = PoissonSampled(Gaussian(sigma), rate)
    budget, roots = filters.menu([query], epsilon=epsilon, delta=DELTA), training.fresh_keys()

    def take(model, optimizer, number):
        graph, params = nnx.split(model, nnx.Param)

        def loss(params, example):  # of one example
            scores = nnx.merge(graph, params)(example[0][None])[0]
            return optax.softmax_cross_entropy_with_integer_labels(scores, example[1])

        keys = training.step_keys(roots, number)
        noisy = training.noisy_gradient(loss, params, (x, y), keys, sigma=sigma, rate=rate, clip_norm=CLIP)
        optimizer.update(model, noisy)

    @nnx.jit
    def step(model, optimizer, number, spent):
        admitted, spent = budget.update(query, spent)
        nnx.cond(admitted, take, lambda *_: None, model, optimizer, number)
        return admitted, spent

    spent, steps = budget.init(), 0
    while steps < most:
        admitted, spent = step(model, optimizer, jnp.uint32(steps), spent)
        if not admitted:
            break
        steps += 1
    predicted = jnp.argmax(model(jnp.reshape(data.test_x, (-1, 64))), axis=1)
    return {
        "steps": steps,
        "accuracy": float(jnp.mean(predicted == jnp.asarray(data.test_y))),
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
        "is_bound": budget.guarantee.is_bound,
    }


if __name__ == "__main__":
    print(main())
