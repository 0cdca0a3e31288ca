"""``python bench/opendp_filter.py``: thousands of queries under OpenDP's privacy filter, and under one of jaxacct's.

The program of OpenDP's issue 2909 ("Privacy filters have quadratic runtime"): a Gaussian measurement in zCDP, asked
again and again under a budget that never binds. The other way charges `interop.opendp.charge` and then runs the
measurement. Needs opendp beside jaxacct. CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

from machine import about

RHO = 1e9  # never binds


def measurement() -> tuple[Any, Any]:
    """OpenDP's measurement, and a filter of OpenDP's around many of it; a release is ``queryable(measurement)``."""
    import opendp.combinators as combinators
    import opendp.domains as domains
    import opendp.measurements as measurements
    import opendp.measures as measures
    import opendp.metrics as metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    space = domains.vector_domain(domains.atom_domain(T=float, nan=False)), metrics.l2_distance(T=float)
    odometer = combinators.make_fully_adaptive_composition(*space, measures.zero_concentrated_divergence())
    return measurements.make_gaussian(*space, scale=1000.0), combinators.make_privacy_filter(odometer, 1.0, RHO)


def theirs(data: list[float], count: int) -> float:
    query, filter = measurement()
    queryable, start = filter(data), time.process_time()
    for _ in range(count):
        queryable(query)
    return time.process_time() - start


def ours(data: list[float], count: int) -> float:
    from jaxacct import filters
    from jaxacct.interop import opendp

    query, _ = measurement()
    budget = filters.zcdp(RHO)
    state, start = budget.init(), time.process_time()
    for _ in range(count):
        admitted, state = opendp.charge(budget, query, 1.0, state=state)
        if not admitted:
            raise SystemExit("the budget was to be far too large to end")
        query(data)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, nargs="+", default=[1_000, 2_000, 4_000, 8_000])
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    data, rows = [0.0] * 4, []
    ours(data, 10)
    for count in arguments.queries:
        rows.append({"queries": count, "jaxacct": round(ours(data, count), 2), "opendp": round(theirs(data, count), 2)})
        print(json.dumps(rows[-1]), flush=True)
    if arguments.json is not None:
        found = {"about": about("opendp"), "rows": rows}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
