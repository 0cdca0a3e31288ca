"""The README's commands are the ones that CI runs, and its Python runs as printed."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TRAIN = "python3 -m venv .venv && .venv/bin/pip install '.[train]' && .venv/bin/jaxacct train"
TEST = "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest"


def test_the_two_command_lines_stand_in_the_readme():
    lines = README.splitlines()
    assert TRAIN in lines
    assert TEST in lines


def test_ci_runs_the_readmes_test_line():
    assert TEST in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_every_python_block_of_the_readme_runs_as_printed(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    # One after another in one namespace, as a reader would paste them.
    namespace: dict = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert 1.80 < namespace["lower"] <= namespace["upper"] < 1.85
    assert namespace["number"] > 100
    assert (namespace["found"].delta.upper <= 1e-5).all()
    assert abs(namespace["slope"] + 3.82261) < 1e-4
    assert not namespace["admitted"]
    printed = capsys.readouterr().out
    assert "epsilon is between" in printed
    assert float(printed.split()[-1]) <= 2.0
