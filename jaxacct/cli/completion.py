"""``jaxacct completion``: the shell's own completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from jaxacct.cli.page import Page

_EPILOG = """\b
Example:
  bash:  echo 'eval "$(jaxacct completion bash)"' >> ~/.bashrc
  zsh:   echo 'eval "$(jaxacct completion zsh)"' >> ~/.zshrc
  fish:  jaxacct completion fish > ~/.config/fish/completions/jaxacct.fish
"""


@click.command(cls=Page, epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete jaxacct's commands, options and choices."""
    from jaxacct.cli import group

    made = get_completion_class(shell)
    assert made is not None
    try:
        click.echo(made(group, {}, "jaxacct", "_JAXACCT_COMPLETE").source())
    except RuntimeError as problem:  # an old bash
        raise click.UsageError(str(problem)) from None
