"""The calculator's page never says less than the library."""

import base64
import json
import pathlib
import random
import shutil
import subprocess

import numpy as np
import pytest

import jaxacct

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "calculator"


def table():
    return json.loads((FOLDER / "table.js").read_text(encoding="utf-8").removeprefix("const TABLE = ").rstrip("\n;"))


def test_entries_of_the_table_are_upper_bounds():
    found = table()
    shape = [len(found[name]) for name in ("deltas", "sigmas", "rates", "steps")]
    codes = np.frombuffer(base64.b64decode(found["codes"]), "<u2").reshape(shape)
    choose = random.Random(3)
    for _ in range(40):
        d, s, q, n = (choose.randrange(size) for size in shape)
        step = jaxacct.PoissonSampled(jaxacct.Gaussian(found["sigmas"][s]), found["rates"][q])
        bounds = jaxacct.epsilon(step, found["deltas"][d], steps=found["steps"][n])
        shown = found["least"] * found["ratio"] ** int(codes[d, s, q, n])
        assert shown >= float(bounds.lower)
        assert codes[d, s, q, n] == found["none"] or shown <= max(float(bounds.upper) * 1.001, 1.01 * found["least"])


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_the_page_rounds_every_setting_to_the_less_private_side():
    choose = random.Random(5)
    settings = [
        [
            choose.uniform(0.6, 7),
            60000,
            choose.randint(60, 6000),
            choose.uniform(1, 40),
            choose.choice([1e-3, 1e-5, 3e-7, 1e-7]),
        ]
        for _ in range(30)
    ]
    program = (
        "const fs = require('fs'); const { upperEpsilon, roundedUp } = require('./calculator.js');"
        "const TABLE = eval(fs.readFileSync('table.js', 'utf8') + 'TABLE');"
        f"console.log(JSON.stringify({json.dumps(settings)}.map((x) => {{ const f = upperEpsilon(TABLE, ...x);"
        "return f.problem ? null : [f.epsilon, Number(roundedUp(f.epsilon)), f.steps, f.rate]; })));"
    )
    out = subprocess.run(["node", "-e", program], cwd=FOLDER, capture_output=True, text=True, check=True).stdout
    answers = json.loads(out)
    assert sum(answer is not None for answer in answers) > 15
    for (sigma, records, batch, epochs, delta), answer in zip(settings, answers, strict=True):
        if answer is None:
            continue
        epsilon, shown, steps, rate = answer
        assert steps == int(np.ceil(epochs * records / batch))
        truth = jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate), delta, steps=steps)
        assert float(truth.lower) <= epsilon <= shown * (1 + 1e-9)
        # Where nothing but the grid is rounded, the answer is not far off.
        assert delta != 1e-5 or epsilon <= 2.0 * float(truth.upper) + 0.01
