"""The statement about a DP-SGD run: its numbers are the library's, and its words name what they hold for."""

import json
import re

import pytest

import jaxacct
from jaxacct import reports
from tests.cli.called import said

RUN = {"records": 60000, "batch": 512, "epochs": 30, "noise_multiplier": 0.9}


def test_its_numbers_are_upper_bounds_of_the_runs_that_it_names():
    found = reports.dp_sgd_statement(**RUN)
    noise = jaxacct.Gaussian(0.9)
    sampled = jaxacct.epsilon(jaxacct.PoissonSampled(noise, 512 / 60000), 1e-6, steps=3516)
    assert (found.delta, found.steps) == (1e-6, 3516)
    assert float(sampled.lower) <= found.epsilon <= float(sampled.upper) * (1 + 1e-9)
    assert found.others["no_sampling"] == float(jaxacct.epsilon(noise, 1e-6, steps=30).upper)
    assert found.others["allocation"] < found.others["no_sampling"]
    shown = float(re.search(r"the run is differentially private with epsilon\s(.*?),", found.text).group(1))
    assert found.epsilon <= shown <= found.epsilon * 1.001
    for word in ("Poisson", "balls in bins", "one training record", "fixed before"):
        assert word in found.text
    assert "Warning" not in found.text
    assert "Warning" in reports.dp_sgd_statement(**RUN, delta=1e-3).text


def test_all_records_of_a_user_cost_less_than_group_privacy_says():
    found = reports.dp_sgd_statement(
        records=15_625, batch=500, epochs=20, noise_multiplier=1.36, delta=1e-4, records_per_user=8
    )
    assert 35.9 < found.others["user"] < 35.96  # generic group privacy has 108.9
    one = reports.dp_sgd_statement(**RUN, records_per_user=1)
    assert one.others["user"] == pytest.approx(one.epsilon, rel=1e-4)


def test_the_command_prints_it(capsys):
    words = ["statement", "--noise-multiplier", "0.9", "--batch", "512", "--records", "60000", "--epochs", "30"]
    text = reports.dp_sgd_statement(**RUN).text
    assert said(capsys, *words).rstrip() == json.loads(said(capsys, *words, "--json"))["text"] == text
