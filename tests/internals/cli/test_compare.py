"""``jaxacct compare`` and ``jaxacct plot`` as a shell sees them."""

import json

import pytest

import jaxacct
from jaxacct.cli import contestants as _contestants
from tests.cli.test_compare import OPTIONS, WHOLE, _run


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_table_says_what_each_certifies_and_what_is_left_out(capsys, monkeypatch):
    def refuse(schedule):
        raise ValueError(f"not for\n{schedule.steps} steps")

    few = {
        "fixed in advance": _contestants.FILTERS["fixed in advance"],
        "gdp": _contestants.FILTERS["gdp"],
        "odd": refuse,
    }
    monkeypatch.setattr(_contestants, "FILTERS", few)
    code, out, _ = _run(capsys, "compare", *OPTIONS, "--epsilon", "0.8", "--json")
    found = json.loads(out)
    exact, gdp = found["rows"]
    truth = jaxacct.epsilon(WHOLE, 1e-5)
    assert code == 0
    assert [(run["sigma"], run["steps"]) for run in found["runs"]] == [(20.0, 16), (30.0, 15)]
    assert (exact["lower"], exact["epsilon"]) == (float(truth.lower), float(truth.upper))
    assert gdp["lower"] is None
    # For Gaussians the GDP filter is as good as a schedule fixed in advance.
    assert exact["epsilon"] <= gdp["epsilon"] <= exact["epsilon"] * (1 + 1e-9)
    assert exact["steps"] == gdp["steps"] == 23
    assert found["left_out"]["odd"] == "not for 31 steps"
    assert "add --thorough" in found["left_out"]["sampled_gaussian"]
    code, out, _ = _run(capsys, "compare", *OPTIONS, "--csv")
    assert code == 0
    assert [line.split(",")[0] for line in out.splitlines()] == ["method", "fixed in advance", "gdp"]
    code, out, _ = _run(capsys, "compare", *OPTIONS)
    assert out.splitlines()[-1] == "not odd: not for 31 steps"
    assert float(out.splitlines()[1].split()[3]) >= truth.upper
