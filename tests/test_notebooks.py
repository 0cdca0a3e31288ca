"""Every notebook runs from top to bottom, in a kernel of this Python, and is committed without outputs."""

import importlib.util
import json
import os
import pathlib
import sys

import jax
import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
NEEDED = ("nbclient", "nbformat", "ipykernel")


@pytest.fixture(name="nbclient")
def nbclient_fixture():
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"notebooks need {', '.join(missing)} to be executed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return pytest.importorskip("nbclient")


def test_there_is_a_notebook():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_carries_no_outputs(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


# zmq warns about sockets that the kernel's client leaves to the garbage collector.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_from_top_to_bottom(path, nbclient, monkeypatch, tmp_path):
    import nbformat
    from jupyter_client import kernelspec, manager

    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(jax.config.jax_compilation_cache_dir))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
    # The kernel is the Python of this test, whichever kernels are registered on the machine.
    spec = kernelspec.KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python"
    )
    kernel = manager.AsyncKernelManager()
    kernel._kernel_spec = spec
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, km=kernel, timeout=300, resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    assert all(cell.get("execution_count") for cell in notebook.cells if cell.cell_type == "code")
