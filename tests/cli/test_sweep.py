"""``jaxacct sweep`` as a shell sees it."""

import csv
import io
import json
import math

import numpy as np
import pytest

import jaxacct
from tests.cli.called import said


def test_csv_holds_the_numbers_of_the_library(capsys, tmp_path):
    file = tmp_path / "table.csv"
    options = ["--sigma", "2,4", "--steps", "10,20", "--delta", "1e-5,1e-6", "--csv"]
    assert not said(capsys, "sweep", *options, "-o", str(file))
    assert file.read_text() == said(capsys, "sweep", *options)
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert len(rows) == 8
    assert [row["steps"] for row in rows[:4]] == ["10", "10", "20", "20"]
    sigma, delta, steps = ([float(row[name]) for row in rows] for name in ("sigma", "delta", "steps"))
    truth = jaxacct.epsilon(jaxacct.Gaussian(sigma), delta, steps=steps)
    assert [float(row["epsilon_upper"]) for row in rows] == truth.upper.tolist()
    assert [float(row["epsilon_lower"]) for row in rows] == truth.lower.tolist()


def test_the_printed_table_is_rounded_outwards(capsys):
    out = said(capsys, "sweep", "--sigma", "2:4:3", "--epsilon", "1", "--steps", "10")
    truth = jaxacct.delta(jaxacct.Gaussian([2.0, 3.0, 4.0]), 1.0, steps=10)
    table = [line.split() for line in out.splitlines()]
    assert out.splitlines()[0] == "gaussian: rate 1, steps 10, epsilon 1, relation add_or_remove"
    assert table[1] == ["sigma", "delta_lower", "delta_upper"]
    lower, upper = np.array(table[2:], float)[:, 1:].T
    assert np.all(lower <= truth.lower)
    assert np.all(upper >= truth.upper)
    assert np.allclose(lower, upper, rtol=1e-4)


def test_noise_is_sought_for_every_target_and_null_where_there_is_none(capsys):
    found = json.loads(said(capsys, "sweep", "--epsilon", "1,0", "--delta", "1e-5,1e-12", "--steps", "100", "--json"))
    assert found["wanted"] == "sigma"
    assert [row["sigma"] is None for row in found["rows"]] == [False, False, False, True]
    sigma = [row["sigma"] for row in found["rows"][:2]]
    assert np.all(jaxacct.delta(jaxacct.Gaussian(sigma), 1.0, steps=100).upper <= [1e-5, 1e-12])


def test_other_runs_are_composed_with_every_setting(capsys):
    out = said(capsys, "sweep", "--run", "gdp:mu=0.5,steps=4", "--sigma", "1,2", "--delta", "1e-5", "--json")
    truth = [float(jaxacct.epsilon(jaxacct.GDP(math.sqrt(1 + 1 / s**2)), 1e-5).upper) for s in (1, 2)]
    assert [row["epsilon_upper"] for row in json.loads(out)["rows"]] == pytest.approx(truth, rel=1e-12)
