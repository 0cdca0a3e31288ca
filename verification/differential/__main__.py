"""Random queries against an independent evaluation: closed forms, exact sums, contour integrals, dp_accounting.

    python -m verification.differential --log differential.jsonl                   # goes on where the log ends
    python -m verification.differential --log differential.jsonl --report verification/results/differential.json

A batch asks one question (delta or epsilon, under one relation) about many random settings of one kind in one call, and
is a function of the kind's name and its number alone. Some kinds are asked again, with draws of their own, inside a
float64 and a float32 program. The log has a line a batch, appended when it is known, with a digest of the package's
code; ``--anew`` asks again what other code answered, and the last line of a batch counts. The report counts queries by
kind and lists every disagreement. The truths are in ``truths.py`` and ``truths_composed.py``, one for each setting.

A query for delta agrees if lower <= truth <= upper; one for epsilon if the true curve is at least delta at ``lower``
and at most delta at ``upper``; within what the truth is known to (``tolerance`` of a kind, relative). A class of which
only a curve is known (zCDP, Rényi DP) has bounds around its worst case: there lower must not exceed the Gaussian member
of the class, and upper not fall below it, nor (one run, unsampled) exceed the conversion that the documentation names.
"""

from __future__ import annotations

import argparse
import collections
import functools
import hashlib
import json
import math
import pathlib
import time
import warnings
import zlib

import jax
import numpy as np
from mpmath import mpf

import jaxacct
from bench.machine import about
from verification.differential.compositions import COMPOSED
from verification.differential.samples import SAMPLES
from verification.differential.selections import SELECTIONS
from verification.differential.single_runs import ONCE, Kind

_TINY = 1e-300  # subnormal deltas are where floats, and not bounds, end
_WIDE = 1.1  # upper over lower of what the library warns about


def kinds() -> dict[str, tuple[Kind, str]]:
    """Every kind and the way it is asked in, by name: one run first, what compiles for long last."""
    plain = ONCE | SAMPLES | SELECTIONS | COMPOSED
    found = {name: (kind, "") for name, kind in plain.items()}
    for way in ("jit", "float32 program"):
        for name, kind in plain.items():
            if way in kind.ways:
                some = kind._replace(size=min(kind.size // 4, 64), batches=2)
                found[f"{name} [{way}]"] = (some, way)
    return found


KINDS = kinds()


@functools.lru_cache(1)
def code() -> str:
    """Digest of the package's source."""
    root = pathlib.Path(jaxacct.__file__).parent
    rooms = ("_numerics", "accounting", "losses", "mechanisms", "selection", "summaries")
    files = sorted(file for room in rooms for file in (root / room).rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def asked(way: str, question: str, kind: Kind, given: dict, goal, relation: str, mapped: bool):
    """Bounds of a batch; inside a program everything is traced, the number of steps too."""
    ask = getattr(jaxacct, question)

    def program(given, goal):
        steps = {"steps": given["steps"]} if "steps" in given else {}
        made = kind.made(**{key: value for key, value in given.items() if key != "steps"})
        return ask(made, goal, **steps, relation=relation)

    if not way:
        return program(given, goal)
    with jax.enable_x64(way == "jit"):
        return jax.jit(jax.vmap(program) if mapped else program)(given, goal)


def single(value):
    """The nearest float32; a whole number that int32 holds, since a program without 64 bits would be handed others."""
    return min(value, 2**31 - 1) if isinstance(value, int) else np.asarray(value, np.float32).astype(float)[()]


def goals(rng, question: str, kind: Kind, name: str, spread: np.ndarray) -> np.ndarray:
    size = spread.shape[0]
    if question == "epsilon":
        return np.exp(rng.uniform(math.log(1e-100 if kind.far else 1e-12), math.log(0.9 if kind.far else 0.2), size))
    if kind.far:
        return spread * np.exp(rng.uniform(math.log(1e-6), math.log(30), size))
    goal = spread * rng.uniform(0, 6, size) + spread**2 / 2 * rng.uniform(0, 1.2, size)
    goal = np.clip(goal, 1e-6, 300.0)
    return np.where(rng.random(size) < 0.05, -goal, goal) if "once" in name else goal


def batch(name: str, number: int) -> dict:
    """All queries of one batch: counts, disagreements, widths."""
    kind, way = KINDS[name]
    rng = np.random.default_rng([zlib.crc32(name.encode()), number])
    turn = number + (zlib.crc32(name.encode()) if way else 0)
    question = kind.questions[turn % len(kind.questions)]
    relation = kind.relations[(turn // len(kind.questions)) % len(kind.relations)]
    drawn, spread = zip(*(kind.draw(rng) for _ in range(kind.size)), strict=True)
    goal = goals(rng, question, kind, name, np.array(spread))
    if kind.edge:
        goal = np.clip(
            np.array([kind.edge(**one) for one in drawn]) * np.exp(rng.uniform(-12, 6, kind.size)), 1e-280, 0.5
        )
    if way == "float32 program":
        drawn = [{key: single(value) for key, value in one.items()} for one in drawn]
        goal = single(goal)
    given = {key: np.array([one[key] for one in drawn]) for key in drawn[0]}
    start = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = asked(way, question, kind, given, goal, relation, mapped=number % 2 == 1)
    ours = time.process_time() - start
    lower, upper = np.asarray(found.lower, float), np.asarray(found.upper, float)
    row = {"kind": name, "batch": number, "question": question, "relation": relation, "queries": 0, "no_truth": 0}
    row |= {"code": code(), "warned": any("wide" in str(one.message) for one in said)}
    wrong, widths = [], []
    rounding = float(np.finfo(np.float32).eps) if way == "float32 program" else 1e-9
    start = time.process_time()
    for i, one in enumerate(drawn):
        try:
            verdict, truth = judged(question, kind, one, relation, float(goal[i]), lower[i], upper[i], rounding)
        except ArithmeticError as problem:
            row["no_truth"] += 1
            row.setdefault("why", str(problem))
            continue
        row["queries"] += 1
        if not verdict:
            setting = {key: np.asarray(value).tolist() for key, value in one.items()}
            wrong.append(setting | {"goal": goal[i], "lower": lower[i], "upper": upper[i], "truth": truth})
        if math.isfinite(upper[i]) and upper[i] > 1e-14:
            widths.append(1 - lower[i] / upper[i])
    row |= {"vacuous": int(np.isinf(upper).sum()) if question == "epsilon" else int((upper >= 1).sum())}
    row |= {"wide": int((np.array(widths) > 1 - 1 / _WIDE).sum())}
    row |= {"widths": np.quantile(widths or [0.0], [0.5, 0.99, 1.0]).tolist(), "disagreements": wrong}
    return row | {"ours_seconds": round(ours, 3), "truth_seconds": round(time.process_time() - start, 3)}


def judged(question, kind: Kind, given: dict, relation: str, goal: float, lower: float, upper: float, rounding: float):
    """(whether one query agrees, the truth or the true curve at both answers).

    A limit is documented up to ``rounding``.
    """
    curve, slack = kind.truth(**given), kind.tolerance
    if question == "delta":
        low, high = evaluated(curve, relation, goal)
        good = 0 <= lower <= upper <= 1 and lower <= high * (1 + slack) + _TINY and low * (1 - slack) <= upper
        if kind.limit and goal >= 0:
            most = evaluated(kind.limit(**given), relation, goal)[0] * (1 + rounding)
            good = good and upper <= most + _TINY
        return bool(good), [low, high]
    # A lower end of inf says that a likelier loss than delta is infinite.
    at_lower = evaluated(curve, relation, min(lower, 700.0))[1] if lower > 0 else 1.0
    at_upper = evaluated(curve, relation, upper)[0] if math.isfinite(upper) else 0.0
    good = 0 <= lower <= upper and at_lower >= goal * (1 - slack) and at_upper <= goal * (1 + slack)
    return bool(good), [at_lower, at_upper]


def evaluated(curve, relation: str, x: float) -> tuple[float, float]:
    """(low, high) of the truth at x, the worse of both directions."""
    if isinstance(curve, dict):
        ways = ("remove", "add") if relation in ("add_or_remove", "replace") else (relation,)
        return tuple(max(ends) for ends in zip(*(evaluated(curve[way], way, x) for way in ways), strict=True))
    found = curve(mpf(float(x)))
    return tuple(map(float, found)) if isinstance(found, tuple) else (float(found), float(found))


def reported(rows: dict) -> dict:
    counts: dict = collections.defaultdict(collections.Counter)
    widths: dict = collections.defaultdict(list)
    wrong = []
    for (name, _), row in rows.items():
        kind = counts[name]
        for key in ("queries", "no_truth", "vacuous", "ours_seconds", "truth_seconds"):
            kind[key] += row[key]
        kind["wide"] += row.get("wide", 0)
        kind["disagree"] += len(row["disagreements"])
        widths[name].append(row["widths"])
        wrong += [{"kind": name, "question": row["question"], "relation": row["relation"]} | one
                  for one in row["disagreements"]]  # fmt: skip
    table = {}
    for name, kind in counts.items():
        middle, most, widest = np.array(widths[name]).T
        table[name] = {k: round(v, 2) for k, v in kind.items()} | {"tolerance": KINDS[name][0].tolerance}
        table[name] |= {"median_width": np.median(middle), "p99_width": most.max(), "widest": widest.max()}
    total = {key: sum(kind[key] for kind in counts.values()) for key in ("queries", "no_truth", "disagree")}
    ways, codes = collections.Counter(), collections.Counter()
    for (name, _), row in rows.items():
        ways[KINDS[name][1] or "plain"] += row["queries"]
        codes[row.get("code", "not noted")] += row["queries"]
    return total | {
        "asked": dict(ways),
        "code": code(),
        "answered_by": dict(codes),
        "kinds": table,
        "disagreements": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--kinds", nargs="+", help="only these")
    parser.add_argument("--way", help="only queries asked in this way: plain, jit or 'float32 program'")
    parser.add_argument("--first", action="store_true", help="only the first batch of every kind")
    parser.add_argument("--anew", action="store_true", help="ask again what other code than the present answered")
    given = parser.parse_args()
    rows = {}
    if given.log.exists():
        whole = given.log.read_text().rpartition("\n")[0]  # a line that a crash cut short is asked again
        given.log.write_text(whole + "\n" if whole else "")
        rows = {(row["kind"], row["batch"]): row for row in map(json.loads, whole.splitlines())}
    if not given.report:
        done = {key for key, row in rows.items() if not given.anew or row.get("code") == code()}
        with open(given.log, "a", buffering=1) as log:
            for name in given.kinds or KINDS:
                kind, way = KINDS[name]
                for number in range(1 if given.first else kind.batches):
                    if (name, number) not in done and given.way in (None, way or "plain"):
                        log.write(json.dumps(batch(name, number)) + "\n")
        return
    found = {**reported({key: row for key, row in rows.items() if key[0] in KINDS}), "machine": about("mpmath")}
    given.report.write_text(json.dumps(found, indent=1) + "\n")
    for name, kind in found["kinds"].items():
        print(f"{name}: {kind['queries']} queries, {kind['disagree']} disagree, widths to {kind['p99_width']:.1e}")
    print({key: found[key] for key in ("queries", "no_truth", "disagree", "asked")})


if __name__ == "__main__":
    main()
