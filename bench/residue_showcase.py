"""GDP residue filter with slack on the DP-SGD showcase: the least certified epsilon, and how long an update takes.

q = 0.01, 3,650 steps, sigma_t = 1.5 + sin(pi / 3650 * 150 * ceil(t / 150)), delta = 1e-5. Prints a JSON object and
writes it to bench/results/residue_showcase.json.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import time

import jax
import machine
import numpy as np

from jaxacct import PLD, LossGrid
from jaxacct.filters import gdp_residue, prepare
from jaxacct.mechanisms import Gaussian, PoissonSampled

STEPS, DELTA, SLACK = 3650, 1e-5, 1e-6
LEVEL = np.ceil(np.arange(1, STEPS + 1) / 150).astype(int) - 1
SIGMAS = 1.5 + np.sin(np.pi / STEPS * 150 * (np.arange(LEVEL.max() + 1) + 1))


@jax.jit
def admitted_steps(budget, queries, levels):
    def step(state, level):
        admitted, state = budget.update(jax.tree.map(lambda x: x[level], queries), state)
        return state, admitted

    return jax.lax.scan(step, budget.init(), levels)[1].sum(0)


def least_mu(queries, slack: float) -> float:
    """The least budget that admits all steps, to 1e-4: three rounds of eight budgets at once."""
    low, high = 0.32, 0.36
    for _ in range(3):
        mus = np.linspace(low, high, 8)
        all_run = np.asarray(admitted_steps(gdp_residue(mus, slack, steps=STEPS), queries, LEVEL)) == STEPS
        first = int(np.argmax(all_run))
        if not all_run[first]:
            raise ValueError(f"no budget up to {high} admits every step")
        low, high = mus[max(first - 1, 0)], mus[first]
    return float(high)


def seconds(call, repeats: int) -> float:
    jax.block_until_ready(call())
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    queries = prepare(PoissonSampled(Gaussian(SIGMAS), 0.01))
    mu = least_mu(queries, SLACK)
    guarantee = gdp_residue(mu, SLACK).guarantee
    one = jax.tree.map(lambda x: x[0], queries)
    law = PLD.from_mechanism(PoissonSampled(Gaussian(1.5), 0.01), grid=LossGrid(0.002, -2048, 4096))
    single, many = gdp_residue(mu, SLACK), gdp_residue(np.linspace(0.2, 1.0, 1000), SLACK)
    fresh, ledgers = single.init(), many.init()
    found = {
        "machine": machine.about(),
        "steps": STEPS,
        "delta": DELTA,
        "slack": SLACK,
        "mu": mu,
        "epsilon": float(guarantee.epsilon(DELTA)),
        "update_of_a_law_of_4096_ms": 1e3 * seconds(lambda: single.update(law, fresh), 50),
        "update_ms": 1e3 * seconds(lambda: single.update(one, fresh), 50),
        "update_in_scan_ms": seconds(lambda: admitted_steps(single, queries, LEVEL[:1000]), 3),
        "update_1000_ledgers_s": seconds(lambda: many.update(one, ledgers), 5),
    }
    text = json.dumps(found, indent=2)
    print(text)
    (pathlib.Path(__file__).parent / "results" / "residue_showcase.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
