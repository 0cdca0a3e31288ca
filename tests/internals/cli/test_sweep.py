"""``jaxacct sweep`` as a shell sees it."""

import numpy as np
import pytest

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
