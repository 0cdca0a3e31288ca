"""Tables of prices on disk: only what this user alone can have written is used."""

import os
import shutil
import warnings

import numpy as np
import pytest

from jaxacct import Gaussian, filters
from jaxacct.mechanisms import PoissonSampled

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="a system whose rights are not in modes")


def built():
    """Whether the table of a menu was computed, and not read."""
    calls = []
    menu = [PoissonSampled(Gaussian(4.0), 0.1)]
    filters.menu(menu, epsilon=1.0, delta=1e-4, points=4096, progress=lambda done, total: calls.append(done))
    return bool(calls)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """The file of the menu's table, in a folder that was made for it."""
    folder = tmp_path / "tables"
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(folder))
    assert built()
    (path,) = folder.glob("*.npz")
    return path


def test_what_is_kept_is_this_user_s_alone(table):
    assert os.stat(table.parent).st_mode & 0o777 == 0o700
    assert os.stat(table).st_mode & 0o777 == 0o600


def linked(path):
    path.rename(path.parent.parent / "poison")
    path.symlink_to(path.parent.parent / "poison")


def owned(path):
    if os.geteuid():
        pytest.skip("giving a file away takes root")
    os.chown(path, 12345, 12345)


HARMS = {
    "a folder of all": lambda path: path.parent.chmod(0o777),
    "a folder of a group": lambda path: path.parent.chmod(0o770),
    "a file of all": lambda path: path.chmod(0o622),
    "linked": linked,
    "owned": owned,
    "a folder owned": lambda path: owned(path.parent),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_table_that_somebody_else_may_have_written_is_computed_anew(table, harm):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not built()
    HARMS[harm](table)
    if harm == "linked":
        assert built()
        return
    words = r"computed anew, because it (belongs to user|may be written by others)"
    with pytest.warns(RuntimeWarning, match=words):
        assert built()


def test_a_folder_that_others_may_write_to_gets_no_table(tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="may be written by others"):
        assert built()
    assert not os.listdir(tmp_path)


def changed(path, change):
    """The archive with one change, and the digest that it had."""
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, **change(arrays)})


class Bomb:
    """Removes the folder of the tables when it is unpickled."""

    def __reduce__(self):
        return shutil.rmtree, (os.environ["JAXACCT_CACHE_DIR"],)


DAMAGED = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "flipped": lambda path: path.write_bytes(
        bytes(255 - b if i == 2000 else b for i, b in enumerate(path.read_bytes()))
    ),
    "a larger budget": lambda path: changed(path, lambda arrays: {"budget": 2 * arrays["budget"]}),
    "pickled": lambda path: changed(path, lambda arrays: {"budget": np.array([Bomb()], object)}),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_table_is_computed_anew_and_replaced(table, damage):
    DAMAGED[damage](table)
    (table.parent / "another").touch()
    assert built()
    assert (table.parent / "another").exists()
    assert not built()
