"""Settings of every test: strict dtypes, a compilation cache, and where the reference tables are."""

import contextlib
import ctypes
import gc
import json
import os
import pathlib
import tempfile

import hypothesis
import jax
import pytest

from tests.ledger.stores import server, store  # noqa: F401

jax.config.update("jax_numpy_dtype_promotion", "standard")
# Compilations are most of the suite's time. Workers and the processes that tests start share them, the small ones too;
# the folder is outside the checkout and makes the second run a short one.
CACHE = {
    "jax_compilation_cache_dir": os.environ.get(
        "JAXACCT_TEST_CACHE", str(pathlib.Path(tempfile.gettempdir()) / "jaxacct-test-cache")
    ),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
}
for name, value in CACHE.items():
    os.environ[name.upper()] = str(value)
    jax.config.update(name, value)

# The same examples in every run: `--hypothesis-profile=default` looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")

SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"


def reference(name: str):
    """Rows of a high-precision table that lies beside the checkout, where it does."""
    path = SHARED / "reference" / name
    if not path.exists():
        pytest.skip(f"no {name}: the reference tables do not lie beside this checkout")
    return json.loads(path.read_text())


@pytest.fixture(autouse=True, scope="session")
def _tables_are_this_runs(tmp_path_factory):
    """Tables of menus and boxes: made once for all workers, and anew in the next run (none outlives its code)."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    os.environ["JAXACCT_CACHE_DIR"] = str(folder / "tables")


@pytest.fixture
def in_float64():
    """Float64 in JAX, as the package's own functions ask their formulas."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(name="reference")
def reference_fixture():
    return reference


@pytest.fixture(autouse=True)
def _flag_stays_as_it_was():
    before = jax.config.jax_enable_x64
    yield
    assert jax.config.jax_enable_x64 == before


@pytest.fixture(autouse=True, scope="module")
def _programs_do_not_pile_up():
    """Compiled programs stay in memory, and in mappings, of which a process may have 65,530: past that it crashes."""
    yield
    process = pathlib.Path("/proc/self")
    if not process.exists():
        return
    resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if resident > 8e8 or (process / "maps").read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # glibc keeps what is freed until it is asked
            ctypes.CDLL(None).malloc_trim(0)


def pytest_collection_modifyitems(items):
    """Tests under tests/internals hold on to private names: opt-in, so that they forbid no refactoring."""
    for item in items:
        if "internals" in item.path.parts:
            item.add_marker(pytest.mark.internals)
