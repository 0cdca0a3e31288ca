"""Runs notebooks from top to bottom and keeps what they print and draw: ``python notebooks/execute.py [NOTEBOOK ...]``.

Without names all of them are run. With ``--check`` nothing is written. What goes to the error stream (progress,
warnings) is not kept, nor when and for how long a cell ran.
"""

from __future__ import annotations

import argparse
import base64
import io
import pathlib
import sys

import nbclient
import nbformat
from jupyter_client import kernelspec, manager
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent


def executed(path: pathlib.Path) -> nbformat.NotebookNode:
    """The notebook with outputs, from a kernel of this Python, whichever kernels are registered on the machine."""
    kernel = manager.AsyncKernelManager()
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel._kernel_spec = kernelspec.KernelSpec(argv=command, language="python")
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(notebook, km=kernel, timeout=600, record_timing=False, resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for data in (one.data for one in cell.outputs if "image/png" in one.get("data", {})):
                data["image/png"] = small(data["image/png"])
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def small(picture: str) -> str:
    """A PNG with 64 colours, a fraction of its size; in base64, both ways."""
    kept = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    image.quantize(64).save(kept, "PNG", optimize=True)
    return base64.b64encode(kept.getvalue()).decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path, default=sorted(HERE.glob("*.ipynb")))
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    for path in arguments.notebooks:
        notebook = executed(path)
        if not arguments.check:
            text = nbformat.writes(notebook)
            path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        print(path.name, sum(cell.cell_type == "code" and bool(cell.execution_count) for cell in notebook.cells))


if __name__ == "__main__":
    main()
