"""Lists and ranges of numbers on the command line."""

from __future__ import annotations

import click
import numpy as np

_MOST = 1_000_000


class _Values(click.ParamType):
    """``1,2,4``, ``0.5:4:8`` (8 numbers from 0.5 to 4), ``1e-3:1:20:log`` (the same ratio from each to the next)."""

    def __init__(self, name: str, whole: bool = False):
        self.name, self.whole = name, whole

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> np.ndarray | int:
        """All the numbers, in the order given, float64; of the type "whole", the one number."""
        if isinstance(value, np.ndarray):
            return value
        try:
            items: list[np.ndarray] = []
            room = _MOST
            for item in str(value).split(",", _MOST):
                items.append(_range(item))
                room -= items[-1].size
                if room < 0:
                    raise ValueError(f"a list has at most {_MOST} numbers")
            found = np.concatenate(items)
        except (ValueError, OverflowError) as problem:
            self.fail(f"{value!r}: {problem}", param, ctx)
        if self.whole:
            found = np.rint(found) if ":" in str(value) else found
            if not np.all((found == np.floor(found)) & (np.abs(found) <= 2.0**53)):
                self.fail(f"{value!r} is not a whole number of at most 2**53, or several.", param, ctx)
        if self.name == "whole":
            if found.size != 1:
                self.fail(f"{value!r} is not one number.", param, ctx)
            return int(found[0])
        return found


def _range(text: str) -> np.ndarray:
    """The numbers of one item of a list."""
    parts = text.strip().split(":")
    if len(parts) == 1:
        return np.array([float(parts[0])])
    log = len(parts) == 4 and parts[3] == "log"
    if len(parts) != 3 and not log:
        raise ValueError(f"a range is LOW:HIGH:COUNT or LOW:HIGH:COUNT:log, got {text!r}")
    low, high, count = float(parts[0]), float(parts[1]), float(parts[2])
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(f"a range has finite ends, got {text!r}")
    if not 2 <= count <= _MOST or count != int(count):
        raise ValueError(f"a range has 2 to {_MOST} numbers, got {parts[2]}")
    if log and not (low > 0 and high > 0):
        raise ValueError(f"a logarithmic range has ends above 0, got {text!r}")
    return (np.geomspace if log else np.linspace)(low, high, int(count))


VALUES = _Values("list")
WHOLE_VALUES = _Values("list", whole=True)
WHOLE = _Values("whole", whole=True)
"""One whole number, also written as 1e6."""
