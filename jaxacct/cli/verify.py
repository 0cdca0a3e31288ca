"""``jaxacct verify``: checks what a run, a ledger or a statement says."""

from __future__ import annotations

import dataclasses
import textwrap

import click

from jaxacct._progress import progress
from jaxacct.cli import plain_errors
from jaxacct.cli.output import say_json
from jaxacct.cli.page import Page, examples, shared, under


@click.command(
    cls=Page, epilog=examples("verify runs/2026-01-31T12-00-00", "verify team.db", "verify statement.json --certify")
)
@click.argument("path")
@under("Question")(
    "--certify", is_flag=True, help="Also hold the numbers against an enclosure in ball arithmetic (the extra certify)."
)
@shared
@click.pass_context
def verify(context: click.Context, path: str, certify: bool, as_json: bool, quiet: bool) -> None:
    """Check what a run's folder, a ledger or a statement says; exit status 1 if it does not hold.

    The filter of a run is read back from the folder and asked again for every step that was charged, the report's
    numbers are computed again from its history, and every seal is checked. One paragraph says what was checked, and
    what nobody can check: that noise was really added. Nothing is changed.
    """
    with plain_errors(), progress("verify", quiet):
        from jaxacct import reports

        found = reports.verify(path, certify=certify)
    if as_json:
        say_json(dataclasses.asdict(found))
    else:
        click.echo(textwrap.fill(found.text, 100), err=not found.holds)
    context.exit(0 if found.holds else 1)
