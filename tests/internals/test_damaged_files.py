"""Damaged JSON of ledgers, and folders of runs that hold other things: what was written, or an error with a name."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxacct.ledger import canonical
from jaxacct.ledger.errors import LedgerCorrupted, LedgerError
from jaxacct.training.durable_runs.run_folder import RunFolder
from tests.fuzz.common import at_most
from tests.fuzz.test_damaged_files import KINDS, special

json_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "fields", "array", "data", "dtype", "shape", "sigma"]),
            inner | st.sampled_from(["Gaussian", "Ledger", "os", "<f8", "|O", "AAAA", "nan"]),
            max_size=3,
        )
    ),
    max_leaves=8,
)


def fuzz_tree(tree):
    try:
        value = canonical.decoded(tree)
        text = canonical.dumps(canonical.encoded(value, "x"))
    except LedgerCorrupted:
        return
    except ValueError as problem:
        assert "x must" in str(problem)  # noqa: PT017
        return
    assert canonical.dumps(canonical.encoded(canonical.decoded(canonical.loads(text)), "x")) == text


def test_any_json_is_a_value_or_an_error_with_a_name():
    settings(max_examples=60, deadline=None)(given(json_trees)(fuzz_tree))()
    for text in ("", "[", "NaN", '{"a":1,"a":2}', " 1", "1e5", "[" * 5000 + "]" * 5000, "\ud800"):
        with pytest.raises(LedgerError):
            canonical.decoded(canonical.loads(text))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_no_regular_files_is_refused_at_once(kind, tmp_path):
    special(tmp_path / "checkpoints", kind)
    if kind == "folder":
        os.mkfifo(tmp_path / "checkpoints" / "inside")  # a folder is what it should be, and a pipe in it is not
    with at_most(20), pytest.raises((ValueError, OSError), match=tmp_path.name):
        RunFolder(tmp_path, None)
