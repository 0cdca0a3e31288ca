"""What a run says at its end, and that it says nothing private."""

import dataclasses
import json

import numpy as np
import pytest
from matplotlib.figure import Figure

import jaxacct
from jaxacct import filters
from jaxacct.training import (
    Budget,
    FitResult,
    StepRecord,
    accuracy,
    fit,
    init_state,
    make_report,
    make_step,
    plan_budget,
    realised_mechanism,
    schedules,
    seeded_keys,
    table,
    write_report,
)
from tests.training.small import DATA, PARAMS, SGD, loss


def record(step, sigma, rate=0.1):
    return StepRecord(step, sigma, rate, 1.0, 0.5, 0.9)


def outcome(records, stopped="plan finished"):
    return FitResult(None, records, [(0, 0.1), (len(records), 0.8)], stopped)


def plan(filter="renyi", schedule="constant", rate=0.1, steps=20):
    return plan_budget(filter, schedule, epsilon=2.0, delta=1e-5, steps=steps, rate=rate)


def follow(budget):
    steps = [(sigma, rate) for sigma, rate, count in budget.schedule.planned for _ in range(count)]
    return [record(number, sigma, rate) for number, (sigma, rate) in enumerate(steps, 1)]


def full_report(budget, run, seeded=False):
    settings = {"filter": "renyi", "schedule": "constant"}
    return make_report(run, budget, delta=1e-5, data={"name": "none"}, settings=settings, seeded=seeded)


def test_equal_steps_are_counted_together():
    whole = realised_mechanism([record(1, 2.0), record(2, 3.0), record(3, 2.0)])
    assert [int(steps) for _, steps in whole.parts()] == [2, 1]
    assert realised_mechanism([]) is None
    assert full_report(plan(), outcome([], "interrupted"))["privacy"]["pld"]["epsilon"] == 0  # no step costs nothing


@pytest.mark.slow
def test_snapping_many_steps_to_few_only_ever_raises_their_price():
    records = [record(i, 1.5 + i / 50, 0.05 + 0.0001 * (i % 7)) for i in range(100)]
    exact, snapped = realised_mechanism(records), realised_mechanism(records, most=8)
    assert len(snapped.mechanisms) == 8
    assert sum(int(steps) for _, steps in snapped.parts()) == 100
    before, after = filters.plan_epsilon(exact, 1e-5), filters.plan_epsilon(snapped, 1e-5)
    assert before <= after <= 1.2 * before


def test_a_fixed_schedule_gets_bounds_in_the_right_order():
    budget = plan()
    rows = full_report(budget, outcome(follow(budget)))["privacy"]
    assert all(row["is_bound"] for row in rows.values())
    assert rows["pld"]["lower"] <= rows["pld"]["epsilon"] < rows["filter"]["epsilon"]
    assert rows["filter"]["epsilon"] == pytest.approx(2.0, rel=1e-6)
    step = jaxacct.PoissonSampled(jaxacct.Gaussian(budget.schedule.planned[0][0]), 0.1)
    direct = jaxacct.epsilon(step, 1e-5, steps=20)
    assert rows["pld"]["epsilon"] == pytest.approx(float(direct.upper), rel=1e-2)


def test_a_resumed_run_reports_lost_steps_and_is_a_diagnostic(tmp_path):
    budget = plan()
    records = [one._replace(lost=one.step > 15, gradient_norm=float("nan")) for one in follow(budget)[:18]]
    report = full_report(budget, dataclasses.replace(outcome(records), attempts=2))
    assert (report["steps"], report["steps_lost"], report["attempts"]) == (15, 3, 2)
    assert report["privacy"]["pld"]["label"] == "diagnostic only: the run was resumed"
    assert "and 3 charged that a killed attempt lost" in table(report)
    _, file, *_ = write_report(report, tmp_path, budget.filter)
    assert "NaN" not in file.read_text()


def test_the_approximate_filter_says_that_it_is_no_bound_and_is_contradicted_where_it_errs():
    budget = plan("approximate_gdp", rate=0.15, steps=3)  # far outside the limit: little noise, few steps
    report = full_report(budget, outcome(follow(budget)))
    assert report["privacy"]["filter"]["label"] == "asymptotic, not a bound"
    assert not report["privacy"]["filter"]["is_bound"]
    text = table(report)
    assert "asymptotic, not a bound" in text
    assert "too low here" in text
    assert report["privacy"]["pld"]["lower"] > report["privacy"]["filter"]["epsilon"]


def test_a_report_holds_released_numbers_only_and_is_written_whole(tmp_path):
    budget = plan()
    report = full_report(budget, outcome(follow(budget)), seeded=True)
    history = {"step", "sigma", "rate", "clip_scale", "noisy_gradient_norm", "budget_left", "lost"}
    assert set(report["history"]) == history
    assert set(report) == {
        "data", "settings", "seeded", "delta", "stopped", "steps", "steps_lost", "attempts", "test_accuracy", "privacy",
        "adaptive_schedule", "planned_steps", "budget", "drawn", "filter", "made", "notes", "report", "history",
        "evaluations",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"seeded must be True or False, and no seed, got a int$"):
        full_report(budget, outcome(follow(budget)), seeded=987654321)
    assert any("not private to anyone who knows or guesses its seed" in note for note in report["notes"])
    assert any("treated as public" in note for note in report["notes"])
    files = write_report(report, tmp_path / "deep" / "folder", budget.filter)
    names = ["report.md", "report.json", "history.csv", "budget.png"]
    assert [file.name for file in files] == names
    written = json.loads(files[1].read_text())
    assert written | report == written
    assert set(written) - set(report) == {"seal", "sha256"}
    assert files[3].read_bytes()[:4] == b"\x89PNG"
    assert sorted(path.name for path in files[0].parent.iterdir()) == sorted([*names, "filter.json"])


def test_a_filter_of_ones_own_is_reported_once_it_stands_beside_its_schedule(tmp_path, monkeypatch):
    own, schedule = filters.renyi(2.0, 1e-5, order=8.0), schedules.constant(4.0, 0.1, 3)
    run = outcome([record(number, 4.0) for number in (1, 2, 3)])
    about = {"delta": 1e-5, "data": {}, "settings": {}, "seeded": False}  # nothing has to be said of itself
    report = make_report(run, Budget(own, schedule), **about)
    assert report["report"]["epsilon"] == float(own.guarantee.epsilon(1e-5))
    titles, save = [], Figure.savefig

    def savefig(figure, *args, **kwargs):
        titles.append(figure.axes[0].get_title())
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    monkeypatch.setitem(report["privacy"]["filter"], "epsilon", 1.2341)
    write_report(report, tmp_path, own)
    assert titles == ["data, renyi filter: epsilon 1.24 at delta 1e-05"]  # rounded up
    with pytest.raises(ValueError, match=r"from plan_budget, or Budget\(filter, schedule\) of a filter of"):
        full_report(own, run)


@pytest.mark.parametrize(
    ("filter", "schedule", "stopped", "named", "reasons"),
    [
        ("renyi", "constant", "plan finished", "filter", ["smaller because the steps taken cost less"]),
        ("renyi", "adaptive", "budget spent", "filter", ["diagnostic only: the schedule was adaptive", "no guarantee"]),
        ("renyi", "constant", "interrupted", "filter", ["diagnostic only: stopped by hand", "no guarantee"]),
        ("approximate-gdp", "constant", "plan finished", "pld", ["the limit of a theorem without an error term"]),
        ("approximate-gdp", "adaptive", "budget spent", None, ["to hold against the filter's number"]),
    ],
)
def test_there_is_one_number_to_report_and_a_reason_for_each_other(filter, schedule, stopped, named, reasons, tmp_path):
    budget = plan(filter, schedule)
    report = full_report(budget, outcome(follow(budget), stopped))
    assert report["report"]["from"] == named
    assert report["report"]["epsilon"] == (None if named is None else report["privacy"][named]["epsilon"])
    assert table(report).count("to report") == 1
    assert ("steps taken, " in table(report), "PLD, steps taken" in table(report, verbose=True)) == (False, True)
    words, *_ = write_report(report, tmp_path, budget.filter)
    text = words.read_text()
    assert all(reason in text for reason in reasons)
    assert text.count("**To report: ") == 1
    for part in ("unit of privacy", "sampler", "noise multiplier", "clip norm", "commit", "date", "Treated as public"):
        assert part in text
    rows = (tmp_path / "history.csv").read_text().splitlines()
    assert rows[0].startswith("step,sigma,rate")
    assert len(rows) == 1 + len(report["history"]["step"])


@pytest.mark.parametrize("part", [slice(0, 5), slice(5, None), slice(0, None, 2)])
def test_steps_that_are_not_the_whole_schedule_are_no_bound_and_not_reported(part):
    """Results may have said where a run ended, as where `fit` is called again and again."""
    budget = plan("approximate-gdp")
    report = full_report(budget, outcome(follow(budget)[part]))
    assert not report["privacy"]["pld"]["is_bound"]
    assert report["report"]["from"] is None


def test_the_loop_stops_on_interrupt_and_evaluates_what_it_leaves():
    budget = plan("gdp", rate=1.0, steps=30)
    step = make_step(loss, SGD, budget.filter, budget.schedule, clip_norm=1.0)
    for steps, limit, stopped, taken in (
        (30, 7, "interrupted", 7), (30, 99, "plan finished", 30), (40, 99, "budget spent", 30),
    ):  # fmt: skip
        seen = []
        run = fit(
            step, init_state(PARAMS, SGD, budget.filter, budget.schedule, seeded_keys(0)), DATA, steps=steps,
            evaluate=lambda params: float(params["w"][0]), evaluate_every=5,
            interrupted=lambda seen=seen, limit=limit: len(seen) >= limit,
            on_step=lambda record, accuracy, seen=seen: seen.append(record.step),
        )  # fmt: skip
        assert run.stopped == stopped
        assert len(run.records) == len(seen) == taken
        assert run.evaluations[-1] == (taken, float(run.state.params["w"][0]))
    assert run.records[-1].budget_left == pytest.approx(0, abs=1e-3)


def test_an_accuracy_is_the_share_of_right_answers():
    x = np.eye(4, dtype=np.float32)
    assert accuracy(lambda params, x: x * params, x, np.array([0, 1, 2, 0]))(2.0) == 0.75
