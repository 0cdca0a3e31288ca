"""Draws privacy loss distributions as histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxacct import _validate
from jaxacct.losses.curves.pld import PLD
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.composed import Composed
from jaxacct.plotting._style import axes_for, finish, next_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_BINS = 200  # at most


def pld(
    law: PLD | Mechanism,
    *,
    steps: int = 1,
    relation: str = "remove",
    log: bool = False,
    label: str | None = None,
    ax: Axes | None = None,
    **line: object,
) -> Axes:
    """Draws where the privacy loss log dP/dQ has its mass under P.

    Args:
        law: a `PLD`, or a mechanism with scalar parameters, whose upper `PLD` is drawn.
        steps: how often a mechanism runs; a `PLD` holds some thousand runs at most.
        relation: ``"remove"``, ``"add"`` or ``"replace"``, for a mechanism.
        log: a logarithmic mass axis, for tails: all but 1e-12 of the mass on either side is drawn, and not 1e-6.
        label: for the legend; the mass of an infinite loss stands behind it where it is above 1e-12.
        ax: axes to draw on; None makes a figure.
        **line: for matplotlib's ``stairs``.

    Returns:
        The axes.

    Raises:
        ValueError: a bad value (named), or a batch of laws.
        ImportError: matplotlib is not installed.
    """
    _validate.whole(steps=steps)
    _validate.truth(log=log)
    if not isinstance(law, PLD):
        law = PLD.from_mechanism(law if steps == 1 else Composed([law], [steps]), relation=relation)
    masses = np.asarray(law.masses, np.float64)
    if masses.ndim != 1:
        raise ValueError(f"law must be one PLD, not a batch, got masses of shape {masses.shape}")
    h, losses = law.grid.spacing, law.grid.losses
    # By the tails of the sums, which do not see a far point that holds only rounding.
    tail = 1e-12 if log else 1e-6
    inside = (np.cumsum(masses) > tail) & (np.cumsum(masses[::-1])[::-1] > tail)
    first, last = np.flatnonzero(inside if inside.any() else np.ones_like(inside))[[0, -1]]
    # Whole lattice points a bin, or counts would beat against the lattice.
    width = max(1, -(-(last - first + 1) // _BINS))
    number = -(-(last - first + 1) // width)
    sums = np.add.reduceat(masses[: first + number * width], first + width * np.arange(number))
    edges = losses[first] + h * (width * np.arange(number + 1) - 0.5)
    infinite = float(law.infinity_mass)
    if infinite > 1e-12:
        label = f"{label or 'loss'}, infinite with probability {infinite:.2g}"
    ax = axes_for(ax)
    style = next_style(ax, line)
    gid, style["alpha"], style["linewidth"] = style.pop("gid"), line.get("alpha", 0.35), 0.0
    style.pop("linestyle")
    ax.stairs(sums, edges, fill=True, label=label, **style)
    ax.plot([], [], color=style["color"], gid=gid)  # counts as one drawn, so that the next law has another colour
    ax.stairs(sums, edges, color=style["color"], linewidth=1.2)
    if log:
        ax.set_yscale("log")
    return finish(ax, xlabel="privacy loss", ylabel="probability per bin")
