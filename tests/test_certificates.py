"""Certificates: truths of high precision are inside, the engine's bounds agree, and a changed certificate fails."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import mpmath
import pytest

import jaxacct
from jaxacct import (
    GDP,
    ApproximateDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    FromTables,
    Gaussian,
    Laplace,
    MixtureOfGaussians,
    PoissonSampled,
    RandomizedResponse,
    Skellam,
)
from jaxacct.cli import main

pytest.importorskip("flint", reason="certificates need python-flint")

SAMPLED = PoissonSampled(Gaussian(1.0), 0.01)


def test_delta_of_a_gaussian_encloses_mpmath_to_forty_digits():
    found = jaxacct.certify(Gaussian(1.5), epsilon=0.7, digits=40)
    with mpmath.workdps(60):
        mu, e = 1 / mpmath.mpf(1.5), mpmath.mpf(0.7)
        truth = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
        assert mpmath.mpf(found.lower) <= truth <= mpmath.mpf(found.upper)
    assert found.digits >= 40


def test_a_sampled_run_encloses_mpmath_in_both_directions():
    with mpmath.workdps(40):
        q, e = mpmath.mpf(0.01), mpmath.mpf(0.25)
        remove = mpmath.log((mpmath.exp(e) - 1 + q) / q) + mpmath.mpf(0.5)
        truth = q * mpmath.ncdf(1 - remove) + (1 - q - mpmath.exp(e)) * mpmath.ncdf(-remove)
        found = jaxacct.certify(SAMPLED, epsilon=0.25, relation="remove", digits=25)
        assert mpmath.mpf(found.lower) <= truth <= mpmath.mpf(found.upper)
    assert jaxacct.certify(SAMPLED, epsilon=0.25, relation="add").upper == "0"


def test_a_thousand_sampled_steps_agree_with_the_engine_to_fifteen_digits():
    for relation in ("remove", "add"):
        found = jaxacct.certify(SAMPLED, epsilon=1.0, steps=1000, relation=relation)
        bounds = jaxacct.delta(SAMPLED, 1.0, steps=1000, relation=relation)
        assert found.digits >= 15
        assert bounds.lower <= float(found.upper)
        assert float(found.lower) <= bounds.upper


def test_exact_sums_of_randomized_response_are_those_of_fractions():
    # exp(epsilon) is 3 up to its last bit: the sum over counts in rational numbers is the truth to 1e-15.
    found = jaxacct.certify(RandomizedResponse(math.log(3.0)), epsilon=1.0, steps=6, digits=20)
    high, gamma = Fraction(3, 4), Fraction(math.e)
    truth = sum(
        math.comb(6, k) * max(high**k * (1 - high) ** (6 - k) - gamma * (1 - high) ** k * high ** (6 - k), 0)
        for k in range(7)
    )
    assert abs(Fraction(found.lower) - truth) < Fraction(1, 10**14)


KINDS = {
    "randomized_response": lambda row: RandomizedResponse(row["epsilon0"]),
    "gaussian": lambda row: GDP(row["mu"]),
    "laplace": lambda row: Laplace(row["scale"]),
    "approx_dp": lambda row: ApproximateDP(row["epsilon0"], row["delta0"]),
}


def test_reference_tables_are_enclosed(reference):
    rows = [
        (PoissonSampled(Gaussian(row["noise_multiplier"]), row["sampling_rate"]), row["direction"], row)
        for row in reference("subsampled_gaussian.json")[::5]
    ]
    closed = [row for row in reference("closed_forms.json") if row["mechanism"] in KINDS]
    rows += [(KINDS[row["mechanism"]](row), "remove", row) for row in closed]
    assert len(closed) > 8
    for mechanism, relation, row in rows:
        found = jaxacct.certify(
            mechanism, epsilon=row["epsilon"], steps=row.get("steps", 1), relation=relation, digits=12
        )
        doubt = Fraction(row["delta"]) * (Fraction(row["relative_error"]) + Fraction(2) ** -52)
        assert Fraction(found.lower) - doubt <= Fraction(row["delta"]) <= Fraction(found.upper) + doubt, row


CASES = {
    "laplace": (Laplace(2.0), 12, 1.0),
    "sampled laplace": (PoissonSampled(Laplace(1.0), 0.2), 1, 0.1),
    "mixture": (MixtureOfGaussians(2.0, (0.0, 1.0, 2.0), (0.5, 0.3, 0.2)), 30, 0.8),
    "categories": (RandomizedResponse(0.4, 4), 9, 1.0),
    "sampled response": (PoissonSampled(RandomizedResponse(1.0), 0.3), 12, 0.8),
    "approximate": (ApproximateDP(0.5, 1e-4), 10, 1.5),
    "tables": (FromTables([0.5, 0.3, 0.2, 0.0], [0.3, 0.3, 0.39, 0.01]), 7, 1.0),
    "discrete laplace": (DiscreteLaplace(3.0, 2), 6, 0.9),
    "discrete gaussian": (DiscreteGaussian(3.0), 1, 0.5),
    "discrete gaussian, many": (DiscreteGaussian(9.0), 40, 0.5),
    "skellam": (Skellam(5.0), 1, 0.4),
    "response, many": (RandomizedResponse(1e-3), 10**6, 1.0),
    "laplace, many": (Laplace(50.0), 4000, 2.0),
    "of two kinds": (Composed([Gaussian(4.0), Laplace(6.0)], [5, 3]), 1, 0.7),
}


@pytest.mark.parametrize("name", CASES)
def test_the_engines_bounds_and_certificates_agree(name):
    mechanism, steps, epsilon = CASES[name]
    for relation in ("add_or_remove", "add", "remove"):
        found = jaxacct.certify(mechanism, epsilon=epsilon, steps=steps, relation=relation, digits=10)
        bounds = jaxacct.delta(mechanism, epsilon, steps=steps, relation=relation)
        assert found.encloses(float(bounds.lower), float(bounds.upper)), relation
        assert found.digits >= 10


def test_what_has_no_exact_sum_is_enclosed_by_means_over_epsilons():
    mechanism = FromTables([0.5, 0.3, 0.15, 0.05], [0.3, 0.32, 0.2, 0.18])
    found = jaxacct.certify(mechanism, epsilon=6.0, steps=200, relation="remove", digits=4)
    bounds = jaxacct.delta(mechanism, 6.0, steps=200, relation="remove")
    assert found.method == "smoothed contour"
    assert found.encloses(float(bounds.lower), float(bounds.upper))
    assert found.digits > 2


def test_epsilon_is_enclosed_and_checked():
    found = jaxacct.certify(Laplace(2.0), delta=1e-3, steps=4, digits=12)
    bounds = jaxacct.epsilon(Laplace(2.0), 1e-3, steps=4)
    assert found.encloses(float(bounds.lower), float(bounds.upper))
    assert found.digits >= 11.9
    assert found.check()
    assert jaxacct.certify(ApproximateDP(1.0, 1e-3), delta=1e-4).upper == "inf"
    assert jaxacct.certify(Laplace(2.0), delta=0.5).upper == "0"


def test_a_certificate_survives_json_and_a_false_one_does_not_hold():
    found = jaxacct.certify(Composed([SAMPLED, Gaussian(3.0)], [40, 2]), epsilon=0.6, digits=12)
    again = jaxacct.read_certificate(found.to_json())
    assert again.to_json() == found.to_json()
    assert again.check()
    for side, other in (("upper", found.lower[:6]), ("lower", str(float(found.upper) * 1.001))):
        held = json.loads(found.to_json())
        held["answer"][side] = other
        assert not jaxacct.read_certificate(json.dumps(held)).check()
    for text in ("", "{}", "[1]", '{"certificate": 1}', found.to_json().replace("Gaussian", "open")):
        with pytest.raises(ValueError, match="certificate"):
            jaxacct.read_certificate(text)


def test_questions_without_a_certificate_are_named():
    for arguments, message in (
        (dict(epsilon=1.0, delta=0.1), "epsilon or delta must be given"),
        (dict(), "epsilon or delta must be given"),
        (dict(epsilon=-1.0), "epsilon must be"),
        (dict(delta=0.0), "delta must be"),
        (dict(epsilon=1.0, steps=0), "steps must be"),
        (dict(epsilon=1.0, digits=0), "digits must be"),
        (dict(epsilon=1.0, relation="both"), "relation must be"),
    ):
        with pytest.raises(ValueError, match=message):
            jaxacct.certify(SAMPLED, **arguments)
    with pytest.raises(ValueError, match="one that certificates know"):
        jaxacct.certify(jaxacct.Exponential(1.0), epsilon=1.0)
    with pytest.raises(ValueError, match="array"):
        jaxacct.certify(Gaussian([1.0, 2.0]), epsilon=1.0)


def shell(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return stop.value.code, capsys.readouterr().out


def test_the_command_writes_a_certificate_that_it_confirms_and_not_a_changed_one(capsys, tmp_path):
    path = tmp_path / "answer.json"
    code, out = shell(capsys, "certify", "--sigma", "2", "--epsilon", "0.5", "--output", str(path))
    assert code == 0
    assert out.startswith("delta <= 0.052440323287669661")
    assert shell(capsys, "certify", "--check", str(path))[0] == 0
    held = json.loads(path.read_text())
    held["answer"]["upper"] = held["answer"]["lower"][:8]
    path.write_text(json.dumps(held))
    code, out = shell(capsys, "certify", "--check", str(path))
    assert code == 1
    assert "NOT CONFIRMED" in out
    assert shell(capsys, "certify", "--sigma", "2")[0] == 2
