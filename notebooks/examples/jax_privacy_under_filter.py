"""jax_privacy's own modules (clipping, batch selection, noise) under a jaxacct filter.

Run with ``python notebooks/examples/jax_privacy_under_filter.py`` where ``jax_privacy`` is installed beside
``jaxacct[train]``. jax_privacy calibrates one noise multiplier for a number of steps that is fixed in advance. Under a
filter the noise may follow what was released, and the run ends when the budget does:

    ask      the filter is charged for the step's query, before a batch is touched
    select   batch_selection.CyclicPoissonSampling, with no truncation and one cycle: plain Poisson sampling
    clip     clipped_grad, rescaled to unit norm, summed over padded minibatches (padding marked, nobody dropped)
    noise    noise_addition.gaussian_privatizer

The privatizer's standard deviation is fixed when it is made; (sum / sigma + noise) * sigma is sum + sigma noise. The
guarantee is the filter's for real arithmetic: jax_privacy sums in floating point (jaxacct.training is exact there).
"""

import os

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
from jax_privacy import batch_selection, noise_addition

from jaxacct import Gaussian, PoissonSampled, filters, training

CLIP, DELTA = 1.0, 1e-5


def main(epsilon: float = 3.0, sigma: float = 3.0, rate: float = 0.1, most: int = 10_000, minibatch: int = 128) -> dict:
    """Trains on scikit-learn's digits until the filter refuses (or ``most`` steps); what came of it."""
    data = training.demo.load_data("digits")
    x, y = np.asarray(data.train_x), np.asarray(data.train_y)
    model = training.demo.build_network("linear", x.shape[1:], data.classes, 0)
    levels = [PoissonSampled(Gaussian(level), float(np.float32(rate))) for level in (sigma, 1.5 * sigma)]
    budget = filters.menu(levels, epsilon=epsilon, delta=DELTA)

    def batch_loss(params, batch):  # jax_privacy hands over one example with its batch axis
        return model.loss(params, jax.tree.map(lambda leaf: leaf[0], batch))

    clipped = jax.jit(jax_privacy.clipped_grad(batch_loss, l2_clip_norm=CLIP, rescale_to_unit_norm=True))
    keys = training.fresh_keys()
    privatizer = noise_addition.gaussian_privatizer(stddev=1.0, prng_key=keys.noise)
    selection = batch_selection.CyclicPoissonSampling(
        sampling_prob=levels[0].rate, iterations=most, partition_type=batch_selection.PartitionType.INDEPENDENT
    )
    coins = np.random.default_rng(int.from_bytes(os.urandom(32), "little"))
    optimizer = optax.sgd(0.5, momentum=0.5)

    @jax.jit
    def ask(level, spent):
        return budget.update(PoissonSampled(Gaussian(level), levels[0].rate), spent)

    @jax.jit
    def release(params, opt_state, noise_state, total, level):
        noisy, noise_state = privatizer.update(jax.tree.map(lambda leaf: leaf / level, total), noise_state)
        gradient = jax.tree.map(lambda leaf: leaf * level * CLIP / (levels[0].rate * len(x)), noisy)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, noise_state, training.global_norm(gradient)

    params = model.params
    opt_state, noise_state, spent = optimizer.init(params), privatizer.init(params), budget.init()
    steps, norm = 0, jnp.inf
    for indices in selection.batch_iterator(len(x), rng=coins):
        # More noise while the noisy gradient is long: a decision on released numbers, which the filter covers.
        level = jnp.float32(levels[1].mechanism.sigma if norm > 0.1 else levels[0].mechanism.sigma)
        admitted, spent = ask(level, spent)
        if not admitted:
            break
        total = jax.tree.map(jnp.zeros_like, params)
        for part in batch_selection.split_and_pad_global_batch(indices, minibatch):
            padding = part < 0
            batch = x[np.where(padding, 0, part)], y[np.where(padding, 0, part)]
            total = optax.tree.add(total, clipped(params, batch, is_padding_example=padding))
        params, opt_state, noise_state, norm = release(params, opt_state, noise_state, total, level)
        steps += 1
    return {
        "steps": steps,
        "accuracy": training.accuracy(model.logits, data.test_x, data.test_y)(params),
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
        "is_bound": budget.guarantee.is_bound,
    }


if __name__ == "__main__":
    print(main())
