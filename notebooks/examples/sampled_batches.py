"""Batches that are not drawn by coins, in a loop of one's own: random allocation, and batches of a fixed size.

Run with ``python notebooks/examples/sampled_batches.py`` in an environment with ``jaxacct[train]``. The sampler reads
off the mechanism who is in a batch and how much noise there is; the filter is asked for that mechanism once for every
``sampler.steps`` steps: an epoch of random allocation, one batch of fixed size.
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jaxacct import Gaussian, RandomAllocation, SampledWithoutReplacement, training

CLIP, DELTA = 1.0, 1e-5


def main(
    kind: str = "allocation", epsilon: float = 3.0, sigma: float = 3.0, batches: int = 10, most: int = 300
) -> dict:
    """Trains on scikit-learn's digits until the filter refuses (or ``most`` steps); what came of it."""
    data = training.demo.load_data("digits")
    x, y = jnp.asarray(data.train_x).reshape(-1, 64), jnp.asarray(data.train_y)
    network = training.from_flax(
        nnx.Sequential(nnx.Linear(64, 48, rngs=nnx.Rngs(0)), jnp.tanh, nnx.Linear(48, 10, rngs=nnx.Rngs(1)))
    )
    mechanism = {
        # Every example in one batch of each epoch, drawn at random.
        "allocation": RandomAllocation(Gaussian(sigma), batches),
        # A record that is replaced moves a sum twice as far as one that is added: half the multiplier is accounted for.
        "fixed": SampledWithoutReplacement(Gaussian(0.5 * sigma), len(x) // batches, len(x)),
    }[kind]
    drawn = training.sampler(mechanism, len(x))
    budget, roots, optimizer = drawn.filter(epsilon, DELTA), training.fresh_keys(), optax.adam(5e-3)

    @jax.jit
    def step(number, carry):
        params, opt_state, spent = carry
        first = number % drawn.steps == 0
        fits, charged = budget.update(drawn.query(budget), spent)
        admitted = fits | ~first  # the other batches of an epoch were paid for with its first
        keys = training.step_keys(roots, number)
        noisy = training.noisy_gradient(network.loss, params, (x, y), keys, clip_norm=CLIP, sampler=drawn)
        updates, moved = optimizer.update(noisy, opt_state, params)
        new = optax.apply_updates(params, updates), moved, training.select(first, charged, spent)
        return admitted, training.select(admitted, new, carry)

    carry, steps = (network.params, optimizer.init(network.params), budget.init()), 0
    while steps < most:
        admitted, carry = step(steps, carry)
        if not admitted:  # at the first batch of an epoch only: an epoch that was paid for is finished
            break
        steps += 1
    test = jnp.reshape(data.test_x, (-1, 64))
    return {
        "steps": steps,
        "asked": -(-steps // drawn.steps),
        "accuracy": training.accuracy(network.logits, test, data.test_y)(carry[0]),
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
        "is_bound": budget.guarantee.is_bound,
    }


if __name__ == "__main__":
    print("allocation", main("allocation"))
    print("fixed size", main("fixed"))
