"""`verify`: whether what a run, a ledger or a statement says can be found again from what is on the disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jaxacct import _validate
from jaxacct._files import as_path, is_regular
from jaxacct._types import Fields
from jaxacct.reports.document import Statement, read_statement
from jaxacct.reports.folder import Folder, is_run, opened, sentences
from jaxacct.reports.words import UNCHECKED, markdown, up
from jaxacct.training.demo.report import derived, history_csv, number_to_report, steps_of, taken
from jaxacct.training.durable_runs.checkpoints import steps_in
from jaxacct.training.durable_runs.kept_filter import promise
from jaxacct.training.durable_runs.records import history
from jaxacct.training.durable_runs.run import packed
from jaxacct.training.runs import from_json

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter

_MOST = 2**24  # bytes of a statement
_CERTIFIED_LEVELS = 8  # different mechanisms in a composition that is certified


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What `verify` found; ``print`` it.

    Attributes:
        holds: whether everything that can be checked is as it was written down.
        kind: "run", "ledger" or "statement".
        text: one paragraph: what was checked, and what nobody can check.
        problem: the first thing that does not fit; empty where it holds.
        epsilon: the guarantee, recomputed; None where it does not hold, or where no bound is proven.
        delta: where it is quoted.
    """

    holds: bool
    kind: str
    text: str
    problem: str = ""
    epsilon: float | None = None
    delta: float | None = None

    def __str__(self) -> str:
        return self.text


def verify(path: str | os.PathLike[str], *, certify: bool = False) -> Verdict:
    """Checks a run's folder, a ledger or a statement, and says in one paragraph what was and what cannot be verified.

    Of a run: every seal of the journal, every checkpoint's digest, and the report's; the filter is read back and asked
    again for every step that was charged; the epsilons of the report are computed again from the history. Nothing in
    the folder is changed. Of a ledger: as `jaxacct.Ledger.verify`. A statement about a plan is made again from its
    arguments; one about a run or ledger is compared with what lies beside it.

    The seals find accidents and edits, not somebody who writes a whole new folder, seals included.

    Args:
        path: a run's folder, the file (or PostgreSQL URL) of a ledger, or a statement's file.
        certify: also enclose the epsilon of the steps taken, as if they had been fixed in advance, in ball arithmetic
            (the extra ``certify``), and hold the accountant's numbers against it.

    Raises:
        ValueError: nothing that can be verified is there.
    """
    _validate.truth(certify=certify)
    text = os.fspath(path)
    if isinstance(text, str) and "://" in text:
        return _ledger(text)
    place = as_path(path=path)
    if not place.exists():
        raise ValueError(f"path must be a run's folder, a ledger or a statement, got {place}, where nothing is")
    if place.is_dir():
        if not is_run(place):
            raise ValueError(f"path must be the folder of a run, with a journal or a report.json, got {place}")
        return _judged("run", lambda: _run(place, certify))
    if not is_regular(place):
        raise ValueError(f"path must be a folder or a regular file, got {place}")
    if place.name == "journal" and is_run(place.parent):
        raise ValueError(f"path must be the folder of the run, {place.parent}, not its journal")
    with place.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"SQLite format 3"):
        return _ledger(text)
    if start.lstrip()[:1] == b"{":
        return _judged("statement", lambda: _statement(place, certify))
    raise ValueError(f"path must be a run's folder, a ledger or a statement, got {place}, which is none of them")


def _judged(kind: str, look: Callable[[], Verdict]) -> Verdict:
    try:
        with sentences(f"the {kind}"):
            return look()
    except (ValueError, OSError) as problem:
        return _refused(kind, str(problem))


def _refused(kind: str, problem: str) -> Verdict:
    words = " ".join(problem.split())
    return Verdict(False, kind, f"NOT VERIFIED: {words}", words)


def _ledger(place: str | bytes) -> Verdict:
    from jaxacct.ledger import Ledger, LedgerError
    from jaxacct.ledger.errors import LedgerCorrupted

    try:
        with Ledger(os.fsdecode(place)) as book:
            found = book.verify()
            reading = book.reading()
    except LedgerCorrupted as problem:
        return _refused("ledger", str(problem))
    except LedgerError as problem:
        raise ValueError(str(problem)) from None
    epsilon = reading.epsilon if reading.is_bound else None
    words = (
        f"VERIFIED: {found.requests} requests of the ledger, {found.admitted} of them admitted: every hash follows on "
        "the one before it, and its filter answers every request again as it was answered, bit for bit. "
        f"{_promised(epsilon, reading.delta)} Cannot be verified: that what was "
        "released is what was charged, that noise was really added, and that nothing else was released; nor that the "
        f"history was not rewritten as a whole, unless an earlier head is kept elsewhere. Head: {found.head}."
    )
    return Verdict(True, "ledger", words, "", epsilon, reading.delta)


def _run(path: Path, certify: bool) -> Verdict:
    held = opened(path)
    if held.filter is None:
        raise ValueError(
            "its filter is not in the folder (it holds functions, or a budget for each example): no admission can be "
            "replayed"
        )
    done: list[str] = []
    epsilon, delta = _account(held, held.filter, done)
    if certify:
        done.append(_certified(held, epsilon, delta))
    missing = f"Cannot be verified: {UNCHECKED}; nor a folder that was written anew as a whole, seals included."
    said = f"VERIFIED: {' '.join(one + '.' for one in done)} {_promised(epsilon, delta)} {missing}"
    return Verdict(True, "run", said, "", epsilon, delta)


def _promised(epsilon: float | None, delta: float) -> str:
    if epsilon is None:
        return "No epsilon is proven for it: the filter's number is asymptotic."
    return f"The guarantee is differential privacy with epsilon {up(epsilon)}, delta {delta:g}."


def _account(held: Folder, filter: Filter, done: list[str]) -> tuple[float | None, float]:
    """The guarantee (epsilon, delta), found again; ``done`` takes sentences about what was compared."""
    from jaxacct.reports.replay import history_replayed, replayed

    report = held.report
    if held.records:
        count, settings = replayed(filter, held.records), held.header["settings"]
        done += [
            f"The {len(held.records)} records of the journal are sealed one after another, and none is missing",
            f"The filter, read back from the folder, admits all {count} charged steps again",
        ]
        if packed(filter.init()) != held.header["account"]:
            done.append("The run began with an account of which a part was spent before, outside of this folder")
        known = promise(filter, settings["delta"])
        # What a caller set instead is a target, which the filter may keep with room to spare.
        stated = settings["epsilon"]
        kept = {"epsilon": math.isfinite(stated) and known["epsilon"] <= stated * (1 + 1e-9)}
        for name in ("epsilon", "relation", "is_bound", "theorem"):
            if not kept.get(name, settings[name] == known[name]):
                raise ValueError(f"the journal states {name} {settings[name]}, and the filter says {known[name]}")
        if steps_in(held.path / "checkpoints"):
            done.append("The checkpoints are the ones that were written")
        if held.torn:
            done.append("Behind the last record is half a line, of a charge that no release followed")
        if report is None:
            gone = ", of which the journal knows" if any(one["kind"] == "report" for one in held.records) else ""
            done.append(f"There is no report.json{gone}: the guarantee is the filter's")
            return (known["epsilon"] if known["is_bound"] else None), known["delta"]
    assert report is not None  # there is a journal or a report
    if held.records:
        _same_as_journal(held, report, done)
    else:
        count = history_replayed(filter, steps_of(report), from_json(report["drawn"]))
        done.append(f"The filter, read back from the folder, admits all {count} steps of the report again")
    _same_numbers(report, filter)
    done.append("The report's epsilons come out again from its history, and its files are those it was sealed with")
    return report["report"]["epsilon"], report["report"]["delta"]


def _same_as_journal(held: Folder, report: Fields, done: list[str]) -> None:
    """Raises where a report says something else than the journal beside it."""
    seals = [record["seal"] for record in held.records if record["kind"] == "report"]
    if not seals:
        done.append("The journal does not know of the report, which was written without `run=`")
    within = held.reported() if seals else held.records
    charged, listed = ([one[:4] + one[5:] for one in steps] for steps in (history(within)[0], steps_of(report)))
    if charged != listed:
        raise ValueError("report.json lists other steps than the journal charges")
    if report["attempts"] != sum(record["kind"] == "attempt" for record in within):
        raise ValueError(f"report.json counts {report['attempts']} attempts, and the journal others")
    later = sum(record["kind"] == "charge" for record in held.records[len(within) :])
    if later:
        done.append(f"The journal goes on after the report, with {later} further steps, which the guarantee covers")


def _same_numbers(report: Fields, filter: Filter) -> None:
    """Raises where the numbers of a report are others than those of its history."""
    found = derived(report, filter) | {"report": number_to_report(report["privacy"], report["delta"])}
    _agree("report.json", {name: report[name] for name in found}, found)
    _agree("report.json: delta", report["settings"].get("delta", report["delta"]), report["delta"])
    for what, made in (("history.csv", history_csv(report)), ("report.md", markdown(report))):
        if what in report["sha256"]:
            _agree(what, report["sha256"][what], hashlib.sha256(made.encode()).hexdigest())


def _agree(what: str, stated: object, found: object) -> None:
    """Raises where something else is stated than was found; of an object, in one of its parts."""
    if isinstance(found, dict) and isinstance(stated, dict) and set(stated) == set(found):
        for name, part in found.items():
            _agree(f"{what}: {name}", stated.get(name), part)
        return
    same = stated == found
    if isinstance(found, float) and isinstance(stated, int | float) and not isinstance(stated, bool):
        same = math.isclose(stated, found, rel_tol=1e-9)  # another processor or version may round the last digits
    if not same:
        raise ValueError(f"{what} is stated as {stated!r:.100}, and comes out as {found!r:.100}")


def _certified(held: Folder, epsilon: float | None, delta: float) -> str:
    """A sentence about the enclosure of the steps taken; raises where numbers contradict it."""
    import jaxacct

    report = held.report
    steps, drawn = (steps_of(report), report["drawn"]) if report else (history(held.records)[0], None)
    mechanism, runs = taken(steps, from_json(drawn), _CERTIFIED_LEVELS)
    if mechanism is None:
        return "No step was taken, so there is nothing to certify"
    bounds = jaxacct.epsilon(mechanism, delta, steps=runs)
    found = jaxacct.certify(mechanism, delta=delta, steps=runs, digits=8)
    if not found.encloses(float(bounds.lower), float(bounds.upper)):
        raise ValueError(
            f"the accountant's epsilon of the steps taken, [{bounds.lower}, {bounds.upper}], contradicts ball "
            f"arithmetic, [{found.lower}, {found.upper}]"
        )
    exact = len({(one.sigma, one.rate) for one in steps}) <= _CERTIFIED_LEVELS
    if epsilon is not None and exact and float(found.lower) > epsilon * (1 + 1e-9):
        raise ValueError(f"the steps taken cost at least epsilon {found.lower}, above the guarantee {epsilon}")
    return (
        f"In ball arithmetic, by a path that shares no code with the accountant, the steps taken have epsilon "
        f"{'between ' + found.lower + ' and' if exact else 'at most'} {found.upper}, had they been fixed in advance"
    )


def _statement(path: Path, certify: bool) -> Verdict:
    if path.stat().st_size > _MOST:
        raise ValueError(f"{path.name} has more than {_MOST} bytes")
    text = path.read_text(encoding="utf-8")
    if '"certificate"' in text[:40]:
        raise ValueError("it is a certificate: check it by `jaxacct certify --check`")
    found = read_statement(text)
    again = _made_again(found, path)
    for field in dataclasses.fields(Statement):
        if field.name not in ("made", "certificate", "text"):
            _agree(field.name, *(json.loads(json.dumps(getattr(one, field.name))) for one in (found, again)))
    # The paragraphs may say when and with what they were made.
    if found.made == again.made or found.source["kind"] == "dp-sgd":
        _agree("text", found.text, again.text)
    said = [f"Its numbers come out again from {_ORIGIN[found.source['kind']]}"]
    if found.certificate is not None:
        said.append(check_certificate(found))
    elif certify:
        raise ValueError("it holds no certificate: make it with `jaxacct statement --certify`")
    words = f"VERIFIED: {'. '.join(said)}. {_promised(found.epsilon, found.delta)} Cannot be verified: {UNCHECKED}."
    return Verdict(True, "statement", words, "", found.epsilon, found.delta)


_ORIGIN = {"dp-sgd": "its arguments", "run": "the run's folder beside it, which was verified"}


def _made_again(found: Statement, path: Path) -> Statement:
    from jaxacct.reports.about import statement
    from jaxacct.reports.dp_sgd import dp_sgd_statement

    kind = found.source.get("kind")
    if kind == "dp-sgd":
        return dp_sgd_statement(**found.source["arguments"])
    if kind == "run":
        if not is_run(path.parent):
            raise ValueError(
                "its numbers are those of a run whose folder is not here: put the statement into the folder, or verify "
                f"the folder and compare the seal {found.source.get('seal')}"
            )
        verdict = _run(path.parent, False)
        assert verdict.holds
        return statement(path.parent, delta=found.delta)
    raise ValueError(
        f"its numbers are those of a ledger: verify that, and look for its head {found.source.get('seal')} in it"
    )


def check_certificate(found: Statement) -> str:
    """A sentence about a statement's certificate, checked anew; raises where it does not hold or is about else."""
    from jaxacct import certificates
    from jaxacct.certificates.written import written_mechanism
    from jaxacct.mechanisms import Gaussian, PoissonSampled

    if found.certificate is None or found.source.get("kind") != "dp-sgd" or not (found.noise and found.rate):
        raise ValueError("the statement holds no certificate of its epsilon")
    held = certificates.read_certificate(json.dumps(found.certificate))
    step = written_mechanism(PoissonSampled(Gaussian(found.noise[0]), found.rate[0]))
    asked = (held.given, held.at, held.steps, held.relation, written_mechanism(held.mechanism))
    if asked != ("delta", found.delta, found.steps, found.relation, step):
        raise ValueError("the statement's certificate is about another question")
    if not held.check():
        raise ValueError("the statement's certificate does not hold")
    if found.epsilon is None or not held.encloses(float(held.lower), found.epsilon):
        raise ValueError(f"the statement's epsilon {found.epsilon} is below the certified {held.lower}")
    return f"Its certificate holds: epsilon lies between {held.lower} and {held.upper}"
