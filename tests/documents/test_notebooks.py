"""Every notebook runs from top to bottom, in a kernel of this Python, and is committed with its outputs."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
NEEDED = ("nbclient", "nbformat", "ipykernel")

EXECUTE = NOTEBOOKS[0].parent / "execute.py"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_can_be_read_without_running_it(path):
    # Refresh it with: python notebooks/execute.py notebooks/NAME.ipynb
    text = path.read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {"stream", "display_data", "execute_result"} >= {output["output_type"] for output in outputs} != set()
    assert not any(output.get("name") == "stderr" for output in outputs)
    said = json.dumps([[output.get("text"), output.get("data", {}).get("text/plain")] for output in outputs])
    assert not re.search(r"[\"' (](/|[A-Z]:)[\w.-]+/|site-packages| at 0x[0-9a-f]{6}", said), said
    assert len(text) < 300_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_opens_with_the_one_install_cell(path):
    # The repository's address stands in that cell: all of them must say the same.
    own, first = (_install_cell(notebook) for notebook in (path, NOTEBOOKS[0]))
    assert re.sub(r"(?m)^EXTRA, NEEDED = .*$", "", own) == re.sub(r"(?m)^EXTRA, NEEDED = .*$", "", first)
    assert own.count("\nEXTRA, NEEDED = ") == 1
    assert "REPOSITORY = " in own


@pytest.mark.parametrize("status", [0, 1])
def test_outside_a_checkout_the_first_cell_installs_by_name_or_says_what_to_do(monkeypatch, tmp_path, status):
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(
        subprocess, "run", lambda args, **_: asked.append(args[-1]) or subprocess.CompletedProcess(args, status)
    )
    cell = compile(_install_cell(NOTEBOOKS[0]), "cell", "exec")
    if status:
        with pytest.raises(ImportError, match=r"Get the source of jaxacct, run pip install 'PATH/TO/IT\[\w+\]'"):
            exec(cell, {})
    else:
        exec(cell, {})
    assert len(asked) == 1
    assert re.fullmatch(r"jaxacct\[\w+\]", asked[0])


def _install_cell(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "".join(next(cell["source"] for cell in cells if cell["cell_type"] == "code"))


@pytest.mark.parametrize(
    "path",
    # The default suite runs the first tour; the others take too long for it.
    [pytest.param(p, id=p.name, marks=() if p.stem == "quickstart" else pytest.mark.slow) for p in NOTEBOOKS],
)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"notebooks need {', '.join(missing)} to be executed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    settings = {
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": str(tmp_path / "matplotlib"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
    }
    # In a process of its own: the kernel's client leaves sockets to the garbage collector; warnings are errors here.
    run = subprocess.run(
        [sys.executable, str(EXECUTE), "--check", str(path)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert int(run.stdout.split()[-1]) == sum(cell["cell_type"] == "code" for cell in cells)
