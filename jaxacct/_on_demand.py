"""Names of a package that load on first use: those that it imports under ``if TYPE_CHECKING``."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def on_demand(
    package: str, needs: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``, whose own source says for type checkers what is where.

    Called at the end of the package's ``__init__``: ``__getattr__, __dir__ = on_demand(__name__)``.

    ``needs`` says of modules that an extra installs what to do where one is missing. A name that needs it is then a
    function that raises ImportError with that advice when it is called, so that star imports never fail.
    """
    module: Any = sys.modules[package]
    found: dict[str, tuple[str, str]] = {}
    for part in ast.parse(module.__spec__.loader.get_source(package)).body:
        if isinstance(part, ast.If) and isinstance(part.test, ast.Name) and part.test.id == "TYPE_CHECKING":
            for line in part.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    found |= {one.asname or one.name: (line.module, one.name) for one in line.names}

    def load(name: str) -> object:
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, inner = found[name]
        try:
            if home == package:
                value = importlib.import_module(f"{package}.{inner}")
            else:
                value = getattr(importlib.import_module(home), inner)
        except (ImportError, AttributeError) as missing:
            # A module that is gone, a name that one no longer has, or an attribute of one that is.
            gone = getattr(getattr(missing, "obj", None), "__name__", missing.name)
            advice = next((text for at, text in (needs or {}).items() if f"{gone}.".startswith(f"{at}.")), None)
            if advice is None:
                raise

            def absent(*_: object, **__: object) -> None:
                raise ImportError(f"{package}.{name} {advice}")

            return absent
        setattr(module, name, value)
        return value

    return load, lambda: sorted({*module.__all__, *found})
