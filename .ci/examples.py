"""Runs examples against an installed jaxacct: those of the commands' help pages, or the README's Python."""

from __future__ import annotations

import importlib.resources
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import click

import jaxacct
from jaxacct.cli import group

# What takes minutes, needs an extra or a terminal, or is one of several steps, which tests run.
LEFT_OUT = ("certify", "plot", "train", "verify")
SLOW = ("--thorough", "runs/")


def commands() -> None:
    """Every example of every command, in a folder of its own."""
    assert importlib.resources.files("jaxacct").joinpath("py.typed").is_file(), "py.typed is missing"
    context, count = click.Context(group), 0
    with tempfile.TemporaryDirectory() as folder:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            lines = [line.strip() for line in (getattr(command, "epilog", None) or "").splitlines()]
            for line in [line.split(" && ")[0] for line in lines if line.startswith("jaxacct ")]:
                if name in LEFT_OUT or any(option in line for option in SLOW):
                    continue
                words = [sys.executable, "-m", "jaxacct", *shlex.split(line, comments=True)[1:]]
                ran = subprocess.run(words, cwd=folder, capture_output=True, text=True)
                if ran.returncode:
                    raise SystemExit(f"{line}: exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")
                count += 1
    print(f"jaxacct {jaxacct.__version__}: {count} examples of commands ran")
    assert count > 10


def readme(path: str) -> None:
    """Every Python block by itself, as somebody would paste it."""
    blocks = re.findall(r"^```python\n(.*?)^```$", Path(path).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for block in blocks:
        subprocess.run([sys.executable, "-c", block], check=True)
    print(f"{len(blocks)} blocks of the README ran")
    assert blocks


if __name__ == "__main__":
    {"commands": commands, "readme": readme}[sys.argv[1]](*sys.argv[2:])
