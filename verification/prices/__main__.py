"""Looks for a price of `sampled_gaussian` that is too low: random points, exact digits, brute force and adversaries.

    python -m verification.prices [--points 1000000] [--exact 12] [--seconds S] [--json FILE] [--parts brute play ...]

Four parts, each of which must also find the mistake when prices are lowered:

- `brute`: every play of coins, in rational numbers, every state and both directions, menus and boxes;
- `play`: the best adaptive play by dynamic programming, and simulated policies;
- `search`: random (noise, rate, budget left) between the grid's points of six boxes, the inequality in float64 by other
  means than the table's, with a bound on the error;
- `exact`: the inequality at the worst orders of some of these points, in ball arithmetic (needs python-flint).

It ends with an error if anything was found at the prices that are charged, or nothing at lowered ones.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import jax

from jaxacct import filters
from jaxacct.filters.prices.family import UNITS
from jaxacct.filters.prices.sampled_gaussian import _VERSION
from jaxacct.losses.grids.grid import LossGrid
from verification.prices import brute, play
from verification.prices.search import BOXES, search

_PLAYED: dict[str, dict[str, Any]] = {
    "sigma 2 to 2.4, rate .1": {"sigma": (2.0, 2.4), "rate": (0.1, 0.1), "epsilon": 2.0, "delta": 1e-3},
    "sigma 2 to 4, rate .05 to .1": {"sigma": (2.0, 4.0), "rate": (0.05, 0.1), "epsilon": 2.0, "delta": 1e-3},
}
_SIMULATED: dict[str, Any] = {"sigma": (1.5, 3.0), "rate": (0.1, 0.2), "epsilon": 2.0, "delta": 1e-3}
_BRUTE = [(brute.menu, 1.0), (brute.menu, 0.99), (brute.box_of_coins, 1.0), (brute.box_of_coins, 0.99)]
_BRUTE += [(brute.box_of_gaussians, 1.0), (brute.box_of_gaussians, 0.9)]
_PARTS = ("brute", "play", "search", "exact")
_SCALES = (1.0, 0.99, 0.98, 0.97, 0.96, 0.95)
_LEVELS = 50_000
_LOSSES = LossGrid(0.005, -800, 1601)
_REACH = 200


def exact(sample: list[Any]) -> dict[str, Any]:
    """Margins in ball arithmetic next to those of the search."""
    from verification.prices.exact import margin_at

    proved, undecided, refuted, apart = 0, 0, 0, 0.0
    for family, point, margin in sample:
        ball = margin_at(
            family, point["sigma"], point["rate"], point["left"], point["left"] - point["price"], UNITS, point["loss"]
        )
        proved, refuted = proved + bool(ball > 0), refuted + bool(ball < 0)
        undecided += not (ball > 0 or ball < 0)
        apart = max(apart, abs(float(ball.mid()) - margin))
    return {"points": len(sample), "proved": proved, "refuted": refuted, "undecided": undecided, "largest gap": apart}


def plays(count: int, seed: int) -> dict[str, Any]:
    """The best play and simulated ones, over what is promised, at prices times a few factors."""
    found: dict[str, Any] = {}
    for name, given in _PLAYED.items():
        with jax.enable_x64(True):
            box = filters.sampled_gaussian(**given)
        queries = play.weakest(box, given["sigma"], given["rate"], given["epsilon"], seed)
        at = round(given["epsilon"] / _LOSSES.spacing)
        found[f"best play, {name}"] = {
            "queries (sigma, rate)": [[float(x) for x in one] for one in queries],
            "over the promised delta, by what prices are multiplied by": {
                str(x): play.best_play(box, queries, x, _LEVELS, _LOSSES, _REACH, at) for x in _SCALES
            },
        }
    with jax.enable_x64(True):
        box = filters.sampled_gaussian(**_SIMULATED)
    queries = play.weakest(box, _SIMULATED["sigma"], _SIMULATED["rate"], _SIMULATED["epsilon"], seed)
    found["simulated at epsilon 1, over the promised delta, and standard errors"] = {
        f"{policy}, prices times {x:g}": play.simulated(box, queries, policy, x, count, 1.0, seed)
        for policy in ("random", "weakest", "swings")
        for x in (1.0, 0.9)
    }
    return found


def failures(report: dict[str, Any]) -> list[str]:
    """What the report holds that a sound filter and a working attack do not."""
    found = []
    for name, one in report.get("brute", {}).items():
        above, expected = one["largest ratio to the promise"] > 1.0, not name.endswith("times 1")
        found += [f"brute, {name}"] if above != expected else []
    for name, one in report.get("play", {}).items():
        if name.startswith("best play"):
            ratios = list(one["over the promised delta, by what prices are multiplied by"].values())
            found += [name] if ratios[0] > 1.0 or ratios[-1] <= 1.0 else []
        else:
            found += [x for x, (mean, error) in one.items() if x.endswith("times 1") and mean - 4.0 * error > 1.0]
    for name, one in report.get("search", {}).items():
        found += [f"search, {name}"] if one["violated"] or not one["of these violated"] else []
    return found + (["exact"] if report.get("exact", {}).get("refuted") else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--exact", type=int, default=12, help="points in ball arithmetic, some 16 seconds each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of the search, for each box")
    parser.add_argument("--plays", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--json", default="")
    given = parser.parse_args()
    report: dict[str, Any] = {
        "tables": _VERSION,
        "units": "margins and errors are shares of the slack that a price brings",
        "seconds of processor": {},
    }

    def say(part: str, begun: float, value: Any) -> None:
        report[part] = value
        report["seconds of processor"][part] = round(time.process_time() - begun)
        print(f"{part}: {json.dumps(value)}", flush=True)
        if given.json:
            with open(given.json, "w") as file:
                json.dump(report, file, indent=1)
                file.write("\n")

    begun = time.process_time()
    if "brute" in given.parts:
        found = {}
        for one, scale in _BRUTE:
            found |= one(scale)
        say("brute", begun, found)
    begun = time.process_time()
    if "play" in given.parts:
        say("play", begun, plays(given.plays, given.seed))
    begun, found, sample = time.process_time(), {}, []
    if "search" in given.parts or "exact" in given.parts:
        points = given.points if "search" in given.parts else 10 * len(BOXES)
        for i, name in enumerate(BOXES):
            share, kept = points // len(BOXES) + 1, -(-given.exact // len(BOXES))
            one, few = search(name, share, given.seed + i, given.seconds, kept)
            sample += few
            found[name] = one.as_dict()
            if "search" in given.parts:
                say("search", begun, found)
    begun = time.process_time()
    if "exact" in given.parts:
        say("exact", begun, exact(sample[: given.exact]))
    wrong = failures(report)
    print("nothing found that should not be" if not wrong else f"WRONG: {'; '.join(wrong)}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
