"""The true cost of the natural (epsilon, delta) filter, from below: the worst families found, and a search for worse.

Run with ``python bench/natural_cost.py [--steps 0] [--rounds 16]``; it prints a row for each family of the page on the
natural filter (docs/theorems/natural-filter.md), after ``--steps`` random changes of it, of which those that cost more
are kept. A family is randomized responses at j / parts and one query that is (0, delta / pieces)-DP, for epsilon 1.
"""

from __future__ import annotations

import argparse
import itertools
import random

from jaxacct import ApproximateDP, RandomizedResponse, adversary
from jaxacct.games.natural_cost import NaturalFilterCost

Family = tuple[int, tuple[int, ...], int]  # parts, j, pieces
DELTA = 1e-3
WORST: list[tuple[int, Family]] = [
    (4, (6, (1, 2, 4), 1)),
    (8, (7, (1, 2, 3), 1)),
    (12, (13, (1, 2, 8), 3)),
    (16, (13, (1, 2, 8), 4)),
    (24, (13, (1, 3, 6), 6)),
    (32, (13, (1, 3, 6), 9)),
    (48, (16, (1, 3, 6), 13)),
    (64, (16, (1, 3, 6), 21)),
    (16, (15, (1, 2, 3, 8), 4)),
    (32, (17, (1, 2, 5, 10), 6)),
    (64, (20, (1, 2, 5, 10), 8)),
]


def cost(family: Family, rounds: int) -> NaturalFilterCost:
    parts, steps, pieces = family
    queries = [RandomizedResponse(j / parts) for j in steps] + [ApproximateDP(0.0, DELTA / pieces)]
    return adversary.natural_filter_cost(ApproximateDP(1.0, DELTA), queries, rounds)


def changed(family: Family) -> Family:
    parts, steps, pieces = family
    by, what = random.choice([-3, -2, -1, 1, 2, 3]), random.random()
    if what < 0.35:
        return max(2, parts + by), steps, pieces
    if what < 0.8:
        at = random.randrange(len(steps))
        moved = {max(1, j + by * (i == at)) for i, j in enumerate(steps)}
        return (parts, tuple(sorted(moved)), pieces) if len(moved) == len(steps) else family
    return parts, steps, max(1, pieces + by)


def largest(found: NaturalFilterCost) -> int:
    """How many count vectors are within the budget and in no larger one."""
    legal = {counts for states in found.game.states for counts in states}
    more = lambda n: (tuple(c + (i == j) for j, c in enumerate(n)) for i in range(len(n)))  # noqa: E731
    return sum(not legal.intersection(more(counts)) for counts in legal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    random.seed(1)
    print("| rounds | parts | j | pieces | delta(1) / delta | epsilon at delta | largest plans |")
    print("|---|---|---|---|---|---|---|")
    for rounds, family in WORST:
        if arguments.rounds not in (None, rounds):
            continue
        found, seen = cost(family, rounds), {family}
        for _ in range(arguments.steps):
            other = changed(family)
            if other not in seen:
                seen.add(other)
                worse = cost(other, rounds)
                if worse.hockey_stick(1.0).lower > found.hockey_stick(1.0).lower:
                    family, found = other, worse
        parts, steps, pieces = family
        reached = (k for k in itertools.count(parts) if found.hockey_stick(k / parts).upper <= DELTA * (1 + 1e-9))
        row = (rounds, parts, steps, pieces, f"{found.hockey_stick(1.0).lower / DELTA:.4f}")
        print("|", " | ".join(map(str, (*row, f"{next(reached) / parts:.2f}", largest(found)))), "|", flush=True)


if __name__ == "__main__":
    main()
