"""`Folder`: what a run left on the disk, read without a lock and without a change."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jaxacct._files import is_regular, refuse_special, refuse_special_in
from jaxacct._types import Fields
from jaxacct.reports.document import seal_of
from jaxacct.training.durable_runs import checkpoints, kept_filter
from jaxacct.training.durable_runs.journal import Record, contents, marks_in
from jaxacct.training.durable_runs.records import check

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter

_MOST = 2**30  # bytes


@contextlib.contextmanager
def sentences(what: str) -> Iterator[None]:
    """Turns what parts that are missing, or of another type, raise into ValueError: ``what`` was not written so."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as problem:
        raise ValueError(f"{what} lacks a part, or holds one of another type: {problem!r:.200}") from problem


class Folder(NamedTuple):
    """A run's folder.

    Attributes:
        path: of it.
        records: of its journal; empty without one.
        seals: of them.
        torn: bytes behind the last whole record of the journal, which no release followed.
        report: ``report.json``, or None.
        filter: the run's filter, or None where it was not written down.
    """

    path: Path
    records: list[Record]
    seals: list[str]
    torn: int
    report: Fields | None
    filter: Filter | None

    @property
    def header(self) -> Record:
        """The journal's first record."""
        return self.records[0]

    def reported(self) -> list[Record]:
        """The journal's records up to the report, or all of them where it has none."""
        ends = [number for number, record in enumerate(self.records) if record["kind"] == "report"]
        return self.records[: ends[-1]] if ends else self.records

    def attempts(self) -> int:
        """How often the run was started."""
        return sum(record["kind"] == "attempt" for record in self.records)


def is_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return is_regular(path / "journal") or is_regular(path / "report.json")


def opened(path: Path) -> Folder:
    """What a folder holds, each part sound by itself: seals, digests, kinds of records.

    Raises:
        ValueError: no run, or one of the parts is damaged or was edited.
    """
    if not is_run(path):
        raise ValueError(f"path must be the folder of a run, with a journal or a report.json, got {path}")
    records: list[Record] = []
    seals: list[str] = []
    torn = 0
    if (path / "journal").exists():
        raw = _bytes(path / "journal")
        held = contents(path / "journal", raw)
        if None in marks_in(raw):
            raise ValueError("the journal's beginning is damaged: if by a power cut, going on with the run mends it")
        records, seals, torn = held.records, held.seals, len(raw) - held.end
        check(path / "journal", records)
        if not records:
            raise ValueError("the journal holds no record: nothing was run")
    report = _report(path) if is_regular(path / "report.json") else None
    filter = kept_filter.read(path)
    told = [record["seal"] for record in records if record["kind"] == "report"]
    if report is not None and told and told[-1] != report["seal"]:
        raise ValueError("report.json is another one than the journal knows of")
    wanted = {str(one["filter"]) for one in (records[0] if records else None, report) if one is not None}
    if filter is not None and wanted != {kept_filter.fingerprint(filter)}:
        raise ValueError(f"{kept_filter.FILE} is another filter than the one that the run was charged by")
    if len(wanted) > 1:
        raise ValueError("report.json and the journal are of different filters")
    _checkpoints(path, records, seals)
    return Folder(path, records, seals, torn, report, filter)


def _report(path: Path) -> Fields:
    try:
        report = json.loads(_bytes(path / "report.json"))
        if report["seal"] != seal_of(report):
            raise ValueError("its seal does not fit: it was edited or damaged")
        digests = dict(report["sha256"])
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"report.json is no report: {type(problem).__name__} {problem!s:.200}") from None
    for name, digest in digests.items():
        file = path / name
        if file.parent != path or not is_regular(file):
            raise ValueError(f"{name} is missing beside report.json")
        if hashlib.sha256(_bytes(file)).hexdigest() != digest:
            raise ValueError(f"{name} was edited or damaged: it is not the one that report.json was written with")
    return report


def _checkpoints(path: Path, records: list[Record], seals: list[str]) -> None:
    """Raises where a checkpoint is another than the journal says, or knows of charges that the journal lacks."""
    known = {record["step"]: record["digest"] for record in records if record["kind"] == "checkpoint"}
    refuse_special_in(path / "checkpoints", "checkpoints")
    for step in checkpoints.steps_in(path / "checkpoints"):
        if checkpoints.opened(path / "checkpoints", step)[0] not in seals:
            raise ValueError(f"checkpoint {step} is of another journal, or charges are missing from this one")
        if step in known and checkpoints.digest_of(checkpoints.place_of(path / "checkpoints", step)) != known[step]:
            raise ValueError(f"checkpoint {step} was edited or damaged")


def _bytes(path: Path) -> bytes:
    refuse_special(path, path.name)
    if path.stat().st_size > _MOST:
        raise ValueError(f"{path.name} has more than {_MOST} bytes")
    return path.read_bytes()
