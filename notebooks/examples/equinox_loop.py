"""An equinox network in a loop of one's own under a filter.

Run with ``python notebooks/examples/equinox_loop.py`` where equinox is installed beside ``jaxacct[train]``. An equinox
model is a pytree; ``eqx.partition`` gives its arrays, which are the parameters, and ``eqx.combine`` puts it together
inside the loss.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from jaxacct import Gaussian, PoissonSampled, filters, training

CLIP, DELTA = 1.0, 1e-5


def main(epsilon: float = 3.0, sigma: float = 3.0, rate: float = 0.1, most: int = 10_000) -> dict:
    """Trains on scikit-learn's digits until the filter refuses (or ``most`` steps); what came of it."""
    data = training.demo.load_data("digits")
    x, y = jnp.asarray(data.train_x).reshape(-1, 64), jnp.asarray(data.train_y)
    model = eqx.nn.MLP(64, 10, 48, 1, activation=jnp.tanh, key=jax.random.key(0))
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    query = PoissonSampled(Gaussian(sigma), rate)
    budget, roots, optimizer = (
        filters.menu([query], epsilon=epsilon, delta=DELTA),
        training.fresh_keys(),
        optax.adam(5e-3),
    )

    def logits(params, x):
        return jax.vmap(eqx.combine(params, rest))(x)

    def loss(params, example):  # of one example
        scores = eqx.combine(params, rest)(example[0])
        return optax.softmax_cross_entropy_with_integer_labels(scores, example[1])

    @jax.jit
    def step(number, carry):
        params, opt_state, spent = carry
        admitted, charged = budget.update(query, spent)
        keys = training.step_keys(roots, number)
        noisy = training.noisy_gradient(loss, params, (x, y), keys, sigma=sigma, rate=rate, clip_norm=CLIP)
        updates, moved = optimizer.update(noisy, opt_state, params)
        return admitted, training.select(admitted, (optax.apply_updates(params, updates), moved, charged), carry)

    carry, steps = (params, optimizer.init(params), budget.init()), 0
    while steps < most:
        admitted, carry = step(steps, carry)
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
