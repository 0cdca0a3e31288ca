"""Audits training runs with planted mistakes: ``python -m verification.audit --json FILE``."""

from __future__ import annotations

import argparse
import json
import pathlib
import time

import jax

import jaxacct
from verification.audit.loops import RUNS, accuracy, compiled, place

DELTA, CONFIDENCE = 1e-5, 0.95


def audited(name: str, number: int, runs: int, seed: int) -> dict:
    """How many of ``runs`` runs with ``number`` canaries are refuted, each by its own audit."""
    run, train, found, right = RUNS[name], None, [], []
    for index in range(runs):
        coins, keys = (jax.random.fold_in(jax.random.key(seed + one), index) for one in (0, 1))
        placed = place(number, coins)
        # Programs hold a loss as a constant, and every placement has one: the first one's serves for all.
        train = compiled(run, placed) if train is None else train
        params, scores = train(placed.params, placed.data, keys)
        guesses = (round(run.high * number), round(run.low * number))
        found.append(
            placed.audit(scores, guesses, delta=DELTA, confidence=CONFIDENCE, mechanism=run.mechanism, steps=run.steps)
        )
        right.append(accuracy(placed.model(params)))
    middle = sorted(found, key=lambda one: one.p_value)[runs // 2]
    return {
        "run": name,
        "canaries": number,
        "guesses": middle.guesses,
        "runs": runs,
        "refuted": sum(one.refuted for one in found),
        "certified": middle.certified,
        "median_p_value": middle.p_value,
        "median_correct": middle.correct,
        "median_epsilon": sorted(one.epsilon for one in found)[runs // 2],
        "mean_accuracy": round(sum(right) / runs, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="verification.audit", description=__doc__)
    parser.add_argument("--canaries", type=int, nargs="+", default=[300, 1000, 3000])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--json", type=pathlib.Path, help="write results there; rows of other runs in it are kept")
    arguments = parser.parse_args()
    rows = []
    if arguments.json is not None and arguments.json.exists():
        rows = json.loads(arguments.json.read_text(encoding="utf-8"))["rows"]
    for name in arguments.only:
        for number in arguments.canaries:
            start = time.perf_counter()
            rows = [row for row in rows if (row["run"], row["canaries"]) != (name, number)]
            rows.append(audited(name, number, arguments.runs, arguments.seed))
            print(json.dumps(rows[-1]), round(time.perf_counter() - start, 1), "s", flush=True)
            if arguments.json is not None:
                order = {name: place for place, name in enumerate(RUNS)}
                rows.sort(key=lambda row: (order[row["run"]], row["canaries"]))
                header = {"version": jaxacct.__version__, "delta": DELTA, "confidence": CONFIDENCE}
                arguments.json.write_text(json.dumps(header | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
