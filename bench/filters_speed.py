"""How long one update of a scalar filter takes inside a compiled loop, and one from Python.

python bench/filters_speed.py                 # prints microseconds, warm medians
python bench/filters_speed.py --json FILE     # keeps them (bench/results/filters_speed.json)

In the loop every query is another one, read from an array, so that nothing can be computed once; "mechanism" computes
the cost from the mechanism's parameters in every step. Every run ends by checking that all queries were counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from machine import about

from jaxacct import ApproximateDP, Gaussian, Laplace, PoissonSampled, filters

STEPS, BATCH, RUNS = 300_000, 1000, 7
ORDERS = (6.0, 8.0, 16.0, 32.0)
FAINT = Gaussian(2e4)  # the further entry of a box

# name -> (filter, parameter t near 1 -> query in the filter's own parameter, t -> mechanism); all queries fit. A box
# has no parameter of its own: its further entry is asked for by position.
FILTERS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "pure_dp": (filters.pure_dp(1.0), lambda t: 1e-6 * t, lambda t: Laplace(1e6 * t)),
    "zcdp": (filters.zcdp(1.0), lambda t: 1e-6 * t, lambda t: Gaussian(1e3 * t)),
    "approximate_zcdp": (
        filters.approximate_zcdp(1.0, 1e-5),
        lambda t: (1e-6 * t, 1e-11 * t),
        lambda t: ApproximateDP(1e-3 * t, 1e-12),
    ),
    "gdp": (filters.gdp(1.0), lambda t: 1e-3 * t, lambda t: Gaussian(1e3 * t)),
    "renyi": (
        filters.renyi(3.0, 1e-5, order=8),
        lambda t: 1e-6 * t,
        lambda t: PoissonSampled(Gaussian(20.0 * t), 1e-3),
    ),
    "renyi_any": (
        filters.renyi_any(3.0, 1e-5, ORDERS),
        lambda t: jnp.asarray(ORDERS, jnp.float32) * 1e-7 * t,
        lambda t: Gaussian(4e3 * t),
    ),
    "sampled_gaussian": (
        filters.sampled_gaussian(sigma=(14.0, 26.0), rate=1e-3, epsilon=3.0, delta=1e-5, extra=[FAINT]),
        lambda t: (0 * t).astype(np.int32),
        lambda t: PoissonSampled(Gaussian(20.0 * t), 1e-3),
    ),
}


def microseconds(function: Callable[[], Any], per: int) -> float:
    jax.block_until_ready(function())
    found = []
    for _ in range(RUNS):
        before = time.perf_counter()
        jax.block_until_ready(function())
        found.append(1e6 * (time.perf_counter() - before) / per)
    return statistics.median(found)


def in_a_loop(ledger: Any, query: Callable[[Any], Any]) -> float:
    noise = jnp.asarray(np.random.default_rng(0).uniform(0.7, 1.3, STEPS), jnp.float32)

    @jax.jit
    def run(ledger: Any, noise: Any) -> Any:
        def body(carry: Any, t: Any) -> Any:
            state, counted = carry
            admitted, state = ledger.update(query(t), state)
            return (state, counted + admitted.astype(jnp.int32)), None

        return jax.lax.scan(body, (ledger.init(), jnp.int32(0)), noise)[0]

    assert int(run(ledger, noise)[1]) == STEPS
    return microseconds(lambda: run(ledger, noise), STEPS)


def in_a_batch(ledger: Any, query: Callable[[Any], Any]) -> float:
    """1,000 independent ledgers, one update each; microseconds for all of them."""
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (BATCH, *leaf.shape)), ledger.init())
    noise = jnp.linspace(0.7, 1.3, BATCH, dtype=jnp.float32)
    run = jax.jit(lambda ledger, t, s: jax.vmap(lambda t, s: ledger.update(query(t), s))(t, s))
    return microseconds(lambda: run(ledger, noise, states), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    table: dict[str, Any] = {"machine": about(), "device": jax.devices()[0].device_kind, "unit": "microseconds"}
    print(f"{'':18}{'number':>10}{'mechanism':>12}{'1,000 vmapped':>15}{'from Python':>13}")
    for name, (ledger, number, mechanism) in FILTERS.items():
        state, query = ledger.init(), number(np.float32(1.0))
        row = {
            "number_in_loop": in_a_loop(ledger, number),
            "mechanism_in_loop": in_a_loop(ledger, mechanism),
            "vmapped_1000": in_a_batch(ledger, number),
            "number_from_python": microseconds(lambda: ledger.update(query, state), 1),  # noqa: B023
        }
        table[name] = {key: round(value, 4) for key, value in row.items()}
        print(f"{name:18}" + "".join(f"{v:>{w}.3f}" for v, w in zip(row.values(), (10, 12, 15, 13), strict=True)))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
