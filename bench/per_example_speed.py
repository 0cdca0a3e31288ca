"""A step of individual ledgers for ten million examples, against a plain copy of the same arrays.

Run with ``python bench/per_example_speed.py``; writes ``results/per_example_speed.json``. ``--examples`` sets the size
(a GPU holds 10^9). Everything is measured in one process, in turns, because a busy machine slows everybody: trust the
ratios, and the processor's time, which counts all cores: half of it is what two quiet cores need. The plain step reads
the norms and reads and writes one word for each example in place, which is the least that any ledger can do; ``copy``
writes the norms to fresh memory.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from machine import about

from jaxacct import Gaussian, LossGrid, PoissonSampled, PrivacyProfile, filters
from jaxacct.filters import amounts
from jaxacct.filters.accounts.table import TablePerExampleFilter, of_table
from jaxacct.filters.prices.menu import fixed_prices

QUERY = PoissonSampled(Gaussian(1.0), 0.1)


def menu(examples: int) -> TablePerExampleFilter:
    """64 entries over three octaves of noise. Its prices need no table: what they buy is not at issue here."""
    sigma = np.geomspace(1.0, 8.0, 64)
    noise, rate = (np.asarray(amounts.split(x)) for x in (sigma, np.full(64, 0.1)))
    prices = np.rint(6400 * sigma**-2.0).astype(np.int32)
    common = fixed_prices(prices, 500_000, noise, rate, PrivacyProfile(np.zeros(3), LossGrid(0.1, -1, 3)), (1.0, 1e-5))
    return of_table(common, examples)


def measured(examples: int, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds and gigabytes a second of each job, in turns."""
    n = examples
    ledgers = {"menu": menu(n), "approximate gdp": filters.per_example(filters.approximate_gdp(0.5), examples=n)}
    norms = jax.jit(lambda key: jnp.exp(jax.random.normal(key, (n,)) - 1))(jax.random.key(0))
    plain = jax.jit(lambda norms, words: words + (norms > 0.5), donate_argnums=1)
    states = {"plain step": jnp.zeros(n, jnp.int32)}
    jobs = {"plain step": lambda words: plain(norms, words)}
    copy = jax.jit(lambda norms: norms + 1)
    states["copy"], jobs["copy"] = norms, lambda _: copy(norms)
    for name, ledger in ledgers.items():
        states[name], states[f"{name}, words only"] = ledger.init(), ledger.init()
        jobs[name] = lambda state, ledger=ledger: ledger.update(QUERY, norms, state, donate=True)[1]
        # As in a training step, which reads off the words whom it needs: no array of who takes part is made.
        alone = jax.jit(lambda state, norms, ledger=ledger: ledger.update(QUERY, norms, state)[1], donate_argnums=0)
        jobs[f"{name}, words only"] = lambda state, alone=alone: alone(state, norms)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    processor: dict[str, list[float]] = {name: [] for name in jobs}
    for name, job in jobs.items():
        states[name] = jax.block_until_ready(job(states[name]))
    for _ in range(rounds):
        for name, job in jobs.items():
            start, used = time.perf_counter(), time.process_time()
            fresh = jax.block_until_ready(job(states[name]))
            times[name].append(time.perf_counter() - start)
            processor[name].append(time.process_time() - used)
            if name != "copy":
                states[name] = fresh
    best = {name: min(t) for name, t in times.items()}
    # Norms and words in, words out; who takes part out, and the words in once more for it.
    gigabytes = {name: (8 if name == "copy" else 17 if name in ledgers else 12) * 1e-9 * n for name in jobs}
    rows = {
        name: {
            "milliseconds": round(1e3 * best[name], 2),
            "median": round(1e3 * statistics.median(times[name]), 2),
            "processor_milliseconds": round(1e3 * statistics.median(processor[name]), 2),
            "over_plain_step": round(best[name] / best["plain step"], 2),
            "gigabytes_a_second": round(gigabytes[name] / best[name], 1),
        }
        for name in jobs
    }
    took = {name: float(ledgers[name].fraction(states[name]).max()) for name in ledgers}
    assert all(0 < share <= 1 for share in took.values()), "nobody was charged, or too much"
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results")
    options = parser.parse_args()
    rows = measured(options.examples, options.rounds)
    found = {
        "about": about()
        | {"device": jax.devices()[0].device_kind, "load_average_at_end": round(os.getloadavg()[0], 2)},
        "examples": options.examples,
        "rounds": options.rounds,
        "note": "milliseconds are the fastest round's; the machine was shared, so trust the ratios",
        "rows": rows,
    }
    path = options.json / "per_example_speed.json" if options.json.is_dir() else options.json
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
