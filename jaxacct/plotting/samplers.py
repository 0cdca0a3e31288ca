"""Plots of epsilon over the noise for several ways to draw batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.accounting.queries import Bounds, epsilon
from jaxacct.mechanisms import Gaussian
from jaxacct.plotting._style import axes_for, band, finish, next_style
from jaxacct.training.samplings import SAMPLINGS, steps_of_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["NAMES", "sampler_costs", "samplers"]

KNOWN = "everyone knows"
NAMES = (*(name for name in SAMPLINGS if name != "replacement"), KNOWN)


def sampler_costs(
    sigma: ArrayLike, *, batches: int, records: int, epochs: int = 1, delta: float = 1e-6, names: Sequence[str] = NAMES
) -> dict[str, Bounds]:
    """Bounds on the epsilon of ``epochs`` epochs of DP-SGD, by how batches are drawn, for ``add_or_remove``.

    Args:
        sigma: noise multipliers, in clip norms, shape ``(n,)``.
        batches: of an epoch; batches hold ``records / batches`` records on average.
        records: in the data set.
        epochs: number of epochs.
        delta: in (0, 1).
        names: which samplings of :func:`jaxacct.training.plan_budget`, and ``"everyone knows"`` (nothing is
            hidden). "replacement" takes the longest and has to be asked for.

    Returns:
        A dictionary from names to ``Bounds`` of shape ``(n,)``.

    Raises:
        ValueError: a bad number, or another name.
    """
    _validate.positive(sigma=sigma)
    _validate.whole(batches=batches, records=records, epochs=epochs)
    _validate.probability(delta=delta)
    sigma = np.atleast_1d(np.asarray(sigma, np.float64))
    for name in names:
        _validate.one_of((*SAMPLINGS, KNOWN), names=name)

    def cost(name: str) -> Bounds:
        if name == KNOWN:
            return epsilon(Gaussian(sigma), delta, steps=epochs)
        run = SAMPLINGS[name].make(sigma, 1.0 / batches, records, None)
        return epsilon(run, delta, steps=batches // steps_of_run(run) * epochs)

    return {name: cost(name) for name in names}


def samplers(
    sigma: ArrayLike,
    *,
    batches: int,
    records: int,
    epochs: int = 1,
    delta: float = 1e-6,
    names: Sequence[str] = NAMES[:-1],
    ax: Axes | None = None,
) -> Axes:
    """Draws epsilon over the noise multiplier for each way to draw batches: a line, and a band to the lower bound.

    Args:
        sigma, batches, records, epochs, delta, names: see `sampler_costs`.
        ax: axes to draw on; None makes a figure.

    Returns:
        The axes.

    Raises:
        ValueError: see `sampler_costs`.
        ImportError: matplotlib is not installed.
    """
    found = sampler_costs(sigma, batches=batches, records=records, epochs=epochs, delta=delta, names=names)
    ax = axes_for(ax)
    from matplotlib.ticker import LogLocator

    for name, bounds in found.items():
        upper = np.where(np.isfinite(bounds.upper), bounds.upper, np.nan)
        lower = np.minimum(bounds.lower, upper)
        band(ax, np.asarray(sigma), upper, lower, next_style(ax, {"label": name}))
    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("{x:g}")
    ax.xaxis.set_minor_locator(LogLocator(subs=(2, 4, 6)))
    each = "one epoch" if epochs == 1 else f"{epochs} epochs"
    ax.set_title(f"{each} of {batches} batches, {records} records, delta {delta:g}")
    return finish(ax, xlabel="noise multiplier", ylabel="epsilon")
