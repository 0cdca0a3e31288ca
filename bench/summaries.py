"""What a reader of a report is told beside epsilon: how long each answer takes, and three pictures of them.

    python bench/summaries.py            # prints times; writes results/summaries.json, attacks.png, users.png, mu.png

Times are CPU seconds of this process, the median of several answers; ratios are to one epsilon of the same run.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from machine import about
from scipy.stats import norm

import jaxacct
from jaxacct import Composed, Gaussian, PoissonSampled, UserLevel, attacks, gdp_summary, group_of

RESULTS = pathlib.Path(__file__).parent / "results"
RUNS = {"noise 9.4, rate 0.328, 2,000 steps": (9.4, 0.328, 2000), "noise 1, rate 0.01, 1,000 steps": (1.0, 0.01, 1000)}
USERS = [(1.0, 0.01, 5, 1000), (1.36, 0.032, 8, 625), (10.0, 0.01, 100, 1000), (100.0, 0.01, 1000, 100)]
"""Noise, rate, records of a user, steps."""
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "0.6"
_PEOPLE = 10_000


def _seconds(ask: Callable[[], Any], times: int = 7) -> float:
    ask()
    taken = []
    for _ in range(times):
        start = time.process_time()
        ask()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def measured() -> dict[str, Any]:
    """Milliseconds and widths of summaries and users, and what a curve costs beside one of its points."""
    found: dict[str, Any] = {"summaries": {}, "users": {}}
    for name, (noise, rate, steps) in RUNS.items():
        run = PoissonSampled(Gaussian(noise), rate)
        one = _seconds(lambda: jaxacct.epsilon(run, 1e-10, steps=steps))  # noqa: B023
        whole = _seconds(lambda: gdp_summary(run, steps=steps))  # noqa: B023
        power = _seconds(lambda: attacks.power(run, 0.01, steps=steps))  # noqa: B023
        last = float(jaxacct.epsilon(run, 1e-10, steps=steps).upper)
        curve = _seconds(lambda: jaxacct.delta(run, np.linspace(0.0, last, 400), steps=steps))  # noqa: B023
        said = gdp_summary(run, steps=steps)
        found["summaries"][name] = {
            "mu": [float(x) for x in said.mu],
            "regret": [float(x) for x in said.regret],
            "ms": {"epsilon": 1e3 * one, "gdp_summary": 1e3 * whole, "power": 1e3 * power, "400 deltas": 1e3 * curve},
            "over_epsilon": {"gdp_summary": whole / one, "power": power / one, "400 deltas": curve / one},
        }
    single = _seconds(lambda: jaxacct.epsilon(PoissonSampled(Gaussian(1.0), 0.01), 1e-5, steps=1000))
    for noise, rate, records, steps in USERS:
        user = UserLevel(Gaussian(noise), rate, records)
        taken = _seconds(lambda: jaxacct.epsilon(user, 1e-5, steps=steps))  # noqa: B023
        low, high = jaxacct.epsilon(user, 1e-5, steps=steps)
        name = f"noise {noise:g}, rate {rate:g}, {records:,} records, {steps:,} steps"
        found["users"][name] = {"epsilon": [low, high], "ms": 1e3 * taken, "over_epsilon": taken / single}
    return found


def _figure(width: float, height: float, *shape: int) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*shape)


def draw_attacks(path: pathlib.Path) -> None:
    """Of 10,000 people in the data, how many can be named, at which error: for three amounts of noise."""
    runs = {1.0: "weak", 2.0: "medium", 8.0: "strong"}
    errors = np.array([1000, 100, 10, 1])
    figure, axes = _figure(10.0, 4.3, 1, len(runs))
    for axis, (noise, word) in zip(axes, runs.items(), strict=True):
        run = Composed([PoissonSampled(Gaussian(noise), 0.02)], [3000])
        named = np.ceil(_PEOPLE * attacks.power(run, errors / _PEOPLE).upper)
        epsilon = jaxacct.epsilon(run, 1e-5).upper
        places = np.arange(errors.size)
        axis.barh(places, np.full(errors.size, _PEOPLE), color="0.93")
        axis.barh(places, named, color=_BLUE)
        axis.barh(places, errors, color=_ORANGE)
        for place, count, error in zip(places, named, errors, strict=True):
            axis.text(max(count, error) + 150, place, f"{count:,.0f}", va="center", fontsize=10)
        axis.set_yticks(places, [f"{error:,} of 10,000" for error in errors] if axis is axes[0] else [""] * 4)
        axis.invert_yaxis()
        axis.set(xlim=(0, _PEOPLE * 1.02), title=f"{word} protection: epsilon {epsilon:.1f}")
        axis.set_xticks([0, 4000, 8000], ["0", "4,000", "8,000"])
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_ylabel("people outside the data\nwho are named by mistake")
    axes[1].set_xlabel("people in the data who are named, of 10,000: on average at most")
    figure.suptitle(
        "However clever the attacker: how many people can be named as being in the training data\n"
        "(orange: as many as names drawn out of a hat would hit)",
        fontsize=11,
    )
    figure.savefig(path, dpi=150)


def draw_users(path: pathlib.Path) -> None:
    """Epsilon of a user over the number of records, exactly and by group privacy; how many records fit."""
    figure, axis = _figure(6.4, 4.2)
    records = np.arange(1, 9)
    run = PoissonSampled(Gaussian(1.0), 0.01)
    exact = jaxacct.epsilon(UserLevel(Gaussian(1.0), 0.01, records), 1e-5, steps=1000).upper
    one = np.linspace(0.01, 20.0, 2000)
    of_one = jaxacct.delta(run, one, steps=1000).upper
    # The classic rule: k epsilon for k records, at delta (1 + e^epsilon + ... + e^((k - 1) epsilon)).
    of_many = np.array([of_one * np.exp(np.arange(k)[:, None] * one).sum(0) <= 1e-5 for k in records])
    classic = np.where(of_many.any(1), records * one[of_many.argmax(1)], np.nan)
    listed = jaxacct.FromProfile(one, of_one)  # of which no group is known to attain more
    chained = [jaxacct.epsilon(group_of(listed, int(k)).mechanism, 1e-5).upper for k in records]
    axis.plot(records, classic, ":s", color=_GREY, label="group privacy by one (epsilon, delta)", markersize=4)
    axis.plot(records, chained, "--^", color=_ORANGE, label="group privacy by the whole curve", markersize=4)
    axis.plot(records, exact, "-o", color=_BLUE, linewidth=2, label="UserLevel: attained", markersize=4)
    axis.set(xlabel="records that a user owns", ylabel="epsilon of the user at delta 1e-5", ylim=(0, 45))
    axis.set_title("noise 1, rate 0.01, 1,000 steps", fontsize=10)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)


def draw_mu(path: pathlib.Path) -> None:
    """Trade-off curves of two runs and of their mu: one that mu describes, and one that it does not."""
    figure, axes = _figure(9.0, 4.3, 1, 2)
    for axis, (name, (noise, rate, steps)) in zip(axes, RUNS.items(), strict=True):
        run = Composed([PoissonSampled(Gaussian(noise), rate)], [steps])
        said = gdp_summary(run)
        mu, regret = float(said.mu.upper), float(said.regret.upper)
        rates = np.concatenate([[0.0], np.geomspace(1e-5, 1.0, 160)])
        missed = 1.0 - attacks.power(run, rates).upper
        of_mu = norm.cdf(norm.ppf(1.0 - rates) - mu)
        axis.plot(rates, 1.0 - rates, ":", color=_GREY, label="blind guessing")
        axis.plot(rates, missed, "-", color=_BLUE, linewidth=2, label="the run")
        axis.plot(rates, of_mu, "--", color=_ORANGE, label=f"mu = {mu:.3f}")
        verdict = "mu describes it" if said.describes_well else "mu alone is too dark a picture"
        axis.set_title(f"{name}\nregret {regret:.4f}: {verdict}", fontsize=10)
        axis.set(xlabel="false positive rate", aspect="equal", xlim=(0, 1), ylim=(0, 1))
        axis.legend(frameon=False)
    axes[0].set_ylabel("false negative rate")
    figure.savefig(path, dpi=150)


def main() -> None:
    warnings.simplefilter("ignore", RuntimeWarning)
    found = measured()
    for part in found.values():
        for name, row in part.items():
            print(name, row)
    (RESULTS / "summaries.json").write_text(json.dumps(found | {"machine": about("numpy", "scipy")}, indent=1) + "\n")
    draw_attacks(RESULTS / "attacks.png")
    draw_users(RESULTS / "users.png")
    draw_mu(RESULTS / "mu.png")


if __name__ == "__main__":
    main()
