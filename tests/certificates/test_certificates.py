"""Certificates: truths of high precision are inside, the engine's bounds agree, and a changed certificate fails."""

from __future__ import annotations

import json
import pathlib
import re
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
    PoissonSampled,
    RandomAllocation,
    RandomizedResponse,
    RandomSensitivityGaussian,
    SampledWithoutReplacement,
    SampledWithReplacement,
    Shuffled,
    TruncatedPoisson,
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


@pytest.mark.parametrize(
    ("name", "fields", "epsilon"),
    [
        ("BallsInBinsSampling", {"iterations": 12, "cycle_length": 4}, 1.0),  # a record keeps its bin for three epochs
        ("BMinSepSampling", {"sampling_prob": 1.0, "iterations": 9, "min_sep": 3, "warm_start": True}, 0.7),
        ("BMinSepSampling", {"sampling_prob": 0.05, "iterations": 200, "min_sep": 3, "warm_start": True}, 0.7),
    ],
)
def test_records_that_keep_their_bins_or_their_distance_have_certificates(name, fields, epsilon):
    strategy = type(name, (), fields | {"truncated_batch_size": None})()
    mechanism = jaxacct.interop.mechanism_of_selection(strategy, Gaussian(2.0))
    for relation in ("remove", "add"):
        found = jaxacct.certify(mechanism, epsilon=epsilon, relation=relation)
        bounds = jaxacct.delta(mechanism, epsilon, relation=relation)
        assert 0 < bounds.lower <= float(found.upper) * (1 + 1e-12)
        assert float(found.lower) <= bounds.upper * (1 + 1e-12)
        assert found.digits >= 4


KINDS = {
    "randomized_response": lambda row: RandomizedResponse(row["epsilon0"]),
    "gaussian": lambda row: GDP(row["mu"]),
    "laplace": lambda row: Laplace(row["scale"]),
    "approx_dp": lambda row: ApproximateDP(row["epsilon0"], row["delta0"]),
}


def test_reference_tables_are_enclosed(reference):
    rows = [
        (PoissonSampled(Gaussian(row["noise_multiplier"]), row["sampling_rate"]), row["direction"], row)
        for row in reference("subsampled_gaussian.json")[::25]
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
    "mixture": (RandomSensitivityGaussian(2.0, (0.0, 1.0, 2.0), (0.5, 0.3, 0.2)), 30, 0.8),
    "sampled laplace": (PoissonSampled(Laplace(1.0), 0.2), 1, 0.1),
    "replaced mixture": (RandomSensitivityGaussian(2.0, (0.0, 1.0, 2.0), (0.5, 0.3, 0.2)), 1, 0.5, "replace"),
    "replaced laplace": (PoissonSampled(Laplace(1.0), 0.3), 1, 0.2, "replace"),
    "fixed size, replaced": (SampledWithoutReplacement(Laplace(1.0), 10, 100), 1, 0.1, "replace"),
    "categories": (RandomizedResponse(0.4, 4), 9, 1.0),
    "sampled response": (PoissonSampled(RandomizedResponse(1.0), 0.3), 12, 0.8),
    "approximate": (ApproximateDP(0.5, 1e-4), 10, 1.5),
    "tables": (FromTables([0.5, 0.3, 0.2, 0.0], [0.3, 0.3, 0.39, 0.01]), 7, 1.0),
    "discrete laplace": (DiscreteLaplace(3.0, 2), 6, 0.9),
    "discrete gaussian, many": (DiscreteGaussian(9.0), 40, 0.5),
    "response, many": (RandomizedResponse(1e-3), 10**6, 1.0),
    "laplace, many": (Laplace(50.0), 4000, 2.0),
    "replaced, sampled": (PoissonSampled(Gaussian(1.0), 0.1), 100, 1.0, "replace"),
    "replaced table": (PoissonSampled(FromTables([0.7, 0.3, 0.0], [0.3, 0.69, 0.01]), 0.3), 3, 0.3, "replace"),
    "replaced rare output": (PoissonSampled(FromTables([0.5, 0.5], [1e-300, 1.0]), 0.999), 3, 1.6, "replace"),
    "replaced categories": (PoissonSampled(RandomizedResponse(1.0, 5), 0.3), 3, 0.3, "replace"),
    "special table": (PoissonSampled(FromTables([0.7, 0.3], [0.2, 0.8]), 0.3), 3, 0.3, "replace_special"),
    "cut": (TruncatedPoisson(Gaussian(1.0), 0.1, 30, 200), 300, 9.0, "remove"),
    "fixed size": (SampledWithoutReplacement(Gaussian(2.0), 10, 100), 50, 0.3, "add_or_remove"),
    "fixed size, categories": (SampledWithoutReplacement(RandomizedResponse(1.0), 10, 100), 5, 0.3, "replace"),
    "shuffled": (Shuffled(Laplace(2.0), 100), 3, 0.2, "add_or_remove"),
    "shuffled, replaced": (Shuffled(RandomizedResponse(1.0, 4), 100), 3, 0.2, "replace"),
    "of two kinds": (Composed([Gaussian(4.0), Laplace(6.0)], [5, 3]), 1, 0.7),
    "table": (FromTables([0.5, 0.3, 0.15, 0.05], [0.3, 0.32, 0.2, 0.18]), 60, 2.0, "remove"),
    "fixed size, many": (SampledWithoutReplacement(Gaussian(2.0), 100, 10_000), 1000, 0.5, "replace"),
    "allocated": (RandomAllocation(Gaussian(1.0), 4), 1, 1.0, "remove"),
}
WIDER = {"table": 2, "fixed size, many": 1.5, "allocated": 6}  # digits of what has no exact sum


@pytest.mark.parametrize("name", CASES)
def test_the_engines_bounds_and_certificates_agree(name):
    mechanism, steps, epsilon, *relations = CASES[name]
    for relation in relations or ("add_or_remove",):
        asked = 6 if name in WIDER else 10
        found = jaxacct.certify(mechanism, epsilon=epsilon, steps=steps, relation=relation, digits=asked)
        bounds = jaxacct.delta(mechanism, epsilon, steps=steps, relation=relation)
        assert found.encloses(float(bounds.lower), float(bounds.upper)), relation
        assert found.digits >= WIDER.get(name, 10)


def edited(found, path, other):
    """The certificate's text with another value at a path."""
    whole = place = json.loads(found.to_json())
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = other
    return json.dumps(whole)


def test_what_is_certified_is_said():
    cut = TruncatedPoisson(Gaussian(1.0), 0.5, 3, 4)
    assert jaxacct.certify(SAMPLED, epsilon=0.1, relation="replace").certifies == "the worst case"
    assert "upper bound" in jaxacct.certify(RandomAllocation(Shuffled(Gaussian(1.0), 4), 3), epsilon=0.1).certifies
    for mechanism, relation in ((cut, "remove"), (SampledWithoutReplacement(Gaussian(1.0), 1, 4), "replace")):
        found = jaxacct.certify(mechanism, epsilon=0.1, relation=relation)
        assert found.certifies.startswith("an upper bound of the worst case")
        with pytest.raises(ValueError, match="certifies must be"):
            jaxacct.certificates.read_certificate(edited(found, ("certifies",), "the worst case"))


def test_an_answer_may_be_infinite_or_0():
    assert jaxacct.certify(ApproximateDP(1.0, 1e-3), delta=1e-4).upper == "inf"
    assert jaxacct.certify(Laplace(2.0), delta=0.5).upper == "0"
    assert jaxacct.certify(SAMPLED, epsilon=0.25, relation="add").upper == "0"


def test_what_is_no_certificate_is_refused_and_named():
    found = jaxacct.certify(Gaussian(3.0), epsilon=0.6, digits=12)
    for text in ("", "{}", "[1]", '{"certificate": 1}', found.to_json().replace("Gaussian", "open")):
        with pytest.raises(ValueError, match="certificate must be"):
            jaxacct.certificates.read_certificate(text)
    for path, other, message in (
        (("certificate",), 2, "version must be 1, got 2"),
        (("answer", "lower"), "0.1x", "decimal number"),
        (("answer", "upper"), "1E-99999999999", "decimal number"),
        (("answer", "upper"), 0.5, "decimal number"),
        (("answer", "upper"), "1/3", "decimal number"),
        (("question", "steps"), 0, "steps must be"),
        (("question", "steps"), 1.5, "steps must be"),
        (("question", "relation"), "both", "relation must be"),
        (("question", "relation"), [], "relation must be|unhashable"),
        (("question", "epsilon"), -1.0, "epsilon must be"),
        (("question", "mechanism", "sigma"), -1.0, "sigma must be"),
    ):
        with pytest.raises(ValueError, match=message):
            jaxacct.certificates.read_certificate(edited(found, path, other))


def leaves(held, path=()):
    """Every value of a JSON text that is no object or list, and where it is."""
    if isinstance(held, dict | list):
        for key, value in held.items() if isinstance(held, dict) else enumerate(held):
            yield from leaves(value, (*path, key))
    else:
        yield path, held


def others(value):
    """What an editor may put in the place of a value."""
    if isinstance(value, str):
        number = value.replace(".", "").isdigit()
        return [f"{float(value) * scale:.17f}" for scale in (0.99, 1.01)] if number else ["remove", "replace", "x", 1]
    return [value * 1.01, value + 1, value + 1e-9, -value, 0, str(value), [value], None, True, float("nan"), 1e999]


def is_confirmed(text):
    try:
        return jaxacct.certificates.read_certificate(text).check()
    except ValueError:
        return False


@pytest.mark.parametrize("given", [{"epsilon": 0.3}, {"delta": 1e-3}])
def test_no_field_of_a_certificate_can_be_edited_into_something_false(given):
    mechanism = Composed([PoissonSampled(RandomizedResponse(0.5), 0.3), ApproximateDP(0.1, 1e-6)], [3, 2])
    found = jaxacct.certify(mechanism, **given, digits=12)
    whole = json.loads(found.to_json())
    confirmed = []
    for path, value in leaves(whole):
        for other in others(value):
            if is_confirmed(edited(found, path, other)):
                confirmed.append((path[-1], other))
    # A wider answer is true, and so is the answer for the worse direction alone.
    assert sorted(name for name, _ in confirmed) == ["lower", "relation", "upper"]
    assert ("relation", "remove") in confirmed
    assert all(float(other) < float(found.lower) for name, other in confirmed if name == "lower")
    assert all(float(other) > float(found.upper) for name, other in confirmed if name == "upper")


def test_a_certificate_holds_nothing_but_question_and_answer():
    """An edited method and bits, and a second answer, passed the check."""
    found = jaxacct.certify(SAMPLED, epsilon=1.0, digits=8)
    text = found.to_json()
    assert jaxacct.certificates.read_certificate(text).to_json() == text
    for more in ('"method": "proof by oracle", ', '"bits": 1000000, ', '"answer": {"lower": "0", "upper": "1e-9"}, '):
        read = jaxacct.certificates.read_certificate(text.replace('"answer": {', more + '"answer": {', 1))
        assert "holds" in read.altered
        assert not read.check()
    for old, new in (
        ('"steps"', '"epsilon": 9.0, "steps"'),
        ('"steps"', '"delta": 0.1, "steps"'),
        ('"rate"', '"rate": 1e-9, "rate"'),
        ('"lower"', '"digits": 99, "lower"'),
        ('"answer": "delta"', '"answer": "a delta"'),
        ('"epsilon": 1.0', '"epsilon": 1.00000000000000000001'),
        ('"epsilon": 1.0', '"epsilon": true'),
        ('"certificate": 1', '"certificate": true'),
        ('"steps": 1', '"steps": true'),
    ):
        assert old in text
        assert not is_confirmed(text.replace(old, new, 1))
    # How it is spelled is no part of it.
    spelled = json.dumps(json.loads(text), indent=2, sort_keys=True).replace('"epsilon": 1.0', '"epsilon": 1e0')
    assert jaxacct.certificates.read_certificate(spelled).to_json() == text
    unbounded = json.loads(text) | {"answer": {"lower": "0", "upper": "inf"}}
    assert jaxacct.certificates.read_certificate(json.dumps(unbounded)).check()
    assert not jaxacct.certificates.read_certificate(
        json.dumps(unbounded | {"answer": {"lower": "inf", "upper": "inf"}})
    ).check()


@pytest.mark.parametrize("steps", [90, 100])
def test_a_direction_that_hardly_counts_is_bounded_where_no_line_is_within_reach(steps):
    mechanism = PoissonSampled(Gaussian(1.0), 0.01)  # its losses sum up to 1.005 at most after 100 runs of `add`
    found = jaxacct.certify(mechanism, epsilon=1.0, steps=steps, digits=6)
    assert found.digits >= 6
    assert found.check()
    bounds = jaxacct.delta(mechanism, 1.0, steps=steps)
    assert found.encloses(float(bounds.lower), float(bounds.upper))
    alone = jaxacct.certify(mechanism, epsilon=1.0, steps=steps, digits=6, relation="add")
    assert float(alone.lower) <= float(jaxacct.delta(mechanism, 1.0, steps=steps, relation="add").upper)
    assert float(alone.upper) < 1e-15


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
    for mechanism, relation, message in (
        (FromTables([0.5, 0.5], [0.4, 0.6]), "replace", "FromTables without a sample"),
        (SampledWithReplacement(Gaussian(1.0), 2, 9), "replace_special", "no analysis"),
        (RandomAllocation(Gaussian(1.0), 8, 2), "remove", "one participation"),
        (PoissonSampled(Shuffled(Gaussian(1.0), 8), 0.1), "remove", "PoissonSampled Shuffled"),
        (PoissonSampled(Composed([Laplace(1.0)], [2]), 0.1), "remove", "sample of a composition"),
        (
            SampledWithoutReplacement(PoissonSampled(Gaussian(1.0), 0.1), 5, 50),
            "remove",
            "SampledWithoutReplacement Poi",
        ),
        (Shuffled(SampledWithReplacement(Gaussian(1.0), 40, 50), 4), "replace", "bounded size"),
    ):
        with pytest.raises(ValueError, match=message):
            jaxacct.certify(mechanism, epsilon=0.1, relation=relation)
    with pytest.raises(ValueError, match="one epoch"):
        jaxacct.certify(RandomAllocation(Gaussian(1.0), 8), epsilon=0.1, steps=2)
    with pytest.raises(ValueError, match=r"transform in closed form .* Gaussian, GDP"):
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
    assert shell(capsys, "certify", "--check", str(path), "--bounds", "0.05", "0.06")[0] == 0
    code, out = shell(capsys, "certify", "--check", str(path), "--bounds", "0.05", "0.052")
    assert code == 1
    assert "CONTRADICT" in out
    held = json.loads(path.read_text())
    held["answer"]["upper"] = held["answer"]["lower"][:8]
    path.write_text(json.dumps(held))
    code, out = shell(capsys, "certify", "--check", str(path))
    assert code == 1
    assert "NOT CONFIRMED" in out
    path.write_text(json.dumps(held | {"certificate": 7}))
    assert shell(capsys, "certify", "--check", str(path))[0] == 2
    assert shell(capsys, "certify", "--sigma", "2")[0] == 2
    assert shell(capsys, "certify", "--sigma", "2", "--epsilon", "1", "--bounds", "0", "1")[0] == 2


def test_the_page_runs_as_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "how-to" / "certificates.md").read_text()
    blocks = re.findall(r"^```(python|bash)\n(.*?)^```\n\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    namespace: dict = {}
    for language, source, printed in blocks:
        if language == "python":
            exec(compile(source, "certificates.md", "exec"), namespace)
            found = capsys.readouterr().out
        else:
            found = "".join(shell(capsys, *line.split()[1:])[1] for line in source.splitlines())
        assert found == printed
