"""Chi-square tests of the samplers of `jaxacct.release` against their laws, of many draws.

    python -m verification.samplers --draws 10000000 --json FILE

Takes some 10 minutes for 10^7 draws of each. A p-value below 1e-6 ends with an error.
"""

from __future__ import annotations

import argparse
import collections
import json
import math

from scipy.stats import chi2

from jaxacct.release import discrete_gaussian, discrete_laplace

SAMPLERS = {
    "discrete_laplace, scale 2.5": (lambda size: discrete_laplace(2.5, size), lambda x: math.exp(-abs(x) / 2.5)),
    "discrete_gaussian, sigma 2.5": (lambda size: discrete_gaussian(2.5, size), lambda x: math.exp(-(x**2) / 12.5)),
}
LEAST = 20.0  # expected draws of a cell


def tested(draw, weight, draws):
    found = collections.Counter()
    for start in range(0, draws, 10**5):
        found.update(draw(min(10**5, draws - start)))
    total = math.fsum(weight(x) for x in range(-2000, 2001))
    edge = max(x for x in range(2000) if draws * weight(x) / total >= LEAST)
    inner = range(-edge, edge + 1)
    cells = [(found[x], draws * weight(x) / total) for x in inner]
    rest = draws - sum(count for count, _ in cells), draws - math.fsum(expected for _, expected in cells)
    cells += [rest] if rest[1] >= 1 else []
    statistic = math.fsum((count - expected) ** 2 / expected for count, expected in cells)
    return {
        "draws": draws, "cells": len(cells), "chi_square": round(statistic, 2),
        "p_value": float(chi2.sf(statistic, len(cells) - 1)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10**7)
    parser.add_argument("--json", help="Write the numbers to a file.")
    options = parser.parse_args()
    results = {}
    for name, (draw, weight) in SAMPLERS.items():
        results[name] = tested(draw, weight, options.draws)
        print(name, results[name], flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(results, file, indent=1)
    if min(result["p_value"] for result in results.values()) < 1e-6:
        raise SystemExit("a sampler's draws do not follow its law")


if __name__ == "__main__":
    main()
