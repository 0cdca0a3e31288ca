"""The share of a private training step that accounting takes.

Run with ``python bench/training_share.py``; add ``--json FILE`` to keep the numbers. Two measurements:

* the update of each filter alone, in a compiled loop of many updates;
* the whole training step with the filter and with none, in alternating blocks: a busy machine slows both.

The share is the update's time over the whole step's. The difference of the two step times stands beside it:
it holds the same cost, but drowns in the step's own scatter where the share is far below one per cent.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp

from jaxacct import training
from jaxacct.mechanisms import Gaussian, PoissonSampled

BLOCKS, STEPS, UPDATES = 10, 20, 20_000


def seconds_an_update(filter, schedule, updates: int = UPDATES) -> float:
    sigma, rate, _ = schedule.planned[0]

    # Parameters are arguments that change from update to update, so that nothing is folded away or hoisted.
    @partial(jax.jit, static_argnames="count")
    def loop(filter, state, sigma, rate, count):
        def body(i, carry):
            state, admitted = carry
            noise = sigma * (1 + 1e-3 * jnp.float32(i % 7))
            query = Gaussian(noise) if schedule.full_batch else PoissonSampled(Gaussian(noise), rate)
            ok, state = filter.update(query, state)
            return state, admitted + ok

        return jax.lax.fori_loop(0, count, body, (state, jnp.int32(0)))

    def timed(count):
        arguments = (filter, filter.init(), jnp.float32(sigma), jnp.float32(rate), count)
        jax.block_until_ready(loop(*arguments))
        times = []
        for _ in range(5):
            start = time.perf_counter()
            jax.block_until_ready(loop(*arguments))
            times.append(time.perf_counter() - start)
        return min(times)

    return (timed(updates) - timed(1)) / (updates - 1)


class Unlimited:
    """Admits everything and counts nothing: a step without a filter."""

    def init(self):
        return ()

    def update(self, query, state):
        return True, state

    def spent(self, state):
        return jnp.float32(0.0)

    def fraction(self, state):
        return jnp.float32(0.0)


def seconds_a_step(data, network, schedule, filters, physical_batch, blocks: int = BLOCKS) -> list[float]:
    import optax

    optimizer = optax.sgd(0.1, momentum=0.9)
    examples = (jnp.asarray(data.train_x), jnp.asarray(data.train_y))
    runs = []
    for filter in filters:
        step = training.make_step(
            network.loss, optimizer, filter, schedule, clip_norm=1.0, physical_batch=physical_batch
        )
        # The budget is never spent here: a state from the beginning starts every block.
        start = training.init_state(network.params, optimizer, filter, schedule, training.seeded_keys(0))
        jax.block_until_ready(step(start, examples))
        runs.append((step, start, []))
    for _ in range(blocks):
        for step, start, times in runs:
            state = start
            before = time.perf_counter()
            for _ in range(STEPS):
                state, _ = step(state, examples)
            jax.block_until_ready(state.params)
            times.append((time.perf_counter() - before) / STEPS)
    return [statistics.median(times) for _, _, times in runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="file to write the numbers to")
    arguments = parser.parse_args()
    data = training.demo.load_data("digits")
    network = training.demo.build_network("mlp", data.train_x.shape[1:], data.classes, 0)
    rows = []
    print(f"digits, mlp, {jax.devices()[0].device_kind}, {STEPS * BLOCKS} steps each")
    print(f"{'filter':<16} {'update':>12} {'step with':>12} {'without':>12} {'difference':>11} {'share':>8}")
    for name, rate in (("renyi", 0.15), ("approximate_gdp", 0.15), ("gdp", 1.0)):
        budget = training.plan_budget(name, "constant", epsilon=8.0, delta=1e-5, steps=300, rate=rate)
        update = seconds_an_update(budget.filter, budget.schedule)
        with_filter, without = seconds_a_step(
            data, network, budget.schedule, (budget.filter, Unlimited()), physical_batch=256
        )
        share, difference = update / with_filter, with_filter / without - 1
        print(
            f"{name:<16} {1e6 * update:>9.2f} us {1e3 * with_filter:>9.2f} ms {1e3 * without:>9.2f} ms "
            f"{100 * difference:>9.1f} % {100 * share:>6.3f} %"
        )
        rows.append(
            {
                "filter": name,
                "rate": rate,
                "seconds_an_update": update,
                "seconds_a_step": with_filter,
                "seconds_a_step_without": without,
                "difference": difference,
                "share": share,
            }
        )
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"device": jax.devices()[0].device_kind, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
