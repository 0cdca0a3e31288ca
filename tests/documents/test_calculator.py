"""The calculator's page never says less than the library, and little more."""

import json
import pathlib
import random
import shutil
import subprocess

import pytest

import jaxacct

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "calculator"


pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")


def said(program):
    """What a program with the page's accountant prints."""
    program = f"const {{ upperEpsilon, roundedUp }} = require('./accountant.js'); {program}"
    return subprocess.run(["node", "-e", program], cwd=FOLDER, capture_output=True, text=True, check=True).stdout


def test_the_page_is_never_below_the_truth_and_at_most_five_percent_above_it():
    choose = random.Random(5)
    between = choose.uniform
    rows = [
        [between(0.6, 5), 10 ** between(-4, -1), int(10 ** between(1, 4.5)), 10 ** between(-9, -4)] for _ in range(30)
    ]
    out = said(
        f"console.log(JSON.stringify({json.dumps(rows)}.map((row) => {{ const found = upperEpsilon(...row).epsilon;"
        "return [found, Number(roundedUp(found))]; })));"
    )
    for (sigma, rate, steps, delta), (epsilon, shown) in zip(rows, json.loads(out), strict=True):
        truth = jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate), delta, steps=steps)
        assert float(truth.lower) <= epsilon <= shown * (1 + 1e-9)
        if float(truth.upper) > 1e-2:
            assert epsilon <= 1.05 * float(truth.upper)


def test_a_wrong_field_is_named_with_what_would_work():
    out = said("console.log(upperEpsilon(0, 0.01, 100, 1e-5).problem);")
    assert "Noise multiplier 0" in out
    assert "0.2" in out
