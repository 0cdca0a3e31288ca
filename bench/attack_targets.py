"""Twenty attack targets, side by side with riskcal: noise for an advantage, and for a pair of error rates.

    python bench/attack_targets.py       # needs riskcal; prints a table, writes bench/results/attack_targets.json

Both search noise from 0.1 to 50. riskcal's own tolerance is 1e-3 in the advantage or error rate (its default), ours is
1e-4 of the noise. Its losses lie on its default grid of 1e-4, for error rates on one of 1e-3. Seconds are processor
time in one process. ``theirs`` says what the certified bounds are at riskcal's noise: a lower bound above the target
means that its noise does not keep the promise.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import time
import warnings
from typing import Any

from machine import about

from jaxacct import Composed, Gaussian, PoissonSampled, attacks

RESULTS = pathlib.Path(__file__).parent / "results"
RUNS = [(0.01, 1000), (0.001, 10_000), (0.05, 400), (0.2, 100), (0.5, 20)]
ADVANTAGES = (0.02, 0.05, 0.1)
_GRID = 1e-3  # of riskcal for error rates: its default of 1e-4 takes some 110 seconds a target
ERRORS = ((0.01, 0.95),)
"""False positive rate, and the least false negative rate."""


def _timed(ask: Any) -> tuple[float, Any]:
    start = time.process_time()
    found = ask()
    return time.process_time() - start, found


def _row(rate: float, steps: int, target: float, false_positives: float | None) -> dict[str, Any]:
    from riskcal.calibration import dpsgd

    def made(noise: float) -> Composed:
        return Composed([PoissonSampled(Gaussian(noise), rate)], [steps])

    def attack(run: Composed) -> Any:
        return attacks.advantage(run) if false_positives is None else attacks.power(run, false_positives)

    if false_positives is None:
        ask = lambda: dpsgd.find_noise_multiplier_for_advantage(target, rate, steps)  # noqa: E731
    else:
        ask = lambda: dpsgd.find_noise_multiplier_for_err_rates(false_positives, 1.0 - target, rate, steps, _GRID)  # noqa: E731
    theirs, noise = _timed(ask)
    ours, found = _timed(lambda: attacks.calibrate(made, attack, target, least=0.1, most=50.0))
    at_theirs = attack(made(float(noise)))
    return {
        "rate": rate,
        "steps": steps,
        "false_positives": false_positives,
        "target": target,
        "noise": found.parameter,
        "refuted": found.refuted,
        "attack": found.value,
        "riskcal": float(noise),
        "theirs": [float(x) for x in at_theirs],
        "seconds": [ours, theirs],
        "ratio": theirs / ours,
    }


def main() -> None:
    warnings.simplefilter("ignore")
    rows = []
    for rate, steps in RUNS:
        targets = [(most, None) for most in ADVANTAGES] + [(1.0 - least, errors) for errors, least in ERRORS]
        for target, false_positives in targets:
            rows.append(_row(rate, steps, target, false_positives))
            print(rows[-1], flush=True)
    over = [row["noise"] / row["riskcal"] for row in rows]
    summary = {
        "targets": len(rows),
        "ours_above_target": sum(row["attack"] > row["target"] for row in rows),
        "theirs_surely_above_target": sum(row["theirs"][0] > row["target"] for row in rows),
        "noise_over_theirs": [f(over) for f in (min, statistics.median, max)],
        "median_ratio_of_times": statistics.median(row["ratio"] for row in rows),
    }
    print(summary)
    report = {"summary": summary, "rows": rows, "machine": about("riskcal", "dp-accounting")}
    (RESULTS / "attack_targets.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
