"""First calls in fresh processes: seconds after import, and how many programs JAX compiled for them.

python bench/first_calls.py                      # all cases, one process each
python bench/first_calls.py filters renyi        # the groups, or cases, whose names begin so
python bench/first_calls.py --json FILE          # keeps them (bench/results/first_calls.json)

A case is a line that makes something (a filter, a plan) and a line that uses it for the first time, timed apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from machine import about

IMPORTS = """
import time, json
import jax, jax.numpy as jnp, numpy as np
import jaxacct
from jaxacct import *
from jaxacct import adversary, expost, filters
from jaxacct.losses import renyi as curves

odds = 1.0 / (1.0 + np.exp(-0.02))
law = PLD(odds * np.eye(201)[101] + (1.0 - odds) * np.eye(201)[99], np.float64(0.0), LossGrid(0.02, -100, 201), "upper")

def law_of(left):
    # Randomized response at a multiple of 0.02.
    losses = jnp.asarray((np.arange(201) - 100) * 0.02)
    epsilon = 0.02 * jnp.round(jnp.asarray(left, jnp.float64) / 0.02)
    p = jax.nn.sigmoid(epsilon)
    masses = jnp.where(jnp.abs(losses - epsilon) < 0.01, p, jnp.where(jnp.abs(losses + epsilon) < 0.01, 1.0 - p, 0.0))
    return PLD(masses, jnp.zeros(()), LossGrid(0.02, -100, 201), "upper")
"""
MENU = "epsilon=1.5, delta=1e-3, unit=16, points=256"
SAMPLED = "PoissonSampled(Gaussian(2.0), 0.01)"

# group: name: (what is made, what is called first)
CASES: dict[str, dict[str, tuple[str, str]]] = {
    "filters": {},
    "readings": {
        "odometer epsilon": (
            "one = filters.odometer(filters.zcdp(1.0)); state = one.init()",
            "one.epsilon(state, 1e-5)",
        ),
        "odometer levels": (
            "one = filters.odometer(filters.gdp(1.0), levels=8); state = one.init()",
            "one.epsilon(state, 1e-5)",
        ),
    },
    "renyi": {},
    "plan": {
        "plan_order": ("plan = PoissonSampled(Gaussian(2.0), 0.05)", "filters.plan_order(plan, 1e-5, 2.0, steps=1000)"),
        "plan_epsilon": ("plan = PoissonSampled(Gaussian(2.0), 0.05)", "filters.plan_epsilon(plan, 1e-5, steps=1000)"),
        "plan_noise": (
            "make = lambda sigma: PoissonSampled(Gaussian(sigma), 0.01)",
            "jaxacct.plan_noise(make, lambda sigma: -(1.0 / sigma**2 - 1.0).sum(), steps=[100, 100], "
            "epsilon=2.0, delta=1e-5)",
        ),
    },
    "calibrate": {},
    "expost": {},
    "adversary": {},
}


def _filters() -> None:
    laplace, gaussian, sampled = "Laplace(20.0)", "Gaussian(20.0)", SAMPLED
    response = "RandomizedResponse(0.02)"
    grid = "LossGrid(0.02, -100, 201)"
    law = "law"
    made = {
        "pure_dp": ("filters.pure_dp(1.0)", [laplace, "RandomizedResponse(0.1)", f"PoissonSampled({laplace}, 0.1)"]),
        "zcdp": (
            "filters.zcdp(1.0)",
            [gaussian, laplace, "DiscreteGaussian(20.0)", "DiscreteLaplace(20.0)", "PureDP(0.1)"],
        ),
        "approximate_zcdp": ("filters.approximate_zcdp(1.0, 1e-5)", [gaussian, "ApproximateDP(0.1, 1e-6)"]),
        "approximate_dp": ("filters.approximate_dp(1.0, 1e-5)", [gaussian]),
        "renyi": (
            "filters.renyi(2.0, 1e-5, order=16.0)",
            [
                gaussian,
                sampled,
                laplace,
                f"PoissonSampled({laplace}, 0.01)",
                "Composed([Gaussian(20.0), Laplace(20.0)])",
            ],
        ),
        "renyi fractional": ("filters.renyi(2.0, 1e-5, order=10.5)", [sampled]),
        "renyi_any": ("filters.renyi_any(2.0, 1e-5, [8.0, 10.5, 16.0, 32.0])", [gaussian, sampled, laplace]),
        "gdp": ("filters.gdp(1.0)", [gaussian, "GDP(0.1)"]),
        "gdp_residue": ("filters.gdp_residue(1.0)", [gaussian, laplace]),
        "gdp_residue slack": ("filters.gdp_residue(1.0, 1e-6)", [sampled, laplace]),
        "residue": (
            f"filters.residue(law_of, lambda left, query: left - 0.02, 1.0, rounds=100, grid={grid})",
            [response, law],
        ),
        "additive_profile": ("adversary.additive_profile(1.0, 1e-6, rounds=100)", [response, laplace]),
        "natural_approximate_dp": (
            f"adversary.natural_approximate_dp(1.0, 1e-5, rounds=100, grid={grid})",
            [response, gaussian, law],
        ),
        "natural": ("filters.natural(GDP(1.0), [Gaussian(10.0)], 100)", ["0"]),
        "natural undeclared": (f"filters.natural(GDP(1.0), grid={grid})", [gaussian]),
        "approximate_gdp": ("filters.approximate_gdp(1.0)", [sampled]),
        "menu": (f"filters.menu([{sampled}], {MENU})", [sampled, "0"]),
        "online_menu": (f"filters.menu([{sampled}], {MENU}, online=True)", [sampled, gaussian, laplace]),
        "odometer": ("filters.odometer(filters.zcdp(1.0))", [gaussian, laplace]),
    }
    for name in ("pure_dp", "zcdp", "renyi", "gdp"):  # a law as a query
        made[name][1].append(law)
    for name, (make, queries) in made.items():
        for query in queries:
            CASES["filters"][f"{name} {query}"] = (f"one = {make}; state = one.init()", f"one.update({query}, state)")
        state = f"one = {make}; state = one.init()"
        CASES["readings"][f"{name} spent, remaining, fraction"] = (
            state,
            "(one.spent(state), one.remaining(state), one.fraction(state))",
        )
        if "undeclared" not in name:
            quotes = "one.guarantee.epsilon(1e-3), one.guarantee.delta(1.0)"
            CASES["readings"][f"{name} guarantee"] = (state, f"({quotes})")
            CASES["readings"][f"{name} profile"] = (state, "one.guarantee.profile().excess")
    for name, make, query in (
        ("per_example of renyi", "filters.per_example(filters.renyi(2.0, 1e-5, order=16.0), examples=1000)", sampled),
        (
            "per_example of a menu",
            f"filters.per_example(filters.menu([{sampled}], {MENU}, unit=32), examples=1000)",
            sampled,
        ),
        ("per_example of approximate_gdp", "filters.per_example(filters.approximate_gdp(1.0), examples=1000)", sampled),
    ):
        CASES["filters"][f"{name} {query}"] = (
            f"one = {make}; state = one.init(); norms = np.full(1000, 0.5, np.float32)",
            f"one.update({query}, norms, state)",
        )


def _others() -> None:
    renyi = {
        "Gaussian": "Gaussian(2.0)",
        "Laplace": "Laplace(2.0)",
        "mixture": "RandomSensitivityGaussian(2.0, [1.0, 2.0], [0.5, 0.5])",
        "Exponential": "Exponential(0.1)",
        "PermuteAndFlip": "PermuteAndFlip(0.1)",
        "RandomizedResponse": "RandomizedResponse(0.1)",
        "PureDP": "PureDP(0.1)",
        "ApproximateDP": "ApproximateDP(0.1, 1e-6)",
        "GDP": "GDP(0.1)",
        "ZeroConcentratedDP": "ZeroConcentratedDP(0.1)",
        "RenyiDP": "RenyiDP([2.0, 8.0], [0.1, 0.2])",
        "DiscreteGaussian": "DiscreteGaussian(2.0)",
        "DiscreteLaplace": "DiscreteLaplace(2.0)",
        "FromTables": "FromTables([0.4, 0.6], [0.6, 0.4])",
        "FromProfile": "FromProfile([0.0, 1.0], [0.1, 1e-5])",
        "PoissonSampled Gaussian": "PoissonSampled(Gaussian(2.0), 0.01)",
        "PoissonSampled Laplace": "PoissonSampled(Laplace(2.0), 0.01)",
        "PoissonSampled mixture": "PoissonSampled(RandomSensitivityGaussian(2.0, [1.0, 2.0], [0.5, 0.5]), 0.01)",
        "Composed": "Composed([Gaussian(2.0), Laplace(2.0)])",
    }
    for name, query in renyi.items():
        CASES["renyi"][name] = (f"query = {query}", "curves.renyi(query, 8.0)")
    CASES["renyi"]["PoissonSampled Gaussian 8.5"] = (f"query = {SAMPLED}", "curves.renyi(query, 8.5)")
    CASES["renyi"]["PoissonSampled Gaussian many"] = (
        f"query = {SAMPLED}",
        "curves.renyi(query, np.arange(11, 100) / 10)",
    )
    CASES["renyi"]["without replacement Gaussian"] = (
        "query = SampledWithoutReplacement(Gaussian(2.0), 10, 1000)",
        "curves.renyi(query, 8.0, relation='replace')",
    )
    CASES["renyi"]["without replacement Laplace"] = (
        "query = SampledWithoutReplacement(Laplace(2.0), 10, 1000)",
        "curves.renyi(query, 8.0, relation='replace')",
    )
    for call in (
        "epsilon_from_renyi(0.1, 8.0, 1e-5)",
        "delta_from_renyi(0.1, 8.0, 1.0)",
        "renyi_from_epsilon(1.0, 1e-5, 8.0)",
    ):
        CASES["renyi"][call] = ("pass", f"curves.{call}")
    target = "epsilon=1.0, delta=1e-5"
    calibrate = {
        "Gaussian 1": f"Gaussian, {target}",
        "Gaussian 100": f"Gaussian, {target}, steps=100",
        "sampled Gaussian 1000": f"lambda s: PoissonSampled(Gaussian(s), 0.01), {target}, steps=1000",
        "sampled Gaussian array": "lambda s: PoissonSampled(Gaussian(s), 0.01), "
        "epsilon=np.linspace(1.0, 2.0, 10), delta=1e-5, steps=1000",
        "Laplace 1": f"Laplace, {target}",
        "Laplace 10": f"Laplace, {target}, steps=10",
        "sampled Laplace 100": f"lambda s: PoissonSampled(Laplace(s), 0.01), {target}, steps=100",
        "DiscreteGaussian 10": f"DiscreteGaussian, {target}, steps=10",
        "RandomizedResponse 10": f"RandomizedResponse, {target}, steps=10, seek='largest', bracket=(1e-3, 10.0)",
        "GDP 10": f"GDP, {target}, steps=10, seek='largest', bracket=(1e-3, 10.0)",
        "rate": f"lambda q: PoissonSampled(Gaussian(2.0), q), {target}, steps=1000, seek='largest', "
        "bracket=(1e-6, 1.0)",
    }
    for name, arguments in calibrate.items():
        CASES["calibrate"][name] = ("pass", f"jaxacct.calibrate({arguments})")
    value = "key = jax.random.key(3); value = jnp.array([0.31, 0.62, 0.07]); budgets = np.geomspace(0.01, 1.0, 7)"
    score = "accurate = lambda release: 1.0 - jnp.linalg.norm(release - value)"
    sources = {
        "Brownian": "expost.Brownian(value, sensitivity=0.001, order=20)",
        "PrecisionWeighted": "expost.PrecisionWeighted(value, sensitivity=0.001, order=20)",
        "LaplaceReduction": "expost.LaplaceReduction(value, sensitivity=0.001)",
    }
    checks = {
        "SparseVector": "expost.SparseVector(threshold=0.99, epsilon=0.05, sensitivity=1e-3, order=20)",
        "AboveThreshold": "expost.AboveThreshold(threshold=0.99, epsilon=0.05, sensitivity=1e-3)",
        "PlainGaussian": "expost.PlainGaussian(threshold=0.99, epsilon=0.05, sensitivity=1e-3, order=20, checks=7)",
        "PublicScore": "expost.PublicScore(threshold=0.99)",
    }
    for source, check in (
        ("Brownian", "SparseVector"),
        ("Brownian", "PlainGaussian"),
        ("PrecisionWeighted", "PublicScore"),
        ("LaplaceReduction", "AboveThreshold"),
    ):
        CASES["expost"][f"release_until {source} {check}"] = (
            f"{value}; {score}; source = {sources[source]}; check = {checks[check]}",
            "expost.release_until(accurate, source, budgets, check, key=key)",
        )
    calls = {
        "brownian": "expost.Brownian(value, 0.001, 20).path(key, budgets)",
        "precision_weighted": "expost.PrecisionWeighted(value, 0.001, 20).path(key, budgets)",
        "laplace_reduction": "expost.LaplaceReduction(value, 0.001).path(key, budgets)",
        "plain_gaussian_scale": "expost.scales.plain_gaussian_scale(0.1, order=20, sensitivity=0.001, checks=7)",
        "sparse_vector_scales": "expost.scales.sparse_vector_scales(0.1, order=20, sensitivity=0.001)",
        "approximate_epsilon": "expost.approximate_epsilon(0.1, order=20, delta=1e-5)",
        "bayes_factor": "expost.bayes_factor(0.1, order=20, confidence=0.95)",
        "ex_ante": "expost.ex_ante(expost.RenyiExPost(20.0), 1.0)",
        "excess": "expost.exact.excess(expost.PureExPost(), np.array([[0.4, 0.6], [0.6, 0.4]]), np.array([0.5, 0.5]))",
    }
    for name, call in calls.items():
        CASES["expost"][name] = (value, call)
    CASES["expost"]["odometer"] = (
        "one = expost.RenyiOdometer(20.0); state = one.init()",
        "one.update(PoissonSampled(Gaussian(2.0), 0.01), state)",
    )
    family = "family = [RandomizedResponse(0.5), RandomizedResponse(1.0)]"
    mixed = "family = [PoissonSampled(Gaussian(1.0), 0.1), Gaussian(3.0)]"
    for kind, made in (("responses", family), ("Gaussians", mixed)):
        query = "PureDP(2.0)" if kind == "responses" else "GDP(1.0)"
        for name, call in {
            "worst_case": "adversary.worst_case(adversary.Rule.additive(family, [1, 2], 4), 4)",
            "worst_case any_order": "adversary.worst_case(adversary.Rule.unrestricted(family), 3)",
            "is_free": f"adversary.is_free({query}, family, 4)",
            "natural_filter_cost": f"adversary.natural_filter_cost({query}, family, 4)",
            "counterexample": "adversary.counterexample(family, 3)",
            "totally_ordered_closure": "adversary.totally_ordered_closure(family, 3)",
        }.items():
            CASES["adversary"][f"{name} {kind}"] = (made, call)
    CASES["adversary"]["residue"] = (
        family,
        "adversary.natural_residue(RandomizedResponse(2.0), 0, family, 3, relation='replace')",
    )
    CASES["adversary"]["residue_condition"] = (
        family,
        "adversary.residue_condition(RandomizedResponse(2.0), 0, family, 3, relation='replace')",
    )
    CASES["adversary"]["rounded"] = (
        "query = Laplace(2.0)",
        "adversary.GeneralizedResponse.enclosing(query, [0.1, 0.2, 0.3])",
    )


def one(made: str, called: str, cache: str) -> dict[str, Any]:
    """Seconds and compilations of both lines in a process of its own."""
    program = f"""{IMPORTS}
compiled = [0]
def count(event, seconds, **_):
    compiled[0] += event.endswith("backend_compile_duration")
jax.monitoring.register_event_duration_secs_listener(count)
jax.devices()
def timed(line):
    before, start = compiled[0], time.perf_counter()
    exec(line, globals())
    return [time.perf_counter() - start, compiled[0] - before]
made, called = {made!r}, {called!r}
called = "answer = " + called + "; jax.block_until_ready(answer)"
print("RESULT", json.dumps([timed(made), timed(called), timed(called)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "JAXACCT_CACHE_DIR": cache, "JAX_PLATFORMS": "cpu"},
        timeout=600,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not lines:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no result"}
    made_, first, second = json.loads(lines[-1].removeprefix("RESULT"))
    return {"make": made_, "first": first, "second": second}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json")
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    print(f"{'case':70} {'make s':>8} {'progs':>6} {'first s':>8} {'progs':>6} {'again ms':>9}")
    with tempfile.TemporaryDirectory() as cache:
        for group, cases in CASES.items():
            for name, (made, called) in cases.items():
                full = f"{group}: {name}"
                if asked.names and not any(full.startswith(some) or name.startswith(some) for some in asked.names):
                    continue
                result = found[full] = one(made, called, cache)
                if "error" in result:
                    print(f"{full:70} {result['error']}", flush=True)
                    continue
                make, first, second = (result[key] for key in ("make", "first", "second"))
                print(
                    f"{full:70} {make[0]:8.2f} {make[1]:6d} {first[0]:8.2f} {first[1]:6d} {1e3 * second[0]:9.2f}",
                    flush=True,
                )
    if asked.json:
        with open(asked.json, "w") as out:
            json.dump({"machine": about("jaxacct"), "calls": found}, out, indent=1)


_filters()
_others()

if __name__ == "__main__":
    main()
