"""Random queries, half of them next to an edge, answered by the engine and in ball arithmetic.

    python -m verification.certificates --seconds 600 --seed 1 --log FILE
    python -m verification.certificates --log FILE ... --report verification/results/certificates.json

Needs the extra ``certify``. Every disagreement is shown with the query in full and is a bug in one of both. The log has
one line for each query; ``--report`` counts logs by kind instead of asking. Where a certificate is that of a dominating
pair (`Certificate.certified`), the engine's lower bound is one of an attack, and is checked to lie below.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import math
import signal
import statistics
import time
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import jaxacct
from jaxacct.certificates.limits import NoCertificateError
from jaxacct.certificates.written import written_mechanism
from verification.certificates.queries import Query, draw

_FARTHEST = 5e3  # epsilons beyond are not certified
_LONG = 0.05  # processor seconds of a certificate after which a mechanism is asked no more


class _Late(Exception):
    """A certificate took too long."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Any:
    def stop(*_: Any) -> None:
        raise _Late

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)  # again, as an exception in a callback is not seen
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _certified(query: Query, epsilon: float, digits: float) -> tuple[Fraction, Fraction, float]:
    """Ends of delta, and to how many digits they agree."""
    found = jaxacct.certify(query.mechanism, epsilon=epsilon, steps=query.steps, relation=query.relation, digits=digits)
    return Fraction(found.lower), Fraction(found.upper), found.digits


def bounds_of(query: Query) -> list[tuple[float, float]]:
    """What the engine answers: at ``at`` by itself, at all of ``more`` in one call."""
    ask = jaxacct.delta if query.given == "epsilon" else jaxacct.epsilon
    found: list[tuple[float, float]] = []
    for at in (query.at, np.array(query.more)):
        if np.size(at):
            bounds = ask(query.mechanism, at, steps=query.steps, relation=query.relation)
            found += list(zip(np.ravel(bounds.lower).tolist(), np.ravel(bounds.upper).tolist(), strict=True))
    return found


def disagreement(query: Query, bounds: tuple[float, float], digits: float) -> tuple[str | None, float]:
    """What is wrong, in words, None where nothing is; and the digits that the certificates have."""
    lower, upper = bounds
    if query.given == "epsilon":
        low, high, known = _certified(query, query.at, digits)
        if not upper >= low:
            return f"delta's upper {upper!r} is below {float(low)!r}", known
        if not lower <= high:
            return f"delta's lower {lower!r} is above {float(high)!r}", known
        return None, known
    known = math.inf
    if math.isnan(lower) or math.isnan(upper):
        return f"epsilon is [{lower!r}, {upper!r}]", known
    if upper < _FARTHEST:
        low, _, known = _certified(query, upper, digits)
        if low > Fraction(query.at):
            return f"delta is {float(low)!r} at epsilon's upper {upper!r}", known
    if 0 < lower < _FARTHEST:
        _, high, more = _certified(query, lower, digits)
        known = min(known, more)
        if high < Fraction(query.at):
            return f"delta is {float(high)!r} at epsilon's lower {lower!r}", known
    return None, known


def _asked(query: Query, digits: float, seconds: float) -> Iterator[dict[str, Any]]:
    """A line for each value; no more of a mechanism after one whose certificate takes long or does not exist."""
    try:
        bounds = bounds_of(query)
    except Exception as problem:
        verdict = "refused" if isinstance(problem, ValueError) and "has no analysis" in str(problem) else "error"
        yield _line(query, verdict, None, 0.0, f"{type(problem).__name__}: {problem}")
        return
    for at, answer in zip((query.at, *query.more), bounds, strict=True):
        one, start, known, wrong = query._replace(at=at), time.process_time(), None, None
        try:
            with _at_most(seconds):
                wrong, known = disagreement(one, answer, digits)
            verdict = "wrong" if wrong else "agrees"
        except _Late:
            verdict = "no certificate in time"
        except NoCertificateError as problem:
            verdict, wrong = "no certificate", str(problem)
        except Exception as problem:  # a crash is found as well
            verdict, wrong = "error", f"{type(problem).__name__}: {problem}"
        spent = time.process_time() - start
        yield _line(one, verdict, known, spent, wrong)
        if spent > _LONG:
            return


def _line(query: Query, verdict: str, known: float | None, seconds: float, said: str | None) -> dict[str, Any]:
    return {
        "family": query.family,
        "edge": query.edge,
        "given": query.given,
        "at": query.at,
        "relation": query.relation,
        "one_run": query.steps == 1,
        "verdict": verdict,
        "digits": None if known is None else min(round(known, 1), 99.0),
        "seconds": round(seconds, 3),
        **({"said": said} if said else {}),
    }


def _report(logs: list[Path]) -> dict[str, Any]:
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    kinds: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for line in lines:
        kinds[line["family"]].append(line)
    rows = []
    for family, asked in sorted(kinds.items()):
        known = [min(one["digits"], 15.0) for one in asked if one["digits"] is not None]
        rows.append(
            {
                "family": family,
                "queries": len(asked),
                "next to an edge": sum(one["edge"] for one in asked),
                "of one run": sum(one["one_run"] for one in asked),
                "replaced records": sum(one["relation"] in ("replace", "replace_special", "zero_out", "fill_in")
                                        for one in asked),
                "agree": sum(one["verdict"] == "agrees" for one in asked),
                "wrong": sum(one["verdict"] in ("wrong", "error") for one in asked),
                "no certificate": sum(one["verdict"].startswith("no certificate") for one in asked),
                "refused by the engine": sum(one["verdict"] == "refused" for one in asked),
                "median digits": round(statistics.median(known), 1) if known else None,
                "fewer than 3 digits": sum(one < 3.0 for one in known),
            }
        )  # fmt: skip
    total = {
        key: sum(row[key] for row in rows) for key in rows[0] if key not in ("family", "median digits")
    } if rows else {}  # fmt: skip
    return {"version": jaxacct.__version__, "all": total, "families": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--queries", type=int, default=10**9, help="mechanisms at most")
    parser.add_argument("--more", type=int, default=9, help="further epsilons or deltas of each mechanism")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--digits", type=float, default=8.0)
    parser.add_argument("--most", type=float, default=3.0, help="processor seconds for one certificate")
    parser.add_argument("--only", default="", help="part of a family's name")
    parser.add_argument("--log", type=Path, nargs="*", default=[])
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    if given.report:
        given.report.write_text(json.dumps(_report(given.log), indent=1) + "\n")
        return
    warnings.simplefilter("ignore")  # bounds may be wide next to an atom
    counts: collections.Counter[str] = collections.Counter()
    start, number = time.monotonic(), 0
    with open(given.log[0], "a", encoding="utf-8") if given.log else contextlib.nullcontext() as log:
        while time.monotonic() - start < given.seconds and number < given.queries:
            query = draw(np.random.default_rng([given.seed, number]), given.only, given.more)
            for found in _asked(query, given.digits, given.most):
                counts[found["verdict"]] += 1
                if found["verdict"] in ("wrong", "error"):
                    asked = f"{query.given} {found['at']!r} {query.relation} steps={query.steps}"
                    print(f"[{given.seed}, {number}] {found['said']} | {asked} {written_mechanism(query.mechanism)}",
                          flush=True)  # fmt: skip
                if log is not None:
                    log.write(json.dumps({"seed": given.seed, "number": number, **found}) + "\n")
                    log.flush()
            number += 1
    print(counts.total(), "queries:", ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
