"""Finds what would have fitted in place of a query that was refused: more noise, or fewer runs of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxacct._numerics.roots import last
from jaxacct._printing import rounded_down, rounded_up

# The parameters that set the privacy of mechanisms, and whether more is more private. (A direction that is wrong finds
# nothing: what is proposed has been asked.)
_KNOBS = {"sigma": True, "scale": True, "rho": False, "mu": False, "epsilon": False}
_DOUBLINGS = 40
_HALVINGS = 12  # of a factor of 2: to 0.02 %
_DIGITS = 4


def nearest(query: object, fits: Callable[[object], bool]) -> list[object]:
    """Queries like ``query`` that ``fits`` said yes to: one with more noise, one with fewer runs; what there is."""
    return [found for found in (_quieter(query, fits), _fewer(query, fits)) if found is not None]


def _quieter(query: object, fits: Callable[[object], bool]) -> object:
    """The query with all its noise scaled up by the least factor that fits, to 0.02 % and four digits."""
    if _scaled(query, 2.0) is None:
        return None
    high = next((2.0**k for k in range(1, _DOUBLINGS + 1) if fits(_scaled(query, 2.0**k))), None)
    if high is None:
        return None
    low = 0.5 * high
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(_scaled(query, middle)) else (middle, high)
    return _scaled(query, high)


def _scaled(query: Any, factor: float) -> object:
    """``query`` with ``factor`` times the noise, or a ``factor``-th of the loss; None if there is no such thing."""
    if isinstance(query, int | float | np.number):
        return _rounded(float(query) / factor, up=False)
    if type(query).__name__ == "Composed":
        parts = [_scaled(part, factor) for part in query.mechanisms]
        return None if None in parts else type(query)(parts, [steps for _, steps in query.parts()])
    held = getattr(query, "__dataclass_fields__", {})
    if "mechanism" in held:
        inner = _scaled(query.mechanism, factor)
        return None if inner is None else dataclasses.replace(query, mechanism=inner)
    name = next((name for name in _KNOBS if name in held), None)
    if name is None or np.ndim(getattr(query, name)):
        return None
    up = _KNOBS[name]
    value = float(np.asarray(getattr(query, name))) * (factor if up else 1 / factor)
    return dataclasses.replace(query, **{name: _rounded(value, up)})


def _rounded(value: float, up: bool) -> float:
    return float(rounded_up(value, _DIGITS) if up else rounded_down(value, _DIGITS))


def _fewer(query: Any, fits: Callable[[object], bool]) -> object:
    """The most runs that fit of a query that is one mechanism several times."""
    if type(query).__name__ != "Composed" or len(query.mechanisms) != 1:
        return None
    ((part, steps),) = query.parts()
    if np.ndim(steps) or not int(steps) > 1 or not fits(part):
        return None
    most = last(lambda runs: fits(type(query)([part], [runs])), 1, int(steps))
    return part if most == 1 else type(query)([part], [most])
