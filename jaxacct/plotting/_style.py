"""Axes, colours and line styles that every picture shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import Fields

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito 2008, the yellow left out: it is too light for a line on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES = ("-", (0, (6, 2)), (0, (2, 1.2)), (0, (6, 2, 1.5, 2)))
_MARK = "jaxacct"


def axes_for(ax: Axes | None) -> Axes:
    """``ax``, or new axes on a figure of their own."""
    try:
        from matplotlib import axes, pyplot
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'jaxacct[plot]'") from None
    if ax is None:
        return pyplot.subplots(figsize=(6.0, 4.0), layout="constrained")[1]
    if not isinstance(ax, axes.Axes):
        raise ValueError(f"ax must be matplotlib axes or None, got {type(ax).__name__}")
    return ax


def next_style(ax: Axes, line: Fields) -> Fields:
    """The next colour and dashes of these axes, under what the caller asked for."""
    drawn = sum(artist.get_gid() == _MARK for artist in ax.lines)
    color, dashes = PALETTE[drawn % len(PALETTE)], _DASHES[drawn % len(_DASHES)]
    return {"color": color, "linestyle": dashes, "linewidth": 1.8, "gid": _MARK} | line


def increasing(least: int, **named: ArrayLike) -> np.ndarray:
    """The one value that is given, at least so many increasing numbers, as an array."""
    _validate.finite(**named)
    ((name, value),) = named.items()
    array = np.asarray(value, np.float64)
    if array.ndim != 1 or array.size < least or np.any(np.diff(array) <= 0):
        raise ValueError(f"{name} must be {least} or more increasing numbers, got an array of shape {array.shape}")
    return array


def band(ax: Axes, x: np.ndarray, guarantee: np.ndarray, other: np.ndarray | None, style: Fields) -> None:
    """The guarantee as a line, and a band of its colour to the other bound where there is one."""
    (line,) = ax.plot(x, guarantee, **style)
    if other is not None:
        ax.fill_between(x, other, guarantee, color=line.get_color(), alpha=0.25, linewidth=0)


def finish(ax: Axes, **labels: str) -> Axes:
    """Grid, spines, labels where the axes have none yet, and a legend where something is named."""
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    for name, text in labels.items():
        if not getattr(ax, f"get_{name}")():
            getattr(ax, f"set_{name}")(text)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(fontsize="small")
    return ax
