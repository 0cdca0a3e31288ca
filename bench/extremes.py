"""Peak memory and time of extreme queries, each in a process of its own.

    python bench/extremes.py     # writes bench/results/extremes.json

Every query starts a fresh interpreter, so that the peak is that of one query, interpreter, imports and compilation
included, and the seconds are those of a first call; the issue that asked for the table allows 1 GiB and 10 s.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import subprocess
import sys

from machine import about

HERE = pathlib.Path(__file__).resolve().parent
LIMITS = {"gib": 1.0, "seconds": 10.0}
SIGMAS = (1e-3, 0.5, 1e4)
RATES = (1e-7, 1e-2, 1.0)
STEPS = (1, 1000, 10**9)
TARGETS = (("epsilon", 1e-5), ("delta", 1e-4), ("delta", 1e3))  # what is asked for, and at which delta or epsilon

QUERY = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
kind, target, sigma, rate, steps = json.loads(sys.argv[1])
import jaxacct
gaussian = jaxacct.Gaussian(sigma)
mechanism = gaussian if rate == 1.0 else jaxacct.PoissonSampled(gaussian, rate)
times = []
for _ in range(2):
    before = time.perf_counter()
    lower, upper = getattr(jaxacct, kind)(mechanism, target, steps=steps)
    times.append(time.perf_counter() - before)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux
print(json.dumps({"lower": float(lower), "upper": float(upper), "cold": times[0], "warm": times[1], "gib": peak}))
"""


def measured(*query: float | str) -> dict[str, float | str]:
    names = ("kind", "target", "sigma", "rate", "steps")
    command = [sys.executable, "-c", QUERY, json.dumps(query)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row: dict[str, float | str] = dict(zip(names, query, strict=True))
    return row | (json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr.strip()[-300:]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default=str(HERE / "results" / "extremes.json"), help="JSON file; empty for none")
    parser.add_argument(
        "--targets", type=int, nargs="*", default=range(len(TARGETS)), help="which of them; others keep their rows"
    )
    arguments = parser.parse_args()
    file = pathlib.Path(arguments.output) if arguments.output else None
    rows = json.loads(file.read_text())["rows"] if file is not None and file.exists() else []
    asked = [TARGETS[i] for i in arguments.targets]
    rows = [row for row in rows if (row["kind"], row["target"]) not in asked]
    for (kind, target), sigma, rate, steps in itertools.product(asked, SIGMAS, RATES, STEPS):
        rows.append(measured(kind, target, sigma, rate, steps))
        print(rows[-1], flush=True)
    good = [row for row in rows if "failed" not in row]
    report = {
        "machine": about("jaxacct"),
        "limits": LIMITS,
        "failed": len(rows) - len(good),
        "peak_gib": max((row["gib"] for row in good), default=None),
        "slowest_cold": max((row["cold"] for row in good), default=None),
        "slowest_warm": max((row["warm"] for row in good), default=None),
        "rows": rows,
    }
    if file is not None:
        file.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
