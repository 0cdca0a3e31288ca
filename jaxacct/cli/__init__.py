"""The command line. A command's module loads when it runs, and with it only what that command needs."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence

import click

from jaxacct._version import __version__

__all__ = ["group", "main", "plain_errors"]

# Command name: (module, attribute, one line for --help).
_COMMANDS = {
    "calibrate": ("jaxacct.cli.calibrate", "calibrate", "Print the noise that meets a given epsilon and delta."),
    "delta": ("jaxacct.cli.account", "delta", "Print bounds of delta at a given epsilon."),
    "epsilon": ("jaxacct.cli.account", "epsilon", "Print bounds of epsilon at a given delta."),
    "ledger": ("jaxacct.cli.ledger", "ledger", "Keep a privacy budget on disk that several processes draw on."),
    "train": ("jaxacct.cli.train", "train", "Train a network with DP-SGD under a privacy budget."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in sorted(_COMMANDS.items())])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jaxacct")
def group() -> None:
    """Differential-privacy accounting in JAX."""


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turns bad values and missing files into one clear line and exit code 2."""
    try:
        yield
    except (ValueError, OSError) as problem:
        raise click.UsageError(" ".join(str(problem).split())) from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``jaxacct``: exit code 0, 2 for bad usage (one line on stderr), 130 for Ctrl-C."""
    try:
        code = group.main(arguments, prog_name="jaxacct", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as problem:
        problem.show()
        sys.exit(2)
    except click.ClickException as problem:
        click.echo(f"jaxacct: {' '.join(problem.format_message().split())}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("jaxacct: interrupted", err=True)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)
