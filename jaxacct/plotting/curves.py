"""Privacy profiles delta(epsilon) and trade-off curves f(alpha), each as a guarantee with a band to the other bound."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate, accounting, attacks
from jaxacct.accounting.batch import Bounds
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import RELATIONS
from jaxacct.plotting._style import axes_for, band, finish, increasing, next_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from jaxacct.filters.base import Guarantee

_LEAST = 1e-10
_POINTS = 160


def privacy_profile(
    curve: Mechanism | Guarantee | PrivacyProfile | PLD | Bounds,
    epsilons: ArrayLike | None = None,
    *,
    steps: int = 1,
    relation: str = "add_or_remove",
    label: str | None = None,
    ax: Axes | None = None,
    **line: object,
) -> Axes:
    """Draws delta against epsilon, delta on a logarithmic scale.

    Args:
        curve: a mechanism (both bounds of :func:`jaxacct.delta`); the guarantee of a filter (dotted, and called
            asymptotic, where it is no bound); a `PrivacyProfile` or `PLD`, which bound from one side; or
            `Bounds` of delta at ``epsilons``.
        epsilons: increasing numbers >= 0, shape ``(n,)``; by default up to where delta is below 1e-10 or falls
            no more.
        steps: how often a mechanism runs, fixed in advance.
        relation: for a mechanism, see :func:`jaxacct.delta`.
        label: for the legend.
        ax: axes to draw on; None makes a figure.
        **line: for matplotlib's ``plot``, for example ``color``.

    Returns:
        The axes.

    Raises:
        ValueError: a bad value (named), or a batch of curves: draw one after another on the same axes.
        ImportError: matplotlib is not installed.
    """
    _validate.whole(steps=steps)
    _validate.one_of(RELATIONS, relation=relation)
    if epsilons is None:
        if isinstance(curve, Bounds):
            raise ValueError("epsilons must be given with Bounds, got None")
        at = np.linspace(0.0, _reach(lambda at: _deltas(curve, at, steps, relation)[0], _LEAST), _POINTS)
    else:
        at = increasing(2, epsilons=epsilons)
        _validate.nonnegative(epsilons=at)
    guarantee, other = _deltas(curve, at, steps, relation)
    if epsilons is None:
        guarantee = np.maximum(guarantee, 1e-3 * _LEAST)  # what falls to 0 would squeeze all the rest
    ax = axes_for(ax)
    style = next_style(ax, line)
    if not getattr(curve, "is_bound", True):
        style |= {"linestyle": ":"} | line
        label = f"{label or 'guarantee'} (asymptotic, not a bound)"
    # A lower bound of 0 has no place on a logarithmic axis: the band ends a little below what is drawn.
    seen = guarantee[guarantee > 0]
    floor = 0.1 * seen.min() if seen.size else 1e-300
    ax.set_yscale("log")
    if epsilons is None:
        ax.set_ylim(0.1 * _LEAST, 2.0)
    band(ax, at, guarantee, None if other is None else np.maximum(other, floor), style | {"label": label})
    return finish(ax, xlabel="epsilon", ylabel="delta")


def trade_off(
    curve: Mechanism | TradeOff | PrivacyProfile | PLD,
    *,
    steps: int = 1,
    relation: str = "add_or_remove",
    log: bool = False,
    smallest: float = 1e-6,
    label: str | None = None,
    ax: Axes | None = None,
    **line: object,
) -> Axes:
    """Draws the least type II error f(alpha) of every attack against its type I error alpha.

    No attack does better than the curve. The straight line is a coin: perfect privacy. With ``log``, the power
    1 - f(alpha) instead, the true positive rate of the best attack at false positive rate alpha, on two logarithmic
    axes: attacks that hardly ever raise a false alarm.

    Args:
        curve: a mechanism (a band from both bounds of :func:`jaxacct.attacks.power`), or a `TradeOff`,
            `PrivacyProfile` or `PLD`, which bound from one side. For a single direction, and a `PLD`, alpha is the
            error under Q.
        steps: how often a mechanism runs, fixed in advance.
        relation: for a mechanism, see :func:`jaxacct.delta`.
        log: powers on logarithmic axes.
        smallest: the least false positive rate shown where ``log``; between 1e-10 and 0.1.
        label: for the legend.
        ax: axes to draw on; None makes a figure.
        **line: for matplotlib's ``plot``.

    Returns:
        The axes.

    Raises:
        ValueError: a bad value (named), or a batch of curves.
        ImportError: matplotlib is not installed.
    """
    _validate.whole(steps=steps)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.truth(log=log)
    _validate.scalar(smallest=smallest)
    _validate.at_least(1e-10, smallest=smallest)
    _validate.at_most(0.1, smallest=smallest)
    alpha = np.geomspace(smallest, 1.0, 401) if log else np.linspace(0.0, 1.0, 401)
    guarantee, other = _errors(curve, alpha, steps, relation, log)
    ax = axes_for(ax)
    if not ax.lines:
        ax.plot(alpha, alpha if log else 1.0 - alpha, color="0.6", linewidth=1.0, label="perfect privacy")
    ends = (smallest, 1.0) if log else (0.0, 1.0)
    scale = "log" if log else "linear"
    ax.set(xscale=scale, yscale=scale, xlim=ends, ylim=ends, aspect="equal")
    band(ax, alpha, guarantee, other, next_style(ax, line) | {"label": label})
    if log:
        return finish(ax, xlabel="false positive rate", ylabel="true positive rate of the best attack")
    return finish(ax, xlabel="type I error (false positives)", ylabel="type II error (misses)")


def _deltas(
    curve: Mechanism | Guarantee | PrivacyProfile | PLD | Bounds, at: np.ndarray, steps: int, relation: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """The guarantee, and the other bound where there is one."""
    if isinstance(curve, PrivacyProfile | PLD):
        return _single(curve.hockey_stick(at), at.size), None
    if not isinstance(curve, Bounds | Mechanism):
        _validate.methods("delta", curve=curve)
        return _single(curve.delta(at), at.size), None
    if isinstance(curve, Mechanism):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # where bounds are wide the picture shows it
            curve = accounting.delta(curve, at, steps=steps, relation=relation)
    return _single(curve.upper, at.size), _single(curve.lower, at.size)


def _errors(
    curve: Mechanism | TradeOff | PrivacyProfile | PLD, alpha: np.ndarray, steps: int, relation: str, power: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """f(alpha), or 1 - f(alpha), from the guarantee, and from the other bound where there is one."""
    if isinstance(curve, PrivacyProfile):
        curve = TradeOff.from_profile(curve)
    if isinstance(curve, TradeOff | PLD):
        value = _single(curve.trade_off(alpha), alpha.size)
        return (1.0 - value if power else value), None
    found = attacks.power(curve, alpha, steps=steps, relation=relation)
    upper, lower = _single(found.upper, alpha.size), _single(found.lower, alpha.size)
    return (upper, lower) if power else (1.0 - upper, 1.0 - lower)


def _single(values: ArrayLike, size: int) -> np.ndarray:
    """``values`` as the numbers of one curve at ``size`` points."""
    array = np.asarray(values, np.float64)
    if array.shape != (size,):
        raise ValueError(f"curve must be one curve, not a batch, got values of shape {array.shape} for {size} points")
    return array


def _reach(delta: Callable[[np.ndarray], np.ndarray], least: float) -> float:
    """An epsilon, to a fifth of itself, by which a curve is down to ``least`` or falls no more."""
    at = 2.0 ** np.arange(-10.0, 8.0, 0.25)
    values = delta(at)
    return float(at[np.argmax(values <= np.maximum(least, (1.0 + 1e-6) * values[-1]))])
