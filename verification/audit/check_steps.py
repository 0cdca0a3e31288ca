"""``python -m verification.audit.check_steps FILE``: `check_step` on this library's own code, answers to a JSON file.

All samplers, filtered and individual steps, ex-post releases, two attempts of a durable run as one, and the training
steps of examples and notebooks as they stand. ``moved`` is
the largest move that was seen, relative to what is charged: if it is above 0.5, half the noise would have been found.
Rows of other cases in the file are kept, so that it can be made in parts.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxacct
from jaxacct import Gaussian, PoissonSampled, expost, testing, training
from verification.audit import example_steps, library_steps
from verification.audit.library_steps import DATA, OPTIMIZER, PARAMS, Case, N, loss

ORDER, BUDGET = 8.0, 0.5
NOISE = (ORDER / (2 * BUDGET)) ** 0.5  # of a Gaussian whose divergence at ORDER is BUDGET


def clipped_sum(data):
    gradients = training.per_example_gradients(loss, PARAMS, data)
    rows = jnp.concatenate([leaf.reshape(len(data[1]), -1) for leaf in jax.tree.leaves(gradients)], 1)
    norms = jnp.linalg.norm(rows, axis=1, keepdims=True)
    fine = jnp.isfinite(norms)
    return jnp.where(fine, rows * jnp.minimum(1.0, 1.0 / jnp.where(fine, norms, 1.0)), 0.0).sum(0)


def brownian():
    """One release by noise reduction."""

    def step(data, key):
        source = expost.Brownian(clipped_sum(data), sensitivity=1.0, order=ORDER)
        return source.path(key, jnp.asarray([BUDGET]))

    return Case(step, Gaussian(NOISE), "add_or_remove", keys=jax.random.key)


def plain_check():
    """A noisy score that stops a run."""

    def step(data, key):
        check = expost.PlainGaussian(threshold=3.0, epsilon=BUDGET, sensitivity=1.0, order=ORDER, checks=1)
        score = jnp.sum(jnp.clip(jnp.nan_to_num(data[0][:, 0]), 0.0, 1.0))
        return check.ask(key, check.start(jax.random.fold_in(key, 1)), score, 0)

    return Case(step, Gaussian(NOISE), "add_or_remove", keys=jax.random.key)


def accuracy_first():
    """The steps of a round of `fit_until_accurate`: noisy gradients of one step's keys each."""
    rounds = training.plan_rounds([1.0], order=ORDER, rate=0.5, steps=2)

    def step(data, keys):
        params = PARAMS
        for number in range(rounds.steps):
            gradient = training.noisy_gradient(
                loss, params, data, training.step_keys(keys, number), sigma=rounds.sigmas[0], rate=0.5, clip_norm=0.5,
                size=N,
            )  # fmt: skip
            params = jax.tree.map(lambda p, g: p - g, params, gradient)
        return params

    return Case(step, PoissonSampled(Gaussian(rounds.sigmas[0]), 0.5), "replace", steps=rounds.steps)


def resumed():
    """A step of a durable run, and one of the attempt that resumes it from the disk: no noise is used again."""
    plan = training.plan_budget("gdp", "constant", epsilon=3.0, delta=1e-5, steps=60, rate=1.0)
    step = training.make_step(loss, OPTIMIZER, plan.filter, plan.schedule, clip_norm=0.5, size=N)
    state = training.init_state(PARAMS, OPTIMIZER, plan.filter, plan.schedule, training.seeded_keys(0))
    sigma = float(step(state, DATA)[1].sigma)
    states = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with training.durable_run(folder, step, state, plan.filter, resume=bool(states), every=1) as run:
                states.append(run.state)
                run.step(run.state, DATA)

    def both(data, keys):
        # The keys that the attempts drew, changed by the same number: what they share they go on sharing.
        number = jax.random.key_data(keys.noise)[0]

        def own(state):
            return state._replace(keys=jax.tree.map(lambda key: jax.random.fold_in(key, number), state.keys))

        return [step(own(state), data) for state in states]

    return Case(both, Gaussian(sigma), "add_or_remove", steps=2)


CASES = {
    **library_steps.CASES,
    "Brownian release": brownian,
    "noisy check": plain_check,
    "accuracy first": accuracy_first,
    "resumed": resumed,
    **{f"example {name}": case for name, case in example_steps.CASES.items()},
}
OPTIONAL = {f"example {name}": case for name, case in example_steps.OPTIONAL.items()}  # if named


def row(name: str) -> dict[str, object]:
    case, start = (CASES | OPTIONAL)[name](), time.perf_counter()
    found = case.check(testing)
    seconds = time.perf_counter() - start
    return {
        "name": name,
        "leaks": [str(leak) for leak in found.leaks],
        "warnings": [str(leak) for leak in found.warnings],
        "moved": round(found.moved, 4),
        "releases": found.releases,
        "pairs": len(found.pairs),
        "seconds": round(seconds, 1),
    }


def main(path: str, *names: str) -> None:
    file = pathlib.Path(path)
    rows = {one["name"]: one for one in json.loads(file.read_text())["rows"]} if file.exists() else {}
    about = {"jaxacct": jaxacct.__version__, "jax": jax.__version__, "numpy": np.__version__, "records": N}
    for name in names or CASES:
        rows[name] = row(name)
        print(json.dumps(rows[name]), flush=True)
        kept = [rows[each] for each in (*CASES, *OPTIONAL) if each in rows]
        file.write_text(json.dumps({"about": about, "rows": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
