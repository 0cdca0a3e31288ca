"""The one spelling of filters' names: that of the functions that make them."""

from __future__ import annotations

from typing import Any


def canonical(name: object) -> Any:
    """``name`` with underscores for hyphens, as `for_target`, the shell and ``plan_budget`` accept either."""
    return name.replace("-", "_") if isinstance(name, str) else name


def name_of(filter: object) -> str:
    """The name of the function that makes filters like ``filter``; of any other, the name of its class."""
    return getattr(filter, "_name", type(filter).__name__)
