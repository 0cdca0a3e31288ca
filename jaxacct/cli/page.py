"""Help pages with headings, and options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from jaxacct._progress import Report, progress
from jaxacct.cli import plain_errors
from jaxacct.cli.output import Answer, csv_text, json_text

Command = Callable[..., object]
FIRST, MECHANISM = "DP-SGD", "Mechanism"
"""Headings of a help page, of which the first one stands first."""
DELTA = "Probability that the guarantee may fail, in (0, 1); well below 1 / records, such as 1e-6."


class Option(click.Option):
    """An option that stands under a heading of the help page."""

    def __init__(self, param_decls: Sequence[str], heading: str = "Options", **kwargs: Any):
        super().__init__(param_decls, **kwargs)
        self.heading = heading


def under(heading: str) -> Callable[..., Callable[[Command], Command]]:
    """``click.option`` for options under a heading."""
    return functools.partial(click.option, cls=Option, heading=heading)


class Page(click.Command):
    """A command whose options are listed under headings: those of DP-SGD first, the others as they first appear."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options under their headings."""
        sections: dict[str, list[tuple[str, str]]] = {FIRST: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class Question(Page):
    """A command that returns an `Answer`: printed for people, or as one JSON object, or as comma-separated values."""

    def invoke(self, ctx: click.Context) -> None:
        """Asks, prints the answer or writes it to a file, and exits with its status."""
        as_json, as_csv, quiet, file = (ctx.params.pop(name, None) for name in ("as_json", "as_csv", "quiet", "into"))
        if as_csv and as_json:
            raise click.UsageError("--csv and --json are two ways to print: give one of them")
        with plain_errors():
            with progress(str(self.name), bool(quiet)) as ctx.obj:
                answer: Answer = super().invoke(ctx)
            text = json_text(answer.fields) if as_json else csv_text(*answer.csv) if as_csv else "\n".join(answer.lines)
            text = text.removesuffix("\n") + "\n"
            if file is None:
                click.echo(text, nl=False, err=answer.err and not as_json)
            else:
                file.write_text(text, encoding="utf-8")
        ctx.exit(answer.status)


class AnySpelling(click.Choice):
    """Names of filters or schedules, with hyphens or underscores."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as the library spells it, with underscores."""
        from jaxacct.filters.names import canonical

        return super().convert(canonical(value), param, ctx)


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Options and arguments as one decorator; the help page has them in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


relation_option = under("Question")(
    "--relation",
    type=click.Choice(["add_or_remove", "add", "remove", "replace", "replace_special"]),
    default="add_or_remove",
    show_default=True,
    help="What neighbouring data sets differ in; sensitivities are for this relation.",
)


as_table = under("Output")("--csv", "as_csv", is_flag=True, help="Comma-separated, full precision.")


def report_of_work() -> Report:
    """What the command that runs tells how far it has come."""
    return click.get_current_context().obj


def question(*lines: str, epilog: str = "", kind: type[Page] = Question) -> Callable[[Command], click.Command]:
    """``click.command`` for a function that returns an `Answer`, with ``--json``, ``--quiet`` and these examples.

    A function that prints by itself is of the kind `Page`: it has both as arguments ``as_json`` and ``quiet``.
    """
    words = "Print one JSON object, with full precision; what is infinite or unknown is null."

    def made(command: Command) -> click.Command:
        found = click.command(cls=kind, epilog=examples(*lines) if lines else epilog)(command)
        found.params += [
            Option(["--json", "as_json"], is_flag=True, heading="Output", help=words),
            Option(["-q", "--quiet"], is_flag=True, heading="Output", help="No progress bar."),
        ]
        return found

    return made


def output_file(help: str, name: str = "output", required: bool = False) -> Callable[[Command], Command]:
    """The option ``--output`` of a command, a file to write; as the argument ``into`` it takes the answer."""
    file = click.Path(path_type=Path, dir_okay=False)
    return under("Output")("-o", "--output", name, type=file, required=required, help=help)


def examples(*lines: str) -> str:
    """An epilog that keeps its lines."""
    return "\b\nExample:\n" + "\n".join(f"  jaxacct {line}" for line in lines)
