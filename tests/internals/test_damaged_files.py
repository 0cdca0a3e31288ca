"""Damaged JSON of ledgers and tables on disk: what was written, or an error with a name."""

from __future__ import annotations

import io
import os
import shutil
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxacct.filters.prices import kept as _table_cache
from jaxacct.ledger import canonical
from jaxacct.ledger.errors import LedgerCorrupted, LedgerError
from jaxacct.training.durable_runs.checkpoints import Checkpoints
from tests.fuzz.common import at_most
from tests.fuzz.test_damaged_files import KINDS, special

json_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "fields", "float", "array", "tuple", "data", "dtype", "shape", "sigma"]),
            inner | st.sampled_from(["Gaussian", "Ledger", "os", "<f8", "|O", "AAAA", "0x1p+0", "nan"]),
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
            canonical.loads(text)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    arrays = {"excess": np.linspace(1.0, 0.0, 64), "prices": np.arange(3)}
    _table_cache.store("key", arrays)
    return tmp_path / "key.npz", arrays


def test_a_table_with_a_pickle_in_it_is_none_and_is_not_unpickled(table):
    path, _ = table

    class Bomb:
        def __reduce__(self):
            return (shutil.rmtree, (str(path.parent),))

    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb()], object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("excess.npy", buffer.getvalue())
        archive.writestr("digest.npy", buffer.getvalue())
    assert _table_cache.load("key") is None
    assert path.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_no_regular_files_is_refused_at_once(kind, tmp_path):
    special(tmp_path / "file", kind)
    if kind == "folder":
        os.mkfifo(tmp_path / "file" / "inside")  # a folder is what it should be, and a pipe in it is not
    with at_most(20), pytest.raises((ValueError, OSError), match=tmp_path.name):
        Checkpoints(tmp_path / "file")
