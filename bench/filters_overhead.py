"""What adaptivity costs: steps that each filter admits, and steps that an exact account fixed in advance admits.

python bench/filters_overhead.py                 # prints steps and their share of the exact account's
python bench/filters_overhead.py --json FILE     # keeps them (bench/results/filters_overhead.json)
python bench/filters_overhead.py --only natural --json FILE    # the rows of these filters alone, put into FILE

Every filter keeps the same (epsilon, delta), with whatever it must choose in advance chosen for the workload. A dash
means that the filter has no budget for the workload's queries.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from machine import about

import jaxacct
from jaxacct import ApproximateDP, Gaussian, PoissonSampled, RandomizedResponse, filters
from jaxacct.filters.prices.table import TableFilter
from jaxacct.filters.residues.gdp_residue import GDPResidueFilter
from jaxacct.filters.residues.natural import NaturalFilter
from jaxacct.losses.renyi import renyi, renyi_from_epsilon
from jaxacct.losses.renyi.zcdp import zcdp_from_epsilon
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_delta

EPSILON, DELTA, MOST_ROUNDS = 1.0, 1e-5, 1200
ORDERS = tuple(float(order) for order in (*range(13, 33), *range(34, 65, 2), *range(68, 129, 4)))
WORKLOADS = {
    "pure: randomized response 0.02": RandomizedResponse(0.02),
    "Gaussians: noise multiplier 50": Gaussian(50.0),
    "DP-SGD: sigma 1.5, rate 0.01": PoissonSampled(Gaussian(1.5), 0.01),
}


def gdp_budget(delta: float = DELTA) -> float:
    low, high = 1e-6, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(gdp_delta(middle * (1 + 1e-11), EPSILON)) <= delta else (low, middle)
    return low


def slack_budget() -> float:
    """The mu that a tenth of delta as slack leaves room for."""
    return gdp_budget(0.9 * DELTA / (1 - 0.1 * DELTA) * (1 - 1e-9))


def best_order(query: Any) -> float:
    budgets = np.asarray(renyi_from_epsilon(EPSILON, DELTA, np.array(ORDERS)))
    return ORDERS[int(np.argmax(budgets / np.array([float(renyi(query, order)) for order in ORDERS])))]


def several(query: Any) -> tuple[float, ...]:
    """Half, once and twice the best order."""
    order = best_order(query)
    return tuple(sorted({max(16.0, round(order / 2)), order, 2 * order}))


def box(query: Any, factor: float) -> TableFilter:
    """From the query's noise to ``factor`` times it; what is no Gaussian is a further entry of a box of Gaussians."""
    gaussian = query.mechanism if isinstance(query, PoissonSampled) else query
    noise = gaussian.sigma if isinstance(gaussian, Gaussian) else 50.0
    return filters.sampled_gaussian(
        sigma=(noise, factor * noise), rate=getattr(query, "rate", 1.0), epsilon=EPSILON, delta=DELTA,
        extra=() if isinstance(gaussian, Gaussian) else [query],
    )  # fmt: skip


MAKE: dict[str, Callable[[Any], Any]] = {
    "pure_dp": lambda _: filters.pure_dp(EPSILON),
    "zcdp": lambda _: filters.zcdp(float(zcdp_from_epsilon(EPSILON, DELTA)) * (1 - 1e-11)),
    "approximate_dp (share 0.01)": lambda _: filters.approximate_dp(EPSILON, DELTA, share=0.01),
    "renyi, best order": lambda query: filters.renyi(EPSILON, DELTA, order=best_order(query)),
    "renyi_any, 3 orders": lambda query: filters.renyi_any(EPSILON, DELTA, several(query)),
    "gdp": lambda _: filters.gdp(gdp_budget()),
    "gdp_residue": lambda _: filters.gdp_residue(gdp_budget()),
    "gdp_residue, a tenth of delta": lambda _: filters.gdp_residue(slack_budget(), 0.1 * DELTA, steps=1200),
    "sampled_gaussian of this query": lambda query: box(query, 1.0),
    "sampled_gaussian, noise up to twice": lambda query: box(query, 2.0),
    "menu of this query": lambda query: filters.menu([query], epsilon=EPSILON, delta=DELTA),
    # Its family is this one query, whose powers are a chain: free, and its guarantee is the budget.
    "natural of this query": lambda query: filters.natural(ApproximateDP(EPSILON, DELTA), [query], MOST_ROUNDS),
}


def admitted(ledger: Any, query: Any) -> int | None:
    if isinstance(ledger, GDPResidueFilter) and not isinstance(query, Gaussian):
        query = filters.prepare(query)
    elif isinstance(ledger, NaturalFilter) or (isinstance(ledger, TableFilter) and np.shape(ledger.noise)[0]):
        query = 0  # its only entry
    run = jax.jit(lambda f: filters.halting_scan(lambda n, _: (query, lambda: n + 1), f, jnp.int32(0)).steps)
    try:
        return int(run(ledger))
    except ValueError:
        return None


def in_advance(query: Any) -> int:
    """The most steps that the certified upper bound of the exact composition keeps within the budget."""
    low, high = 1, 32
    fits = lambda n: float(jaxacct.epsilon(query, delta=DELTA, steps=n).upper) <= EPSILON  # noqa: E731
    while fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 2000):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="", help="filters whose name begins so; other rows of the file stay")
    arguments = parser.parse_args()
    table: dict[str, Any] = {"machine": about(), "epsilon": EPSILON, "delta": DELTA}
    if arguments.only and arguments.json:
        with open(arguments.json) as file:
            table = json.load(file)
    for title, query in WORKLOADS.items():
        exact = in_advance(query)
        print(f"{title}: {exact} steps fixed in advance")
        table.setdefault(title, {})["fixed in advance"] = exact
        for name, make in MAKE.items():
            if not name.startswith(arguments.only):
                continue
            count = admitted(make(query), query)
            table[title][name] = count
            print(f"    {name:30}" + ("         -" if count is None else f"{count:10d} {100 * count / exact:6.1f} %"))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
