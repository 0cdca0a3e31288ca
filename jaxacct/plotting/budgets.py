"""Plots of how a budget is spent, step by step, by one filter or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct.plotting._style import axes_for, finish, next_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from jaxacct.filters import Filter
    from jaxacct.mechanisms.base import Mechanism


def budget(
    fraction: ArrayLike,
    *,
    steps: ArrayLike | None = None,
    admitted: ArrayLike | None = None,
    label: str | None = None,
    ax: Axes | None = None,
    **line: object,
) -> Axes:
    """Draws the budget that is left, in per cent, against the step; a cross where the filter first refused.

    Args:
        fraction: spent after each step, as a filter's ``fraction`` says it: in [0, 1], shape ``(n,)``.
        steps: the steps' numbers, increasing, shape ``(n,)``; by default 1 to n. The line starts at 100 % at 0.
        admitted: whether each step was admitted, shape ``(n,)``.
        label: for the legend.
        ax: axes to draw on; None makes a figure.
        **line: for matplotlib's ``step``.

    Returns:
        The axes.

    Raises:
        ValueError: a bad value, or shapes that do not fit (named).
        ImportError: matplotlib is not installed.
    """
    _validate.finite(fraction=fraction)
    spent = np.asarray(fraction, np.float64)
    # Filters round the fraction up, by 2^-40 at most, and then to the caller's float type.
    if spent.ndim != 1 or np.any((spent < 0) | (spent > 1 + 1e-5)):
        raise ValueError(f"fraction must be numbers in [0, 1] of shape (n,), got {np.array2string(spent, threshold=5)}")
    steps = np.arange(1.0, spent.size + 1) if steps is None else steps
    admitted = np.ones(spent.shape) if admitted is None else admitted
    _validate.numbers(steps=steps, admitted=admitted)
    at, granted = np.asarray(steps, np.float64), np.asarray(admitted, bool)
    if at.shape != spent.shape or np.any(np.diff(at) <= 0) or not np.all(at > 0):
        raise ValueError(f"steps must be increasing numbers above 0 of shape {spent.shape}, got shape {at.shape}")
    if granted.shape != spent.shape:
        raise ValueError(f"admitted must have shape {spent.shape}, got {granted.shape}")
    ax = axes_for(ax)
    style = next_style(ax, line)
    left = 100.0 * np.maximum(1.0 - spent, 0.0)
    (drawn,) = ax.step(np.r_[0.0, at], np.r_[100.0, left], where="post", label=label, **style)
    if not granted.all():
        first = int(np.argmin(granted))
        ax.plot(at[first], left[first], marker="X", markersize=8, color=drawn.get_color(), linestyle="none")
    ax.set_ylim(-3.0, 103.0)
    return finish(ax, xlabel="step", ylabel="budget left (%)")


def filter_comparison(filters: Mapping[str, Filter], schedule: Mechanism, *, ax: Axes | None = None) -> Axes:
    """Asks every filter the same queries, one after another, and draws how their budgets are spent.

    The legend says how many of the queries each filter admits, and which guarantees are asymptotic.

    Args:
        filters: label and filter, in the order of the legend; filters whose ``update`` runs inside ``jax.lax.scan``.
        schedule: a mechanism with parameters of shape ``(n,)``, query after query.
        ax: axes to draw on; None makes a figure.

    Returns:
        The axes.

    Raises:
        ValueError: no filters, or a schedule whose leaves do not share one shape ``(n,)``; what a filter raises
            about queries that it does not take.
        ImportError: matplotlib is not installed.
    """
    _validate.instance(Mapping, filters=filters)
    for filter in filters.values():
        _validate.methods("init", "update", "fraction", filters=filter)
    _validate.real_arrays(schedule=schedule)
    if not filters:
        raise ValueError("filters must hold at least one filter, got none")
    shapes = {np.shape(leaf) for leaf in jax.tree.leaves(schedule)}
    shape = max(shapes, key=len, default=())
    if len(shape) != 1 or not shape[0] or not shapes <= {shape, ()}:
        raise ValueError(f"schedule must have parameters of one shape (n,), got {sorted(shapes)}")
    schedule = jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(leaf), shape), schedule)
    ax = axes_for(ax)
    for label, filter in filters.items():
        admitted, fraction = (np.asarray(x) for x in _asked(filter, schedule))
        note = "" if filter.guarantee.is_bound else ", asymptotic"
        budget(fraction, admitted=admitted, label=f"{label}: {admitted.sum()} of {shape[0]}{note}", ax=ax)
    return ax


@jax.jit
def _asked(filter: Filter, schedule: Mechanism) -> tuple[Array, Array]:
    def ask(state: object, query: Mechanism) -> tuple[object, tuple[Array, Array]]:
        admitted, state = filter.update(query, state)
        return state, (admitted, filter.fraction(state))

    return jax.lax.scan(ask, filter.init(), schedule)[1]
