"""Help pages with headings, and options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Command = Callable[..., None]
FIRST = "DP-SGD"
"""The heading that stands first on a help page."""
DELTA = "Probability that the guarantee may fail, in (0, 1); well below 1 / records, such as 1e-6."


class Option(click.Option):
    """An option that stands under a heading of the help page."""

    def __init__(self, *args: Any, heading: str = "Options", **kwargs: object):
        super().__init__(*args, **kwargs)
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


class _Whole(click.ParamType):
    """A whole number, also written as 1e6."""

    name = "whole"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, at most 2**53."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        if not abs(number) <= 2.0**53 or number != int(number):
            self.fail(f"{value!r} is not a whole number of at most 2**53.", param, ctx)
        return int(number)


WHOLE = _Whole()


class AnySpelling(click.Choice):
    """Names of filters or schedules, with hyphens or underscores."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
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


_flag = functools.partial(under("Output"), is_flag=True)
shared = together(
    _flag("--json", "as_json", help="Print one JSON object, with full precision; what is infinite or unknown is null."),
    _flag("-q", "--quiet", help="No progress bar."),
)
"""``--json`` and ``--quiet``, as arguments ``as_json`` and ``quiet``."""


def csv_or_json(command: Command) -> Command:
    """``--csv`` beside the options of `shared`, as an argument ``as_csv``; both at once are refused."""

    @functools.wraps(command)
    def one_of_them(*, as_csv: bool, as_json: bool, **arguments: object) -> None:
        if as_csv and as_json:
            raise click.UsageError("--csv and --json are two ways to print: give one of them")
        command(as_csv=as_csv, as_json=as_json, **arguments)

    return _flag("--csv", "as_csv", help="Comma-separated, full precision.")(shared(one_of_them))


def output_file(help: str, required: bool = False) -> Callable[[Command], Command]:
    """The option ``--output`` of a command, a file to write."""
    return under("Output")(
        "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=required, help=help
    )


def examples(*lines: str) -> str:
    """An epilog that keeps its lines."""
    return "\b\nExample:\n" + "\n".join(f"  jaxacct {line}" for line in lines)
