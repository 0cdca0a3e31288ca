"""`verify` finds a run's account again from its folder alone, and refuses every edit of it."""

import contextlib
import dataclasses
import hashlib
import json
import shutil

import pytest

import jaxacct
from jaxacct import Gaussian, Ledger, PoissonSampled, filters, training
from jaxacct.reports import Statement, dp_sgd_statement, read_statement, statement, verify
from tests.cli.called import called, said
from tests.training.small import DATA, PARAMS, SGD, loss

PLAN = training.plan_budget("renyi", "constant", epsilon=2.0, delta=1e-5, steps=8, rate=0.5)


def ran(folder, steps=(6, 8), settings=None, plan=PLAN, report=True):
    """A run that was killed once (one attempt for each number of steps), with its report."""
    step = training.make_step(loss, SGD, plan.filter, plan.schedule, clip_norm=1.0)
    for last in steps:
        state = training.init_state(PARAMS, SGD, plan.filter, plan.schedule, training.fresh_keys())
        with training.durable_run(folder, step, state, plan.filter, resume=True, every=4, settings=settings) as run:
            outcome = training.fit(run.step, run.state, DATA, steps=last, evaluate=lambda params: 0.5, before=run)
            if last == steps[-1]:
                run.save(outcome.state)
                if report:
                    outcome = dataclasses.replace(outcome, attempts=len(steps))
                    made = training.make_report(
                        outcome, plan, delta=1e-5, data={"name": "rows", "training_examples": 20},
                        settings={"filter": "renyi", "clip": 1.0, "steps": 99}, seeded=False,
                    )  # fmt: skip
                    training.write_report(made, folder, plan.filter, run)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def without_journal(folder, place):
    for name in ("report.md", "report.json", "history.csv", "budget.png", "filter.json"):
        shutil.copy(folder / name, place)
    return place


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_that_was_killed_and_resumed_holds_and_is_left_as_it_is(folder):
    before = contents(folder)
    found = verify(folder)
    assert found.holds, found.text
    assert (found.kind, found.delta) == ("run", 1e-5)
    assert found.epsilon == float(PLAN.filter.guarantee.epsilon(1e-5))
    assert "admits all 8 charged steps again" in found.text
    assert "Cannot be verified: that noise, batches and clipping were really" in found.text
    words = (folder / "report.md").read_text()
    for part in (
        "Poisson",
        "clipped by itself to an L2 norm of 1",
        "started 2 times",
        "| steps | 6 (",
        "| asked for: steps | 99 |",
    ):
        assert part in words, part
    assert contents(folder) == before


def test_a_run_of_one_s_own_states_its_filter_and_needs_no_report(tmp_path):
    folder = ran(tmp_path / "run", steps=(3,), report=False)
    settings = records_of(folder)[0]["settings"]
    assert settings["relation"] == "add_or_remove"
    assert (settings["filter"], settings["delta"]) == (repr(PLAN.filter), 1e-5)
    assert settings["epsilon"] == verify(folder).epsilon
    assert "differential privacy with epsilon 2, delta 1e-05 allows" in " ".join(str(statement(folder)).split())


def test_a_report_without_a_journal_is_replayed_from_its_history(tmp_path, whole):
    found = verify(without_journal(whole, tmp_path))
    assert found.holds, found.text
    assert "admits all 8 steps of the report again" in found.text


@pytest.mark.parametrize("filter", [filters.gdp(1.0), filters.zcdp(0.4), filters.renyi_any(8.0, 1e-5, orders=[4, 8])])
def test_a_filter_of_any_kind_is_asked_again(tmp_path, filter):
    schedule = training.schedules.adaptive(8.0, 1.0, 6)
    step = training.make_step(loss, SGD, filter, schedule, clip_norm=1.0)
    state = training.init_state(PARAMS, SGD, filter, schedule, training.fresh_keys())
    with training.durable_run(tmp_path / "run", step, state, filter) as run:
        training.fit(run.step, run.state, DATA, steps=5, evaluate=lambda params: 0.5)
    assert verify(tmp_path / "run").holds
    plan = training.Budget(filter, training.schedules.constant(8.0, 1.0, 5))
    found = verify(without_journal(ran(tmp_path / "reported", steps=(5,), plan=plan), tmp_path))
    assert found.holds, found.text


# Edits of one field. Those of a journal's record leave its seal alone, as whoever edits by hand does.


def leaves(tree, path=()):
    """Where the values of a tree of JSON are; an empty part counts as one."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [at for name, part in parts for at in leaves(part, (*path, name))] or [path]


def changed(tree, path):
    """The tree with another value of the same kind at a path."""
    part = tree
    for name in path[:-1]:
        part = part[name]
    value = part[path[-1]]
    if isinstance(value, bool) or value is None:
        part[path[-1]] = not value
    elif isinstance(value, str):
        part[path[-1]] = ("0" if value[:1] != "0" else "1") + value[1:]
    elif isinstance(value, int | float):
        part[path[-1]] = value * 0.5 if isinstance(value, float) and value else value + 1
    else:
        part[path[-1]] = type(value)()
    return tree


def report(*path, seal=False):
    """An edit of report.json; with ``seal``, sealed anew by whoever read how."""

    def edit(folder):
        file = folder / "report.json"
        tree = changed(json.loads(file.read_text()), path)
        if seal:
            held = {key: value for key, value in tree.items() if key != "seal"}
            tree["seal"] = hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
        file.write_text(json.dumps(tree))

    return edit


def text(name, old, new):
    def edit(folder):
        (file,) = sorted(folder.glob(name))[-1:]
        held = file.read_bytes()
        assert old in held
        file.write_bytes(held.replace(old, new, 1))

    return edit


EDITS = {
    "report_epsilon": report("report", "epsilon"),
    "report_noise": report("history", "sigma", 0),
    "report_seal": report("seal"),
    "report_sealed_anew": report("test_accuracy", seal=True),
    "words": text("report.md", b"one example", b"two example"),
    "history": text("history.csv", b"sigma", b"sigmo"),
    "picture": text("budget.png", b"IHDR", b"IHDT"),
    "filter_order": text("filter.json", b'"order":', b'"order":1'),
    "filter_budget": text("filter.json", b'"data":"', b'"data":"AA'),
    "filter_type": text("filter.json", b"RenyiFilter", b"PureDPFilter"),
    "checkpoint_seal": text("checkpoints/*", b'"seal": "', b'"seal": "0'),
    "checkpoint_shapes": text("checkpoints/*", b'"shapes": ', b'"shapes":  '),
    "checkpoint_weights": text("checkpoints/*", b"NUMPY", b"NVMPY"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_any_field_is_refused(folder, name):
    EDITS[name](folder)
    found = verify(folder)
    assert not found.holds
    assert found.text.startswith("NOT VERIFIED: ")
    assert found.problem in found.text


def test_an_edit_of_any_field_of_the_journal_is_refused(folder):
    """Of its counts, the run, an attempt, and a charge and what became of it."""
    file = folder / "journal"
    lines = file.read_text().splitlines(keepends=True)
    edits = [(number, path) for number in range(6) for path in leaves(json.loads(lines[number]))]
    assert {"records", "seal", "filter", "account", "filter_state", "gradient_norm"} < {
        name for _, path in edits for name in path
    }
    for number, path in edits:
        line = json.dumps(changed(json.loads(lines[number]), path), separators=(",", ":"))
        file.write_text("".join([*lines[:number], f"{line}\n", *lines[number + 1 :]]))
        assert not verify(folder).holds, (number, path)


FORGED = {
    "attempt_start": (3, ("from_step",), "is none that can be"),
    "attempt_number": (3, ("attempt",), "is none that can be"),
    "charge_step": (4, ("step",), "comes next"),
    "charge_sigma": (4, ("sigma",), "refuses it|another state"),
    "charge_rate": (4, ("rate",), "another state"),
    "charge_clip": (4, ("clip_scale",), "another state"),
    "charge_left": (4, ("budget_left",), "another state"),
    "charge_state": (4, ("filter_state", 0), "another state|filter_state"),
    "epsilon": (2, ("settings", "epsilon"), "the filter says"),
    "delta": (2, ("settings", "delta"), "the filter says"),
    "relation": (2, ("settings", "relation"), "the filter says"),
    "theorem": (2, ("settings", "theorem"), "the filter says"),
    "filter": (2, ("filter",), "another filter"),
}


def records_of(folder):
    return [json.loads(one)["record"] for one in (folder / "journal").read_text().splitlines()[2:]]


def sealed(path, records):
    """Another journal in the place of one."""
    path.unlink()
    with contextlib.closing(training.Journal(path)) as journal:
        for record in records:
            journal.append(record)
        journal.sync()


@pytest.mark.parametrize("name", FORGED)
def test_a_journal_that_is_sealed_anew_still_has_to_replay(tmp_path, forged_from, name):
    number, path, words = FORGED[name]
    folder = shutil.copytree(forged_from, tmp_path / "run")
    records = records_of(folder)
    changed(records[number - 2], path)
    sealed(folder / "journal", records)
    found = verify(folder)
    assert not found.holds
    assert any(word in found.problem for word in words.split("|")), found.problem


OTHER_TYPES = [
    (0, "filter", 1), (0, "settings", []), (0, "made", None), (0, "account", {}), (1, "attempt", "0"),
    (1, "from_step", None), (2, "kind", []), (2, "sigma", "2"), (2, "filter_state", None), (2, "step", 0.5),
    (3, "step", 0), (3, "gradient_norm", []),
]  # fmt: skip


@pytest.mark.parametrize(("number", "name", "value"), OTHER_TYPES)
def test_a_journal_with_parts_of_other_types_is_refused_by_all_who_read_it(tmp_path, forged_from, number, name, value):
    folder = shutil.copytree(forged_from, tmp_path / "run")
    records = records_of(folder)
    assert name in records[number]
    records[number][name] = value
    sealed(folder / "journal", records)
    assert not verify(folder).holds
    with pytest.raises(ValueError, match=r"not a valid run record|never charged"):
        statement(folder)
    with pytest.raises(ValueError, match=r"not a valid run record|never charged|began with"):
        ran(folder, steps=(8,))


def test_a_report_with_parts_of_other_types_is_refused_and_no_statement_made(tmp_path, whole):
    folder = without_journal(whole, tmp_path)
    file = folder / "report.json"
    sound = json.loads(file.read_text())
    others = {
        "attempts": {}, "report": 10**30, "data": 0.5, "history": [], "made": 3, "delta": [], "filter": [None],
        "privacy": {}, "settings": {"clip": 10**400},
    }  # fmt: skip
    for name, value in others.items():
        held = {key: part for key, part in sound.items() if key != "seal"} | {name: value}
        seal = hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
        file.write_text(json.dumps(held | {"seal": seal}))
        assert not verify(folder).holds, name
        with pytest.raises(ValueError, match=r"the run lacks a part|report\.json|filter\.json"):
            statement(folder)


def test_no_statement_is_made_of_a_report_that_the_journal_does_not_know(folder):
    report("report", "epsilon", seal=True)(folder)
    with pytest.raises(ValueError, match="another one than the journal knows of"):
        statement(folder)
    (folder / "report.json").unlink()
    assert "There is no report.json, of which the journal knows" in verify(folder).text


def test_a_checkpoint_under_another_name_is_refused(folder):
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    shutil.copy(newest, newest.with_name("7.npz"))
    assert f"is that of step {newest.stem} under another name" in verify(folder).problem


@pytest.fixture(scope="module")
def forged_from(tmp_path_factory):
    """A run without checkpoints or report, whose journal alone says what was charged."""
    folder = ran(tmp_path_factory.mktemp("runs") / "plain", steps=(3,), report=False)
    shutil.rmtree(folder / "checkpoints")
    sealed(folder / "journal", [one for one in records_of(folder) if one["kind"] != "checkpoint"])
    assert verify(folder).holds
    return folder


def test_charges_that_were_cut_off_behind_a_checkpoint_are_missed(folder):
    lines = (folder / "journal").read_bytes().splitlines(keepends=True)
    (folder / "journal").write_bytes(b"".join(lines[:-4]))
    assert not verify(folder).holds


def test_ledgers_are_verified_and_stated(tmp_path):
    path = tmp_path / "team.db"
    with Ledger(path, filters.gdp(1.0), create=True) as book:
        assert book.request(Gaussian(4.0), "mean").admitted
    found = verify(path)
    assert found.holds
    assert found.kind == "ledger"
    assert statement(path).epsilon == float(filters.gdp(1.0).guarantee.epsilon(1e-5)) == found.epsilon
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"mean", b"maen"))
    assert not verify(path).holds


def test_a_statement_of_a_run_is_verified_beside_it_and_nowhere_else(folder, tmp_path):
    made = statement(folder)
    assert isinstance(made, Statement)
    assert made.adaptive
    assert made.mu > 0
    (folder / "statement.json").write_text(made.to_json())
    assert verify(folder / "statement.json").holds
    (tmp_path / "alone.json").write_text(made.to_json())
    assert "folder is not here" in verify(tmp_path / "alone.json").problem


def test_a_statement_with_an_edited_field_is_refused_and_one_sealed_anew_has_to_come_out_again(tmp_path):
    made = dp_sgd_statement(records=1000, batch=100, epochs=2, noise_multiplier=2.0)
    file = tmp_path / "statement.json"
    for field in [field.name for field in dataclasses.fields(Statement)]:
        held = changed(json.loads(made.to_json()), (field,))
        file.write_text(json.dumps(held))
        assert not verify(file).holds, field
        if field in ("epsilon", "delta", "steps", "records", "sampler", "text", "is_bound", "others"):
            file.write_text(dataclasses.replace(made, **{field: held[field]}).to_json())
            assert verify(file).problem.startswith(field), field


def test_a_certificate_goes_with_a_statement(tmp_path, capsys):
    pytest.importorskip("flint", reason="certificates need python-flint")
    made = dp_sgd_statement(records=1000, batch=100, epochs=2, noise_multiplier=2.0, certify=True)
    assert read_statement(made.to_json()) == made
    file = tmp_path / "statement.json"
    for epsilon, code in ((made.epsilon, 0), (made.epsilon * 0.99, 1)):
        file.write_text(dataclasses.replace(made, epsilon=epsilon).to_json())
        for command in (["certify", "--check", str(file)], ["verify", str(file), "--certify"]):
            found, out, _ = called(capsys, *command)
            assert found == code
            assert code == 0 or command[0] == "verify" or "below the certified" in out


def test_the_steps_taken_are_certified_in_ball_arithmetic(whole):
    pytest.importorskip("flint", reason="certificates need python-flint")
    found = verify(whole, certify=True)
    assert found.holds, found.text
    between = found.text.split("have epsilon between ")[1].split(",")[0].split(" and ")
    sigma, rate = (PLAN.schedule.planned[0][i] for i in (0, 1))
    bounds = jaxacct.epsilon(PoissonSampled(Gaussian(sigma), rate), 1e-5, steps=8)
    assert float(between[0]) <= float(bounds.upper)
    assert float(bounds.lower) <= float(between[1])


def test_the_command_says_what_it_found(folder, capsys):
    assert said(capsys, "verify", str(folder)).startswith("VERIFIED: ")
    EDITS["report_noise"](folder)
    code, _, err = called(capsys, "verify", str(folder))
    assert (code, err[:14]) == (1, "NOT VERIFIED: ")
    for path in (folder / "nothing", folder / "journal", folder / "checkpoints"):
        code, _, err = called(capsys, "verify", str(path))
        assert (code, "Traceback" in err) == (2, False)


def test_the_schema_lists_every_field_and_the_registry_says_unknown():
    made = dp_sgd_statement(records=1000, batch=100, epochs=2, noise_multiplier=2.0)
    schema = Statement.schema()
    assert made.mu == float(jaxacct.gdp_summary(PoissonSampled(Gaussian(2.0), made.rate[0]), steps=20).mu.upper)
    assert set(schema["properties"]) == set(json.loads(made.to_json())) == set(schema["required"])
    fields = made.registry()
    assert fields["registry of deployments"]["tier 1"]["data curator"] == "unknown"
    assert fields["NIST SP 800-226"]["privacy parameters"]["epsilon"] == made.epsilon


@pytest.mark.parametrize("records", [1, 9, 10, 11, 8000, 10_000, 10_001, 60_000, 10**9])
def test_the_default_delta_is_at_most_a_tenth_of_a_record(records):
    delta = dp_sgd_statement(records=records, batch=records, epochs=1, noise_multiplier=5.0).delta
    assert 1 / (100.1 * records) < delta <= 1 / (10 * records)
