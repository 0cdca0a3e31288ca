"""``jaxacct epsilon`` and ``jaxacct delta`` as a shell sees them."""

import json
import math

import pytest

import jaxacct
from jaxacct.cli import main


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def test_epsilon_prints_both_bounds(capsys):
    code, out, _ = _run(capsys, "epsilon", "--sigma", "2", "--steps", "10", "--delta", "1e-5")
    truth = jaxacct.epsilon(jaxacct.Gaussian(2.0), 1e-5, steps=10)
    upper, lower = (float(line.split()[2]) for line in out.splitlines()[:2])
    assert code == 0
    # Six digits, rounded outwards: what is printed is still a bound.
    assert upper >= truth.upper
    assert lower <= truth.lower
    assert math.isclose(upper, lower, rel_tol=1e-4)


def test_delta_speaks_json(capsys):
    code, out, _ = _run(capsys, "delta", "--sigma", "2", "--epsilon", "1", "--relation", "add", "--json")
    answer = json.loads(out)
    truth = jaxacct.delta(jaxacct.Gaussian(2.0), 1.0)
    assert code == 0
    assert answer["delta"] == {"lower": float(truth.lower), "upper": float(truth.upper)}
    assert answer["relation"] == "add"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["epsilon", "--sigma", "1", "--rate", "1.5", "--delta", "1e-5"],
            "rate must be between 0 and 1, got 1.5",
        ),
        (["epsilon", "--sigma", "-1", "--delta", "1e-5"], "sigma must be a finite number above 0, got -1"),
        (["epsilon", "--sigma", "1", "--delta", "0"], "delta must be strictly between 0 and 1, got 0"),
        (["epsilon", "--sigma", "1", "--steps", "0", "--delta", "1e-5"], "steps must be a whole number"),
        (["delta", "--sigma", "nan", "--epsilon", "1"], "sigma must be a finite number above 0, got nan"),
        (
            ["delta", "--sigma", "1", "--rate", "0.1", "--epsilon", "1", "--relation", "replace"],
            "no analysis",
        ),
        (["delta", "--sigma", "one", "--epsilon", "1"], "--sigma"),
    ],
)
def test_bad_values_end_in_one_line_and_exit_code_2(capsys, arguments, words):
    code, out, err = _run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert words in err
    assert len(err.strip().splitlines()) == 1
