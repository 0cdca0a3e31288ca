"""Random settings of every mechanism, asked at the floats next to their atoms and largest losses, against 50 digits.

    python -m verification.neighbours --settings 100 [--first 0] [--way program] [--only laplace]

Truths are those of ``tests/sound/exact.py`` and ``samplers.py``. Every second setting is drawn from everywhere: scales
from 1e-17 to 1e17, masses of 1e-300, rates next to 0 and 1. One run of every mechanism, as it is, sampled, sampled
twice, in samples of fixed size, cut, shuffled and allocated, of replaced records; and compositions of up to nine runs
of mechanisms with few outcomes, whose sums of losses are atoms. Prints each disagreement, and at the end how many
queries there were. ``--way program`` asks one run inside a compiled program.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import mpmath as mp
import numpy as np
from mpmath import mpf

import jaxacct
from jaxacct import mechanisms as m
from tests.sound import exact
from verification.neighbours.samplers import sampler_cases

_DIGITS = mpf(10) ** -40  # of a truth
_SUMS = mpf(10) ** -47  # of the probability of a loss that is itself known to 50 digits only: a sum, a mean of ratios
_RUNS = (2, 3, 5, 9)
_FARTHEST = 1e18


def single_runs(setting: int) -> Iterator[tuple[str, exact.Case, int, np.ndarray]]:
    """Name, case, number of runs and epsilons."""
    rng = np.random.default_rng([7, setting])
    every = exact.cases(rng, wild=setting % 2 == 1) | sampler_cases(rng, wild=setting % 2 == 1)
    for name, case in every.items():
        law = case.law
        size = 3.0 if law.largest is None else float(law.largest)
        losses = [*law.atoms, *([] if law.largest is None else [law.largest])]
        near = [x for loss in losses for x in exact.neighbours(loss) if abs(x) < _FARTHEST]
        yield name, case, 1, np.array([*near, *(abs(size) * rng.uniform(-0.5, 1.2, 4)), 0.0, 1e-12 * size, 1e-6 * size])


def composed_runs(setting: int) -> Iterator[tuple[str, exact.Case, int, np.ndarray]]:
    """The same of compositions of mechanisms with few outcomes."""
    rng = np.random.default_rng([11, setting])
    for name, (mechanism, p, q) in _tables(rng, wild=setting % 2 == 1).items():
        rate, runs = exact.some_rate(rng), int(rng.choice(_RUNS[: 4 if len(p) < 5 else 2]))
        for relation in ("remove", "add"):
            pair = (p, q) if relation == "remove" or name != "table" else (q, p)
            for made, given in ((mechanism, pair), (m.PoissonSampled(mechanism, rate), _mixed(*pair, rate, relation))):
                law = exact.table(*_power(*given, runs))
                atoms = [*sorted(law.atoms)[-6:], *(law.atoms[i] for i in rng.integers(0, len(law.atoms), 2))]
                near = [x for loss in atoms for x in exact.neighbours(loss) if abs(x) < _FARTHEST]
                yield f"{runs} of {name}", exact.Case(made, relation, law), runs, np.array([*near, 0.0])


def _tables(rng: np.random.Generator, wild: bool) -> dict[str, tuple[Any, list[Any], list[Any]]]:
    """Mechanisms of few outcomes and their masses."""
    spread = exact.spread
    pure = spread(rng, 1e-6, 60) if wild else spread(rng, 0.05, 3)
    delta, categories = spread(rng, 1e-200, 0.3), int(spread(rng, 2, 1e4))
    scale, gap = spread(rng, 0.05, 30), int(rng.integers(1, 4))
    p, q = (rng.dirichlet(np.full(3, 0.5)) + 1e-9 for _ in range(2))
    rows = [row / row.sum() for row in (p, q)]
    one, other = ([exact.exact(x) / mp.fsum(map(exact.exact, row)) for x in row] for row in rows)
    return {
        "response": (m.RandomizedResponse(pure, categories), *exact.response_masses(exact.exact(pure), categories)),
        "approximate": (m.ApproximateDP(pure, delta), *exact.response_masses(exact.exact(pure), 2, exact.exact(delta))),
        "discrete laplace": (m.DiscreteLaplace(scale, gap), *exact.discrete_laplace_masses(exact.exact(scale), gap)),
        "table": (m.FromTables(*rows), one, other),
    }


def _mixed(p: list[Any], q: list[Any], rate: float, relation: str) -> tuple[list[Any], list[Any]]:
    share = exact.exact(rate)
    mix = [share * (a if relation == "remove" else b) + (1 - share) * (b if relation == "remove" else a)
           for a, b in zip(p, q, strict=True)]  # fmt: skip
    return (mix, q) if relation == "remove" else (p, mix)


def _power(p: list[Any], q: list[Any], runs: int) -> tuple[list[Any], list[Any]]:
    """Masses of every multiset of outcomes with a finite loss, and of an infinite one."""
    both = [(a, b) for a, b in zip(p, q, strict=True) if a and b]
    lost = mp.fsum(a for a, b in zip(p, q, strict=True) if a and not b)
    found: tuple[list[Any], list[Any]] = ([], [])
    for chosen in itertools.combinations_with_replacement(range(len(both)), runs):
        counts = [chosen.count(i) for i in range(len(both))]
        ways = mpf(math.factorial(runs) // math.prod(map(math.factorial, counts)))
        for masses, side in zip(found, (0, 1), strict=True):
            masses.append(ways * mp.fprod(pair[side] ** count for pair, count in zip(both, counts, strict=True)))
    return [*found[0], 1 - (1 - lost) ** runs], [*found[1], mpf(0)]


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def _program(question: str, mechanism: Any, goal: Any, steps: int, relation: str) -> Any:
    with jaxacct.without_callbacks():
        return getattr(jaxacct, question)(mechanism, goal, steps=steps, relation=relation)


def _asked(way: str, question: str, case: exact.Case, goal: np.ndarray, steps: int) -> Any:
    if way == "program":
        with jax.enable_x64(True):
            numbers = jax.tree.map(lambda x: np.asarray(x, np.float64), case.mechanism)
            return jax.tree.map(np.asarray, _program(question, numbers, goal, steps, case.relation))
    return getattr(jaxacct, question)(case.mechanism, goal, steps=steps, relation=case.relation)


def disagreements(name: str, case: exact.Case, steps: int, epsilons: np.ndarray, way: str) -> tuple[int, list[str]]:
    """How many queries, and what is wrong."""
    curve, wrong = case.law.curve, []
    truths = [curve(mpf(x)) for x in epsilons]
    found = _asked(way, "delta", case, epsilons, steps)
    least = _SUMS if steps > 1 or isinstance(case.mechanism, m.RandomAllocation) else mpf(0)
    for epsilon, lower, truth, upper in zip(epsilons, found.lower, truths, found.upper, strict=True):
        room = truth * _DIGITS + least
        if not mpf(float(lower)) - room <= truth <= mpf(float(upper)) + room:
            wrong.append(f"delta({float(epsilon)!r}) of {name} is {mp.nstr(truth, 20)}, not in [{lower}, {upper}]")
    goals = np.array(sorted({float(t) for t in truths if 1e-250 < t < 1 - 1e-6}))
    goals = goals[:: max(1, goals.size // 6)]
    if goals.size:
        found = _asked(way, "epsilon", case, goals, steps)
        for goal, lower, upper in zip(goals, *map(np.asarray, found), strict=True):
            more, less = mpf(float(goal)) * (1 + mpf(10) ** -35), mpf(float(goal)) * (1 - mpf(10) ** -35)
            above = upper == np.inf or curve(mpf(float(upper))) <= more
            below = lower == 0 or curve(mpf(min(float(lower), 1e6))) >= less
            if not (above and below):
                wrong.append(f"epsilon({float(goal)!r}) of {name} is not in [{float(lower)!r}, {float(upper)!r}]")
    return epsilons.size + goals.size, [f"{text}: {case}, {case.relation}" for text in wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--way", choices=("plain", "program"), default="plain")
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--kinds", choices=("single", "composed", "both"), default="both")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # bounds may be wide next to an atom
    asked = wrong = 0
    kinds = {"single": [single_runs], "composed": [composed_runs], "both": [single_runs, composed_runs]}[given.kinds]
    for setting in range(given.first, given.first + given.settings):
        for query in itertools.chain.from_iterable(kind(setting) for kind in kinds):
            if given.only in query[0]:
                number, found = disagreements(*query, given.way)
                asked, wrong = asked + number, wrong + len(found)
                for line in found:
                    print(f"setting {setting}: {line}", flush=True)
        print(f"{setting + 1 - given.first} settings, {asked} queries, {wrong} disagreements", flush=True)


if __name__ == "__main__":
    main()
