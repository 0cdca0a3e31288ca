"""Small mistakes planted in the library, one at a time: how many do the tests notice?

    pytest --cov=jaxacct --cov-context=test --junitxml=times.xml      # which tests run which line, and for how long
    python -m verification.mutation jaxacct/losses --sample 400 --log LOG --coverage COV --times times.xml
    python -m verification.mutation --log LOG --again --seconds 300 --coverage COV --times times.xml
    python -m verification.mutation --log LOG --mutants jaxacct/filters/additive/gdp.py:7 --tests tests/filters
    python -m verification.mutation --log LOG --report verification/results/mutation.json

A mutant (`mutants.py`) runs in a process of its own, forked with JAX imported, in which the module's text is the
mutant's. It is asked the tests that run its line, nearest and quickest first, then others of its module, as many as
took ``--seconds`` in the run that measured coverage; they stop at the first failure, and a process that hangs counts as
noticed. The log has a line a mutant and goes on where it ends; ``--again`` asks those that survived once more, after
tests were added or with more time, ``--mutants`` asks some (by number; the log has it), ``--tests`` names tests in
place of the nearest. Survivors are listed: each is a test that is missing or a change that changes nothing that is
promised. `excused.json` names the latter, each with its reason (``nth``: only that one of several that look
alike); the report counts them apart. What the source no longer holds is in no report.
"""

from __future__ import annotations

import argparse
import collections
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

# Children that are forked from here need not import these again; no computation has run.
import hypothesis  # noqa: F401
import jax  # noqa: F401
import mpmath  # noqa: F401
import pytest
import scipy.stats  # noqa: F401

from bench.machine import about
from verification.mutation.mutants import mutants, mutated

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXCUSED = pathlib.Path(__file__).with_name("excused.json")


class _Mutant(importlib.machinery.SourceFileLoader):
    """Loads a module from another text than its file's."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str):
        return compile(self.source, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, source: str) -> None:
        self.name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.loader = _Mutant(self.name, str(ROOT / module), source)

    def find_spec(self, fullname: str, path, target=None):
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.loader.path, loader=self.loader)


def _tested(module: str, source: str, tests: list[str]) -> int:
    """The tests' exit code, in a process that has imported what they need but for the package itself."""
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, _Finder(module, source))
    sys.path.insert(0, str(ROOT))
    where = ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-o", "addopts="]
    quick = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:randomly"]
    quick += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis was imported before the fork
    return int(pytest.main([*where, *quick, *(f"{ROOT}/{test}" for test in tests)]))


class Child:
    """The tests of one mutant, in a process group of their own."""

    def __init__(self, row: dict, source: str, tests: list[str], seconds: float) -> None:
        self.row, self.end = row, time.monotonic() + seconds
        self.folder = tempfile.TemporaryDirectory()
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            os.setsid()
            os.chdir(self.folder.name)
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 1)
                os.dup2(nothing.fileno(), 2)
            code = _tested(row["module"], source, tests)
        finally:
            os._exit(code)

    def result(self) -> str | None:
        """How the tests took it: "passed", "failed" or "hung"; None while they run."""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if not done and time.monotonic() < self.end:
            return None
        if not done:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.folder.cleanup()
        if not done:
            return "hung"
        return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"


class Nearest:
    """Which tests to ask: those that ran the line, of the nearest files first, then those that ran the module."""

    def __init__(self, coverage_file: pathlib.Path, times: pathlib.Path, newer: list[str]) -> None:
        from coverage import CoverageData

        self.newer = {name: (ROOT / name).read_text() for name in newer}
        self.data = CoverageData(str(coverage_file))
        self.data.read()
        self.files = {}
        for path in self.data.measured_files():
            self.files[path[path.rindex("jaxacct/") :]] = path  # the run may have been in another checkout
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", "-o", "addopts="]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        self.there = set(listed.splitlines())  # a test that is no more would be an error, and an error a failure
        self.seconds, self.failed = {}, set()
        for case in ElementTree.parse(times).iter("testcase"):
            name = case.get("classname", "").replace(".", "/") + ".py::" + case.get("name", "")
            self.seconds[name] = float(case.get("time", "0"))
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.add(name)  # without a mutant, too

    def lines(self, module: str) -> dict[int, set[str]]:
        contexts = self.data.contexts_by_lineno(self.files[module]) if module in self.files else {}
        return {line: {one.rsplit("|", 1)[0] for one in ran if one} for line, ran in contexts.items()}

    def tests(self, module: str, line: int, seconds: float) -> list[str]:
        lines = self.lines(module)
        # A line inside a statement is the statement's.
        line = max((n for n in lines if n <= line and lines[n]), default=line)
        stem, room = pathlib.Path(module).stem.strip("_"), pathlib.Path(module).parent.name

        def far(test: str) -> tuple:
            path = pathlib.Path(test.split("::")[0])
            return (test not in lines.get(line, ()), stem not in path.stem, path.parent.name != room)

        every = set().union(*lines.values()) & self.there - self.failed
        chosen, left = [], seconds
        for test in sorted(every, key=lambda test: (far(test), self.seconds.get(test, 1.0), test)):
            if self.seconds.get(test, 1.0) <= left:
                chosen.append(test)
                left -= self.seconds.get(test, 1.0)
        # One file after another, so that what a file shares is made once.
        first = {test.split("::")[0]: n for n, test in reversed(list(enumerate(chosen)))}
        newer = [name for name, text in self.newer.items() if pathlib.Path(module).stem in text]
        return newer + sorted(chosen, key=lambda test: first[test.split("::")[0]])


def read(log: pathlib.Path) -> dict[tuple[str, int], dict]:
    """The last word on every mutant of a log."""
    rows = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
    return {(row["module"], row["number"]): row for row in rows}


def present(rows: list[dict]) -> list[dict]:
    """Rows whose mutant still exists, with the number and line that it has now."""
    found, modules = [], {}
    for row in rows:
        if row["module"] not in modules:
            modules[row["module"]] = sampled([row["module"]], None, 0) if (ROOT / row["module"]).exists() else []
        alike = [one for one in modules[row["module"]] if all(one[key] == row[key] for key in ("text", "what"))]
        if len(alike) == row["alike"]:
            found.append({**row, **alike[row["nth"]]})
    return found


def sampled(folders: list[str], count: int | None, seed: int) -> list[dict]:
    """Mutants of all modules of some folders (or of some files), a uniform sample of them.

    ``nth`` of ``alike`` says which it is where a line has several that look alike.
    """
    rows = []
    for folder in folders:
        here = ROOT / folder
        for path in [here] if here.suffix else sorted(here.glob("**/*.py")):
            source = path.read_text()
            module, texts = str(path.relative_to(ROOT)), source.splitlines()
            made = [(line, texts[line - 1].strip(), what) for line, what in mutants(source)]
            seen: collections.Counter = collections.Counter()
            total = collections.Counter((text, what) for _, text, what in made)
            for number, (line, text, what) in enumerate(made):
                row = {"module": module, "number": number, "line": line, "text": text, "what": what}
                rows.append(row | {"nth": seen[text, what], "alike": total[text, what]})
                seen[text, what] += 1
    return random.Random(seed).sample(rows, min(count, len(rows))) if count else rows


def run(rows: list[dict], chosen, seconds: float, jobs: int, log: pathlib.Path) -> None:
    waiting, running = list(reversed(rows)), []
    while waiting or running:
        if waiting and len(running) < jobs:
            row = waiting.pop()
            tests = chosen(row["module"], row["line"], seconds)
            row = {**row, "tests": len(tests), "seconds": seconds}
            if tests:
                source = mutated((ROOT / row["module"]).read_text(), row["number"])
                running.append(Child(row, source, tests, 60.0 + 5 * seconds))
                continue
            finished = [(row, "passed")]
        else:
            finished = [(child.row, found) for child in running if (found := child.result())]
            running = [child for child in running if child.row not in [row for row, _ in finished]]
        for row, found in finished:
            with open(log, "a") as out:
                out.write(json.dumps({**row, "result": found}) + "\n")
            print(found, row["module"], row["line"], row["what"], "|", row["text"], flush=True)
        time.sleep(0.05)


def reported(rows: list[dict]) -> dict:
    """Counts by room and module; a share's uncertainty is one standard deviation of the sample's."""
    excuses = json.loads(EXCUSED.read_text())
    reasons = {(e["module"], e["text"], e["what"], e.get("nth")): e["why"] for e in excuses}
    table: dict = collections.defaultdict(collections.Counter)
    survivors, excused = [], []
    for row in rows:
        key = (row["module"], row["text"], row["what"])
        why = reasons.get((*key, row["nth"]), reasons.get((*key, None)))
        for name in ("all", str(pathlib.PurePath(row["module"]).parent), row["module"]):
            table[name]["mutants"] += 1
            table[name]["survived"] += row["result"] == "passed"
            table[name]["hung"] += row["result"] == "hung"
            table[name]["excused"] += bool(row["result"] == "passed" and why)
        if row["result"] == "passed":
            one = {key: row[key] for key in ("module", "line", "text", "what")}
            (excused if why else survivors).append(one | ({"why": why} if why else {}))
    found = {}
    for name, counts in sorted(table.items()):
        share = (counts["survived"] - counts["excused"]) / counts["mutants"]
        found[name] = dict(counts) | {"share": share, "uncertain": math.sqrt(share * (1 - share) / counts["mutants"])}
    return {"modules": found, "survivors": survivors, "excused": excused, "machine": about("coverage")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="folders or files of the package")
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.add_argument("--coverage", type=pathlib.Path)
    parser.add_argument("--times", type=pathlib.Path, help="JUnit XML of the run that measured coverage")
    parser.add_argument("--seconds", type=float, default=60.0, help="how much of the tests' time a mutant is given")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="ask the survivors of the log once more")
    parser.add_argument("--mutants", nargs="+", default=[], help="module:number")
    parser.add_argument("--tests", nargs="+")
    parser.add_argument(
        "--newer", nargs="+", default=[], help="test files that were not there when coverage was measured"
    )
    parser.add_argument("--report", type=pathlib.Path)
    given = parser.parse_args()
    known = {(row["module"], row["number"]): row for row in present(list(read(given.log).values()))}
    rows = []
    if given.again:
        rows = [row for row in known.values() if row["result"] == "passed"]
    elif given.folders:
        rows = [r for r in sampled(given.folders, given.sample, given.seed) if (r["module"], r["number"]) not in known]
    for one in given.mutants:
        module, _, number = one.rpartition(":")
        rows.append(sampled([module], None, 0)[int(number)])
    if rows:
        if given.tests:
            chosen = lambda *_: given.tests  # noqa: E731
        elif given.coverage and given.times:
            chosen = Nearest(given.coverage, given.times, given.newer).tests
        else:
            parser.error("--coverage and --times say which tests to ask, or --tests does")
        run(rows, chosen, given.seconds, given.jobs, given.log)
    if given.report:
        found = reported(present(list(read(given.log).values())))
        given.report.write_text(json.dumps(found, indent=1) + "\n")
        for name, counts in found["modules"].items():
            print(f"{name}: {counts}")


if __name__ == "__main__":
    main()
