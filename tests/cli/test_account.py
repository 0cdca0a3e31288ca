"""``jaxacct epsilon`` and ``jaxacct delta`` as a shell sees them."""

import json
import math
import os
import shlex
import subprocess
import sys
from fractions import Fraction

import pytest

import jaxacct
from jaxacct.cli import group
from tests.cli.called import called as _run
from tests.cli.called import said


def test_epsilon_prints_both_bounds(capsys):
    out = said(capsys, "epsilon", "--sigma", "2", "--steps", "10", "--delta", "1e-5")
    truth = jaxacct.epsilon(jaxacct.Gaussian(2.0), 1e-5, steps=10)
    upper, lower = (float(line.split()[2]) for line in out.splitlines()[:2])
    # Six digits, rounded outwards: what is printed is still a bound.
    assert upper >= truth.upper
    assert lower <= truth.lower
    assert math.isclose(upper, lower, rel_tol=1e-4)


def test_epochs_batch_and_records_say_rate_and_steps(capsys):
    words = ["epsilon", "--noise-multiplier", "0.9", "--epochs", "30", "--batch", "512", "--records", "60000"]
    code, out, err = _run(capsys, *words, "--delta", "1e-5", "--json")
    answer = json.loads(out)
    (run,) = answer["runs"]
    assert (code, err) == (0, "")
    assert run["steps"] == math.ceil(30 * 60000 / 512)
    assert Fraction(512, 60000) <= Fraction(run["rate"]) <= Fraction(512, 60000) * (1 + Fraction(1, 2**52))
    truth = jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(0.9), run["rate"]), 1e-5, steps=run["steps"])
    assert answer["epsilon"]["upper"] == float(truth.upper)
    assert "Poisson" in answer["assumes"][0]
    # A rate that divides the epoch: 100 steps, not 101.
    code, out, _ = _run(capsys, "delta", "--sigma", "3", "--rate", "0.01", "--epochs", "1", "--epsilon", "1", "--json")
    assert json.loads(out)["runs"][0]["steps"] == 100


@pytest.mark.parametrize(
    ("delta", "more", "warned"),
    [("1e-5", ["--records", "60000"], False), ("1e-4", ["--records", "60000"], True), ("0.01", [], True)],
)
def test_a_delta_above_one_in_the_records_is_warned_of(capsys, delta, more, warned):
    code, out, err = _run(capsys, "epsilon", "--sigma", "2", "--delta", delta, *more)
    assert code == 0
    assert ("warning: delta" in err) == warned
    assert "holds for" not in out  # nothing is sampled


NOISE = jaxacct.Gaussian(2.0)
NOT_ATTAINED = (
    jaxacct.ZeroConcentratedDP, jaxacct.RenyiDP, jaxacct.TruncatedPoisson, jaxacct.SampledWithReplacement,
    jaxacct.RandomAllocation, jaxacct.Shuffled,
)  # fmt: skip
FAMILIES = [
    ("--sigma 2 --sensitivity 0.5", jaxacct.Gaussian(2.0, 0.5)),
    ("--mechanism laplace --scale 2", jaxacct.Laplace(2.0)),
    ("--mechanism randomized-response --each-epsilon 0.5 --categories 4", jaxacct.RandomizedResponse(0.5, 4)),
    ("--mechanism approximate-dp --each-epsilon 0.5 --each-delta 1e-3", jaxacct.ApproximateDP(0.5, 1e-3)),
    ("--run gdp:mu=0.6 --run gaussian:sigma=2,steps=2", jaxacct.Composed([jaxacct.GDP(0.6), NOISE], [1, 2])),
    ("--run exponential:epsilon=1", jaxacct.Exponential(1.0)),
    ("--run permute-and-flip:epsilon=1", jaxacct.PermuteAndFlip(1.0)),
    ("--run discrete-gaussian:sigma=2,sensitivity=3", jaxacct.DiscreteGaussian(2.0, 3)),
    ("--run zcdp:rho=0.1", jaxacct.ZeroConcentratedDP(0.1)),
    ("--run renyi-dp:order=3,epsilon=0.1", jaxacct.RenyiDP(3.0, 0.1)),
    ("--sigma 2 --run gdp:mu=0.7", jaxacct.Composed([NOISE, jaxacct.GDP(0.7)])),
    ("--sigma 2 --rate 0.05 --largest 70 --records 1000", jaxacct.TruncatedPoisson(NOISE, 0.05, 70, 1000)),
    (
        "--sigma 2 --sensitivity 2 --sample-size 10 --dataset-size 1000 --with-replacement",
        jaxacct.SampledWithReplacement(jaxacct.Gaussian(2.0, 2.0), 10, 1000),
    ),
    ("--sigma 2 --batches 8", jaxacct.RandomAllocation(NOISE, 8)),
    ("--sigma 2 --batches 8 --participations 2", jaxacct.RandomAllocation(NOISE, 8, 2)),
    ("--sigma 2 --batches 8 --shuffled", jaxacct.Shuffled(NOISE, 8)),
]


@pytest.mark.parametrize(("options", "mechanism"), FAMILIES, ids=lambda x: x if isinstance(x, str) else "")
def test_options_describe_mechanisms(capsys, options, mechanism):
    command = ["delta", *options.split(), "--epsilon", "0.4"]
    answer = json.loads(said(capsys, *command, "--json"))
    truth = jaxacct.delta(mechanism, 0.4)
    assert answer["delta"] == {"lower": float(truth.lower), "upper": float(truth.upper)}
    assert answer["relation"] == "add_or_remove"
    words = " ".join(said(capsys, *command).split())
    assert ("best attack known" in words) == isinstance(mechanism, NOT_ATTAINED)
    assert ("epochs of" in words) == ("batches" in options)


def test_what_nothing_certifies_is_null_in_json_and_inf_in_words(capsys):
    arguments = shlex.split("epsilon --mechanism approximate-dp --each-epsilon 1 --each-delta 5e-3 --delta 1e-3")
    code, out, err = _run(capsys, *arguments, "--json")
    assert code == 0
    # Infinite losses are likelier than delta: infinity from both sides, and nothing to warn of.
    assert json.loads(out)["epsilon"] == {"lower": None, "upper": None}
    assert not err
    assert "epsilon <= inf" in _run(capsys, *arguments)[1]


def test_the_output_fits_any_locale_and_a_closed_pipe_is_no_error(tmp_path):
    environment = dict(os.environ, PYTHONIOENCODING="ascii:strict", LC_ALL="C", XDG_CACHE_HOME=str(tmp_path))
    program = "from jaxacct.cli import main; main()"
    helped = [
        subprocess.run([sys.executable, "-c", program, *command, "--help"], env=environment, capture_output=True)
        for command in (["compare"], ["plot"])
    ]
    assert [one.returncode for one in helped] == [0, 0]
    ours, theirs = os.pipe()
    os.close(ours)
    closed = subprocess.run(
        [sys.executable, "-c", program, "--help"], env=environment, stdout=theirs, stderr=subprocess.PIPE
    )
    os.close(theirs)
    assert (closed.returncode, closed.stderr) == (1, b"")


def test_help_pages_hold_only_ascii_and_an_example(capsys):
    for name in group.list_commands(None):
        code, out, _ = _run(capsys, name, "--help")
        assert code == 0
        assert out.isascii()
        assert "Example" in out, name


def test_commands_and_options_complete(capsys, monkeypatch):
    monkeypatch.setenv("_JAXACCT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "jaxacct epsilon --rel")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert "--relation" in _run(capsys)[1]


def test_users_and_mu_are_asked_for_in_one_line(capsys):
    run = ["epsilon", "--sigma", "3", "--rate", "0.01", "--steps", "100", "--delta", "1e-5", "--records-per-user", "4"]
    out = said(capsys, *run, "--gdp", "-q")
    truth = jaxacct.epsilon(jaxacct.UserLevel(jaxacct.Gaussian(3.0), 0.01, 4), 1e-5, steps=100)
    upper, lower = (float(line.split()[2]) for line in out.splitlines()[:2])
    assert lower <= truth.lower <= truth.upper <= upper <= 1.001 * lower
    assert "at most 4" in out
    assert "attained" in out
    assert "mu <=" in out
    answer = json.loads(said(capsys, *run, "--gdp", "--json", "-q"))
    assert answer["records_per_user"] == 4
    assert answer["gdp"]["mu"]["lower"] <= answer["gdp"]["mu"]["upper"]


def test_group_privacy_says_so_and_has_the_lower_bound_of_one_record(capsys):
    run = ["--mechanism", "skellam", "--mu", "400", "--records-per-user", "3", "-q"]
    out = said(capsys, "delta", "--epsilon", "0.2", *run)
    alone = jaxacct.delta(jaxacct.Skellam(400.0), 0.2)
    upper, lower = (float(line.split()[2]) for line in out.splitlines()[:2])
    assert lower <= alone.lower < upper
    assert "group privacy" in out
