"""The statement about a DP-SGD run: its numbers are the library's, and its words name what they hold for."""

import json
import math

import pytest

import jaxacct
from jaxacct import interop
from jaxacct.cli import main

RUN = {"records": 60000, "batch": 512, "epochs": 30, "noise_multiplier": 0.9}


def test_its_numbers_are_upper_bounds_of_the_runs_that_it_names():
    found = interop.dp_sgd_statement(**RUN)
    noise = jaxacct.Gaussian(0.9)
    sampled = jaxacct.epsilon(jaxacct.PoissonSampled(noise, 512 / 60000), 1e-5, steps=3516)
    assert (found.delta, found.steps) == (1e-5, 3516)
    assert float(sampled.lower) <= found.poisson <= float(sampled.upper) * (1 + 1e-9)
    assert found.no_sampling == float(jaxacct.epsilon(noise, 1e-5, steps=30).upper)
    assert found.allocation < found.no_sampling
    for word in ("Poisson", "balls in bins", "one training record", "3.614", "fixed before"):
        assert word in found.text
    assert "Warning" not in found.text
    assert "Warning" in interop.dp_sgd_statement(**RUN, delta=1e-3).text


def test_a_user_s_records_are_a_group():
    found = interop.dp_sgd_statement(**RUN, records_per_user=3)
    step = jaxacct.PoissonSampled(jaxacct.Gaussian(0.9), found.rate)
    each = found.user / 3
    delta = float(jaxacct.delta(step, each, steps=found.steps).upper)
    assert delta * math.expm1(3 * each) / math.expm1(each) <= 1e-5
    one = interop.dp_sgd_statement(**RUN, records_per_user=1)
    assert one.user == pytest.approx(one.poisson, rel=1e-6)


def test_the_command_prints_it(capsys):
    words = ["statement", "--noise-multiplier", "0.9", "--batch", "512", "--records", "60000", "--epochs", "30"]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as stop:
            main([*words, *more])
        assert stop.value.code == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert json.loads(last)["text"] == text.rstrip()
    with pytest.raises(SystemExit) as stop:
        main([*words[:4], "70000", *words[5:]])
    assert stop.value.code == 2
    assert "batch must be at most records" in capsys.readouterr().err
