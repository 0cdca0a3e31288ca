"""The command line. Each command's module is imported when it runs."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import re
import sys
import warnings
from collections.abc import Iterator, Sequence

import click

from jaxacct._version import __version__

__all__ = ["LazyGroup", "group", "main", "plain_errors"]

# Command name: (module, attribute, one line for --help).
_COMMANDS = {
    "calibrate": ("jaxacct.cli.calibrate", "calibrate", "Print the noise, rate or steps that meet epsilon and delta."),
    "certify": ("jaxacct.cli.certify", "certify", "Print a certificate of delta or epsilon, or check one."),
    "compare": ("jaxacct.cli.compare", "compare", "Compare what filters certify on one schedule."),
    "completion": ("jaxacct.cli.completion", "completion", "Print the script that completes commands in your shell."),
    "delta": ("jaxacct.cli.account", "delta", "Print bounds of delta at a given epsilon."),
    "epsilon": ("jaxacct.cli.account", "epsilon", "Print bounds of epsilon at a given delta."),
    "ledger": ("jaxacct.cli.ledger", "ledger", "Keep a privacy budget on disk that several processes draw on."),
    "plot": ("jaxacct.cli.plot", "plot", "Draw a privacy profile, trade-off curve, loss or sweep."),
    "statement": ("jaxacct.cli.statement", "statement", "Say in words what a run, a ledger or a plan guarantees."),
    "sweep": ("jaxacct.cli.sweep", "sweep", "Tabulate epsilon, delta or noise over many settings."),
    "train": ("jaxacct.cli.train", "train", "Train a network with DP-SGD under a privacy budget."),
    "verify": ("jaxacct.cli.verify", "verify", "Check what a run, a ledger or a statement says."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used.

    Args:
        lazy: command name: (module, attribute, one line for --help).
    """

    def __init__(self, *args, lazy: dict[str, tuple[str, str, str]], **kwargs):
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, by alphabet."""
        del ctx
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, whose module is imported now."""
        del ctx
        if cmd_name not in self.lazy:
            return None
        module, attribute, _ = self.lazy[cmd_name]
        return getattr(importlib.import_module(module), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` name, or an error that says which one may be meant."""
        if args and args[0] not in self.lazy and not args[0].startswith("-"):
            meant = difflib.get_close_matches(args[0], self.lazy, n=3, cutoff=0.5)
            words = f": did you mean {' or '.join(map(repr, meant))}?" if meant else "; jaxacct --help lists them"
            raise click.UsageError(f"No such command {args[0]!r}{words}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in sorted(self.lazy.items())])


_EPILOG = """\b
Example:
  jaxacct epsilon --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5

Exit status: 0; 2 for an invalid argument or file, with one line on standard error; 130 if interrupted.
"""


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jaxacct")
def group() -> None:
    """Differential-privacy accounting in JAX.

    Every answer is a certified upper bound next to a certified lower one; both are printed rounded outwards.
    COMMAND --help describes a command, with an example.
    """


@contextlib.contextmanager
def plain_errors(*more: type[Exception]) -> Iterator[None]:
    """Turns bad values, missing files or packages, and ``more``, into a line and exit code 2; warnings into lines."""

    def show(message: Warning | str, *_: object) -> None:
        click.echo(f"jaxacct: warning: {' '.join(str(message).split())}", err=True)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning)  # NumPy's, on the way to a bound
            warnings.showwarning = show
            yield
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ImportError, *more) as problem:
        raise click.UsageError(" ".join(str(problem).split())) from None


def _words(problem: click.ClickException) -> str:
    """What is wrong; what a missing option is for, and the command's first example; or that an option is the answer."""
    words, ctx = problem.format_message(), getattr(problem, "ctx", None)
    if isinstance(problem, click.NoSuchOption) and ctx is not None:
        answer, given = problem.option_name.lstrip("-"), {"delta": "epsilon", "epsilon": "delta"}
        if answer == ctx.command.name and answer in given:
            return f"{answer} is the answer: give --{given[answer]}, or ask for that by `jaxacct {given[answer]}`"
    if not isinstance(problem, click.MissingParameter):
        return words
    purpose = getattr(problem.param, "help", None)
    epilog = ctx.command.epilog if ctx else None
    example = next((line for line in (epilog or "").splitlines() if line.startswith("  jaxacct ")), None)
    return words + (f" {purpose}" if purpose else "") + (f" For example: {example}" if example else "")


def _without_passwords(text: str) -> str:
    """An error's text, in which click may quote a URL that stands where none belongs."""
    text = re.sub(r"(\w:/*[^\s:/@]*):[^\s]*@", r"\1:***@", text)
    return re.sub(r"([?&]\w*pass\w*=)[^\s&']*", r"\1***", text, flags=re.IGNORECASE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``jaxacct``: exit code 0, 2 for bad usage (one line on stderr), 130 for Ctrl-C."""
    try:
        code = group.main(arguments, prog_name="jaxacct", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as problem:
        problem.show()
        sys.exit(2)
    except click.ClickException as problem:
        words = _without_passwords(" ".join(_words(problem).split()))
        click.echo(f"jaxacct: {words}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("jaxacct: interrupted", err=True)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)
