"""The paragraphs about a training run: what it guarantees, how, what was public, and what nobody can check."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

from jaxacct._printing import rounded_up
from jaxacct._types import Fields
from jaxacct.reports.document import UNKNOWN, spread
from jaxacct.reports.folder import Folder, steps_charged, steps_of
from jaxacct.training.loop import StepRecord

UNCHECKED = (
    "that noise, batches and clipping were really as the account says, that the keys were random and kept secret, and "
    "that nothing else about these records was released"
)
_PUBLIC = ("the number of training examples", "all settings of the run, and the first parameters")
_OTHERS = {
    "filter": "the filter's own number",
    "pld": "the steps that were taken, composed as if they had been fixed in advance (by PLD)",
}


class Run(NamedTuple):
    """What is known of a training run, from its report or its journal; None is not known."""

    name: str
    records: int | None
    steps: int
    lost: int
    attempts: int
    noise: list[float] | None
    rate: list[float] | None
    sampler: str
    settings: Fields
    filter: str
    epsilon: float | None
    delta: float
    theorem: str
    seeded: bool | None
    public: list[str]
    made: Fields
    from_filter: bool = True
    adaptive: bool | None = None
    stopped: str | None = None


def run_of_report(report: Fields) -> Run:
    """The run that a report is about."""
    data, number = report["data"], report["report"]
    named = number["from"] or "filter"
    return _run(
        steps_of(report),
        drawn=report["drawn"],
        name=str(data.get("name", "data")),
        records=data.get("training_examples"),
        attempts=report["attempts"],
        settings=report["settings"],
        filter=report["budget"],
        epsilon=number["epsilon"],
        delta=report["delta"],
        theorem=report["privacy"][named]["statement"],
        from_filter=named == "filter",
        adaptive=report["adaptive_schedule"],
        stopped=report["stopped"],
        seeded=report["seeded"],
        public=[*_PUBLIC, "the held-out set and every accuracy on it"],
        made=report["made"],
    )


def run_of_journal(held: Folder) -> Run:
    """The run that a folder's journal is about."""
    settings = held.header["settings"]
    return _run(
        steps_charged(held.records),
        drawn=None,
        name=str(settings.get("name", settings.get("data", "data"))),
        records=settings.get("records"),
        attempts=held.attempts(),
        settings=settings,
        filter=settings["filter"],
        epsilon=settings["epsilon"] if settings["is_bound"] else None,
        delta=settings["delta"],
        theorem=settings["theorem"],
        seeded=settings.get("seeded"),
        public=[*_PUBLIC],
        made=held.header["made"],
    )


def _run(steps: list[StepRecord], drawn: Fields | None, **known: Any) -> Run:
    """What its steps say of a run, beside what is ``known``."""
    lost = sum(one.lost for one in steps)
    noise, rate = _ends([one.sigma for one in steps]), _ends([one.rate for one in steps])
    return Run(steps=len(steps) - lost, lost=lost, noise=noise, rate=rate, sampler=sampler_of(drawn), **known)


def sampler_of(drawn: Fields | None) -> str:
    """How batches were drawn, in words."""
    from jaxacct.training.runs import from_json

    if (runs := from_json(drawn)) is None:
        return "Poisson: each example is in each batch by itself, with the rate as its probability"
    return f"{runs.mechanism!r}, {runs.steps} steps each time"


def paragraphs(run: Run) -> list[str]:
    """What a privacy officer can sign."""
    count = f"{run.records:,} training examples" if run.records else "training examples"
    delta = f"{run.delta:g}"
    if run.epsilon is None:
        promise = (
            f"No bound is proven for it. The filter's number is asymptotic, for delta {delta}: it is no guarantee, and "
            "must not be reported as one."
        )
    else:
        promise = (
            "Whoever sees all intermediate models, the final one and the account learns about any single training "
            f"example at most what differential privacy with epsilon {up(run.epsilon)}, delta {delta} allows, for "
            "adding or removing one example. This is the number to report."
        )
    parts = [f"{run.name}: DP-SGD on {count}, {run.steps:,} steps. {promise} The unit of privacy is one example."]
    noise = "unknown" if run.noise is None else spread(run.noise)
    rate = "unknown" if run.rate is None else spread(run.rate)
    clip, quantile = run.settings.get("clip"), run.settings.get("clip_quantile")
    norm = "a fixed norm" if clip is None else f"an L2 norm of {clip:g}"
    unit = "that norm"
    if quantile is not None:
        norm += f" at first, which released counts then move towards the {quantile:g} quantile of all norms"
        unit = "the most that one of them and its count can add"
    parts.append(
        f"Every step sums the examples' gradients, each clipped by itself to {norm}, and adds Gaussian noise of "
        f"{noise} times {unit}. Batches: {run.sampler}; rate {rate}."
    )
    if run.from_filter:
        moved = {True: "Noise and rate reacted to what had been released. ", False: "", None: ""}[run.adaptive]
        parts.append(
            f"{moved}A privacy filter, {run.filter}, was asked before every step, and its budget was fixed before the "
            "first one: the number covers the whole budget, spent or not, however the run reacted to results and "
            f"whenever it stopped. {run.theorem}"
        )
    else:
        parts.append(f"Noise, rate and number of steps were fixed in advance. {run.theorem}.")
    if run.attempts > 1 or run.lost:
        parts.append(
            f"The run was started {run.attempts} times; {run.lost:,} steps were charged and lost with an attempt that "
            "was killed. They may have been released, so the number covers them."
        )
    if run.seeded:
        parts.append("Its keys come from a seed: whoever knows or guesses the seed can take the noise away.")
    parts.append(f"Treated as public: {'; '.join(run.public)}.")
    parts.append(
        f"No computation can check {UNCHECKED}. Not covered: earlier runs on these records, such as those that chose "
        "hyperparameters."
    )
    made = run.made
    commit = made.get("commit") or "of no repository"
    parts.append(
        f"Made on {made.get('date', UNKNOWN)} by jaxacct {made.get('jaxacct', UNKNOWN)} with JAX "
        f"{made.get('jax', UNKNOWN)} ({made.get('platform', UNKNOWN)}); commit {commit}."
    )
    return parts


def up(value: float) -> str:
    """A number in five digits, no smaller than it."""
    return f"{float(rounded_up(value, 5)):g}"


def filled(parts: list[str]) -> str:
    """Paragraphs as text for a terminal."""
    return "\n\n".join(textwrap.fill(part, 100) for part in parts)


def markdown(report: Fields) -> str:
    """``report.md``."""
    run = run_of_report(report)
    number, privacy, delta, settings = (report[name] for name in ("report", "privacy", "delta", "settings"))
    lines = [f"# Privacy report: {run.name}", "", f"**To report: {number['text']}**", ""]
    for part in paragraphs(run):
        lines += [part, ""]
    facts = {
        "unit of privacy": "one training example",
        "neighbouring data sets": "one example added or removed",
        "sampler": run.sampler,
        "noise multiplier": "none" if run.noise is None else spread(run.noise),
        "rate": "none" if run.rate is None else spread(run.rate),
        "clip norm": f"{settings['clip']:g}" if "clip" in settings else UNKNOWN,
        "steps": f"{run.steps} ({run.stopped})",
        "steps charged and lost": run.lost,
        "accuracy on the held-out set (public)": f"{100 * report['test_accuracy']:.2f} %",
        **{name: settings[name] for name in sorted(settings) if name != "clip"},
        **{name: report["made"][name] for name in ("date", "jaxacct", "jax", "platform", "commit")},
    }
    lines += ["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in facts.items()), ""]
    lines += [
        "![budget, noise, rate and accuracy](budget.png)",
        "",
        "## Other numbers, which are not to be reported",
        "",
    ]
    for name, words in _OTHERS.items():
        if name in privacy and name != number["from"]:
            row = privacy[name]
            lines.append(
                f"- epsilon {up(row['epsilon'])} at delta {delta:g}: {words} ({row['label']}). "
                f"{_why_not(name, row, number)}"
            )
    lines += ["", "Steps are in `history.csv`, everything in `report.json`; `jaxacct verify .` replays the account."]
    return "\n".join(lines) + "\n"


def _why_not(name: str, row: Fields, number: Fields) -> str:
    if name == "filter":
        return "It is the limit of a theorem without an error term."
    if number["epsilon"] is None:
        return "It is there to hold against the filter's number."
    if row["epsilon"] >= number["epsilon"]:
        return "It is larger because its theorem is looser: the number above is proven all the same."
    if row["is_bound"]:
        return (
            "It is smaller because the steps taken cost less than the budget that was promised before them: it holds "
            "for as long as nobody goes on with the budget."
        )
    return "It is smaller and no guarantee: other results would have led to other steps. Do not report it."


def _cell(value: object) -> str:
    return ("none" if value is None else str(value)).replace("|", "\\|").replace("\n", " ")


def _ends(values: list[float]) -> list[float] | None:
    return [min(values), max(values)] if values else None
