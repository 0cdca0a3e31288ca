"""``python -m verification.audit.library FILE``: canary audits of this library's own runs, right and with a mistake.

All samplers, steps in which each example has its own account, a release by noise reduction, and a durable run that was
resumed. Of each `RUNS` runs as they are, and as many with a mistake: whether the audit refutes them at 95 %.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import shutil
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxacct
from jaxacct import (
    GDP,
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    SampledWithReplacement,
    Shuffled,
    TruncatedPoisson,
    audit,
    expost,
    filters,
    training,
)
from jaxacct.audit import guesses

RUNS, DELTA, CONFIDENCE = 2, 1e-5, 0.95
RECORDS, CANARIES = 100, 500
ROWS = RECORDS + CANARIES
STEPS, CUTS, NOISE = 128, 8, 3.0
KEPT_STEPS, KEPT_NOISE, COPIES = 32, 8.0, 12  # of the durable run
_claim = guesses.claim
_claims: dict[str, object] = {}


def _claimed(*about):
    """The curve of a claim, which is the same in all runs, once."""
    if repr(about) not in _claims:
        _claims[repr(about)] = _claim(*about)
    return _claims[repr(about)]


guesses.claim = _claimed
DATA = np.random.default_rng(0).normal(size=(RECORDS, 3)).astype(np.float32)
OPTIMIZER = optax.sgd(0.1)
GUESSES = 100, 100


def loss(params, row):
    return 0.5 * jnp.sum((params - row) ** 2)


def place(key):
    return audit.canaries(loss, jnp.zeros(3), DATA, key=key, number=CANARIES, gradient_norm=10.0)


def audited(placed, scores, mechanism, steps, relation="add_or_remove"):
    return placed.audit(
        scores, GUESSES, delta=DELTA, confidence=CONFIDENCE, mechanism=mechanism, steps=steps, relation=relation
    )


def sampled(mechanism, relation, key, wrong):
    """Steps on a sampler's batches; or everybody is in each of them."""
    placed, sampler = place(key), training.sampler(mechanism, ROWS)
    if wrong:
        sampler = dataclasses.replace(sampler, draw=training.sampler(PoissonSampled(Gaussian(1.0), 1.0), ROWS).draw)

    @jax.jit
    def run(params, data, roots):
        def step(carry, number):
            params, scores = carry
            keys = training.step_keys(roots, number)
            release = training.noisy_gradient(placed.loss, params, data, keys, clip_norm=1.0, sampler=sampler)
            scores = placed.observe(scores, release, params)
            moved = {"model": params["model"] - 0.1 * release["model"], "canaries": params["canaries"]}
            return (moved, scores), None

        numbers = jnp.arange(STEPS, dtype=jnp.uint32)
        return jax.lax.scan(step, (params, placed.init()), numbers)[0][1]

    scores = run(placed.params, placed.data, training.fresh_keys())
    return audited(placed, scores, mechanism, STEPS // sampler.steps, relation)


def individual(key, wrong):
    """Everybody has an account, which ends after some steps; or all accounts are new in every step."""
    placed, mu = place(key), 0.7
    budget = filters.per_example(filters.gdp(mu), examples=ROWS)
    schedule = training.schedules.constant(NOISE, 1.0, STEPS)
    step = training.make_step(placed.loss, placed.optimizer(OPTIMIZER), budget, schedule, clip_norm=1.0)
    state = training.init_state(placed.params, placed.optimizer(OPTIMIZER), budget, schedule, training.fresh_keys())
    for _ in range(STEPS):
        state, _ = step(state, placed.data)
        state = state._replace(filter_state=budget.init()) if wrong else state
    return audited(placed, state.opt_state.scores, GDP(mu), 1)


def noise_reduction(key, wrong):
    """The last of three releases of one path; or with the sensitivity of a mean where a sum is released."""
    placed, order, budgets = place(key), 8.0, jnp.asarray([0.5, 1.0, 2.0])
    rows = training.per_example_gradients(placed.loss, placed.params, placed.data)
    norms = jax.vmap(training.global_norm)(rows)
    total = jax.tree.map(lambda leaf: jnp.minimum(1.0, 1.0 / norms) @ leaf, rows)
    sources = jax.tree.map(
        lambda leaf: expost.Brownian(leaf, sensitivity=1.0 / (ROWS if wrong else 1), order=order), total
    )  # one path over all parts, as their noise is independent
    keys = dict(zip(total, jax.random.split(training.fresh_keys().noise), strict=True))
    releases = {name: sources[name].path(keys[name], budgets)[-1] for name in total}
    scores = placed.observe(placed.init(), releases, placed.params)
    return audited(placed, scores, Gaussian((order / (2 * float(budgets[-1]))) ** 0.5), 1)


def resumed(key, wrong):
    """A durable run that is closed in the middle and resumed; or resumed from many copies of its folder as well."""
    placed = place(key)
    budget = filters.gdp(KEPT_STEPS**0.5 / KEPT_NOISE)
    schedule = training.schedules.constant(KEPT_NOISE, 1.0, KEPT_STEPS)
    step = training.make_step(placed.loss, placed.optimizer(OPTIMIZER), budget, schedule, clip_norm=1.0)
    state = training.init_state(placed.params, placed.optimizer(OPTIMIZER), budget, schedule, training.fresh_keys())

    def go_on(folder, steps, resume):
        with training.durable_run(folder, step, state, budget, resume=resume, every=KEPT_STEPS) as run:
            now = run.state
            for _ in range(steps):
                now, report = run.step(now, placed.data)
                assert report.admitted
            run.save(now)
            return now.opt_state.scores

    with tempfile.TemporaryDirectory() as folder:
        first = pathlib.Path(folder, "run")
        scores = go_on(first, KEPT_STEPS // 2, False)
        copies = [
            shutil.copytree(first, pathlib.Path(folder, f"copy {number}")) for number in range(COPIES if wrong else 0)
        ]
        ends = [go_on(each, KEPT_STEPS // 2, True) for each in (first, *copies)]
    # What the copies released beyond the state that they share is added up.
    total = sum((end.total - scores.total for end in ends), scores.total)
    return audited(placed, scores._replace(total=total, change=ends[0].change), GDP(KEPT_STEPS**0.5 / KEPT_NOISE), 1)


GAUSSIAN, HALF = Gaussian(NOISE), Gaussian(NOISE / 2)  # in samples of fixed size a record moves twice as far
CASES = {
    name: functools.partial(sampled, mechanism, relation)
    for name, (mechanism, relation) in {
        "Poisson": (PoissonSampled(GAUSSIAN, 1 / CUTS), "add_or_remove"),
        "truncated Poisson": (TruncatedPoisson(GAUSSIAN, 1 / CUTS, largest=150, records=ROWS), "replace_special"),
        "without replacement": (SampledWithoutReplacement(HALF, ROWS // CUTS, ROWS), "replace"),
        "with replacement": (SampledWithReplacement(HALF, batch=ROWS // CUTS, records=ROWS), "replace"),
        "allocation": (RandomAllocation(GAUSSIAN, batches=CUTS), "add_or_remove"),
        # An order costs hardly less than no order: with few batches a sample of everybody would not stand out.
        "shuffled": (Shuffled(Gaussian(2 * NOISE), batches=4 * CUTS), "replace"),
    }.items()
} | {"individual": individual, "noise reduction": noise_reduction, "resumed": resumed}
MISTAKES = {name: "everybody is in every batch" for name in CASES} | {
    "individual": "accounts are new in every step",
    "noise reduction": "the sensitivity of a mean",
    "resumed": "resumed from twelve copies as well",
}


def row(name: str, runs: int = RUNS) -> dict[str, object]:
    start, found = time.perf_counter(), {}
    for wrong in (False, True):
        found[wrong] = [CASES[name](jax.random.key(1000 * wrong + number), wrong) for number in range(runs)]
    right, bad = found[False], found[True]
    return {
        "name": name,
        "mistake": MISTAKES[name],
        "runs": runs,
        "certified": float(right[0].certified),
        "refuted": sum(one.refuted for one in right),
        "refuted with the mistake": sum(one.refuted for one in bad),
        "median epsilon": sorted(float(one.epsilon) for one in right)[runs // 2],
        "median epsilon with the mistake": sorted(float(one.epsilon) for one in bad)[runs // 2],
        "seconds": round(time.perf_counter() - start, 1),
    }


def main(path: str, *names: str) -> None:
    file = pathlib.Path(path)
    rows = {one["name"]: one for one in json.loads(file.read_text())["rows"]} if file.exists() else {}
    about = {"jaxacct": jaxacct.__version__, "jax": jax.__version__, "canaries": CANARIES, "guesses": sum(GUESSES)}
    for name in names or CASES:
        rows[name] = row(name)
        print(json.dumps(rows[name]), flush=True)
        kept = [rows[each] for each in CASES if each in rows]
        file.write_text(json.dumps({"about": about, "rows": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
