"""The first answer to every question, and the warm ones: ours and dp_accounting's, each in a fresh process, in turn.

    pip install -e '.[bench]' && python bench/first_answer.py               # writes bench/results/first_answer.json
    python bench/first_answer.py --only 'table/*' 'filter/gdp*' --rounds 1  # some questions only
    python bench/first_answer.py --list

`first_questions.py` and `first_families.py` hold the questions. The table of results has what was asked of each number
beside what was measured; a number that misses is bold.

- answer: seconds of the first answer, after the import of the names that it uses. Nothing is compiled or kept before.
- whole: seconds of that whole process, interpreter and import included; medians of `--rounds` processes of each side.
- warm: median seconds of later answers, ours and the peer's in turn in one process; "times peer" is their ratio.
- width: the most that the upper bound is above the lower, relative, at deltas of 1e-5, 1e-9 and 1e-12.
- compiling: seconds to trace, lower and compile a program; `compiling, all cores` in the file adds up what every core
  was busy with; lines: of its StableHLO; over eager: a call of the compiled program against the same batch without one;
  away: the most that its upper bounds are from the eager ones, relative.
- GiB: the peak memory of the first answer's process.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import first_families
import first_questions
from first_questions import AT_LEAST, Question
from machine import about

HERE = pathlib.Path(__file__).resolve().parent
QUESTIONS = first_questions.QUESTIONS | first_families.QUESTIONS
MEASURES = {  # how each number is shown
    "answer": "{:.2f} s",
    "whole over peer": "{:.2f} x the peer's process",
    "warm": "{:.4f} s warm",
    "times peer": "{:.1f} x the peer",
    "first times peer": "{:.1f} x the peer at first",
    "width": "width {:.0e}",
    "compiling": "{:.1f} s compiling",
    "lines": "{:.0f} lines",
    "over eager": "{:.2f} x eager",
    "away": "{:.0e} away",
}


def process(question: Question, sides: list[str], runs: int, options: argparse.Namespace) -> dict[str, Any]:
    """What a fresh process says that it took; ``whole``, seconds of all of it; ``failed``, if it did not answer."""
    asked = question._asdict() | {"sides": sides, "runs": runs, "seconds": options.seconds}
    kept_out = ("JAX_COMPILATION_CACHE_DIR", "JAXACCT_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        environment = {key: value for key, value in os.environ.items() if key not in kept_out}
        command = [sys.executable, str(HERE / "first_child.py"), json.dumps(asked)]
        before = time.perf_counter()
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                cwd=HERE.parent,
                env=environment | {"XDG_CACHE_HOME": folder},
                timeout=options.timeout,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"no answer within {options.timeout:g} s"}
        whole = time.perf_counter() - before
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"failed": next((text for text in reversed(lines) if "Error" in text), lines[-1])[-300:]}
    return json.loads(done.stdout.splitlines()[-1]) | {"whole": whole}


def measured(question: Question, options: argparse.Namespace) -> dict[str, Any]:
    """First answers of both sides in turn, then warm ones, and the numbers that come of them."""
    sides = ["ours", "peer"] if question.peer else ["ours"]
    firsts: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    failed: dict[str, str] = {}
    for _ in range(options.rounds):
        for side in sides:
            if side not in failed:
                found = process(question, [side], 0, options)
                if "failed" in found:
                    failed[side] = found["failed"]
                else:
                    firsts[side].append(found[side] | {"whole": found["whole"], "gib": found["gib"]})
    row: dict[str, Any] = {"asked": {side: getattr(question, side) for side in sides}, "first": {}}
    for side, found in firsts.items():
        if side not in failed:
            middle = {key: statistics.median(one[key] for one in found) for key in ("import", "answer", "whole", "gib")}
            row["first"][side] = found[-1] | middle
    able = [side for side in sides if side not in failed]
    if "ours" in able:
        row["warm"] = process(question, able, options.runs, options)
        if "failed" in row["warm"]:
            failed["warm"] = row["warm"]["failed"]
    row["numbers"] = numbers(row["first"], row.get("warm", {}), question.scale)
    return row | ({"failed": failed} if failed else {})


def numbers(first: dict[str, Any], warm: dict[str, Any], scale: float) -> dict[str, float]:
    """The numbers that a question may ask for."""
    ours, peer = first.get("ours"), first.get("peer")
    found: dict[str, float] = {}
    if ours:
        found |= {"answer": ours["answer"], "whole": ours["whole"], "gib": ours["gib"], "import": ours["import"]}
        if stages := ours.get("stages"):
            found["compiling"] = sum(stages[key] for key in ("trace", "lower", "compile"))
            found["compiling, all cores"] = stages["cpu"]
            found["lines"] = stages["lines"]
    if ours and peer:
        found["peer's whole"] = peer["whole"]
        found["whole over peer"] = ours["whole"] / peer["whole"]
        found["first times peer"] = scale * peer["answer"] / ours["answer"]
    ours, peer, eager = (warm.get(side, {}) for side in ("ours", "peer", "eager"))
    if "warm" in ours:
        found["warm"] = ours["warm"]
        found |= {"times peer": scale * peer["warm"] / ours["warm"]} if "warm" in peer else {}
        found |= {"over eager": ours["warm"] / eager["warm"], "away": eager["away"]} if "warm" in eager else {}
    widths = [part["width"] for part in (ours, ours.get("widths", {})) if "width" in part]
    return found | ({"width": max(widths)} if widths else {})


def reached(name: str, value: float, limit: float) -> bool:
    return value >= limit if name in AT_LEAST else value <= limit


def line(name: str, row: dict[str, Any], before: dict[str, Any] | None) -> str:
    """A row of the Markdown table."""
    limits = QUESTIONS[name].limits
    asked = ", ".join(("at least " if k in AT_LEAST else "") + MEASURES[k].format(v) for k, v in limits.items())

    def shown(key: str, numbers: dict[str, float | None]) -> str:
        if key not in numbers:
            return "**none**"
        value = math.inf if (given := numbers[key]) is None else given
        text = MEASURES[key].format(value)
        return text if reached(key, value, limits[key]) else f"**{text}**"

    def cell(key: str, form: str) -> str:
        value = row["numbers"].get(key)
        return form.format(value) if value is not None else ""

    was = ", ".join(shown(key, before["numbers"]) for key in limits).replace("**", "") if before else ""
    now = ", ".join(shown(key, row["numbers"]) for key in limits)
    rest = [cell("whole", "{:.2f}"), cell("peer's whole", "{:.2f}"), cell("warm", "{:.4f}"), cell("gib", "{:.2f}")]
    return f"| {' | '.join([name, asked, was, now, *rest])} |"


HEAD = "| question | asked | before | measured | whole, s | peer's whole, s | warm, s | GiB |\n|" + "---|" * 8


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How many questions got all that was asked, and the geometric means over the peer where it has the mechanism."""
    good = 0
    for name, row in rows.items():
        found = {key: math.inf if value is None else value for key, value in row["numbers"].items()}
        limits = QUESTIONS[name].limits
        good += all(key in found and reached(key, found[key], limit) for key, limit in limits.items())
    alike = [row["numbers"] for name, row in rows.items() if not name.startswith("jobs/")]
    shared = {key: [row[key] for row in alike if row.get(key)] for key in ("times peer", "whole over peer")}
    means = {f"{key}, geometric mean": math.exp(statistics.fmean(map(math.log, v))) for key, v in shared.items() if v}
    if shared["times peer"]:
        means["times peer, least"] = min(shared["times peer"])
    slowest = max((row["numbers"].get("answer", 0.0) for row in rows.values()), default=0.0)
    failed = [name for name, row in rows.items() if "failed" in row]
    return {"questions": len(rows), "all that was asked": good, "slowest answer": slowest, "failed": failed} | means


def finite(value: Any) -> Any:
    """``value`` with None for what JSON has no number for: the width of a bound whose lower end is 0."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of questions or patterns like 'table/*'")
    parser.add_argument("--quick", action="store_true", help="a few questions only")
    parser.add_argument("--list", action="store_true", help="print the questions and stop")
    parser.add_argument("--key", default="now", help="where in the file the results go; others stay (now, before)")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes of each side")
    parser.add_argument("--runs", type=int, default=15, help="warm answers, at most")
    parser.add_argument("--seconds", type=float, default=5.0, help="after which no more warm answers are asked")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that a process may take")
    parser.add_argument("--output", default=str(HERE / "results" / "first_answer.json"), help="empty for none")
    options = parser.parse_args()
    names = [
        name
        for name, question in QUESTIONS.items()
        if (question.quick or not options.quick)
        and (not options.only or any(fnmatch.fnmatchcase(name, pattern) for pattern in options.only))
    ]
    if options.list:
        print("\n".join(f"{name}: {QUESTIONS[name].ours}" for name in names))
        return
    if not names:
        parser.error(f"--only must name questions that there are, got {options.only}")
    file = pathlib.Path(options.output) if options.output else None
    kept = json.loads(file.read_text()) if file is not None and file.exists() else {}
    before = kept.get("before", {}).get("questions", {}) if options.key != "before" else {}
    report = kept.setdefault(options.key, {"questions": {}})
    report["machine"] = about("jaxacct", "dp_accounting")
    print(report["machine"])
    print(HEAD, flush=True)
    rows = report["questions"]
    for name in names:
        rows[name] = finite(measured(QUESTIONS[name], options) | {"load": round(os.getloadavg()[0], 1)})
        print(line(name, rows[name], before.get(name)), flush=True)
        for side, why in rows[name].get("failed", {}).items():
            print(f"{name}, {side}: {why}", file=sys.stderr, flush=True)
        report["questions"] = {name: rows[name] for name in QUESTIONS if name in rows}
        report["summary"] = summary(report["questions"])
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(kept, indent=1, allow_nan=False) + "\n")
    print(json.dumps(report["summary"], indent=1))


if __name__ == "__main__":
    main()
