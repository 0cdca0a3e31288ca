"""Plots of epsilon over the noise for several ways to draw batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.accounting.queries import epsilon
from jaxacct.mechanisms import (
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    Shuffled,
    TruncatedPoisson,
)
from jaxacct.plotting._style import axes_for, band, finish, next_style

__all__ = ["sampler_costs", "samplers"]

NAMES = ("poisson", "truncated", "fixed size", "random allocation", "shuffled", "everyone knows")


def sampler_costs(
    sigma: ArrayLike, *, batches: int, records: int, epochs: int = 1, delta: float = 1e-6, names: Any = NAMES
) -> dict[str, Any]:
    """Bounds on the epsilon of ``epochs`` epochs of DP-SGD, by how batches are drawn, for ``add_or_remove``.

    Args:
        sigma: noise multipliers, in clip norms, shape ``(n,)``.
        batches: of an epoch; batches hold ``records / batches`` records on average, rounded up.
        records: in the data set.
        epochs: number of epochs.
        delta: in (0, 1).
        names: which of ``"poisson"``, ``"truncated"`` (at six standard deviations above the mean), ``"fixed size"``
            (without replacement), ``"random allocation"``, ``"shuffled"`` and ``"everyone knows"`` (nothing is hidden).

    Returns:
        A dictionary from names to ``Bounds`` of shape ``(n,)``.

    Raises:
        ValueError: a bad number, or another name.
    """
    _validate.positive(sigma=sigma)
    _validate.whole(batches=batches, records=records, epochs=epochs)
    _validate.probability(delta=delta)
    sigma = np.atleast_1d(np.asarray(sigma, np.float64))
    size = -(-records // batches)
    largest = min(records, int(np.ceil(size + 6.0 * size**0.5)))
    made = {
        "poisson": (PoissonSampled(Gaussian(sigma), 1.0 / batches), batches),
        "truncated": (TruncatedPoisson(Gaussian(sigma), 1.0 / batches, largest, records), batches),
        # A record takes the place of another one: twice the clip norm.
        "fixed size": (SampledWithoutReplacement(Gaussian(sigma / 2.0), size, records), batches),
        "random allocation": (RandomAllocation(Gaussian(sigma), batches), 1),
        "shuffled": (Shuffled(Gaussian(sigma), batches), 1),
        "everyone knows": (Gaussian(sigma), 1),
    }
    for name in names:
        _validate.one_of(tuple(made), names=name)
    return {name: epsilon(made[name][0], delta, steps=made[name][1] * epochs) for name in names}


def samplers(
    sigma: ArrayLike,
    *,
    batches: int,
    records: int,
    epochs: int = 1,
    delta: float = 1e-6,
    names: Any = NAMES[:-1],
    ax: Any = None,
) -> Any:
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
    for name, bounds in found.items():
        upper = np.where(np.isfinite(bounds.upper), bounds.upper, np.nan)
        lower = np.minimum(bounds.lower, upper)
        band(ax, np.asarray(sigma), upper, lower, next_style(ax, {"label": name}))
    ax.set_xscale("log")
    ax.set_yscale("log")
    each = "one epoch" if epochs == 1 else f"{epochs} epochs"
    ax.set_title(f"{each} of {batches} batches, {records} records, delta {delta:g}")
    finish(ax, xlabel="noise multiplier", ylabel="epsilon")
    return ax
