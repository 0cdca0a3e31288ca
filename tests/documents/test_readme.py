"""The README's commands are the ones that CI runs, and its Python runs as printed."""

import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TRAIN = "python3 -m venv .venv && .venv/bin/pip install '.[train]' && .venv/bin/jaxacct train"
TEST = "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest"


def test_the_two_command_lines_stand_in_the_readme_and_ci_runs_the_one_that_tests():
    assert {TRAIN, TEST} <= set(README.splitlines())
    assert TEST in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_readmes_loop_never_overdraws_the_approximate_gdp_filter_either():
    place, given = (
        "filters.sampled_gaussian(sigma=(2.0, 2.5), rate=0.05, epsilon=2.0, delta=1e-5)",
        "filters.approximate_gdp(0.04)",
    )
    (block,) = (b for b in re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL) if place in b)
    end: dict = {"__name__": "readme"}
    exec(compile(block.replace(place, given), "README.md", "exec"), end)
    assert end["number"] > 100
    assert 0.0395 < float(end["budget"].spent(end["spent"])) <= 0.04
    # What ran costs no more: the noise was 2.5 at first, 2 at the end at most.
    assert end["number"] * 0.05**2 * math.expm1(2.5**-2) / 2 <= 0.04


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
