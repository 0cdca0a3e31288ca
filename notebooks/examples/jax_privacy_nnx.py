"""A Flax NNX network in jax_privacy's ``DPTrainer``, whose noise a jaxacct filter is asked for at every step.

Run with ``python notebooks/examples/jax_privacy_nnx.py`` where jax_privacy (2.3 or its head, which needs the heads of
dp_accounting and optax) is installed beside ``jaxacct[train,interop]``::

    model    nnx.split: a graph definition and parameters, any pytree
    clip     jax_privacy's clipped_grad, vectorised over padded batches
    select   jax_privacy's CyclicPoissonSampling with one cycle: plain Poisson samples
    ask      interop.FilteredConfig charges the filter for the step, inside the compiled program
    stop     interop.stop_when_spent ends the loop when the filter refuses

The noise multiplier follows the released gradients here: less noise once they are no longer than their noise. That is
the filter's to allow; an accountant must be told every multiplier in advance.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax_privacy import training as jax_privacy_training

from jaxacct import filters, interop, training

DELTA = 1e-5


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.convolution = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.hidden = nnx.Linear(4 * 4 * 16, 64, rngs=rngs)
        self.output = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.convolution(x))
        x = nnx.avg_pool(x, (2, 2), strides=(2, 2))
        return self.output(nnx.relu(self.hidden(x.reshape(len(x), -1))))


def schedule_of(sigma: float, rate: float, most: int) -> training.schedules.Schedule:
    """Noise multiplier 1.5 sigma while the noisy gradient is longer than twice its noise, then sigma."""
    levels = tuple((float(np.float32(level)), float(np.float32(rate))) for level in (1.5 * sigma, sigma))

    def propose(step, state, released):
        long = released.gradient_norm > 2.0 * released.noise_norm
        return jnp.where(long, levels[0][0], levels[1][0]), jnp.float32(rate), state

    return training.schedules.Schedule(lambda: (), propose, ((levels[1][0], levels[1][1], most),), True, False, levels)


def main(epsilon: float = 3.0, sigma: float = 2.0, rate: float = 0.1, most: int = 2_000) -> dict:
    """Trains on scikit-learn's digits until the filter refuses (or ``most`` steps); what came of it."""
    data = training.demo.load_data("digits")
    x, y = np.asarray(data.train_x, np.float32), np.asarray(data.train_y)
    graph, params = nnx.split(Network(nnx.Rngs(0)), nnx.Param)
    schedule = schedule_of(sigma, rate, most)
    budget = filters.menu(schedule.menu(), epsilon=epsilon, delta=DELTA)

    def loss(params, batch, key):  # one example with its batch axis
        logits = nnx.merge(graph, params)(batch[0])
        return optax.losses.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean(), {}

    plan = interop.FilteredConfig(filter=budget, schedule=schedule, expected_batch=rate * len(x))
    trainer = jax_privacy_training.DPTrainer(config=plan, loss_fn=loss, optimizer=optax.sgd(0.5, momentum=0.5))
    # No seed: batches must be drawn from the operating system's entropy. One padded size, so one program.
    try:
        state = trainer.fit((x, y), params, callback=interop.stop_when_spent, precompile=False)
    except interop.BudgetSpent as spent:
        state = spent.state
    predicted = jnp.argmax(jax.jit(lambda params, x: nnx.merge(graph, params)(x))(state.params, data.test_x), axis=1)
    return {
        "steps": int(state.noise_state.step),
        "accuracy": float(jnp.mean(predicted == data.test_y)),
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
        "is_bound": budget.guarantee.is_bound,
    }


if __name__ == "__main__":
    print(main())
