"""Calls the shell's commands within the test's own process."""

import pytest

from jaxacct.cli import main


def called(capsys, *arguments):
    """The exit status of ``jaxacct ARGUMENTS``, and what it wrote to standard output and standard error."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return stop.value.code, out, err


def said(capsys, *arguments):
    """What ``jaxacct ARGUMENTS`` writes to standard output, where all is well."""
    code, out, err = called(capsys, *arguments)
    assert code == 0, err
    return out
