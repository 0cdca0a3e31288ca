"""What an online price is worth: runs of queries between a menu's entries, snapped to an entry and priced online.

Run with ``python bench/online_price.py``; it writes ``results/online_price.json``. Both filters have the same menu of
four noise multipliers, half an octave apart, and the same target. The epsilon of the runs that were admitted, had they
been fixed in advance, says how much of the target the prices reach.
"""

from __future__ import annotations

import json
import pathlib
import time

from machine import about

import jaxacct
from jaxacct import Gaussian, PoissonSampled, filters

EPSILON, DELTA, RATE, ENTRIES = 2.0, 1e-5, 0.1, (2.0 * 2**0.5, 8.0)
SIGMAS = (3.3, 4.8, 6.7)


def main() -> None:
    menu = filters.gaussian_menu(ENTRIES, RATE, sigmas=4)
    start = time.perf_counter()
    online = filters.menu(menu, epsilon=EPSILON, delta=DELTA, online=True)
    seconds = time.perf_counter() - start
    common, rows = filters.menu(menu, epsilon=EPSILON, delta=DELTA), {}
    for sigma in SIGMAS:
        query, state, prices = PoissonSampled(Gaussian(sigma), RATE), online.init(), []
        online.price(query, state)  # compiles
        start = time.perf_counter()
        while True:
            admitted, after = online.update(query, state)
            if not admitted:
                break
            prices.append(int(after.spent) - int(state.spent))
            state = after
        rows[sigma] = {
            "snapped_price": int(common.price(query)),
            "online_price": [min(prices), max(prices)],
            "snapped_runs": int(common.budget) // int(common.price(query)),
            "online_runs": len(prices),
            "epsilon_if_fixed_in_advance": float(jaxacct.epsilon(query, DELTA, steps=len(prices)).lower),
            "milliseconds_a_price": round(1e3 * (time.perf_counter() - start) / (len(prices) + 1), 2),
        }
        print(sigma, rows[sigma], flush=True)
    report = {
        "about": about(),
        "entries": [float(one.mechanism.sigma) for one in menu],
        "budget": {"online": int(online.budget), "menu": int(common.budget)},
        "certified_epsilon": float(online.guarantee.epsilon(DELTA)),
        "megabytes": round(online.promise.curves.nbytes / 1e6, 1),
        "seconds_to_make_or_load": round(seconds, 2),
        "rows": rows,
    }
    path = pathlib.Path(__file__).resolve().parent / "results" / "online_price.json"
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
