"""`statement`: a run's folder or a ledger in words and numbers."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

from jaxacct import _validate
from jaxacct._files import as_path
from jaxacct.reports.document import Statement, least_mu
from jaxacct.reports.folder import opened, sentences
from jaxacct.reports.words import filled, paragraphs, report_of_journal, stated, up
from jaxacct.training.demo.report import steps_of
from jaxacct.training.durable_runs.kept_filter import RELATION, promise
from jaxacct.training.durable_runs.records import history


def statement(path: str | os.PathLike[str], *, delta: float | None = None) -> Statement:
    """What a run or a ledger guarantees: paragraphs for people, fields for programs.

    Args:
        path: a run's folder, or the file or PostgreSQL URL of a ledger.
        delta: where epsilon is quoted; by default as the run or ledger does.

    Raises:
        ValueError: no run or ledger there, or a damaged one.
    """
    if delta is not None:
        _validate.number(_validate.probability, delta=delta)
        delta = float(delta)
    text = os.fspath(path)
    if not (isinstance(text, str) and "://" in text):
        place = as_path(path=path)
        if place.is_dir():
            with sentences("the run"):
                return _of_run(place, delta)
        if not place.exists():
            raise ValueError(f"path must be a run's folder or a ledger, got {place}, where nothing is")
    return _of_ledger(os.fsdecode(text), delta)


def _of_run(path: Path, delta: float | None) -> Statement:
    held = opened(path)
    steps = history(held.records)[0] if held.report is None else steps_of(held.report)
    report = report_of_journal(held, steps) if held.report is None else held.report
    found = stated(report, steps)
    if delta is not None and delta != found.delta:
        if held.filter is None:
            raise ValueError("delta must be the run's own where its filter is not in the folder")
        known = promise(held.filter, delta)
        epsilon = known["epsilon"] if known["is_bound"] else None
        changed = {"epsilon": epsilon, "delta": delta, "theorem": known["theorem"], "adaptive": True}
        found = dataclasses.replace(found, **changed, is_bound=epsilon is not None)
    if held.filter is not None and found.epsilon is not None:
        found = dataclasses.replace(found, mu=least_mu(held.filter.guarantee))
    source = {"kind": "run", "seal": held.seals[-1] if held.seals else report["seal"]}
    return dataclasses.replace(found, source=source, text=filled(paragraphs(found, report)))


def _of_ledger(place: str, delta: float | None) -> Statement:
    from jaxacct.ledger import Ledger, LedgerError

    try:
        with Ledger(place) as book:
            filter, reading, history, head = book.filter, book.reading(), book.history(), book.head
    except LedgerError as problem:
        raise ValueError(str(problem)) from None
    delta = reading.delta if delta is None else delta
    guarantee: Any = filter.guarantee
    epsilon = float(np.asarray(guarantee.epsilon(delta))) if guarantee.is_bound else None
    admitted = [entry for entry in history if entry.admitted]
    waiting = sum(entry.released is None for entry in admitted)
    promised = (
        f"No bound is proven: the filter's number is asymptotic, for delta {delta:g}."
        if epsilon is None
        else f"Whoever sees everything that was and will be released under it learns about one unit of privacy at most "
        f"what differential privacy with epsilon {up(epsilon)}, delta {delta:g} allows. This is the number to report: "
        "it covers the whole budget, spent or not, however requests reacted to results."
    )
    parts = [
        f"A privacy budget under {filter!r}: {len(admitted):,} of {len(history):,} requests were admitted, "
        f"{waiting:,} of them not said to have been released. {promised}",
        str(guarantee.statement),
        "The unit of privacy is what the sensitivities of the requests were computed for; the ledger does not know it.",
        "No computation can check that what was released is what was charged, that noise was really added, and that "
        f"nothing else was released. Head of the ledger: {head}.",
    ]
    return Statement(
        unit="what the requests' sensitivities were computed for: unknown to the ledger",
        relation=RELATION,
        sampler=None,
        theorem=str(guarantee.statement),
        adaptive=True,
        is_bound=epsilon is not None,
        epsilon=epsilon,
        delta=delta,
        mu=None if epsilon is None else least_mu(guarantee),
        steps=len(admitted),
        others={"spent": reading.spent.epsilon} if reading.spent.epsilon is not None else {},
        public=["the requests, their answers and their labels"],
        source={"kind": "ledger", "seal": head},
        text=filled(parts),
    )
