"""A transformer whose LoRA adapters and last layer are trained privately, everything else frozen.

Run with ``python notebooks/examples/lora_transformer.py`` in an environment with ``jaxacct[train]``. A filter of the
tree says what is trained; only that is a parameter of the loss, so that each example's gradient, its norm and the
noise are those of the adapters. One gradient of an example is as large as the adapters, not as the network, and
``physical_batch`` bounds how many of them are in memory at once: the sample may have any size.
"""

import resource
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxacct import Gaussian, PoissonSampled, filters, training

CLIP, DELTA = 1.0, 1e-5


class Block(nnx.Module):
    """Attention and a dense pair, both before a norm; adapters of rank 4 on every projection but the output."""

    def __init__(self, width: int, rngs: nnx.Rngs):
        self.first, self.second = nnx.LayerNorm(width, rngs=rngs), nnx.LayerNorm(width, rngs=rngs)
        self.mixed = nnx.LoRALinear(width, 3 * width, lora_rank=4, rngs=rngs)
        self.out = nnx.Linear(width, width, rngs=rngs)
        self.up = nnx.LoRALinear(width, 4 * width, lora_rank=4, rngs=rngs)
        self.down = nnx.LoRALinear(4 * width, width, lora_rank=4, rngs=rngs)

    def __call__(self, x):
        heads = jnp.split(self.mixed(self.first(x)).reshape(*x.shape[:2], 4, -1), 3, axis=-1)
        x = x + self.out(jax.nn.dot_product_attention(*heads).reshape(x.shape))
        return x + self.down(nnx.gelu(self.up(self.second(x))))


class Transformer(nnx.Module):
    """Eight tokens, the rows of an image of 8 x 8 pixels."""

    def __init__(self, width: int, layers: int, rngs: nnx.Rngs):
        self.embed = nnx.Linear(8, width, rngs=rngs)
        self.places = nnx.Param(0.5 * jax.random.normal(rngs.params(), (8, width)))
        self.blocks = nnx.List([Block(width, rngs) for _ in range(layers)])
        self.norm, self.head = nnx.LayerNorm(width, rngs=rngs), nnx.Linear(width, 10, rngs=rngs)

    def __call__(self, x):
        x = self.embed(x.reshape(-1, 8, 8)) + self.places[...]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(axis=1)))


def trained(path, value) -> bool:
    """What training moves: adapters, wherever they are, and the last layer."""
    return isinstance(value, nnx.LoRAParam) or "head" in path


def main(
    epsilon: float = 3.0,
    sigma: float = 3.0,
    rate: float = 0.1,
    most: int = 10_000,
    width: int = 64,
    layers: int = 2,
    repeated: int = 1,
) -> dict:
    """Trains on scikit-learn's digits, ``repeated`` times over to try sizes; what came of it."""
    data = training.demo.load_data("digits")
    x = jnp.asarray(np.tile(np.reshape(data.train_x, (-1, 64)), (repeated, 1)))
    y = jnp.asarray(np.tile(data.train_y, repeated))
    model = Transformer(width, layers, nnx.Rngs(0))
    graph, params, frozen = nnx.split(model, trained, ...)

    def logits(params, x):
        return nnx.merge(graph, params, frozen)(x)

    def loss(params, example):  # of one example
        return optax.softmax_cross_entropy_with_integer_labels(logits(params, example[0][None])[0], example[1])

    schedule, optimizer = training.schedules.constant(sigma, rate, most), optax.adam(5e-3)
    budget = filters.menu([PoissonSampled(Gaussian(sigma), rate)], epsilon=epsilon, delta=DELTA)
    step = training.make_step(loss, optimizer, budget, schedule, clip_norm=CLIP, physical_batch=256)
    state = training.init_state(params, optimizer, budget, schedule, training.fresh_keys())
    start = time.perf_counter()
    while int(state.step) < most:
        state, report = step(state, (x, y))
        if not report.admitted:
            break
    return {
        "steps": int(state.step),
        "accuracy": training.accuracy(logits, jnp.reshape(data.test_x, (-1, 64)), data.test_y)(state.params),
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
        "is_bound": budget.guarantee.is_bound,
        "trained": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "frozen": sum(leaf.size for leaf in jax.tree.leaves(frozen)),
        "expected_batch": rate * len(x),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9,
        "seconds": time.perf_counter() - start,
    }


if __name__ == "__main__":
    if "--large" in sys.argv:  # 3 million frozen parameters, about 4,096 examples in a batch, two steps
        print(main(width=256, layers=4, repeated=29, most=2))
    else:
        print(main())
