"""jaxacct against its peers, job by job, in one process, run after run in turn.

    pip install -e '.[bench]' && python bench/peers.py     # writes bench/results/peers.json and peers.png

Jobs: one query (the settings of the reference table, or built-in ones), a sweep of random DP-SGD settings, a
heterogeneous schedule, calibration of the noise (to an attack's advantage against riskcal), and a cold start from the
shell. "cold" is the first call in the process, compilation included; "warm" is the median of later ones. Where a peer
is too slow for the whole job, it does the number of settings that the row says, and its time is scaled up to the job's.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from machine import about
from peer_queries import (
    HETEROGENEOUS,
    PEERS,
    SLOW,
    peer_advantage,
    peer_calibrate,
    peer_delta,
    peer_epsilon,
    peer_schedule,
)
from peers_picture import draw

import jaxacct

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE.parents[1] / "shared" / "reference" / "subsampled_gaussian.json"
# (noise multiplier, sampling rate, steps, epsilon), where the table is not at hand.
BUILT_IN = [
    (2.26, 0.368, 136, 8.98),
    (5.12, 0.0127, 2232, 0.346),
    (1.41, 0.135, 407, 13.5),
    (1.02, 0.00511, 8935, 3.03),
    (2.79, 0.00504, 16582, 0.519),
    (0.985, 0.00166, 18437, 1.17),
    (5.59, 0.233, 1305, 10.3),
    (1.0, 0.01, 1000, 4.0),
]


def sampled(sigma: Any, rate: Any) -> jaxacct.PoissonSampled:
    return jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)


def seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    before = time.perf_counter()
    value = function(*arguments)
    return time.perf_counter() - before, value


def in_turn(contestants: dict[str, Callable[[], Any]], runs: int) -> dict[str, dict[str, Any]]:
    """Cold and median warm time of each, run after run in turn, and the last answer."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    answers = {}
    for _ in range(runs + 1):
        for name, contestant in contestants.items():
            took, answers[name] = seconds(contestant)
            times[name].append(took)
    return {
        name: {"cold": taken[0], "warm": statistics.median(taken[1:]), "answer": answers[name]}
        for name, taken in times.items()
    }


def single(peers: list[str], runs: int) -> dict[str, Any]:
    rows = [(r["noise_multiplier"], r["sampling_rate"], r["steps"], r["epsilon"]) for r in _reference()] or BUILT_IN
    truths = [(r["delta"], r["direction"]) for r in _reference()]
    found = []
    for i, (sigma, rate, steps, epsilon) in enumerate(rows):
        asked = [peer for peer in peers if peer not in SLOW or i % SLOW[peer] == 0]
        contestants: dict[str, Callable[[], Any]] = {
            "jaxacct": lambda: jaxacct.delta(sampled(sigma, rate), epsilon, steps=steps)  # noqa: B023
        }
        failed = {}
        for peer in asked:
            try:
                peer_delta(peer, sigma, rate, steps, epsilon)
            except Exception as error:  # prv_accountant gives up on some settings
                failed[peer] = str(error)
                continue
            contestants[peer] = lambda peer=peer: peer_delta(peer, sigma, rate, steps, epsilon)  # noqa: B023
        timed = in_turn(contestants, runs)
        bounds = timed["jaxacct"].pop("answer")
        row = {"failed": failed} if failed else {}
        row |= {"setting": [sigma, rate, steps, epsilon], "lower": float(bounds.lower), "upper": float(bounds.upper)}
        if truths:
            truth, direction = truths[i]
            one = jaxacct.delta(sampled(sigma, rate), epsilon, steps=steps, relation=direction)
            row |= {"truth": truth, "direction": direction, "width": float(one.upper / one.lower - 1)}
            row["bracketed"] = bool(one.lower <= truth * (1 + 1e-8) and truth * (1 - 1e-8) <= one.upper)
        found.append(row | timed)
        print(f"  {row['setting']}: {1e3 * timed['jaxacct']['warm']:.2f} ms", _ratios(timed), flush=True)
    ratio = {
        peer: _geometric([row[peer]["warm"] / row["jaxacct"]["warm"] for row in found if peer in row]) for peer in peers
    }
    return {"rows": found, "warm_ratio_geometric_mean": ratio}


def sweep(peers: list[str], size: int, theirs: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    sigma, rate = np.exp(rng.uniform(np.log([[0.6], [1e-3]]), np.log([[5.0], [0.1]]), (2, size)))
    steps = np.floor(np.exp(rng.uniform(np.log(100), np.log(20_000), size)))
    delta = 10 ** rng.uniform(-7, -5, size)
    run = lambda: jaxacct.epsilon(sampled(sigma, rate), delta, steps=steps)  # noqa: E731
    cold, bounds = seconds(run)
    second, warm = seconds(run)[0], _settled(run)
    result = {
        "settings": size,
        "cold": cold,
        "second": second,
        "warm": warm,
        "widest": float(np.max(bounds.upper / bounds.lower - 1)),
    }
    for peer in peers:
        took, answers = seconds(
            lambda peer=peer: [peer_epsilon(peer, sigma[i], rate[i], int(steps[i]), delta[i]) for i in range(theirs)]
        )
        above = float(np.max(bounds.upper[:theirs] / np.array(answers) - 1))
        whole = took / theirs * size
        result[peer] = {"settings": theirs, "scaled": whole, "ratio": whole / warm, "most_above_peer": above}
        print(f"  {peer}: {whole:.1f} s against {warm:.2f} s: {whole / warm:.0f} x", flush=True)
    return result


def heterogeneous(peers: list[str], runs: int) -> dict[str, Any]:
    sigmas, counts = HETEROGENEOUS
    schedule = jaxacct.Composed([sampled(s, 0.01) for s in sigmas], [int(c) for c in counts])
    contestants: dict[str, Callable[[], Any]] = {"jaxacct": lambda: jaxacct.epsilon(schedule, 1e-5)}
    for peer in peers:
        contestants[peer] = lambda peer=peer: peer_schedule(peer, 1e-5)
    timed = in_turn(contestants, runs)
    bounds = timed["jaxacct"].pop("answer")
    return {"lower": float(bounds.lower), "upper": float(bounds.upper), **timed, "ratio": _ratios(timed)}


def calibration(size: int, theirs: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    epsilon = np.exp(rng.uniform(np.log(0.5), np.log(10.0), size))
    rate = np.exp(rng.uniform(np.log(2e-3), np.log(0.05), size))
    steps = np.floor(np.exp(rng.uniform(np.log(500), np.log(10_000), size)))
    run = lambda: jaxacct.calibrate(lambda sigma: sampled(sigma, rate), epsilon, 1e-5, steps=steps)  # noqa: E731
    cold, found = seconds(run)
    second, warm = seconds(run)[0], _settled(run)
    took, answers = seconds(lambda: [peer_calibrate(rate[i], int(steps[i]), epsilon[i], 1e-5) for i in range(theirs)])
    whole = took / theirs * size
    above = np.max(found.parameter[:theirs] / np.array(answers) - 1)
    print(f"  dp_accounting: {whole:.1f} s against {warm:.2f} s: {whole / warm:.0f} x", flush=True)
    return {
        "targets": size,
        "cold": cold,
        "second": second,
        "warm": warm,
        "dp_accounting": {"targets": theirs, "scaled": whole, "ratio": whole / warm, "most_above_peer": float(above)},
    }


def advantage(runs: int) -> dict[str, Any]:
    """The noise that leaves a membership attack some advantage: delta at epsilon 0, which riskcal calibrates."""
    rows = []
    for rate, steps, most in ((0.01, 1000, 0.1), (0.1, 100, 0.2), (1e-3, 10_000, 0.05)):
        step = lambda sigma: sampled(sigma, rate)  # noqa: B023, E731
        contestants: dict[str, Callable[[], Any]] = {
            "jaxacct": lambda: float(jaxacct.calibrate(step, 0.0, most, steps=steps).parameter),  # noqa: B023
            "riskcal": lambda: peer_advantage(rate, steps, most),  # noqa: B023
        }
        timed = in_turn(contestants, runs)
        rows.append({"setting": [rate, steps, most], **timed, "ratio": _ratios(timed)["riskcal"]})
        print(f"  {rows[-1]}", flush=True)
    return {"rows": rows, "riskcal": _geometric([row["ratio"] for row in rows])}


def shell(runs: int) -> dict[str, Any]:
    """Seconds from the shell, in turn; the first of ours compiles, later ones find its cache."""
    ours = [str(pathlib.Path(sys.executable).with_name("jaxacct")), "epsilon", "--sigma", "1.0", "--rate", "0.01"]
    ours += ["--steps", "1000", "--delta", "1e-5"]
    theirs = [sys.executable, "-c", ONE_LINER]
    cache = HERE / "results" / ".cache"
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    run = lambda command: seconds(  # noqa: E731
        lambda: subprocess.run(command, check=True, capture_output=True, env=environment)
    )[0]
    first = run(ours)
    pairs = [(run(ours), run(theirs)) for _ in range(runs)]
    subprocess.run(["rm", "-rf", str(cache)], check=True)
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"first": first, "later": mine, "dp_accounting": other, "ratio": other / mine}


ONE_LINER = """
from dp_accounting import dp_event; from dp_accounting.pld import PLDAccountant
a = PLDAccountant(); a.compose(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 1000)
print(a.get_epsilon(1e-5))
"""


def _reference() -> list[dict[str, Any]]:
    return json.loads(REFERENCE.read_text()) if REFERENCE.exists() else []


def _ratios(timed: dict[str, dict[str, Any]]) -> dict[str, float]:
    return {name: round(one["warm"] / timed["jaxacct"]["warm"], 1) for name, one in timed.items() if name != "jaxacct"}


def _settled(run: Callable[[], Any]) -> float:
    """Seconds of a call, once the engine has found that it pays to compile for calls like these."""
    for _ in range(6):
        run()
    return statistics.median(seconds(run)[0] for _ in range(3))


def _geometric(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default=str(HERE / "results" / "peers.json"), help="JSON file; empty for none")
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--jobs", nargs="*", default=["single", "sweep", "heterogeneous", "calibration", "advantage", "shell"]
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    jobs = {
        "single": lambda: single(arguments.peers, arguments.runs),
        "sweep": lambda: sweep(arguments.peers, 1000, 20),
        "heterogeneous": lambda: heterogeneous(arguments.peers, arguments.runs),
        "calibration": lambda: calibration(100, 3),
        "advantage": lambda: advantage(arguments.runs),
        "shell": lambda: shell(arguments.runs),
    }
    report: dict[str, Any] = {"machine": about("jaxacct", "riskcal", *arguments.peers)}
    print(report["machine"])
    for name in arguments.jobs:
        print(f"{name}:", flush=True)
        report[name] = jobs[name]()
        shown = {key: value for key, value in report[name].items() if key != "rows"}
        print(f"  {shown}", flush=True)
    if arguments.output:
        file = pathlib.Path(arguments.output)
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():  # jobs that were not run now keep what they had
            report = json.loads(file.read_text()) | json.loads(json.dumps(report, default=float))
        file.write_text(json.dumps(report, indent=1, default=float) + "\n")
        draw(report, file.with_suffix(".png"))


if __name__ == "__main__":
    main()
