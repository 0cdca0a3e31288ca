"""``python -m verification.audit.pushed_out``: one record among its opposites, in batches that are cut at random.

A batch that is cut to a fixed size is charged as a Poisson sample of that rate. A record that comes pushes one of the
others out, and where all of these pull the other way the sum moves by twice the clip norm. One run with many canaries
cannot show it: each canary has a direction of its own, in which nothing pulls the other way. Many runs with one can.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from jaxacct import Gaussian, PoissonSampled, audit

ROWS, RATE, SIGMA, STEPS = 400, 0.05, 2.0, 150
BATCH = int(ROWS * RATE)


def score(draw: np.random.Generator, present: bool, cut: bool) -> float:
    """The sum of all releases along the record, whose clipped gradient is 1 there, and -1 that of all others."""
    rows = ROWS + present
    order = draw.random((STEPS, rows))
    if cut:  # coins at one half, of which as many as fit are kept at random
        heads = draw.random((STEPS, rows)) < 0.5
        order = np.where(heads, order, 2.0)
        batch = order <= np.partition(order, BATCH - 1, axis=1)[:, BATCH - 1 : BATCH]
    else:
        batch = order < RATE
    others = batch[:, :ROWS].sum()
    return batch[:, ROWS:].sum() - others + SIGMA * STEPS**0.5 * draw.normal()


def audited(runs: int, cut: bool, seed: int) -> audit.ManyRuns:
    """``runs`` runs with the record and as many without; the threshold comes from as many others."""
    draw = np.random.default_rng(seed)
    tried, kept = (
        [np.array([score(draw, present, cut) for _ in range(runs)]) for present in (False, True)] for _ in range(2)
    )
    threshold = (tried[0].mean() + tried[1].mean()) / 2
    wrong = int((kept[0] > threshold).sum()), int((kept[1] <= threshold).sum())
    mechanism = PoissonSampled(Gaussian(SIGMA), RATE)
    return audit.many_runs(wrong[0], runs, wrong[1], runs, delta=1e-5, mechanism=mechanism, steps=STEPS)


if __name__ == "__main__":
    for runs in map(int, sys.argv[1:] or ("1000", "3000")):
        for cut in (True, False):
            found = [audited(runs, cut, seed) for seed in range(3)]
            refuted = sum(one.refuted for one in found)
            p_values = sorted(one.p_value for one in found)
            print(json.dumps({"cut at random": cut, "runs": runs, "refuted of 3": refuted, "p-values": p_values}))
