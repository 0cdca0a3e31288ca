"""Long work says on a terminal how far it has come, on one line and nowhere else; a printed bound is a bound."""

import io
import math
import sys

import hypothesis
import hypothesis.strategies as st
import pytest

from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct import _progress as made
from jaxacct._printing import rounded_down, rounded_up
from jaxacct._progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal_of(monkeypatch, delay=0.0):
    """Standard error as a terminal; from within a test, because pytest sets its own before."""
    monkeypatch.setattr(made, "_DELAY", delay)
    monkeypatch.setattr(sys, "stderr", Terminal())
    return sys.stderr


def test_a_table_shows_a_bar_though_nobody_asked(tmp_path, monkeypatch):
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    ask = lambda: filters.menu([PoissonSampled(Gaussian(2.0), 0.1)], epsilon=1.0, delta=1e-5)  # noqa: E731
    ask()
    assert "table of prices" in terminal.getvalue()
    assert "#" in terminal.getvalue()
    seen = len(terminal.getvalue())
    with progress("anything", quiet=True):
        filters.menu([PoissonSampled(Gaussian(2.1), 0.1)], epsilon=1.0, delta=1e-5)
    assert len(terminal.getvalue()) == seen


def test_nothing_is_written_where_nobody_looks(capsys, monkeypatch):
    monkeypatch.setattr(made, "_DELAY", 0.0)
    with progress("work") as told:
        assert told is None
    assert capsys.readouterr().err == ""


def test_a_bar_waits_for_a_second_of_work(monkeypatch):
    for delay, shown in ((60.0, False), (0.0, True)):
        terminal = terminal_of(monkeypatch, delay)
        with progress("work") as told:
            told(4, 4)
        assert ("4/4" in terminal.getvalue()) == shown


def test_work_within_work_stays_on_the_outer_line_and_is_as_quiet(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with progress("outer") as own, progress("inner") as told:
        told(1, 2)
        own(1, 4)
        before = terminal.getvalue()
        told(1, 2)
        assert terminal.getvalue() == before
    assert "outer" in before
    assert "inner" not in before
    with progress("outer", quiet=True), progress("inner") as told:
        assert told is None


def test_the_line_goes_away_also_after_an_error(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with pytest.raises(ValueError, match="broken"), progress("work"):
        raise ValueError("broken")
    assert terminal.getvalue().endswith("\r\033[K")
    with progress("more") as told:
        told(1, 2)
    assert "more" in terminal.getvalue()


@hypothesis.given(st.floats(allow_nan=False, allow_infinity=False, width=64), st.integers(1, 12))
def test_rounding_never_crosses_the_value_and_stays_close(value, digits):
    up, down = float(rounded_up(value, digits)), float(rounded_down(value, digits))
    assert down <= value <= up
    if math.isfinite(up - down) and abs(value) > 1e-300:
        assert up - down <= abs(value) * 10.0 ** (1 - digits) * 1.01


def test_infinity_prints():
    assert rounded_up(math.inf) == "inf"
