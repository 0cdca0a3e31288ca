"""``jaxacct verify``: checks what a run, a ledger or a statement says."""

from __future__ import annotations

import dataclasses
import textwrap

import click

from jaxacct.cli.output import Answer
from jaxacct.cli.page import question, under


@question("verify runs/2026-01-31T12-00-00", "verify team.db", "verify statement.json --certify")
@click.argument("path")
@under("Question")(
    "--certify", is_flag=True, help="Also hold the numbers against an enclosure in ball arithmetic (the extra certify)."
)
def verify(path: str, certify: bool) -> Answer:
    """Check what a run's folder, a ledger or a statement says; exit status 1 if it does not hold.

    The filter of a run is read back from the folder and asked again for every step that was charged, the report's
    numbers are computed again from its history, and every seal is checked. One paragraph says what was checked, and
    what nobody can check: that noise was really added. Nothing is changed.
    """
    from jaxacct import reports

    found = reports.verify(path, certify=certify)
    failed = not found.holds
    return Answer([textwrap.fill(found.text, 100)], dataclasses.asdict(found), status=int(failed), err=failed)
