"""``jaxacct compare`` and ``jaxacct plot`` as a shell sees them."""

import json

import pytest

import jaxacct
from jaxacct import filters
from tests.cli.called import called as _run
from tests.cli.called import said

OPTIONS = ["--run", "gaussian:sigma=20,steps=16", "--run", "gaussian:sigma=30,steps=15", "--delta", "1e-5"]
WHOLE = jaxacct.Composed([jaxacct.Gaussian(20.0), jaxacct.Gaussian(30.0)], [16, 15])


@pytest.mark.slow
def test_every_filter_admits_the_schedule_at_the_epsilon_it_certifies(capsys):
    found = json.loads(said(capsys, "compare", *OPTIONS, "--json"))
    rows = {row["method"]: row for row in found["rows"]}
    assert set(rows) == {"fixed in advance", "zcdp", "gdp", "renyi", "approximate_gdp"}
    assert {name for name, row in rows.items() if row["kind"] != "proven"} == {"approximate_gdp"}
    thorough = {"sampled_gaussian", "closed_form", "approximate_gdp, true cost", "gdp_residue"}
    assert set(found["left_out"]) == {"pure_dp", *thorough}
    assert rows["fixed in advance"]["epsilon"] < rows["renyi"]["epsilon"]
    budget = filters.renyi(rows["renyi"]["epsilon"], 1e-5, order=filters.plan_order(WHOLE, 1e-5))
    assert bool(budget.update(WHOLE, budget.init())[0])


@pytest.mark.slow
def test_the_thorough_filters_join(capsys):
    options = ["--sigma", "2", "--rate", "0.05", "--steps", "200", "--delta", "1e-5"]
    out = said(capsys, "compare", *options, "--thorough", "--json")
    rows = {row["method"]: row for row in json.loads(out)["rows"]}
    exact = rows["fixed in advance"]
    assert exact["epsilon"] < rows["gdp_residue"]["epsilon"]
    assert exact["epsilon"] < rows["sampled_gaussian"]["epsilon"] < 1.05 * exact["epsilon"] < rows["renyi"]["epsilon"]
    assert exact["epsilon"] < rows["closed_form"]["epsilon"] < 1.05 * exact["epsilon"]
    costs = rows["approximate_gdp, true cost"]
    assert rows["approximate_gdp"]["epsilon"] < costs["lower"] <= costs["epsilon"] < 1.01 * exact["epsilon"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [["profile"], ["trade-off", "--log"], ["loss"]], ids=lambda options: options[0])
def test_pictures_are_written(capsys, tmp_path, options):
    file = tmp_path / "picture.png"
    out = said(capsys, "plot", *options, "--sigma", "3", "-o", str(file), "--json")
    assert json.loads(out) == {"wrote": str(file)}
    assert file.read_bytes().startswith(b"\x89PNG")


def test_an_asymptotic_number_below_a_proven_lower_bound_is_said_to_be_too_small(capsys):
    words = ["compare", "--sigma", "0.6", "--rate", "0.01", "--steps", "1000", "--delta", "1e-5"]
    code, out, err = _run(capsys, *words)
    assert code == 0
    assert "approximate_gdp" in err
    assert "too small" in err
    assert "approximate_gdp is too small by" in out
    assert "holds for Poisson sampling" in out
    assert "too small" not in _run(capsys, *words[:3], *words[5:])[2]


def test_samplers_are_compared_with_what_is_proven_of_each(capsys):
    options = ["--sampling", "--sigma", "1", "--batch", "50", "--records", "1000", "--epochs", "2", "--delta", "1e-6"]
    found = json.loads(said(capsys, "compare", *options, "--json"))
    rows = {row["sampler"]: row for row in found["rows"]}
    assert (found["batches"], found["epochs"]) == (20, 2)
    exact = jaxacct.epsilon(jaxacct.RandomAllocation(jaxacct.Gaussian(1.0), 20), 1e-6, steps=2)
    assert rows["allocation"]["epsilon"] == pytest.approx(float(exact.upper), rel=1e-6)
    assert rows["shuffled"]["epsilon"] > rows["poisson"]["epsilon"]
    assert "attack" in rows["shuffled"]["kind"]


def test_users_are_compared_where_their_curve_is_attained(capsys):
    run = ["compare", "--sigma", "8", "--rate", "0.01", "--steps", "50", "--delta", "1e-5", "--records-per-user", "3"]
    found = json.loads(said(capsys, *run, "--json", "-q"))
    rows = {row["method"]: row for row in found["rows"]}
    truth = jaxacct.epsilon(jaxacct.UserLevel(jaxacct.Gaussian(8.0), 0.01, 3), 1e-5, steps=50)
    assert rows["fixed in advance"]["epsilon"] == float(truth.upper)
    assert rows["renyi"]["epsilon"] > truth.upper
    assert "at most 3" in found["assumes"][-1]
