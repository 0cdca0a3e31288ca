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
from jaxacct.training.budget import Budget
from jaxacct.training.durable_runs import kept_filter
from jaxacct.training.durable_runs.records import made
from jaxacct.training.durable_runs.run import DurableRun
from jaxacct.training.loop import FitResult, StepRecord
from jaxacct.training.runs import Runs
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


def privacy_rows(outcome: FitResult, budget: Budget, delta: float) -> dict[str, Report]:
    """Epsilon at ``delta`` by two ways, each with ``epsilon``, ``is_bound``, ``label`` and ``statement``.

    * ``filter``: the filter's guarantee for the whole interaction. It holds however the schedule adapted,
      and covers the whole budget, spent or not.
    * ``pld``: the composition of the steps that were taken, lost ones included, as if they had been fixed in advance.
      That is a bound for a schedule that *was* fixed in advance and ran to its end. For an adaptive path, or one that
      somebody stopped by hand or resumed after seeing results, it is a diagnostic and no guarantee: other outputs would
      have led to other paths (the main result of the f-DP filters paper).
    """
    _validate.instance(FitResult, outcome=outcome)
    _check_budget(budget)
    _validate.scalar(_validate.probability, delta=delta)
    why = why_a_diagnostic(budget.schedule.is_adaptive, outcome.stopped, outcome.attempts)
    return rows_of(outcome.records, budget.filter, delta, why, budget.sampler)


def _check_budget(budget: object) -> None:
    if not isinstance(budget, Budget):
        raise ValueError(
            "budget must be a training.Budget, from plan_budget, or Budget(filter, schedule, unit) of a filter of your "
            f"own, got {_validate.shown(budget)}"
        )


def rows_of(records: list[StepRecord], filter: Filter, delta: float, why: str, drawn: Runs | None) -> dict[str, Report]:
    """The rows of `privacy_rows`. ``why`` says why the steps taken are no bound, or is empty; ``drawn`` are those of a
    sampler."""
    guarantee = filter.guarantee
    mechanism, runs = realised_mechanism(records), 1
    statement = "sound upper bound of the composition of the steps taken (by PLD)"
    if drawn is not None:
        mechanism, runs = drawn.mechanism, drawn.begun(len(records))
        statement = f"bounds of {runs} runs of {type(mechanism).__name__}, each {drawn.steps} steps"
    bounds = jaxacct.Bounds(np.zeros(()), np.zeros(()))
    if mechanism is not None and records:
        bounds = jaxacct.epsilon(mechanism, delta, steps=runs)
    return {
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


def why_a_diagnostic(adaptive: bool, stopped: str, attempts: int) -> str:
    """Why the steps that a run took are no bound when they are composed as fixed in advance; empty if they are one."""
    if adaptive:
        return "the schedule was adaptive"
    return "the run was resumed" if attempts > 1 else "stopped by hand" if stopped == "interrupted" else ""


def make_report(
    outcome: FitResult, budget: Budget, *, delta: float, data: Fields, settings: Fields, seeded: bool
) -> Report:
    """The report of a run as plain Python values: released numbers and public settings only.

    No training loss, no size of a sample, no un-noised norm and no share of clipped examples is here or
    anywhere else: they are statistics of private data that no noise protects. Neither are the keys.

    Args:
        outcome: from :func:`jaxacct.training.fit`.
        budget: from :func:`jaxacct.training.plan_budget`; of a filter of your own ``Budget(filter, schedule, unit)``.
        delta: where epsilon is quoted.
        data: description of the data set, public; ``name`` is its name.
        settings: what the run was asked for, public; ``clip`` is the norm that each gradient was clipped to.
        seeded: whether the run's keys came from a seed. The seed itself is in no report: it takes the noise off.
    """
    rows = privacy_rows(outcome, budget, delta)
    _validate.instance(dict, data=data, settings=settings)
    if not isinstance(seeded, bool):
        raise ValueError(f"seeded must be True or False, and no seed, got a {type(seeded).__name__}")
    records = outcome.records
    notes = [
        "Relation: add or remove one training example. The number of training examples is treated as public.",
        "The held-out set is treated as public; its accuracy costs no budget here.",
    ]
    if budget.sampler is not None:
        notes.append(f"Batches are drawn by the sampler of {type(budget.sampler.mechanism).__name__}.")
    if seeded:
        notes.append("Reproducible run: not private to anyone who knows or guesses its seed.")
    if budget.filter.guarantee.is_bound is False:
        notes.append(budget.filter.guarantee.statement)
    return {
        "data": data,
        "settings": settings,
        "seeded": seeded,
        "delta": delta,
        "stopped": outcome.stopped,
        "steps": sum(not record.lost for record in records),
        "steps_lost": sum(record.lost for record in records),
        "attempts": outcome.attempts,
        "test_accuracy": outcome.evaluations[-1][1],
        "report": number_to_report(rows, delta),
        "privacy": rows,
        "adaptive_schedule": budget.schedule.is_adaptive,
        "budget_unit": budget.unit,
        "budget": repr(budget.filter),
        "filter": kept_filter.fingerprint(budget.filter),
        "drawn": budget.sampler and budget.sampler.to_json(),
        "made": made(),
        "notes": notes,
        "history": {
            **{name: [getattr(record, name) for record in records] for name in _COLUMNS},
            "noisy_gradient_norm": [r.gradient_norm if math.isfinite(r.gradient_norm) else None for r in records],
        },
        "evaluations": {
            "step": [step for step, _ in outcome.evaluations],
            "accuracy": [value for _, value in outcome.evaluations],
        },
    }


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
