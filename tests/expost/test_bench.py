"""The experiment of bench/accuracy_first.py, on a table that is made here."""

import importlib
import pathlib
import sys

import numpy as np
import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def bench():
    pytest.importorskip("sklearn", reason="the experiment needs scikit-learn")
    sys.path.insert(0, str(BENCH))  # where its pictures are
    yield importlib.import_module("accuracy_first")
    sys.path.remove(str(BENCH))


def test_a_missing_package_is_named_with_the_extra(bench):
    with pytest.raises(SystemExit, match=r"needs no_such_package: pip install 'jaxacct\[mbi\]'"):
        bench.needed("no_such_package")


def test_results_are_drawn_as_figures_1_and_2(bench, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    rng = np.random.default_rng(0)
    part = lambda: {"epsilon": float(rng.choice(bench.BUDGETS)), "validation": rng.random(), "test": rng.random()}  # noqa: E731
    runs = [{"plain": part(), "sparse": part()} for _ in range(5)]
    bench.draw({"runs": runs, "threshold": 0.8, "not_private": None}, str(tmp_path / "made.json"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["made_figure_1.png", "made_figure_2.png"]
