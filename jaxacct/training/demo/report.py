"""Makes the report of a training run: one number to report, and the other epsilons, each with its kind."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import numpy as np

import jaxacct
from jaxacct import _validate
from jaxacct._files import replace
from jaxacct._printing import rounded_down, rounded_up
from jaxacct._types import Fields
from jaxacct.filters import Filter
from jaxacct.mechanisms import Composed
from jaxacct.mechanisms.base import Mechanism
from jaxacct.training.budget import Budget
from jaxacct.training.durable_runs import kept_filter
from jaxacct.training.durable_runs.records import made
from jaxacct.training.durable_runs.run import DurableRun
from jaxacct.training.loop import FitResult, StepRecord
from jaxacct.training.runs import Runs, from_json
from jaxacct.training.schedules import step_mechanism

_COLUMNS = ("step", "sigma", "rate", "clip_scale", "budget_left", "lost")

Report: TypeAlias = Fields


def realised_mechanism(records: list[StepRecord], most: int | None = None) -> Composed | None:
    """The steps that were taken, equal ones counted together, as one mechanism; None if there were none.

    With ``most``, no more than that many different mechanisms: steps of similar noise share the smallest
    noise and the largest rate among them, each of which costs at least as much as the step's own, so an
    upper bound of the result's epsilon is one of the steps'.
    """
    if not isinstance(records, list | tuple) or not all(isinstance(record, StepRecord) for record in records):
        raise ValueError(f"records must be a list of StepRecord, got {records!r:.200}")
    if most is not None:
        _validate.whole(most=most)
        most = int(most)
    if not records:
        return None
    counts = Counter((record.sigma, record.rate) for record in records)
    pairs = sorted(counts)
    number = len(pairs) if most is None else min(most, len(pairs))
    groups = [pairs[len(pairs) * i // number : len(pairs) * (i + 1) // number] for i in range(number)]
    return Composed(
        [step_mechanism(min(sigma for sigma, _ in group), max(rate for _, rate in group)) for group in groups],
        [sum(counts[pair] for pair in group) for group in groups],
    )


def taken(steps: list[StepRecord], drawn: Runs | None, most: int | None = None) -> tuple[Mechanism | None, int]:
    """The steps that were taken, as if they had been fixed in advance: a mechanism, None of no steps, and its runs."""
    if drawn is None or not steps:
        return realised_mechanism(steps, most), 1
    return drawn.mechanism, drawn.begun(len(steps))


def make_report(
    outcome: FitResult, budget: Budget, *, delta: float, data: Fields, settings: Fields, seeded: bool
) -> Report:
    """The report of a run as plain Python values: released numbers and public settings only.

    No training loss, no size of a sample, no un-noised norm and no share of clipped examples is here or
    anywhere else: they are statistics of private data that no noise protects. Neither are the keys.

    Its ``privacy`` holds epsilon at ``delta`` by two ways, each with ``epsilon``, ``is_bound``, ``label`` and
    ``statement``.

    * ``filter``: the filter's guarantee for the whole interaction. It holds however the schedule adapted,
      and covers the whole budget, spent or not.
    * ``pld``: the composition of the steps that were taken, lost ones included, as if they had been fixed in advance.
      That is a bound for a schedule that *was* fixed in advance and ran to its end, in one run of `fit`. For an
      adaptive path, or one that somebody stopped, or resumed, after seeing results, it is a diagnostic and no
      guarantee: other outputs would have led to other paths (the main result of the f-DP filters paper).

    Args:
        outcome: from :func:`jaxacct.training.fit`.
        budget: from :func:`jaxacct.training.plan_budget`; of a filter of your own ``Budget(filter, schedule)``.
        delta: where epsilon is quoted.
        data: description of the data set, public; ``name`` is its name.
        settings: what the run was asked for, public; ``clip`` is the norm that each gradient was clipped to.
        seeded: whether the run's keys came from a seed. The seed itself is in no report: it takes the noise off.
    """
    _validate.instance(FitResult, outcome=outcome)
    if not isinstance(budget, Budget):
        raise ValueError(
            "budget must be a training.Budget, from plan_budget, or Budget(filter, schedule) of a filter of your "
            f"own, got {_validate.shown(budget)}"
        )
    _validate.scalar(_validate.probability, delta=delta)
    _validate.instance(dict, data=data, settings=settings)
    if not isinstance(seeded, bool):
        raise ValueError(f"seeded must be True or False, and no seed, got a {type(seeded).__name__}")
    records = outcome.records
    told = {
        "data": data,
        "settings": settings,
        "seeded": seeded,
        "delta": delta,
        "stopped": outcome.stopped,
        "attempts": outcome.attempts,
        "adaptive_schedule": budget.schedule.is_adaptive,
        "planned_steps": budget.schedule.steps,
        "budget": repr(budget.filter),
        "filter": kept_filter.fingerprint(budget.filter),
        "drawn": budget.sampler and budget.sampler.to_json(),
        "made": made(),
        "history": {
            **{name: [getattr(record, name) for record in records] for name in _COLUMNS},
            "noisy_gradient_norm": [r.gradient_norm if math.isfinite(r.gradient_norm) else None for r in records],
        },
        "evaluations": {
            "step": [step for step, _ in outcome.evaluations],
            "accuracy": [value for _, value in outcome.evaluations],
        },
    }
    return told | derived(told, budget.filter)


def derived(report: Report, filter: Filter) -> Report:
    """The parts of a report that are computed from the others and from the filter."""
    steps, drawn, delta = steps_of(report), from_json(report["drawn"]), report["delta"]
    why = ""  # the steps taken are no bound
    if report["adaptive_schedule"]:
        why = "the schedule was adaptive"
    elif report["attempts"] > 1:
        why = "the run was resumed"
    elif report["stopped"] == "interrupted":
        why = "stopped by hand"
    elif [one.step for one in steps] != list(range(1, len(steps) + 1)):
        why = "steps of an earlier run are not in it"
    elif report["stopped"] == "plan finished" and len(steps) != report["planned_steps"]:
        why = "the run did not end where its schedule does"  # and results may have said where
    guarantee = filter.guarantee
    mechanism, runs = taken(steps, drawn)
    statement = "sound upper bound of the composition of the steps taken (by PLD)"
    if drawn is not None:
        statement = f"bounds of {runs} runs of {type(drawn.mechanism).__name__}, each {drawn.steps} steps"
    bounds = jaxacct.Bounds(np.zeros(()), np.zeros(()))
    if mechanism is not None:
        bounds = jaxacct.epsilon(mechanism, delta, steps=runs)
    rows = {
        "filter": {
            "epsilon": float(guarantee.epsilon(delta)),
            "is_bound": bool(guarantee.is_bound),
            "label": "guarantee" if guarantee.is_bound else "asymptotic, not a bound",
            "statement": guarantee.statement,
        },
        "pld": {
            "epsilon": float(bounds.upper),
            "lower": float(bounds.lower),
            "is_bound": not why,
            "label": f"diagnostic only: {why}" if why else "bound: the schedule was fixed in advance",
            "statement": statement,
        },
    }
    notes = [
        "Relation: add or remove one training example. The number of training examples is treated as public.",
        "The held-out set is treated as public; its accuracy costs no budget here.",
    ]
    if drawn is not None:
        notes.append(f"Batches are drawn by the sampler of {type(drawn.mechanism).__name__}.")
    if report["seeded"]:
        notes.append("Reproducible run: not private to anyone who knows or guesses its seed.")
    if not guarantee.is_bound:
        notes.append(guarantee.statement)
    lost = sum(one.lost for one in steps)
    return {
        "steps": len(steps) - lost,
        "steps_lost": lost,
        "test_accuracy": report["evaluations"]["accuracy"][-1],
        "privacy": rows,
        "report": number_to_report(rows, delta),
        "notes": notes,
    }


def steps_of(report: Report) -> list[StepRecord]:
    """The steps in a report's history."""
    columns = dict(report["history"])
    norms = [math.nan if norm is None else norm for norm in columns.pop("noisy_gradient_norm")]
    rows = zip(*columns.values(), norms, strict=True)
    return [StepRecord(**dict(zip((*columns, "gradient_norm"), row, strict=True))) for row in rows]


def number_to_report(rows: dict[str, Report], delta: float) -> Report:
    """The one epsilon of ``rows`` to report: the filter's, or that of a fixed schedule where the filter has no bound.

    ``epsilon`` is None where none of them is proven.
    """
    named = next((name for name in ("filter", "pld") if rows[name]["is_bound"]), None)
    epsilon = None if named is None else rows[named]["epsilon"]
    shown = None if epsilon is None else float(rounded_up(epsilon, 5))
    text = "no proven number" if shown is None else f"differential privacy with epsilon {shown:g}, delta {delta:g}"
    return {"epsilon": epsilon, "delta": delta, "from": named, "text": text}


def table(report: Report, verbose: bool = False) -> str:
    """The report's last word, as lines for a terminal; ``verbose`` lists the epsilons that are not to be reported."""
    privacy, delta, number = report["privacy"], report["delta"], report["report"]
    lost = f"and {report['steps_lost']} charged that a killed attempt lost" if report["steps_lost"] else ""
    rows = [
        ("steps taken", f"{report['steps']} ({report['stopped']})", lost),
        ("test accuracy", f"{100 * report['test_accuracy']:.2f} %", "held-out set treated as public"),
        ("to report", number["text"], "" if number["from"] is None else privacy[number["from"]]["label"]),
    ]
    if number["from"] != "filter" or verbose:
        label = f"{report['settings']['filter']} filter"
        rows += [(f"epsilon at delta {delta:g}", "", "")] if verbose else []
        rows += [(f"  {label}", rounded_up(privacy["filter"]["epsilon"], 5), privacy["filter"]["label"])]
    if verbose:
        rows += [("  PLD, steps taken", rounded_up(privacy["pld"]["epsilon"], 5), privacy["pld"]["label"])]
    lines = _aligned(rows)
    shortfall = privacy["pld"]["lower"] - privacy["filter"]["epsilon"]
    if not privacy["filter"]["is_bound"] and shortfall > 0:
        steps = "these steps, taken as fixed in advance," if report["adaptive_schedule"] else "these steps"
        lines.append(
            f"warning: {steps} cost an epsilon of at least {rounded_down(privacy['pld']['lower'], 4)}: the "
            f"filter's asymptotic {privacy['filter']['epsilon']:.4g} is too low here"
        )
    return "\n".join(lines)


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{a:<{first}}  {b:<{second}}  {c}".rstrip() for a, b, c in rows]


def write_report(report: Report, folder: str | Path, filter: Filter, run: DurableRun | None = None) -> list[Path]:
    """Writes a run's report into ``folder`` (made if missing) and returns the paths.

    ``report.md`` is for people, ``report.json`` for programs, ``history.csv`` for spreadsheets, ``budget.png`` shows
    budget, noise, rate and accuracy; `jaxacct.reports.verify` checks them, and asks ``filter.json`` again.

    Args:
        report: from `make_report`.
        folder: that of the `DurableRun`, if there is one, so that all lies together.
        filter: the one of the run.
        run: the open run, whose journal then holds the report's seal.
    """
    from jaxacct.plotting.training import draw
    from jaxacct.reports.document import seal_of
    from jaxacct.reports.words import markdown

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    kept_filter.write(filter, folder)
    picture = folder / "budget.png"
    draw(report, picture)
    replace(folder / "report.md", markdown(report).encode())
    replace(folder / "history.csv", history_csv(report).encode())
    files = [folder / name for name in ("report.md", "report.json", "history.csv", "budget.png")]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.suffix != ".json"}
    whole = report | {"sha256": digests}
    seal = seal_of(whole)
    replace(files[1], (json.dumps(whole | {"seal": seal}, indent=1, ensure_ascii=False) + "\n").encode())
    if run is not None:
        run.reported(seal)
    return files


def history_csv(report: Report) -> str:
    """The steps of a report as comma-separated values, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(report["history"])
    writer.writerows(zip(*report["history"].values(), strict=True))
    return text.getvalue()
