"""peers.png: how long one question takes here and elsewhere, and by how much each job is faster."""

from __future__ import annotations

import pathlib
from typing import Any

__all__ = ["draw"]

# Okabe and Ito's palette, and markers that differ as well.
_STYLE = {"dp_accounting": ("#D55E00", "o"), "prv_accountant": ("#009E73", "s")}


def ratios(report: dict[str, Any], peer: str) -> dict[str, float]:
    """Time of the peer over ours, warm, for each job that it took part in."""
    found: dict[str, float] = {}
    if peer in report.get("single", {}).get("warm_ratio_geometric_mean", {}):
        found["one query"] = report["single"]["warm_ratio_geometric_mean"][peer]
    for job, title in (("sweep", "sweep of 1,000"), ("calibration", "calibration of 100")):
        if peer in report.get(job, {}):
            found[title] = report[job][peer]["ratio"]
    if peer in report.get("heterogeneous", {}).get("ratio", {}):
        found["25 different noises"] = report["heterogeneous"]["ratio"][peer]
    if peer == "dp_accounting" and "shell" in report:
        found["from the shell, cold"] = report["shell"]["ratio"]
    return found


def draw(report: dict[str, Any], path: pathlib.Path) -> None:
    """Draws a report of ``peers.py`` to ``path`` (a PNG)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    rows = report.get("single", {}).get("rows", [])
    for i, (peer, (color, marker)) in enumerate(_STYLE.items()):
        shown = [row for row in rows if peer in row]
        if shown:
            ours, theirs = ([1e3 * row[name]["warm"] for row in shown] for name in ("jaxacct", peer))
            left.loglog(theirs, ours, marker, color=color, label=peer, alpha=0.8)
        jobs = ratios(report, peer)
        if jobs:
            places = [list(_ORDER).index(job) + 0.35 * (i - 0.5) for job in jobs]
            right.barh(places, list(jobs.values()), height=0.33, color=color, label=peer)
            for place, value in zip(places, jobs.values(), strict=True):
                right.text(value * 1.08, place, f"{value:.3g}", va="center", fontsize=8)
    ends = (min(left.get_xlim()[0], left.get_ylim()[0]), max(left.get_xlim()[1], left.get_ylim()[1]))
    left.plot(ends, ends, color="0.6", linewidth=1)
    left.set(xlabel="peer, ms", ylabel="jaxacct (bounds from both sides), ms", title="one query, warm")
    left.legend(frameon=False)
    right.set_xscale("log")
    right.axvline(1.0, color="0.6", linewidth=1)
    right.set_yticks(range(len(_ORDER)), _ORDER)
    right.invert_yaxis()
    right.set(xlabel="time of the peer over ours", title="by job")
    right.margins(x=0.2)
    figure.savefig(path, dpi=150)


_ORDER = ("one query", "sweep of 1,000", "25 different noises", "calibration of 100", "from the shell, cold")
