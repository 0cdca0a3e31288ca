"""A Flax linen network in a training loop of one's own, made private by three lines (marked).

Run with ``python notebooks/examples/linen_loop.py`` in an environment with ``jaxacct[train]``. No Keras, no trainer: a
linen module, an optax chain and a jitted step. The chain's first link clips, asks a filter, adds noise and divides by
the expected size of the sample; when the budget is spent it says so and updates nothing.
"""

import jax
import jax.numpy as jnp
import optax
from flax import linen

from jaxacct import filters, training

CLIP, DELTA = 1.0, 1e-5


class Net(linen.Module):
    """Two dense layers with tanh between: bounded activations keep gradients short."""

    hidden: int = 48

    @linen.compact
    def __call__(self, x):
        x = jnp.tanh(linen.Dense(self.hidden)(x.reshape(x.shape[0], -1)))
        return linen.Dense(10)(x)


def main(epsilon: float = 3.0, sigma: float = 3.0, rate: float = 0.1, most: int = 10_000) -> dict:
    """Trains on scikit-learn's digits until the filter refuses (or ``most`` steps); what came of it."""
    data = training.demo.load_data("digits")
    x, y = jnp.asarray(data.train_x), jnp.asarray(data.train_y)
    net = Net()
    # Refuses models with BatchNorm or the like, whose running averages no noise protects.
    model = training.from_flax(net, net.init(jax.random.key(0), x[:1]))

    schedule = training.schedules.adaptive(sigma, rate, 300)
    budget = filters.menu(schedule.menu(), epsilon=epsilon, delta=DELTA)
    keys = training.fresh_keys()
    private = training.filtered_aggregate(budget, schedule, keys, clip_norm=CLIP, size=len(x))
    optimizer = optax.chain(private, optax.adam(5e-3))  # 1: was optax.adam(5e-3)
    measure = training.accuracy(model.logits, data.test_x, data.test_y)

    @jax.jit
    def step(params, opt_state, accuracy):
        here = training.step_keys(keys, optax.tree.get(opt_state, "step"))
        sample = training.poisson_sample(here.sampling, len(x), optax.tree.get(opt_state, "rate"))
        # 2: was jax.grad of the mean loss over a batch. Any size of sample, 256 gradients in memory at a time.
        gradient = training.clipped_gradient_sum(model.loss, params, (x, y), sample, CLIP, physical_batch=256)
        updates, opt_state = optimizer.update(gradient, opt_state, params, accuracy=accuracy)
        return optax.apply_updates(params, updates), opt_state, optax.tree.get(opt_state, "halted")

    params, opt_state = model.params, optimizer.init(model.params)
    steps, accuracy = 0, measure(model.params)
    for _ in range(most):
        following, opt_state, halted = step(params, opt_state, accuracy)
        if halted:  # 3: was nothing. (Adam moves on over a zero update; these parameters are not used.)
            break
        params, steps = following, steps + 1
        if steps % 10 == 0:
            accuracy = measure(params)
    return {
        "steps": steps,
        "accuracy": measure(params),
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
        "is_bound": budget.guarantee.is_bound,
    }


if __name__ == "__main__":
    print(main())
