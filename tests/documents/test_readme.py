"""The README's commands are the ones that CI runs, and its Python runs as printed."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
    assert len(blocks) == 3
    namespace: dict = {}
    for block in blocks:
        alone: dict = {"__name__": "readme"}  # as a reader would paste it
        exec(compile(block, "README.md", "exec"), alone)
        namespace |= alone
    assert namespace["number"] > 100
    assert not namespace["admitted"]
    assert 1.80 < namespace["lower"][2, 0] <= namespace["upper"][2, 0] < 1.85
    printed = capsys.readouterr().out
    assert float(printed.split("epsilon")[1].split()[0]) <= 2.0
    assert float(printed.split("at most")[1].split()[0]) < 1e-6
