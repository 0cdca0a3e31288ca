"""Small mistakes planted in a module, one at a time: how many do its tests notice?

    python bench/mutation.py jaxacct/filters/gdp.py --tests tests/filters/test_gdp.py --log mutants.jsonl
    python bench/mutation.py --log mutants.jsonl --report bench/results/mutation.json

A mutant is one changed operator, comparison, constant, condition or direction of rounding; docstrings, messages and
annotations are left alone. Each runs in a process of its own, forked with JAX imported, in which the module's text is
the mutant's; the tests stop at the first failure, and one that hangs counts as noticed. The log has a line a mutant and
goes on where it ends; ``--sample`` takes some at random. Survivors are listed with their line: each is a test that is
missing, or a change that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import collections
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

# Children that are forked from here need not import these again; no computation has run.
import hypothesis  # noqa: F401
import jax  # noqa: F401
import mpmath  # noqa: F401
import pytest
import scipy.stats  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[1]
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "floor": "ceil", "ceil": "floor"}


def swapped(node: ast.AST) -> list[tuple[str, object]]:
    """The changes of one node, each as (what, how to make it)."""
    found: list[tuple[str, object]] = []
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in OPERATORS:
        other = OPERATORS[type(node.op)]
        found.append((f"{type(node.op).__name__} -> {other.__name__}", lambda n: setattr(n, "op", other())))
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        other = OPERATORS[type(node.ops[0])]
        found.append((f"{type(node.ops[0]).__name__} -> {other.__name__}", lambda n: n.ops.__setitem__(0, other())))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        found.append((f"{type(node.op).__name__} dropped", "operand"))
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        found.append((f"{node.value} -> {not node.value}", lambda n: setattr(n, "value", not n.value)))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        found.append(
            (
                f"{node.value} -> {node.value + max(1, abs(node.value))}",
                lambda n: setattr(n, "value", n.value + max(1, abs(n.value))),
            )
        )
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        found.append((f"{node.attr} -> {NAMES[node.attr]}", lambda n: setattr(n, "attr", NAMES[n.attr])))
    if isinstance(node, ast.If | ast.IfExp):
        found.append(("condition negated", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))))
    return found


def walked(node: ast.AST):
    """All nodes of code, in order; none of annotations, messages of exceptions, ``__all__``."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "exc"):
            continue
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Import | ast.ImportFrom):
                yield node, name, child
                yield from walked(child)


def mutants(source: str) -> list[tuple[int, str]]:
    """(line, what) of every mutant of a module."""
    return [(child.lineno, what) for _, _, child in walked(ast.parse(source)) for what, _ in swapped(child)]


def mutated(source: str, number: int) -> str:
    """The module with mutant ``number``."""
    tree = ast.parse(source)
    count = 0
    for parent, name, child in list(walked(tree)):
        for _, change in swapped(child):
            if count == number:
                if callable(change):
                    change(child)
                else:
                    operand = child.operand  # pyright: ignore[reportAttributeAccessIssue]
                    held = getattr(parent, name)
                    if isinstance(held, list):
                        held[held.index(child)] = operand
                    else:
                        setattr(parent, name, operand)
                return ast.unparse(ast.fix_missing_locations(tree))
            count += 1
    raise IndexError(number)


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
    quick = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow"]
    quick += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis was imported before the fork
    return int(pytest.main([*where, *quick, *(str(ROOT / test) for test in tests)]))


def noticed(module: str, source: str, tests: list[str], seconds: float) -> str:
    """How the tests took it: "passed", "failed" or "hung"."""
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.chdir(folder)
                with open(os.devnull, "w") as nothing:
                    os.dup2(nothing.fileno(), 1)
                    os.dup2(nothing.fileno(), 2)
                code = _tested(module, source, tests)
            finally:
                os._exit(code)
        end = time.monotonic() + seconds
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "hung"
            time.sleep(0.05)


def reported(log: pathlib.Path) -> dict:
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    table: dict = collections.defaultdict(lambda: {"mutants": 0, "survived": 0})
    for row in rows:
        table[row["module"]]["mutants"] += 1
        table[row["module"]]["survived"] += row["result"] == "passed"
    survivors = [row for row in rows if row["result"] == "passed"]
    return {"modules": dict(table), "survivors": survivors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?")
    parser.add_argument("--tests", nargs="+", default=[])
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.module:
        source = (ROOT / given.module).read_text()
        every = mutants(source)
        chosen = list(range(len(every)))
        if given.sample:
            chosen = sorted(random.Random(given.seed).sample(chosen, min(given.sample, len(chosen))))
        done = set()
        if given.log.exists():
            rows = [json.loads(line) for line in given.log.read_text().splitlines()]
            done = {row["number"] for row in rows if row["module"] == given.module}
        start = time.perf_counter()
        if noticed(given.module, source, given.tests, 3600.0) != "passed":
            parser.error("the tests fail without any mutant")
        limit = 60.0 + 5 * (time.perf_counter() - start)
        for number in chosen:
            if number in done:
                continue
            line, what = every[number]
            result = noticed(given.module, mutated(source, number), given.tests, limit)
            row = {"module": given.module, "number": number, "line": line, "what": what, "result": result}
            with open(given.log, "a") as log:
                log.write(json.dumps(row) + "\n")
            print(row, flush=True)
    if given.report:
        found = reported(given.log)
        given.report.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found["modules"], indent=1))


if __name__ == "__main__":
    main()
