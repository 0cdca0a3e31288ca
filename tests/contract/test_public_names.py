"""Tests hold on to public names; those that need private ones are under tests/internals, and forbid no refactoring."""

import ast
import importlib
import inspect
import pathlib

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
FILES = sorted(file for file in TESTS.rglob("*.py") if "internals" not in file.parts)
OTHERS = {"_asdict", "_exit", "_fields", "_kernel_spec", "_replace"}  # of `os`, of Jupyter, of named tuples


def imported(tree):
    """(module, name) of everything of jaxacct that is imported; no name for the module itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jaxacct":
            yield from ((node.module, name.name) for name in node.names)
        elif isinstance(node, ast.Import):
            yield from ((name.name, None) for name in node.names if name.name.split(".")[0] == "jaxacct")


def is_public(module, name):
    """Whether it is a room, or stands in the ``__all__`` of where it is from, or is what a room has for tests."""
    home = importlib.import_module(module)
    if name is None or name in getattr(home, "__all__", ()):
        return hasattr(home, "__all__")
    value = getattr(home, name, None)
    if value is None or inspect.ismodule(value):
        return hasattr(value or importlib.import_module(f"{module}.{name}"), "__all__")
    return module.count(".") == 1 and not name.startswith("_")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TESTS)))
def test_only_public_names_are_used(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    private = [f"{module}.{name}" for module, name in imported(tree) if not is_public(module, name)]
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} - OTHERS
    assert not private + [name for name in used if name.startswith("_") and not name.startswith("__")]


def test_the_faces_stay_small_enough_to_be_known():
    faces = ("", ".filters", ".training", ".expost", ".adversary", ".plotting", ".ledger", ".interop", ".audit")
    assert sum(len(importlib.import_module(f"jaxacct{face}").__all__) for face in faces) <= 170
