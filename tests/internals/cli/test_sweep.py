"""``jaxacct sweep`` as a shell sees it."""

import io

import numpy as np
import pytest

from jaxacct import _progress
from jaxacct.cli.values import VALUES, WHOLE_VALUES


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", [1]),
        ("1,2, 4", [1, 2, 4]),
        ("0.5:2:4", [0.5, 1.0, 1.5, 2.0]),
        ("1:100:3:log", [1, 10, 100]),
        ("7,1:2:2", [7, 1, 2]),
        ("2:1:2", [2, 1]),
    ],
)
def test_lists_and_ranges(text, expected):
    assert np.allclose(VALUES(text), expected, rtol=1e-15)
    assert WHOLE_VALUES("10:1000:4:log").tolist() == [10, 46, 215, 1000]


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_shows_on_a_terminal_after_a_second_and_nowhere_else(monkeypatch):
    said = []
    seen = [
        (_Terminal(), False, 0.0),
        (_Terminal(), True, 0.0),
        (io.StringIO(), False, 0.0),
        (_Terminal(), False, 60.0),
    ]
    for stream, quiet, delay in seen:
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr(_progress, "_DELAY", delay)
        with _progress.bar("sweep", quiet) as report:
            report(1, 4)
            report(4, 4)
        said.append(stream.getvalue())
    assert "4/4" in said[0]
    assert said[1:] == ["", "", ""]
