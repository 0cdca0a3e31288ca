"""Plot of epsilon from both sides: certified from above for a mechanism, audited from below for the code that ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import Fields
from jaxacct.audit.findings import Finding
from jaxacct.audit.guesses import OneRun
from jaxacct.plotting._style import axes_for, band, finish, increasing, next_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def audits(
    found: Sequence[Finding], at: ArrayLike, *, label: str | None = None, ax: Axes | None = None, **line: object
) -> Axes:
    """Draws what audits found: the certified epsilon as a line, with a band down to the audited lower bound.

    The truth about the code lies above the lower edge of the band, at each audit's confidence, and below the upper edge
    if the code is the mechanism. A cross marks an audit that refutes the mechanism; triangles, the bound for
    implementations whose curve is a Gaussian's.

    Args:
        found: audits at one delta and confidence, each with a mechanism, from :func:`jaxacct.audit.one_run` and others.
        at: increasing numbers, one for each audit, such as steps; shape ``(n,)``.
        label: for the legend.
        ax: axes to draw on; None makes a figure.
        **line: for matplotlib's ``plot``.

    Returns:
        The axes.

    Raises:
        ValueError: something else than audits of mechanisms, of several deltas or confidences, or numbers that do not
            fit (named).
        ImportError: matplotlib is not installed.
    """
    _validate.instance(Sequence, found=found)
    for one in found:
        _validate.instance(Finding, found=one)
        if one.certified is None:
            raise ValueError("found must hold audits of a mechanism: give mechanism= to the audit")
    x = increasing(1, at=at)
    if x.size != len(found):
        raise ValueError(f"at must have one number for each of {len(found)} audits, got {x.size}")
    settings = {(one.delta, one.confidence) for one in found}
    if len(settings) != 1:
        raise ValueError(f"found must hold audits at one delta and confidence, got {sorted(settings)}")
    ((delta, confidence),) = settings
    ax = axes_for(ax)
    name = f"{label}: " if label else ""
    certified = np.array([one.certified for one in found], np.float64)
    certified = np.where(np.isfinite(certified), certified, np.nan)
    audited = np.array([one.epsilon for one in found])
    gaussian = np.array([one.gaussian_epsilon if isinstance(one, OneRun) else np.nan for one in found])
    wrong = np.where([one.refuted for one in found], certified, np.nan)
    band(ax, x, certified, audited, next_style(ax, line) | {"label": f"{name}certified for the mechanism"})
    triangle: Fields = {"marker": "^", "color": ax.lines[-1].get_color()}
    marks: list[tuple[np.ndarray, str, Fields]] = [
        (audited, "audited, any mechanism", triangle | {"markersize": 5, "linewidth": 1.0}),
        (gaussian, "audited, if Gaussian", triangle | {"markerfacecolor": "none", "linestyle": ":"}),
        (wrong, "refuted", {"marker": "X", "color": "#000000", "markersize": 8, "linestyle": "none"}),
    ]
    for values, words, style in marks:
        if (known := ~np.isnan(values)).any():
            ax.plot(x[known], values[known], label=f"{name}{words}", **style)
    if not ax.get_title():
        ax.set_title(f"audited at confidence {100.0 * confidence:.6g} %, delta {delta:g}")
    ax.set_ylim(bottom=0.0)
    return finish(ax, xlabel="step", ylabel="epsilon")
