"""The epsilon of a sweep over two parameters, as a heat map with contour lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.accounting.batch import Bounds
from jaxacct.plotting._style import axes_for, increasing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sweep(
    values: Bounds | ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    *,
    xlabel: str = "",
    ylabel: str = "",
    label: str = "epsilon",
    ax: Axes | None = None,
) -> Axes:
    """Draws a table of epsilons (or deltas) as colours on a logarithmic scale.

    Labelled contour lines stand at 1, 2 and 5 times powers of 10.

    Args:
        values: shape ``(y, x)``, as broadcasting ``x`` along the last axis gives it; of `Bounds` the guarantee
            (``upper``) is drawn, and the title says how far apart the bounds are at most. Entries that are not finite
            or not above 0 stay grey: nothing is certified there.
        x: increasing numbers, shape ``(x,)``, for example ``sigma``.
        y: increasing numbers, shape ``(y,)``, for example ``steps``.
        xlabel: what x is.
        ylabel: what y is.
        label: of the colour bar.
        ax: axes to draw on; None makes a figure.

    Returns:
        The axes; the colour bar is on the same figure.

    Raises:
        ValueError: a bad value, or shapes that do not fit (named).
        ImportError: matplotlib is not installed.
    """
    across, up = increasing(1, x=x), increasing(1, y=y)
    drawn = values.upper if isinstance(values, Bounds) else values
    _validate.numbers(values=drawn)
    table = np.asarray(drawn, np.float64)
    if table.shape != (up.size, across.size):
        raise ValueError(f"values must have shape {(up.size, across.size)}, that of y and x, got {table.shape}")
    good = np.isfinite(table) & (table > 0)
    if not good.any():
        raise ValueError("values must hold a finite number above 0, got none")
    ax = axes_for(ax)
    from matplotlib.colors import LogNorm  # after axes_for, which says what is missing
    from matplotlib.ticker import LogLocator

    shown = np.ma.masked_where(~good, table)
    low, high = float(shown.min()), float(shown.max())
    norm = LogNorm(low, high if high > low else low * 1.01)
    ax.set_facecolor("0.8")
    image = ax.pcolormesh(across, up, shown, norm=norm, cmap="cividis", shading="nearest", rasterized=True)
    at = np.asarray(LogLocator(subs=(1, 2, 5)).tick_values(low, high))
    at = at[(at > low) & (at < high)]
    if at.size and min(table.shape) > 1:
        lines = ax.contour(across, up, shown, levels=at, colors="white", linewidths=1.0)
        ax.clabel(lines, fmt="%g", fontsize="small")
    bar = ax.figure.colorbar(image, ax=ax, label=label, ticks=at if at.size > 1 else None, format="%g")
    bar.minorticks_off()
    if isinstance(values, Bounds):
        lower = np.asarray(values.lower, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.max(np.where(good, 1.0 - lower / table, 0.0))
        ax.set_title(f"upper bounds; the lower ones are at most {100.0 * apart:.2g} % below", fontsize="small")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    return ax
