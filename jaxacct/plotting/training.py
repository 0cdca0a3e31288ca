"""The plot of a training run: budget, noise, rate and held-out accuracy against the step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxacct._printing import rounded_up
from jaxacct._types import Fields


def draw(report: Fields, path: Path) -> None:
    """Draws ``report``, as :func:`jaxacct.training.make_report` returns it, to ``path`` (a PNG)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from jaxacct.plotting import budget
    from jaxacct.plotting._style import PALETTE, finish

    history, evaluations = report["history"], report["evaluations"]
    figure = Figure(figsize=(7.0, 7.0), layout="constrained")
    FigureCanvasAgg(figure)
    above, middle, below = figure.subplots(3, 1, sharex=True)
    kept = [i for i, lost in enumerate(history["lost"]) if not lost]  # what is lost shows as a deeper step
    spent = 1.0 - np.asarray(history["budget_left"], np.float64)[kept]
    budget(spent, steps=np.asarray(history["step"])[kept], ax=above)
    above.set_xlabel("")
    steps, rates = np.asarray(history["step"])[kept], middle.twinx()
    for axes, name, color, dashes in ((middle, "sigma", PALETTE[2], "-"), (rates, "rate", PALETTE[3], "--")):
        axes.step(steps, np.asarray(history[name], np.float64)[kept], where="mid", color=color, linestyle=dashes)
        axes.set_ylim(bottom=0)
    finish(middle, xlabel="", ylabel="noise multiplier")
    rates.set_ylabel("sampling rate (dashed)")
    privacy = report["privacy"]["filter"]
    note = "" if privacy["is_bound"] else " (asymptotic, not a bound)"
    above.set_title(
        f"{report['data'].get('name', 'data')}, {report['budget'].partition('(')[0]} filter: "
        f"epsilon {float(rounded_up(privacy['epsilon'], 3)):g} at delta {report['delta']:g}{note}",
        fontsize=11,
    )
    points = [100.0 * value for value in evaluations["accuracy"]]
    below.plot(evaluations["step"], points, color=PALETTE[1], linewidth=2, linestyle="--", marker="o", markersize=3)
    if points:
        below.annotate(
            f"{points[-1]:.1f} %",
            (evaluations["step"][-1], points[-1]),
            textcoords="offset points",
            xytext=(-4, -14),
            ha="right",
        )
    below.set_ylim(0, 103)
    finish(below, xlabel="step", ylabel="held-out accuracy (%)")
    figure.savefig(path, dpi=150)
