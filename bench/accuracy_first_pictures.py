"""Plots of many runs of a release loop: what was accepted, its accuracy, and its cost.

Needs matplotlib (``pip install 'jaxacct[plot]'``). The figures are those of the accuracy-first Rényi paper. They show
true scores of one experiment under different noise, so they are for data that is made or public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_COLOURS = ("tab:blue", "tab:orange", "tab:purple", "tab:brown")

# Name of the check -> one mapping with "epsilon", "validation" and "test" for each run.
Runs = Mapping[str, Sequence[Mapping[str, float]]]


def accuracy_over_epsilon(
    runs: Runs, epsilons: Sequence[float], *, threshold: float, without_noise: float | None = None
) -> Any:
    """Figure 1: true validation accuracy of what was accepted over its epsilon, one panel for each check.

    ``runs`` has the runs of each check, ``epsilons`` the budgets that were tried, rising, ``without_noise`` the
    accuracy without privacy.
    """
    figure, axes = _panels(1, len(runs), width=4.2, height=3.4)
    for axis, (name, some) in zip(axes[0], runs.items(), strict=True):
        _by_epsilon(axis, {name: some}, epsilons, "validation")
        _lines(axis, threshold, without_noise)
        axis.set(title=name)
    axes[0, 0].set(ylabel="validation accuracy")
    axes[0, 0].legend(loc="lower right")
    return figure


def distributions(runs: Runs, epsilons: Sequence[float], *, threshold: float) -> Any:
    """Figure 2: (a) accepted epsilons, (b) validation against test accuracy, (c, d) their distribution functions.

    (e, f) show validation and test accuracies by epsilon. Arguments and result as of `accuracy_over_epsilon`.
    """
    figure, axes = _panels(3, 2, width=4.6, height=2.9)
    (counts, both), lower, by_epsilon = axes
    width = 0.8 / len(runs)
    for number, (name, some) in enumerate(runs.items()):
        found = [sum(bool(np.isclose(run["epsilon"], e, rtol=1e-6)) for run in some) for e in epsilons]
        places = np.arange(len(epsilons)) + (number - (len(runs) - 1) / 2) * width
        counts.bar(places, found, width, color=_COLOURS[number], label=name)
        validation, test = (np.array([run[key] for run in some]) for key in ("validation", "test"))
        both.scatter(validation, test, s=12, alpha=0.6, color=_COLOURS[number], label=name)
        for axis, values in zip(lower, (validation, test), strict=True):
            axis.step(
                np.sort(values), np.arange(1, len(values) + 1) / len(values), where="post", color=_COLOURS[number]
            )
    counts.set_xticks(np.arange(len(epsilons)), [f"{e:.3g}" for e in epsilons])
    counts.set(title="(a) accepted", xlabel="ex-post epsilon", ylabel="runs")
    counts.legend()
    ends = [*both.get_xlim(), *both.get_ylim()]
    both.plot([min(ends), max(ends)], [min(ends), max(ends)], color="grey", linewidth=1, zorder=0)
    both.set(title="(b)", xlabel="validation accuracy", ylabel="test accuracy")
    for axis, letter, what in zip(lower, "cd", ("validation", "test"), strict=True):
        axis.axvline(threshold, color="black", linestyle="--", linewidth=1)
        axis.set(title=f"({letter})", xlabel=f"{what} accuracy", ylabel="share of runs below")
    for axis, letter, what in zip(by_epsilon, "ef", ("validation", "test"), strict=True):
        _by_epsilon(axis, runs, epsilons, what)
        _lines(axis, threshold, None)
        axis.set(title=f"({letter})", ylabel=f"{what} accuracy")
    return figure


def _panels(rows: int, columns: int, *, width: float, height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError(f"pictures need matplotlib: pip install 'jaxacct[plot]' ({missing})") from None
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharey=rows == 1)


def _by_epsilon(axis: Any, runs: Runs, epsilons: Sequence[float], what: str) -> None:
    spread = np.random.default_rng(0)
    shifts = np.linspace(-0.12, 0.12, len(runs)) if len(runs) > 1 else [0.0]
    for number, (shift, some) in enumerate(zip(shifts, runs.values(), strict=True)):
        places = [run["epsilon"] * np.exp(shift + spread.normal(0, 0.04)) for run in some]
        colour = _COLOURS[number] if len(runs) > 1 else "tab:blue"
        axis.scatter(places, [run[what] for run in some], s=12, alpha=0.6, color=colour)
    axis.set(xscale="log", xlabel="ex-post epsilon", xlim=(min(epsilons) / 1.6, max(epsilons) * 1.6))


def _lines(axis: Any, threshold: float, without_noise: float | None) -> None:
    axis.axhline(threshold, color="black", linestyle="--", linewidth=1, label="threshold")
    if without_noise is not None:
        axis.axhline(without_noise, color="tab:green", linewidth=1, label="without noise")
