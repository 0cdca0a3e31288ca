"""The paragraphs about a training run: what it guarantees, how, what was public, and what nobody can check."""

from __future__ import annotations

import textwrap

from jaxacct._printing import rounded_up
from jaxacct._types import Fields
from jaxacct.reports.document import UNKNOWN, Statement, spread
from jaxacct.reports.folder import Folder
from jaxacct.training.demo.report import steps_of
from jaxacct.training.durable_runs.kept_filter import RELATION
from jaxacct.training.loop import StepRecord
from jaxacct.training.runs import from_json

UNCHECKED = (
    "that noise, batches and clipping were really as the account says, that the keys were random and kept secret, and "
    "that nothing else about these records was released"
)
_PUBLIC = ("the number of training examples", "all settings of the run, and the first parameters")
_PUBLIC_OF_A_REPORT = ("the held-out set and every accuracy on it",)
_OTHERS = {
    "filter": "the filter's own number",
    "pld": "the steps that were taken, composed as if they had been fixed in advance (by PLD)",
}


def stated(report: Fields, steps: list[StepRecord]) -> Statement:
    """What a training run guarantees, of its report, or as much of it as `report_of_journal` knows, and its steps."""
    data, number, drawn = report["data"], report["report"], report["drawn"]
    named = number["from"] or "filter"
    return Statement(
        unit="one training example",
        relation=RELATION,
        sampler=sampler_of(drawn),
        theorem=report["privacy"][named]["statement"],
        adaptive=named == "filter",
        is_bound=number["epsilon"] is not None,
        epsilon=number["epsilon"],
        delta=report["delta"],
        mu=None,
        steps=sum(not one.lost for one in steps),
        records=data.get("training_examples"),
        noise=_ends([one.sigma for one in steps]),
        rate=_ends([one.rate for one in steps]),
        clip=report["settings"].get("clip"),
        public=[*_PUBLIC, *(_PUBLIC_OF_A_REPORT if "evaluations" in report else ())],
        made=report["made"],
        source={"kind": "run"},
    )


def report_of_journal(held: Folder, steps: list[StepRecord]) -> Fields:
    """What a folder's journal knows of the report that was not written."""
    settings = held.header["settings"]
    return {
        "data": {
            "name": settings.get("name", settings.get("data", "data")), "training_examples": settings.get("records")
        },
        "settings": settings,
        "seeded": settings.get("seeded"),
        "delta": settings["delta"],
        "attempts": held.attempts(),
        "steps_lost": sum(one.lost for one in steps),
        "adaptive_schedule": None,
        "budget": settings["filter"],
        "drawn": None,
        "made": held.header["made"],
        "privacy": {"filter": {"statement": settings["theorem"]}},
        "report": {"from": "filter", "epsilon": settings["epsilon"] if settings["is_bound"] else None},
    }  # fmt: skip


def sampler_of(drawn: Fields | None) -> str:
    """How batches were drawn, in words."""
    if (runs := from_json(drawn)) is None:
        return "Poisson: each example is in each batch by itself, with the rate as its probability"
    return f"{runs.mechanism!r}, {runs.steps} steps each time"


def paragraphs(run: Statement, report: Fields) -> list[str]:
    """What a privacy officer can sign: ``run`` is what is `stated` of the ``report``."""
    settings, attempts, delta = report["settings"], report["attempts"], f"{run.delta:g}"
    name = report["data"].get("name", "data")
    count = f"{run.records:,} training examples" if run.records else "training examples"
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
    parts = [f"{name}: DP-SGD on {count}, {run.steps:,} steps. {promise} The unit of privacy is one example."]
    quantile = settings.get("clip_quantile")
    norm = "a fixed norm" if run.clip is None else f"an L2 norm of {run.clip:g}"
    unit = "that norm"
    if quantile is not None:
        norm += f" at first, which released counts then move towards the {quantile:g} quantile of all norms"
        unit = "the most that one of them and its count can add"
    parts.append(
        f"Every step sums the examples' gradients, each clipped by itself to {norm}, and adds Gaussian noise of "
        f"{spread(run.noise)} times {unit}. Batches: {run.sampler}; rate {spread(run.rate)}."
    )
    if run.adaptive:
        moved = "Noise and rate reacted to what had been released. " if report["adaptive_schedule"] else ""
        parts.append(
            f"{moved}A privacy filter, {report['budget']}, was asked before every step, and its budget was fixed "
            "before the first one: the number covers the whole budget, spent or not, however the run reacted to "
            f"results and whenever it stopped. {run.theorem}"
        )
    else:
        parts.append(f"Noise, rate and number of steps were fixed in advance. {run.theorem}.")
    if attempts > 1 or report["steps_lost"]:
        parts.append(
            f"The run was started {attempts} times; {report['steps_lost']:,} steps were charged and lost with an "
            "attempt that was killed. They may have been released, so the number covers them."
        )
    if report["seeded"]:
        parts.append("Its keys come from a seed: whoever knows or guesses the seed can take the noise away.")
    made = run.made
    commit = made.get("commit") or "of no repository"
    return [
        *parts,
        f"Treated as public: {'; '.join(run.public)}.",
        f"No computation can check {UNCHECKED}. Not covered: earlier runs on these records, such as those that chose "
        "hyperparameters.",
        f"Made on {made.get('date', UNKNOWN)} by jaxacct {made.get('jaxacct', UNKNOWN)} with JAX "
        f"{made.get('jax', UNKNOWN)} ({made.get('platform', UNKNOWN)}); commit {commit}.",
    ]


def up(value: float) -> str:
    """A number in five digits, no smaller than it."""
    return f"{float(rounded_up(value, 5)):g}"


def filled(parts: list[str]) -> str:
    """Paragraphs as text for a terminal."""
    return "\n\n".join(textwrap.fill(part, 100) for part in parts)


def markdown(report: Fields) -> str:
    """``report.md``."""
    run = stated(report, steps_of(report))
    number, privacy, delta, settings = (report[name] for name in ("report", "privacy", "delta", "settings"))
    name = report["data"].get("name", "data")
    lines = [f"# Privacy report: {name}", "", f"**To report: {number['text']}**", ""]
    for part in paragraphs(run, report):
        lines += [part, ""]
    facts = {
        "unit of privacy": "one training example",
        "neighbouring data sets": "one example added or removed",
        "sampler": run.sampler,
        "noise multiplier": spread(run.noise),
        "rate": spread(run.rate),
        "clip norm": f"{settings['clip']:g}" if "clip" in settings else UNKNOWN,
        "steps": f"{run.steps} ({report['stopped']})",
        "steps charged and lost": report["steps_lost"],
        "accuracy on the held-out set (public)": f"{100 * report['test_accuracy']:.2f} %",
        **{f"asked for: {name}": settings[name] for name in sorted(settings) if name != "clip"},
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
