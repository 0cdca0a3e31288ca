"""Looks for a price of `priced_box` that is too low: random points, exact digits, brute force and adversaries.

    python -m verification.prices [--points 1000000] [--exact 12] [--seconds S] [--json results/prices.json]

Four parts, each of which must also find the mistake when prices are lowered:

- `search`: random (noise, rate, budget left) between the grid's points of six boxes, the inequality in float64 by other
  means than the table's, with a bound on the error;
- `exact`: the inequality at the worst orders of some of these points, in ball arithmetic (needs python-flint);
- `brute`: every play of coins, in rational numbers, every state and both directions, menus and boxes;
- `play`: the best adaptive play by dynamic programming, and simulated policies.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import jax

from jaxacct import filters
from jaxacct.filters.boxes.family import UNITS
from jaxacct.losses.grids.grid import LossGrid
from verification.prices import brute, play
from verification.prices.search import BOXES, search

_PLAYED = {"sigma": (1.2, 2.4), "rate": (0.01, 0.03), "epsilon": 1.5, "delta": 1e-3}
_QUERIES = [(1.2, 0.03), (1.7, 0.0173), (2.4, 0.03), (1.2, 0.01)]
_SCALES = (1.0, 0.99, 0.98, 0.96, 0.94, 0.92, 0.9)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--exact", type=int, default=12, help="points in ball arithmetic, some 16 seconds each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of the search, for each box")
    parser.add_argument("--plays", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", default="")
    given = parser.parse_args()
    report: dict[str, Any] = {"units": "margins and errors are shares of the slack that a price brings"}

    def say(part: str, value: Any) -> None:
        report[part] = value
        print(f"{part}: {json.dumps(value)}", flush=True)
        if given.json:
            with open(given.json, "w") as file:
                json.dump(report, file, indent=1)

    say("brute", brute.menus() | brute.boxes() | brute.boxes(0.9))
    sample: list[Any] = []
    for i, name in enumerate(BOXES):
        start = time.process_time()
        share, kept = given.points // len(BOXES) + 1, -(-given.exact // len(BOXES))
        found, few = search(name, share, given.seed + i, given.seconds, kept)
        sample += few
        say(f"search, {name}", found.as_dict() | {"seconds of processor": round(time.process_time() - start)})
    say("exact", exact(sample[: given.exact]))
    with jax.enable_x64(True):
        box = filters.priced_box(**_PLAYED)
    grid, epsilon = LossGrid(0.01, -400, 801), _PLAYED["epsilon"]
    best = {str(x): play.best_play(box, _QUERIES, x, 6000, grid, 150, epsilon) for x in _SCALES}
    say("best play over the promised delta, by what prices are multiplied by", best)
    policies = ("random", "weakest", "swings")
    found = {policy: play.simulated(box, _QUERIES, policy, given.plays, 0.7, given.seed) for policy in policies}
    say("simulated plays at epsilon 0.7 over the promised delta, and standard errors", found)


if __name__ == "__main__":
    main()
