"""How long the order of curves takes: a supremum of 1,000 curves of 8,192 points, one comparison, one chain.

python bench/curves_speed.py                 # prints milliseconds, warm medians
python bench/curves_speed.py --json FILE     # keeps them
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

import jaxacct

MEMBERS, POINTS, RUNS = 1000, 8192, 15


def milliseconds(function: Callable[[], Any]) -> float:
    jax.block_until_ready(function())
    found = []
    for _ in range(RUNS):
        before = time.perf_counter()
        jax.block_until_ready(function())
        found.append(1e3 * (time.perf_counter() - before))
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    grid = jaxacct.LossGrid(0.004, -POINTS // 2, POINTS)
    sigma, rate = np.geomspace(0.5, 5, MEMBERS), random.uniform(0.01, 1, MEMBERS)
    steps = jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)
    family = jaxacct.PrivacyProfile.from_mechanism(steps, relation="remove", grid=grid)
    one = jaxacct.PrivacyProfile(family.excess[0], grid)
    best = jaxacct.supremum(family)
    with jax.enable_x64(True):
        on_device = jaxacct.PrivacyProfile(jnp.asarray(family.excess), grid)
    table = {
        "device": jax.devices()[0].device_kind,
        "supremum_of_1000_host_arrays_ms": milliseconds(lambda: jaxacct.supremum(family).excess),
        "supremum_of_1000_device_arrays_ms": milliseconds(lambda: jaxacct.supremum(on_device).excess),
        "dominates_ms": milliseconds(lambda: jaxacct.dominates(best, one)),
        "is_chain_of_1000_ms": milliseconds(lambda: jaxacct.is_chain(family)),
    }
    for name, value in table.items():
        print(f"{name:36} {value if isinstance(value, str) else round(value, 2)}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
