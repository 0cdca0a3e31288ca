"""The command line, ``jaxacct`` or ``python -m jaxacct``. Each command's module is imported when it runs."""

from __future__ import annotations

import contextlib
import gc
import importlib
import re
import sys
import warnings
from collections.abc import Iterator, Sequence

import click

from jaxacct._version import __version__

__all__ = ["group", "main", "plain_errors", "warn"]

# Command name: (module beside this one, one line for --help).
_COMMANDS = {
    "calibrate": ("calibrate", "Print the noise, rate or steps that meet epsilon and delta."),
    "certify": ("certify", "Print a certificate of delta or epsilon, or check one."),
    "compare": ("compare", "Compare what filters certify on one schedule."),
    "delta": ("account", "Print bounds of delta at a given epsilon."),
    "epsilon": ("account", "Print bounds of epsilon at a given delta."),
    "ledger": ("ledger", "Keep a privacy budget on disk that several processes draw on."),
    "plot": ("plot", "Draw a privacy profile, trade-off curve or loss."),
    "statement": ("statement", "Say in words what a run, a ledger or a plan guarantees."),
    "sweep": ("sweep", "Tabulate epsilon, delta or noise over many settings."),
    "train": ("train", "Train a network with DP-SGD under a privacy budget."),
    "verify": ("verify", "Check what a run, a ledger or a statement says."),
}


class _LazyGroup(click.Group):
    """The group of `_COMMANDS`, which are imported when they are used."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, whose module is imported now."""
        if cmd_name not in _COMMANDS:
            return None
        return getattr(importlib.import_module(f"jaxacct.cli.{_COMMANDS[cmd_name][0]}"), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


_EPILOG = """\b
Example:
  jaxacct epsilon --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5

Completion: eval "$(_JAXACCT_COMPLETE=bash_source jaxacct)" in ~/.bashrc; zsh_source, fish_source for other shells.

Exit status: 0; 2 for an invalid argument or file, with one line on standard error; 130 if interrupted.
"""


@click.group(
    cls=_LazyGroup,
    commands={name: click.Command(name) for name in _COMMANDS},
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="jaxacct")
def group() -> None:
    """Differential-privacy accounting in JAX.

    Every answer is a certified upper bound next to a certified lower one; both are printed rounded outwards.
    COMMAND --help describes a command, with an example.
    """


def warn(message: Warning | str, *_: object) -> None:
    """Prints a warning in one line on standard error."""
    click.echo(f"jaxacct: warning: {' '.join(str(message).split())}", err=True)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turns bad values, missing files or packages, and a ledger's errors into a line and exit code 2; warnings too."""

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning)  # NumPy's, on the way to a bound
            warnings.showwarning = warn
            yield
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ImportError, RuntimeError) as problem:
        if isinstance(problem, RuntimeError):
            from jaxacct.ledger import LedgerError

            if not isinstance(problem, LedgerError):
                raise
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
    gc.set_threshold(200_000)  # importing JAX and tracing make many objects that stay
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
