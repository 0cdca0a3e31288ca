"""Random queries against an independent evaluation: closed forms, exact sums, contour integrals, dp_accounting.

    python bench/differential.py --log differential.jsonl                   # goes on where the log ends
    python bench/differential.py --log differential.jsonl --report bench/results/differential.json

A batch asks one question (delta or epsilon, under one relation) about hundreds of random settings of one kind in one
call, and is a function of the kind's name and its number alone. The log has a line a batch, appended when it is known;
the report counts queries by kind and lists every disagreement. The truths are in ``truths.py``, one for each setting.

A query for delta agrees if lower <= truth <= upper; one for epsilon if the true curve is at least delta at ``lower``
and at most delta at ``upper``; within what the truth is known to (``tolerance`` of a kind, relative). A class of which
only a curve is known (zCDP, Rényi DP) has bounds around its worst case: there lower must not exceed the Gaussian member
of the class, and upper not fall below it, nor (one run, unsampled) exceed the conversion that the documentation names.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import pathlib
import time
import warnings
import zlib

import numpy as np
import truths
from machine import about
from mpmath import mpf

import jaxacct
from jaxacct import mechanisms as m

EXACT, SUM, INTEGRAL = 1e-14, 1e-13, 5e-8
_TINY = 1e-300  # subnormal deltas are where floats, and not bounds, end
_RELATIONS = ("add_or_remove", "remove", "add")


def log_uniform(rng, low, high):
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


# --- kinds. A draw is (parameters, {direction: curve} or one curve, size of the loss) or, for a class of mechanisms,
# (parameters, curve of its Gaussian member, size, curve that the class's upper bound is documented to keep under).


def tabled(p, q, name):
    """Curves of both directions; ``name`` is what ``sampled`` needs the tables for."""
    return {"remove": truths.table(p, q), "add": truths.table(q, p), name: (p, q)}


def gaussian(rng):
    sigma, sensitivity = log_uniform(rng, 0.2, 50), log_uniform(rng, 0.3, 3)
    return {"sigma": sigma, "sensitivity": sensitivity}, truths.gaussian(mpf(sensitivity) / mpf(sigma)), 1 / sigma


def gdp(rng):
    mu = log_uniform(rng, 0.01, 6)
    return {"mu": mu}, truths.gaussian(mu), mu


def laplace(rng):
    scale, sensitivity = log_uniform(rng, 0.2, 50), log_uniform(rng, 0.3, 3)
    pure = mpf(sensitivity) / mpf(scale)
    return {"scale": scale, "sensitivity": sensitivity}, truths.laplace(pure), float(pure) / 3


def discrete_laplace(rng):
    scale, gap = log_uniform(rng, 0.3, 10), int(rng.integers(1, 4))
    return {"scale": scale, "sensitivity": gap}, tabled(*truths.discrete_laplace(scale, gap), "table"), gap / scale / 3


def discrete_gaussian(rng):
    sigma, gap = log_uniform(rng, 0.3, 6), int(rng.integers(1, 4))
    return {"sigma": sigma, "sensitivity": gap}, tabled(*truths.discrete_gaussian(sigma, gap), "table"), gap / sigma


def randomized_response(rng):
    pure, categories = log_uniform(rng, 1e-3, 6), int(log_uniform(rng, 2, 100))
    return {"epsilon": pure, "categories": categories}, tabled(*truths.response(pure, 0, categories), "table"), pure / 3


def pure(rng):
    epsilon = log_uniform(rng, 1e-3, 6)
    return {"epsilon": epsilon}, tabled(*truths.response(epsilon), "table"), epsilon / 3


def approximate(rng):
    epsilon, delta = log_uniform(rng, 1e-3, 6), log_uniform(rng, 1e-12, 1e-1)
    return {"epsilon": epsilon, "delta": delta}, tabled(*truths.response(epsilon, delta), "table"), epsilon / 3


def exponential(rng):
    epsilon = log_uniform(rng, 1e-2, 6)
    return {"epsilon": epsilon}, truths.bounded_range(epsilon), epsilon / 3


def from_tables(rng):
    p, q = rng.dirichlet(np.ones(3), size=2) * 0.999 + 0.001 / 3
    if rng.random() < 0.3:
        p[0], p[1] = 0.0, p[0] + p[1]
    p, q = (np.asarray(x, truths.Long) / np.asarray(x, truths.Long).sum() for x in (p, q))
    given = {"p": np.asarray(p, float), "q": np.asarray(q, float)}
    p, q = (np.asarray(given[name], truths.Long) / np.asarray(given[name], truths.Long).sum() for name in "pq")
    return given, tabled(p, q, "table"), 0.5


def from_profile(rng):
    epsilons = np.sort(rng.uniform(0.05, 3, 3))
    deltas = np.exp(-rng.uniform(1, 3) - 2 * epsilons) * rng.uniform(0.3, 1, 3)
    return {"epsilons": epsilons, "deltas": deltas}, truths.hull(list(zip(epsilons, deltas, strict=True))), 0.6


def mixture(rng):
    sigma, moves, weights = log_uniform(rng, 0.4, 8), [0.0, *rng.uniform(0.3, 2, 2)], rng.dirichlet(np.ones(3))
    curves = {way: truths.mixture(sigma, moves, weights, way) for way in ("remove", "add")}
    given = {"sigma": sigma} | {f"s{i}": s for i, s in enumerate(moves)} | {f"w{i}": w for i, w in enumerate(weights)}
    return given, curves, 1 / sigma


def concentrated(rng):
    rho = log_uniform(rng, 1e-4, 10)
    return {"rho": rho}, truths.gaussian(np.sqrt(2 * rho)), math.sqrt(2 * rho), truths.concentrated(rho)


def renyi(rng):
    order, epsilon = 1 + log_uniform(rng, 0.1, 60), log_uniform(rng, 1e-4, 5)
    member = truths.gaussian(np.sqrt(2 * epsilon / order))
    return {"order": order, "epsilon": epsilon}, member, math.sqrt(2 * epsilon / order), truths.renyi(order, epsilon)


def without_replacement(rng):
    sigma, size, total = log_uniform(rng, 0.3, 20), int(log_uniform(rng, 1, 500)), 1000
    given = {"sigma": sigma, "sample_size": size, "dataset_size": total}
    curve = truths.without_replacement(truths.gaussian(1 / mpf(sigma)), mpf(size) / total)
    return given, curve, size / total / sigma + 0.05


def mixture_of(sigma, s0, s1, s2, w0, w1, w2):
    return m.MixtureOfGaussians(sigma, (s0, s1, s2), (w0, w1, w2))


def fixed_sample(sigma, sample_size, dataset_size):
    return m.SampledWithoutReplacement(m.Gaussian(sigma), sample_size, dataset_size)


ONE_RUN = {
    "Gaussian": (gaussian, m.Gaussian, EXACT),
    "GDP": (gdp, m.GDP, EXACT),
    "Laplace": (laplace, m.Laplace, EXACT),
    "DiscreteLaplace": (discrete_laplace, m.DiscreteLaplace, SUM),
    "DiscreteGaussian": (discrete_gaussian, m.DiscreteGaussian, SUM),
    "RandomizedResponse": (randomized_response, m.RandomizedResponse, SUM),
    "PureDP": (pure, m.PureDP, SUM),
    "PermuteAndFlip": (pure, m.PermuteAndFlip, SUM),
    "ApproximateDP": (approximate, m.ApproximateDP, SUM),
    "Exponential": (exponential, m.Exponential, SUM),
    "FromTables": (from_tables, m.FromTables, SUM),
    "FromProfile": (from_profile, m.FromProfile, SUM),
    "MixtureOfGaussians": (mixture, mixture_of, SUM),
    "ZeroConcentratedDP": (concentrated, m.ZeroConcentratedDP, SUM),
    "RenyiDP": (renyi, m.RenyiDP, SUM),
    "SampledWithoutReplacement": (without_replacement, fixed_sample, SUM),
}


def on_a_sample(draw):
    """The same on a Poisson sample of a random rate; the conversion of a class is not documented for samples."""

    def drawn(rng):
        given, curve, size, *_ = draw(rng)
        rate = log_uniform(rng, 1e-3, 1)
        if isinstance(curve, dict) and "table" in curve:
            p, q = curve["table"]
            both = {way: truths.table(*truths.sampled_table(p, q, rate, way)) for way in ("remove", "add")}
        else:
            inner = curve if isinstance(curve, dict) else {"remove": curve, "add": curve}
            both = {way: truths.sampled(inner[way], rate, way) for way in ("remove", "add")}
        return given | {"rate": rate}, both, 0.3 * rate * size

    return drawn


def sampled_made(made):
    return lambda rate, **given: m.PoissonSampled(made(**given), rate)


# --- compositions; `steps` is a parameter of its own


def gaussians(rng):
    steps = int(log_uniform(rng, 2, 1e5))
    sigma = math.sqrt(steps) / log_uniform(rng, 0.02, 8)
    mu = mpf(steps) ** mpf("0.5") / mpf(sigma)
    return {"sigma": sigma, "steps": steps}, truths.gaussian(mu), float(mu)


def three_gaussians(rng):
    sigmas = [log_uniform(rng, 5, 500) for _ in range(3)]
    counts, steps = [int(log_uniform(rng, 1, 300)) for _ in range(3)], int(log_uniform(rng, 1, 30))
    mu = (steps * sum(mpf(n) / mpf(s) ** 2 for s, n in zip(sigmas, counts, strict=True))) ** mpf("0.5")
    given = {f"s{i}": s for i, s in enumerate(sigmas)} | {f"n{i}": n for i, n in enumerate(counts)}
    return given | {"steps": steps}, truths.gaussian(mu), float(mu)


def composed_three(s0, s1, s2, n0, n1, n2):
    return m.Composed([m.Gaussian(s0), m.GDP(1 / np.asarray(s1)), m.Gaussian(s2)], [n0, n1, n2])


def concentrated_runs(rng):
    rho, steps = log_uniform(rng, 1e-4, 1), int(log_uniform(rng, 2, 300))
    mu = math.sqrt(2 * rho * steps)
    return {"rho": rho, "steps": steps}, truths.gaussian(mu), mu, truths.concentrated(rho, steps)


def renyi_runs(rng):
    given, _, _, _ = renyi(rng)
    steps = int(log_uniform(rng, 2, 100))
    mu = math.sqrt(2 * given["epsilon"] * steps / given["order"])
    limit = truths.renyi(given["order"], mpf(given["epsilon"]) * steps)
    return given | {"steps": steps}, truths.gaussian(mu), mu, limit


def responses(rng):
    pure, delta, steps = log_uniform(rng, 1e-2, 2), log_uniform(rng, 1e-12, 1e-3), int(log_uniform(rng, 2, 64))
    both = truths.composed_table(*truths.response(pure, delta), steps)
    return {"epsilon": pure, "delta": delta, "steps": steps}, truths.table(*both), 0.7 * pure * math.sqrt(steps)


def categorical(rng):
    pure, categories, steps = log_uniform(rng, 1e-2, 2), int(rng.integers(3, 30)), int(log_uniform(rng, 2, 40))
    both = truths.composed_table(*truths.response(pure, 0, categories), steps)
    given = {"epsilon": pure, "categories": categories, "steps": steps}
    return given, truths.table(*both), 0.5 * pure * math.sqrt(steps)


def sampled_responses(rng):
    pure, rate, steps = log_uniform(rng, 5e-2, 3), log_uniform(rng, 0.02, 1), int(log_uniform(rng, 2, 64))
    p, q = truths.response(pure)
    both = {}
    for way in ("remove", "add"):
        both[way] = truths.table(*truths.composed_table(*truths.sampled_table(p, q, rate, way), steps))
    size = 0.5 * rate * min(math.expm1(pure), 3.0) * math.sqrt(steps)
    return {"epsilon": pure, "rate": rate, "steps": steps}, both, size


def tables(rng):
    given, curve, _ = from_tables(rng)
    steps = int(log_uniform(rng, 2, 24))
    p, q = curve["table"]
    both = {"remove": truths.composed_table(p, q, steps), "add": truths.composed_table(q, p, steps)}
    return given | {"steps": steps}, {way: truths.table(*one) for way, one in both.items()}, 0.5 * math.sqrt(steps)


def integer_laplaces(rng):
    scale, gap, steps = log_uniform(rng, 0.5, 8), int(rng.integers(1, 3)), int(log_uniform(rng, 2, 40))
    # Losses of a shift by one or two take gap + 1 values: all outcomes with one loss are one.
    p, q = truths.discrete_laplace(scale, gap)
    zero = int(np.argmax(q))  # where the numerator's neighbour has its peak
    inner = np.arange(zero + 1, zero + gap)
    cells = [slice(0, zero + 1), *(slice(i, i + 1) for i in inner), slice(zero + gap, None)]
    both = truths.composed_table([p[c].sum() for c in cells], [q[c].sum() for c in cells], steps)
    size = 0.5 * gap / scale * math.sqrt(steps)
    return {"scale": scale, "sensitivity": gap, "steps": steps}, truths.table(*both), size


def integer_gaussians(rng):
    sigma, steps = log_uniform(rng, 0.8, 4), int(log_uniform(rng, 2, 16))
    p, q = (truths.lattice_power(one, steps) for one in truths.discrete_gaussian(sigma, 1))
    return {"sigma": sigma, "steps": steps}, truths.table(p, q), math.sqrt(steps) / sigma


def mixed(rng):
    sigma, pure = log_uniform(rng, 0.7, 20), log_uniform(rng, 0.02, 1.5)
    many, few = int(log_uniform(rng, 1, 100)), int(log_uniform(rng, 1, 12))
    mu = mpf(many) ** mpf("0.5") / mpf(sigma)
    curve = truths.gaussian_and_table(mu, *truths.composed_table(*truths.response(pure), few))
    given = {"sigma": sigma, "pure": pure, "many": many, "few": few}
    return given, curve, float(mu) + 0.7 * pure * math.sqrt(few)


def mixed_made(sigma, pure, many, few):
    return m.Composed([m.Gaussian(sigma), m.PureDP(pure)], [many, few])


def exponentials(rng):
    pure, steps = log_uniform(rng, 0.05, 2), int(log_uniform(rng, 4, 40))
    return {"epsilon": pure, "steps": steps}, truths.exponentials(pure, steps), 0.3 * pure * math.sqrt(steps)


def laplaces(rng):
    pure, steps = log_uniform(rng, 0.1, 1.5), int(log_uniform(rng, 3, 30))
    scale = 1 / pure
    return {"scale": scale, "steps": steps}, truths.laplaces(1 / scale, steps), 0.6 * pure * math.sqrt(steps)


def laplaces_elsewhere(rng):
    from dp_accounting.pld import privacy_loss_distribution as pld

    scale, steps = log_uniform(rng, 1, 20), int(log_uniform(rng, 3, 30))
    ends = [
        pld.from_laplace_mechanism(scale, pessimistic_estimate=side, value_discretization_interval=2e-3).self_compose(
            steps
        )
        for side in (False, True)
    ]
    curve = lambda x: tuple(end.get_delta_for_epsilon(float(x)) for end in ends)  # noqa: E731
    return {"scale": scale, "steps": steps}, curve, 0.6 * math.sqrt(steps) / scale


def mixtures(rng):
    given, _, _ = mixture(rng)
    given["sigma"] = max(given["sigma"], 0.8)
    steps = int(log_uniform(rng, 4, 300))
    moves, weights = [given[f"s{i}"] for i in range(3)], [given[f"w{i}"] for i in range(3)]
    part = (given["sigma"], moves, weights, steps)
    both = {way: truths.sampled_gaussians([part], way) for way in ("remove", "add")}
    moved = sum(w * s for w, s in zip(weights, moves, strict=True))
    return given | {"steps": steps}, both, moved * math.sqrt(steps) / given["sigma"]


def sampled_gaussians(rng, hard=False):
    sigma, rate = log_uniform(rng, 0.5 if hard else 0.8, 10), log_uniform(rng, 1e-3 if hard else 0.01, 0.9)
    steps = int(log_uniform(rng, 2 if hard else 30, 5000))
    both = {way: truths.sampled_gaussians([(sigma, [0, 1], [1 - rate, rate], steps)], way) for way in ("remove", "add")}
    size = rate * math.sqrt(steps * math.expm1(min(1 / sigma**2, 3.0)))
    return {"sigma": sigma, "rate": rate, "steps": steps}, both, size


def schedules(rng):
    sigmas = sorted(log_uniform(rng, 0.8, 6) for _ in range(2))
    rate, counts = log_uniform(rng, 0.02, 0.6), [int(log_uniform(rng, 20, 1000)) for _ in range(2)]
    parts = [(s, [0, 1], [1 - rate, rate], n) for s, n in zip(sigmas, counts, strict=True)]
    both = {way: truths.sampled_gaussians(parts, way) for way in ("remove", "add")}
    size = rate * math.sqrt(sum(n * math.expm1(min(1 / s**2, 3.0)) for s, n in zip(sigmas, counts, strict=True)))
    return {"s0": sigmas[0], "s1": sigmas[1], "rate": rate, "n0": counts[0], "n1": counts[1]}, both, size


def schedule(s0, s1, rate, n0, n1):
    return m.Composed([m.PoissonSampled(m.Gaussian(s), rate) for s in (s0, s1)], [n0, n1])


def fixed_samples(rng):
    sigma, size, steps = log_uniform(rng, 0.8, 8), int(log_uniform(rng, 30, 600)), int(log_uniform(rng, 4, 100))
    curve = truths.gaussians_without_replacement(1 / sigma, size / 1000, steps)
    given = {"sigma": sigma, "sample_size": size, "dataset_size": 1000, "steps": steps}
    return given, curve, size / 1000 * math.sqrt(steps * math.expm1(1 / sigma**2))


def hard_gaussians(rng):
    return sampled_gaussians(rng, hard=True)


# name -> (draw, mechanism of arrays, tolerance, questions, relations, settings a batch, batches)
BOTH, OFTEN, DELTA, EPSILON = ("delta", "epsilon"), ("delta", "delta", "delta", "epsilon"), ("delta",), ("epsilon",)
SYMMETRIC = ("add_or_remove",)
KINDS = {
    "Gaussians": (gaussians, m.Gaussian, EXACT, BOTH, _RELATIONS, 1024, 12),
    "Gaussians of three kinds": (three_gaussians, composed_three, EXACT, BOTH, SYMMETRIC, 1024, 10),
    "zCDP runs": (concentrated_runs, m.ZeroConcentratedDP, SUM, BOTH, SYMMETRIC, 1024, 3),
    "Rényi runs": (renyi_runs, m.RenyiDP, SUM, BOTH, SYMMETRIC, 1024, 3),
    "responses": (responses, m.ApproximateDP, SUM, DELTA, SYMMETRIC, 1024, 4),
    "sampled responses": (sampled_responses, sampled_made(m.PureDP), SUM, EPSILON, _RELATIONS, 512, 6),
    "sampled Gaussians": (sampled_gaussians, sampled_made(m.Gaussian), INTEGRAL, OFTEN, _RELATIONS[1:], 512, 12),
    "categories": (categorical, m.RandomizedResponse, SUM, DELTA, SYMMETRIC, 512, 3),
    "tables": (tables, m.FromTables, SUM, DELTA, _RELATIONS, 512, 3),
    "integer Laplaces": (integer_laplaces, m.DiscreteLaplace, SUM, EPSILON, SYMMETRIC, 512, 2),
    "Gaussians and pure DP": (mixed, mixed_made, EXACT, DELTA, SYMMETRIC, 512, 3),
    "Laplaces": (laplaces, m.Laplace, INTEGRAL, DELTA, SYMMETRIC, 512, 3),
    "Laplaces (dp_accounting)": (laplaces_elsewhere, m.Laplace, 1e-9, DELTA, SYMMETRIC, 64, 1),
    "exponential mechanisms": (exponentials, m.Exponential, INTEGRAL, DELTA, SYMMETRIC, 512, 2),
    "mixtures of Gaussians": (mixtures, mixture_of, INTEGRAL, DELTA, _RELATIONS[1:], 256, 2),
    "integer Gaussians": (integer_gaussians, m.DiscreteGaussian, SUM, DELTA, SYMMETRIC, 256, 2),
    "schedules of sampled Gaussians": (schedules, schedule, INTEGRAL, DELTA, _RELATIONS[1:], 256, 1),
    "samples of fixed size": (fixed_samples, fixed_sample, 2e-6, DELTA, ("replace",), 128, 1),
    "sampled Gaussians, few steps": (hard_gaussians, sampled_made(m.Gaussian), INTEGRAL, DELTA, ("remove",), 128, 1),
}
for _name, (_draw, _made, _tolerance) in ONE_RUN.items():
    _replace = _name == "SampledWithoutReplacement"
    _ways = ("replace",) if _replace else _RELATIONS
    KINDS[f"{_name}, once"] = (_draw, _made, _tolerance, BOTH, _ways, 512, 4)
    if not _replace:
        KINDS[f"{_name} on a sample, once"] = (
            on_a_sample(_draw),
            sampled_made(_made),
            max(_tolerance, SUM),
            BOTH,
            _RELATIONS,
            512,
            4,
        )


def evaluated(curve, relation, x):
    """(low, high) of the truth at x, the worse of both directions."""
    if isinstance(curve, dict):
        ways = ("remove", "add") if relation in ("add_or_remove", "replace") else (relation,)
        return tuple(max(ends) for ends in zip(*(evaluated(curve[way], way, x) for way in ways), strict=True))
    found = curve(mpf(float(x)))
    return tuple(map(float, found)) if isinstance(found, tuple) else (float(found), float(found))


def batch(name: str, number: int) -> dict:
    """All queries of one batch: counts, disagreements, widths."""
    draw, made, tolerance, questions, relations, size, _ = KINDS[name]
    rng = np.random.default_rng([zlib.crc32(name.encode()), number])
    question, relation = questions[number % len(questions)], relations[(number // len(questions)) % len(relations)]
    drawn = [draw(rng) for _ in range(size)]
    given = {key: np.array([one[0][key] for one in drawn]) for key in drawn[0][0]}
    steps = given.pop("steps", 1)
    if question == "delta":
        spread = np.array([one[2] for one in drawn])
        goal = spread * rng.uniform(0, 6, size) + spread**2 / 2 * rng.uniform(0, 1.2, size)
        goal = np.clip(goal, 1e-6, 300.0)
        if "once" in name:
            goal = np.where(rng.random(size) < 0.05, -goal, goal)
    else:
        goal = np.exp(rng.uniform(math.log(1e-12), math.log(0.2), size))
    start = time.process_time()
    found = getattr(jaxacct, question)(made(**given), goal, steps=steps, relation=relation)
    ours = time.process_time() - start
    lower, upper = np.asarray(found.lower), np.asarray(found.upper)
    row = {"kind": name, "batch": number, "question": question, "relation": relation, "queries": 0, "no_truth": 0}
    wrong, widths = [], []
    start = time.process_time()
    for i, (_, curve, _, *limit) in enumerate(drawn):
        try:
            verdict, truth = judged(question, curve, limit, relation, float(goal[i]), lower[i], upper[i], tolerance)
        except ArithmeticError as problem:
            row["no_truth"] += 1
            row.setdefault("why", str(problem))
            continue
        row["queries"] += 1
        if not verdict:
            setting = {key: np.asarray(value[i]).tolist() for key, value in given.items()}
            setting["steps"] = float(np.broadcast_to(steps, (size,))[i])
            wrong.append(setting | {"goal": goal[i], "lower": lower[i], "upper": upper[i], "truth": truth})
        if math.isfinite(upper[i]) and upper[i] > 1e-14:
            widths.append(1 - lower[i] / upper[i])
    row |= {"vacuous": int(np.isinf(upper).sum()) if question == "epsilon" else int((upper >= 1).sum())}
    row |= {"widths": np.quantile(widths or [0.0], [0.5, 0.99, 1.0]).tolist(), "disagreements": wrong}
    return row | {"ours_seconds": round(ours, 3), "truth_seconds": round(time.process_time() - start, 3)}


def judged(question, curve, limit, relation, goal, lower, upper, slack):
    """(whether one query agrees, the truth or the true curve at both answers)."""
    if question == "delta":
        low, high = evaluated(curve, relation, goal)
        good = 0 <= lower <= upper <= 1 and lower <= high * (1 + slack) + _TINY and low * (1 - slack) <= upper
        if limit and goal >= 0:
            good = good and upper <= evaluated(limit[0], relation, goal)[0] * (1 + 1e-9) + _TINY
        return bool(good), [low, high]
    # A lower end of inf says that a likelier loss than delta is infinite.
    at_lower = evaluated(curve, relation, min(lower, 700.0))[1] if lower > 0 else 1.0
    at_upper = evaluated(curve, relation, upper)[0] if math.isfinite(upper) else 0.0
    good = 0 <= lower <= upper and at_lower >= goal * (1 - slack) and at_upper <= goal * (1 + slack)
    return bool(good), [at_lower, at_upper]


def reported(log: pathlib.Path) -> dict:
    kinds: dict = collections.defaultdict(collections.Counter)
    widths: dict = collections.defaultdict(list)
    wrong = []
    for row in map(json.loads, log.read_text().splitlines()):
        kind = kinds[row["kind"]]
        for key in ("queries", "no_truth", "vacuous", "ours_seconds", "truth_seconds"):
            kind[key] += row[key]
        kind["disagree"] += len(row["disagreements"])
        widths[row["kind"]].append(row["widths"])
        wrong += [{"kind": row["kind"], "question": row["question"], "relation": row["relation"]} | one
                  for one in row["disagreements"]]  # fmt: skip
    table = {}
    for name, kind in kinds.items():
        middle, most, widest = np.array(widths[name]).T
        table[name] = {k: round(v, 2) for k, v in kind.items()} | {"tolerance": KINDS[name][2]}
        table[name] |= {"median_width": np.median(middle), "p99_width": most.max(), "widest": widest.max()}
    total = {key: sum(kind[key] for kind in kinds.values()) for key in ("queries", "no_truth", "disagree")}
    return total | {"kinds": table, "disagreements": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--kinds", nargs="+", help="only these")
    parser.add_argument("--first", action="store_true", help="only the first batch of every kind")
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # wide bounds warn; the report counts widths
    done = set()
    if given.log.exists():
        whole = given.log.read_text().rpartition("\n")[0]  # a line that a crash cut short is asked again
        given.log.write_text(whole + "\n" if whole else "")
        done = {(row["kind"], row["batch"]) for row in map(json.loads, whole.splitlines())}
    if not given.report:
        with open(given.log, "a", buffering=1) as log:
            # What compiles for long comes last.
            for name in given.kinds or sorted(KINDS, key=lambda name: "once" not in name):
                for number in range(1 if given.first else KINDS[name][-1]):
                    if (name, number) not in done:
                        log.write(json.dumps(batch(name, number)) + "\n")
        return
    found = {**reported(given.log), "machine": about("mpmath")}
    given.report.write_text(json.dumps(found, indent=1) + "\n")
    for name, kind in found["kinds"].items():
        print(f"{name}: {kind['queries']} queries, {kind['disagree']} disagree, widths to {kind['p99_width']:.1e}")
    print({key: found[key] for key in ("queries", "no_truth", "disagree")})


if __name__ == "__main__":
    main()
