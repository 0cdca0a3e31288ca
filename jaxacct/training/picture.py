"""budget.png: the budget left and the held-out accuracy against the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["draw"]

# Okabe and Ito's palette: distinct under the common colour blindnesses; line styles differ as well.
_BLUE, _ORANGE = "#0072B2", "#D55E00"


def draw(report: dict[str, Any], path: Path) -> None:
    """Draws ``report``, as :func:`jaxacct.training.make_report` returns it, to ``path`` (a PNG)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    history, evaluations = report["history"], report["evaluations"]
    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    kept = [i for i, lost in enumerate(history["lost"]) if not lost]  # what is lost shows as a deeper step
    steps = [0, *(history["step"][i] for i in kept)]
    left = [100.0, *(100.0 * history["budget_left"][i] for i in kept)]
    above.step(steps, left, where="post", color=_BLUE, linewidth=2)
    above.set_ylabel("budget left (%)")
    above.set_ylim(-3, 103)
    privacy = report["privacy"]["filter"]
    note = "" if privacy["is_bound"] else " (asymptotic, not a bound)"
    above.set_title(
        f"{report['data']['name']}, {report['settings']['filter']} filter: "
        f"epsilon {privacy['epsilon']:.3g} at delta {report['delta']:g}{note}",
        fontsize=11,
    )
    points = [100.0 * value for value in evaluations["accuracy"]]
    below.plot(evaluations["step"], points, color=_ORANGE, linewidth=2, linestyle="--", marker="o", markersize=3)
    below.set_ylabel("held-out accuracy (%)")
    below.set_xlabel("step")
    if points:
        below.annotate(
            f"{points[-1]:.1f} %",
            (evaluations["step"][-1], points[-1]),
            textcoords="offset points",
            xytext=(-4, -14),
            ha="right",
        )
    below.set_ylim(0, 103)
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
