"""Makes the report of a training run: each epsilon with the kind of number that it is."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

from jaxacct import _validate
from jaxacct._printing import rounded_down, rounded_up
from jaxacct.mechanisms import Composed
from jaxacct.training.budget import Budget
from jaxacct.training.loop import FitResult, StepRecord
from jaxacct.training.schedules import step_mechanism

# A PLD composition takes at most this many different mechanisms in reasonable time.
_MOST_DISTINCT = 32
_COLUMNS = ("step", "sigma", "rate", "clip_scale", "budget_left", "lost")

Report: TypeAlias = dict[str, Any]


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
    """Epsilon at ``delta`` by three ways, each with ``epsilon``, ``is_bound``, ``label`` and ``statement``.

    * ``filter``: the filter's guarantee for the whole interaction. It holds however the schedule adapted,
      and covers the whole budget, spent or not.
    * ``pld``, and ``renyi`` without a sampler: the composition of the steps that were taken, lost ones included, as if
      they had been fixed in advance. That is a bound for a schedule that *was* fixed in advance and ran to its end. For
      an adaptive path, or one that somebody stopped by hand or resumed after seeing results, it is a diagnostic and no
      guarantee: other outputs would have led to other paths (the main result of the f-DP filters paper).
    """
    import jaxacct
    from jaxacct import filters

    _validate.instance(FitResult, outcome=outcome)
    _validate.instance(Budget, budget=budget)
    _validate.scalar(_validate.probability, delta=delta)
    guarantee = budget.filter.guarantee
    fixed = not budget.schedule.is_adaptive and outcome.stopped != "interrupted" and outcome.attempts == 1
    if fixed:
        label = "bound: the schedule was fixed in advance"
    elif budget.schedule.is_adaptive:
        label = "diagnostic only: the schedule was adaptive"
    elif outcome.attempts > 1:
        label = "diagnostic only: the run was resumed"
    else:
        label = "diagnostic only: stopped by hand"
    rows = {
        "filter": {
            "epsilon": float(guarantee.epsilon(delta)),
            "is_bound": bool(guarantee.is_bound),
            "label": "guarantee" if guarantee.is_bound else "asymptotic, not a bound",
            "statement": guarantee.statement,
        }
    }
    taken = {"is_bound": fixed, "label": label}
    renyi, bounds = 0.0, jaxacct.Bounds(0.0, 0.0)
    if budget.sampler is None:
        exact, snapped = realised_mechanism(outcome.records), realised_mechanism(outcome.records, _MOST_DISTINCT)
        if exact is not None and snapped is not None:
            renyi = filters.plan_epsilon(exact, delta)
            bounds = jaxacct.epsilon(snapped, delta)
            if len(snapped.mechanisms) < len(exact.mechanisms):
                # Steps snapped to costlier ones have an upper bound for the real steps, and no lower one.
                bounds = bounds._replace(lower=0.0)
        statement = "Rényi composition of the steps taken, at the best order"
        rows["renyi"] = {"epsilon": renyi, **taken, "statement": statement}
        statement = "sound upper bound of the composition of the steps taken (by PLD)"
    else:
        # As often as it was begun: an epoch that was stopped within counts as a whole one.
        mechanism, steps = budget.sampler.mechanism, budget.sampler.steps
        runs = -(-len(outcome.records) // steps)
        if runs:
            bounds = jaxacct.epsilon(mechanism, delta, steps=runs)
        statement = f"bounds of {runs} runs of {type(mechanism).__name__}, each {steps} steps"
    rows["pld"] = {"epsilon": float(bounds.upper), "lower": float(bounds.lower), **taken, "statement": statement}
    return rows


def make_report(
    outcome: FitResult,
    budget: Budget,
    *,
    delta: float,
    data: dict[str, Any],
    settings: dict[str, Any],
    seeded: bool,
) -> Report:
    """The report of a run as plain Python values: released numbers and public settings only.

    No training loss, no size of a sample, no un-noised norm and no share of clipped examples is here or
    anywhere else: they are statistics of private data that no noise protects. Neither are the keys.

    Args:
        outcome: from :func:`jaxacct.training.fit`.
        budget: from :func:`jaxacct.training.plan_budget`.
        delta: where epsilon is quoted.
        data: description of the data set, public.
        settings: what the run was asked for, public.
        seeded: whether the run's keys came from a seed. The seed itself is in no report: it takes the noise off.
    """
    _validate.instance(FitResult, outcome=outcome)
    _validate.instance(Budget, budget=budget)
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
        "privacy": privacy_rows(outcome, budget, delta),
        "adaptive_schedule": budget.schedule.is_adaptive,
        "budget_unit": budget.unit,
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


def table(report: Report) -> str:
    """The report's last word, as lines for a terminal."""
    privacy, delta = report["privacy"], report["delta"]
    lost = f"and {report['steps_lost']} charged that a killed attempt lost" if report["steps_lost"] else ""
    rows = [
        ("steps taken", f"{report['steps']} ({report['stopped']})", lost),
        ("test accuracy", f"{100 * report['test_accuracy']:.2f} %", "held-out set treated as public"),
        (f"epsilon at delta {delta:g}", "", ""),
        (
            f"  {report['settings']['filter']} filter",
            rounded_up(privacy["filter"]["epsilon"], 5),
            privacy["filter"]["label"],
        ),
        *(
            (f"  {words}, steps taken", rounded_up(privacy[name]["epsilon"], 5), privacy[name]["label"])
            for name, words in (("renyi", "Rényi"), ("pld", "PLD"))
            if name in privacy
        ),
    ]
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


def write_report(report: Report, folder: str | Path) -> list[Path]:
    """Writes ``report.json`` and ``budget.png`` into ``folder`` (made if missing) and returns their paths.

    The JSON file is written under another name and renamed, so that a reader never sees half of it.
    """
    from jaxacct.plotting.training import draw

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "report.json"
    partial = folder / ".report.json.partial"
    partial.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, file)
    picture = folder / "budget.png"
    draw(report, picture)
    return [file, picture]
