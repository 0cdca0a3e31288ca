"""How long the order of curves takes: a supremum of 1,000 curves of 8,192 points, one comparison, one chain, one game.

python bench/curves_speed.py                 # prints milliseconds, warm medians; of the game seconds, cold and warm
python bench/curves_speed.py --json FILE     # keeps them (bench/results/curves_speed.json)

The game is a worst case over 30 rounds of three queries with a budget of 40 units on 4,096 points: 2,157 states, either
direction of the neighbouring relation for the continuous queries. CPU seconds stand beside wall seconds, because they
say on a busy machine what a quiet one would take.
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

import jaxacct
from jaxacct import Gaussian, Laplace, PoissonSampled, RandomizedResponse
from jaxacct.adversary import Rule, worst_case
from jaxacct.losses.compare.chain import is_chain

MEMBERS, POINTS, RUNS = 1000, 8192, 15


def milliseconds(function: Callable[[], Any]) -> float:
    jax.block_until_ready(function())
    found = []
    for _ in range(RUNS):
        before = time.perf_counter()
        jax.block_until_ready(function())
        found.append(1e3 * (time.perf_counter() - before))
    return statistics.median(found)


GAMES: dict[str, tuple[Any, ...]] = {
    "responses": (RandomizedResponse(0.1), RandomizedResponse(0.2), RandomizedResponse(0.3)),
    "continuous": (Gaussian(8.0), PoissonSampled(Gaussian(2.0), 0.1), Laplace(10.0)),
}


def sampled_curves(members: int, points: int) -> jaxacct.PrivacyProfile:
    """The curves of that many random sampled Gaussians on one grid, as one batch."""
    grid = jaxacct.LossGrid(0.004, -points // 2, points)
    sigma, rate = np.geomspace(0.5, 5, members), np.random.default_rng(0).uniform(0.01, 1, members)
    steps = jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)
    return jaxacct.PrivacyProfile.from_mechanism(steps, relation="remove", grid=grid)


def game(queries: tuple[Any, ...]) -> dict[str, dict[str, float]]:
    grid = jaxacct.LossGrid(0.005, -2048, 4096)
    rule = Rule.of_counts(queries, lambda n: n[0] + 2 * n[1] + 3 * n[2] <= 40)
    found = {}
    for name in ("cold", "warm"):
        wall, cpu = time.perf_counter(), time.process_time()
        bounds = worst_case(rule, 30, grid=grid).hockey_stick(0.5)
        assert bounds.lower <= bounds.upper
        found[name] = {
            "wall_s": round(time.perf_counter() - wall, 2),
            "cpu_s": round(time.process_time() - cpu, 2),
            "width_of_delta": float(bounds.upper - bounds.lower),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    family = sampled_curves(MEMBERS, POINTS)
    grid = family.grid
    one = jaxacct.PrivacyProfile(family.excess[0], grid)
    best = jaxacct.supremum(family)
    with jax.enable_x64(True):
        on_device = jaxacct.PrivacyProfile(jnp.asarray(family.excess), grid)
    table: dict[str, Any] = {
        "machine": about(),
        "device": jax.devices()[0].device_kind,
        "supremum_of_1000_host_arrays_ms": milliseconds(lambda: jaxacct.supremum(family).excess),
        "supremum_of_1000_device_arrays_ms": milliseconds(lambda: jaxacct.supremum(on_device).excess),
        "dominates_ms": milliseconds(lambda: jaxacct.dominates(best, one)),
        "is_chain_of_1000_ms": milliseconds(lambda: is_chain(family)),
    }
    for name, queries in GAMES.items():
        table[f"worst_case_30_rounds_{name}"] = game(queries)
    for name, value in table.items():
        print(f"{name:36} {round(value, 2) if isinstance(value, float) else value}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
