"""``jaxacct calibrate`` as a shell sees it."""

import json

import numpy as np
import pytest

import jaxacct
from tests.cli.called import said


def test_what_is_printed_meets_the_target_and_less_noise_fails(capsys):
    out = said(capsys, "calibrate", "--epsilon", "1", "--delta", "1e-5", "--steps", "10")
    sigma, refuted = (float(line.split()[2]) for line in out.splitlines()[:2])
    assert jaxacct.delta(jaxacct.Gaussian(sigma), 1.0, steps=10).upper <= 1e-5
    assert jaxacct.delta(jaxacct.Gaussian(refuted), 1.0, steps=10).lower > 1e-5
    assert sigma / refuted - 1 < 2e-4


def test_json_holds_the_numbers_of_the_library(capsys):
    answer = json.loads(said(capsys, "calibrate", "--epsilon", "2", "--delta", "1e-6", "--relation", "add", "--json"))
    there = jaxacct.delta(jaxacct.Gaussian(answer["sigma"]), 2.0)
    assert answer["delta_at_sigma"] == {"lower": float(there.lower), "upper": float(there.upper)}
    assert answer["relation"] == "add"


def test_the_most_steps_are_a_whole_number_and_one_more_fails(capsys):
    out = said(capsys, "calibrate", "--epsilon", "1", "--delta", "1e-5", "--seek", "steps", "--sigma", "30")
    steps, refuted = (int(line.split()[2]) for line in out.splitlines()[:2])
    assert jaxacct.delta(jaxacct.Gaussian(30.0), 1.0, steps=steps).upper <= 1e-5
    assert refuted == steps + 1


def test_other_runs_are_counted_and_other_parameters_sought(capsys):
    options = ["--mechanism", "gdp", "--run", "gaussian:sigma=8,steps=2", "--epsilon", "1", "--delta", "1e-5", "--json"]
    answer = json.loads(said(capsys, "calibrate", *options))
    spent = [jaxacct.GDP(answer["mu"]), jaxacct.Gaussian(8.0)]
    assert jaxacct.delta(jaxacct.Composed(spent, [1, 2]), 1.0).upper <= 1e-5
    assert answer["mu"] < answer["refuted_mu"] < answer["mu"] * (1 + 2e-4)
    assert [run["mechanism"] for run in answer["runs"]] == ["gdp", "gaussian"]


def test_where_nothing_is_shown_to_fail_the_output_says_so(capsys):
    out = said(capsys, "calibrate", "--epsilon", "100000000", "--delta", "0.5")
    assert "no smaller sigma was shown to fail" in out


def test_where_to_look_may_be_named(capsys):
    words = ["--epsilon", "1", "--delta", "1e-5", "--bracket", "3.5", "4", "--json"]
    assert json.loads(said(capsys, "calibrate", *words))["sigma"] <= 4


def test_the_most_records_of_a_user_meet_the_target_and_one_more_fails(capsys):
    given = ["--epsilon", "4", "--delta", "1e-5", "--sigma", "3", "--rate", "0.01", "--steps", "200"]
    out = said(capsys, "calibrate", *given, "--seek", "records-per-user", "-q")
    most, refuted = (int(line.split()[2]) for line in out.splitlines()[:2])
    assert refuted == most + 1
    user = jaxacct.UserLevel(jaxacct.Gaussian(3.0), 0.01, np.array([most, refuted]))
    assert (jaxacct.epsilon(user, 1e-5, steps=200).upper <= 4.0).tolist() == [True, False]
    assert f"at most {most}" in out


def test_noise_for_users_meets_the_target(capsys):
    given = ["--epsilon", "2", "--delta", "1e-5", "--rate", "0.01", "--steps", "100", "--records-per-user", "3"]
    answer = json.loads(said(capsys, "calibrate", *given, "--json", "-q"))
    user = jaxacct.UserLevel(jaxacct.Gaussian(answer["sigma"]), 0.01, 3)
    assert jaxacct.delta(user, 2.0, steps=100).upper <= 1e-5
    assert answer["sigma"] < 1.001 * answer["refuted_sigma"]
    assert "attained" in answer["assumes"][-1]


def test_noise_for_a_mu_needs_no_epsilon(capsys):
    out = said(capsys, "calibrate", "--gdp", "1", "-q")
    assert float(out.split()[2]) == pytest.approx(1.0, rel=2e-3)
