"""Makes docs/calculator/table.js: certified upper bounds of epsilon of Poisson-sampled Gaussians on a grid.

Run with ``python docs/calculator/make_table.py`` (some minutes). An entry is a whole number c that stands for
LEAST * RATIO**c, the least such number that is not below the bound; 65535 stands for none.
"""

from __future__ import annotations

import base64
import json
import math
import pathlib

import numpy as np

import jaxacct

SIGMAS = np.geomspace(0.6, 6.0, 31)
RATES = np.geomspace(1e-3, 1e-1, 25)
STEPS = np.unique(np.ceil(np.geomspace(200, 5e4, 25) - 1e-9))
DELTAS = np.array([1e-5, 1e-7])
LEAST, RATIO, NONE = 1e-4, 1.0005, 65535


def code(bounds: np.ndarray) -> np.ndarray:
    """The least c with LEAST RATIO**c at or above each bound; rounding of logarithms is far below a hundredth of c."""
    found = np.ceil(np.log(np.maximum(bounds, LEAST) / LEAST) / math.log(RATIO) + 1e-6)
    return np.where(np.isfinite(bounds) & (found < NONE), found, NONE).astype("<u2")


def main() -> None:
    """Writes table.js beside this file."""
    rows = []
    for delta in DELTAS:
        for sigma in SIGMAS:
            step = jaxacct.PoissonSampled(jaxacct.Gaussian(float(sigma)), RATES[:, None])
            rows.append(np.asarray(jaxacct.epsilon(step, float(delta), steps=STEPS[None, :]).upper))
            print(f"delta {delta:g}, sigma {sigma:.3g}", flush=True)
    table = code(np.stack(rows)).reshape(len(DELTAS), len(SIGMAS), len(RATES), len(STEPS))
    made = {
        "software": f"jaxacct {jaxacct.__version__}",
        "deltas": DELTAS.tolist(),
        "sigmas": SIGMAS.tolist(),
        "rates": RATES.tolist(),
        "steps": STEPS.tolist(),
        "least": LEAST,
        "ratio": RATIO,
        "none": NONE,
        "codes": base64.b64encode(table.tobytes()).decode(),
    }
    path = pathlib.Path(__file__).with_name("table.js")
    path.write_text(f"const TABLE = {json.dumps(made)};\n", encoding="utf-8")


if __name__ == "__main__":
    main()
