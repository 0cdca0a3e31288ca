"""Compositions: random settings, their truths, the mechanism of arrays of them; ``steps`` is a parameter."""

from __future__ import annotations

import math

import numpy as np
from mpmath import mpf

from jaxacct import mechanisms as m
from verification.differential import truths
from verification.differential import truths_composed as composed
from verification.differential.single_runs import (
    RELATIONS,
    SUM,
    Kind,
    concentrated_member,
    from_tables,
    log_uniform,
    mixture,
    mixture_of,
    renyi,
    renyi_limit,
    renyi_member,
    sampled_made,
)

INTEGRAL, FAR = 5e-8, 1e-10  # of contours; of thousands of runs in extended precision


def gaussians(rng, most=1e5):
    steps = int(log_uniform(rng, 2, most))
    mu = log_uniform(rng, 0.02, 8)
    return {"sigma": math.sqrt(steps) / mu, "steps": steps}, mu


def gaussians_truth(sigma, steps):
    return truths.gaussian(mpf(steps) ** mpf("0.5") / mpf(sigma))


def three_gaussians(rng):
    given = {name: log_uniform(rng, 5, 500) for name in ("s0", "mu", "s2")}
    given["mu"] = 1 / given["mu"]
    given |= {name: int(log_uniform(rng, 1, 300)) for name in ("n0", "n1", "n2")}
    given["steps"] = int(log_uniform(rng, 1, 30))
    return given, math.sqrt(float(three_gaussians_square(**given)))


def three_gaussians_square(s0, mu, s2, n0, n1, n2, steps):
    return steps * (n0 / mpf(s0) ** 2 + n1 * mpf(mu) ** 2 + n2 / mpf(s2) ** 2)


def three_gaussians_truth(**given):
    return truths.gaussian(three_gaussians_square(**given) ** mpf("0.5"))


def composed_three(s0, mu, s2, n0, n1, n2):
    return m.Composed([m.Gaussian(s0), m.GDP(mu), m.Gaussian(s2)], [n0, n1, n2])


def concentrated_runs(rng):
    rho, steps = log_uniform(rng, 1e-4, 1), int(log_uniform(rng, 2, 300))
    return {"rho": rho, "steps": steps}, math.sqrt(2 * rho * steps)


def renyi_runs(rng):
    given, _ = renyi(rng)
    steps = int(log_uniform(rng, 2, 100))
    return given | {"steps": steps}, math.sqrt(2 * given["epsilon"] * steps / given["order"])


def responses(rng, least=1e-2, most=64):
    pure, delta, steps = log_uniform(rng, least, 2), log_uniform(rng, 1e-12, 1e-3), int(log_uniform(rng, 2, most))
    return {"epsilon": pure, "delta": delta, "steps": steps}, 0.7 * pure * math.sqrt(steps)


def responses_truth(epsilon, steps, delta=0.0, categories=2):
    return truths.table(*composed.composed_table(*truths.response(epsilon, delta, categories), steps))


def many_responses(rng):
    pure, steps = log_uniform(rng, 1e-3, 4), int(log_uniform(rng, 2, 3000))
    return {"epsilon": pure, "steps": steps}, 0.7 * min(pure, 2.0) * math.sqrt(steps)


def categorical(rng):
    pure, categories, steps = log_uniform(rng, 1e-2, 2), int(rng.integers(3, 30)), int(log_uniform(rng, 2, 40))
    return {"epsilon": pure, "categories": categories, "steps": steps}, 0.5 * pure * math.sqrt(steps)


def sampled_responses(rng):
    pure, rate, steps = log_uniform(rng, 5e-2, 3), log_uniform(rng, 0.02, 1), int(log_uniform(rng, 2, 64))
    return {"epsilon": pure, "rate": rate, "steps": steps}, 0.5 * rate * min(math.expm1(pure), 3.0) * math.sqrt(steps)


def sampled_responses_truth(epsilon, rate, steps):
    p, q = truths.response(epsilon)
    both = {way: truths.sampled_table(p, q, rate, way) for way in ("remove", "add")}
    return {way: truths.table(*composed.composed_table(*pair, steps)) for way, pair in both.items()}


def tables(rng):
    given, _ = from_tables(rng)
    steps = int(log_uniform(rng, 2, 24))
    return given | {"steps": steps}, 0.5 * math.sqrt(steps)


def tables_truth(p, q, steps):
    p, q = (np.asarray(x, truths.Long) / np.asarray(x, truths.Long).sum() for x in (p, q))
    both = {"remove": (p, q), "add": (q, p)}
    return {way: truths.table(*composed.composed_table(*pair, steps)) for way, pair in both.items()}


def integer_laplaces(rng):
    scale, gap, steps = log_uniform(rng, 0.5, 8), int(rng.integers(1, 3)), int(log_uniform(rng, 2, 40))
    return {"scale": scale, "sensitivity": gap, "steps": steps}, 0.5 * gap / scale * math.sqrt(steps)


def integer_laplaces_truth(scale, sensitivity, steps):
    # Losses of a shift by one or two take that many values and one: all outcomes with one loss are one.
    p, q = truths.discrete_laplace(scale, sensitivity)
    zero = int(np.argmax(q))  # where the numerator's neighbour has its peak
    inner = np.arange(zero + 1, zero + sensitivity)
    cells = [slice(0, zero + 1), *(slice(i, i + 1) for i in inner), slice(zero + sensitivity, None)]
    both = composed.composed_table([p[c].sum() for c in cells], [q[c].sum() for c in cells], steps)
    return truths.table(*both)


def integer_gaussians(rng):
    sigma, steps = log_uniform(rng, 0.8, 4), int(log_uniform(rng, 2, 16))
    return {"sigma": sigma, "steps": steps}, math.sqrt(steps) / sigma


def integer_gaussians_truth(sigma, steps):
    return truths.table(*(composed.lattice_power(one, steps) for one in truths.discrete_gaussian(sigma, 1)))


def mixed(rng):
    sigma, pure = log_uniform(rng, 0.7, 20), log_uniform(rng, 0.02, 1.5)
    many, few = int(log_uniform(rng, 1, 100)), int(log_uniform(rng, 1, 12))
    given = {"sigma": sigma, "pure": pure, "many": many, "few": few}
    return given, math.sqrt(many) / sigma + 0.7 * pure * math.sqrt(few)


def mixed_truth(sigma, pure, many, few):
    table = composed.composed_table(*truths.response(pure), few)
    return composed.gaussian_and_table(mpf(many) ** mpf("0.5") / mpf(sigma), *table)


def mixed_made(sigma, pure, many, few):
    return m.Composed([m.Gaussian(sigma), m.PureDP(pure)], [many, few])


def exponentials(rng, least=0.05, most=40):
    pure, steps = log_uniform(rng, least, 2), int(log_uniform(rng, 4, most))
    return {"epsilon": pure, "steps": steps}, 0.3 * pure * math.sqrt(steps)


def laplaces(rng, least=0.1, most=30):
    pure, steps = log_uniform(rng, least, 1.5), int(log_uniform(rng, 2, most))
    return {"scale": 1 / pure, "steps": steps}, 0.6 * pure * math.sqrt(steps)


def laplaces_truth(scale, steps):
    return composed.laplaces(1 / mpf(scale), steps)


def laplaces_elsewhere(scale, steps):
    from dp_accounting.pld import privacy_loss_distribution as pld

    make = lambda side: pld.from_laplace_mechanism(  # noqa: E731
        scale, pessimistic_estimate=side, value_discretization_interval=2e-3
    )
    low, high = (make(side).self_compose(steps) for side in (False, True))
    # The optimistic side too holds the 1e-15 of mass that a convolution cuts off, also beyond the largest loss.
    return lambda x: (max(low.get_delta_for_epsilon(float(x)) - 1e-14, 0.0), high.get_delta_for_epsilon(float(x)))


def mixtures(rng):
    given, _ = mixture(rng)
    given["sigma"] = max(given["sigma"], 0.8)
    steps = int(log_uniform(rng, 4, 300))
    moved = sum(given[f"w{i}"] * given[f"s{i}"] for i in range(3))
    return given | {"steps": steps}, moved * math.sqrt(steps) / given["sigma"]


def mixtures_truth(sigma, s0, s1, s2, w0, w1, w2, steps):
    part = (sigma, [s0, s1, s2], [w0, w1, w2], steps)
    return {way: composed.sampled_gaussians([part], way) for way in ("remove", "add")}


def sampled_size(sigma, rate, steps):
    return rate * math.sqrt(steps * math.expm1(min(1 / sigma**2, 3.0)))


def sampled_gaussians(rng):
    given = {"sigma": log_uniform(rng, 0.8, 10), "rate": log_uniform(rng, 0.01, 0.9)}
    given["steps"] = int(log_uniform(rng, 30, 5000))
    return given, sampled_size(**given)


def few_sampled(rng):
    given = {"sigma": log_uniform(rng, 0.5, 10), "rate": log_uniform(rng, 1e-3, 0.9)}
    given["steps"] = int(log_uniform(rng, 2, 5000))
    return given, sampled_size(**given)


def many_sampled(rng):
    sigma, steps = log_uniform(rng, 0.5, 300), int(log_uniform(rng, 1e6, 1e9))
    rate = min(log_uniform(rng, 1e-2, 6) / sampled_size(sigma, 1.0, steps), 0.9)
    given = {"sigma": sigma, "rate": rate, "steps": steps}
    return given, sampled_size(**given)


def sampled_truth(sigma, rate, steps):
    part = (sigma, [0, 1], [1 - rate, rate], steps)
    return {way: composed.sampled_gaussians([part], way) for way in ("remove", "add")}


def schedules(rng):
    sigmas = sorted(log_uniform(rng, 0.8, 6) for _ in range(2))
    rate, counts = log_uniform(rng, 0.02, 0.6), [int(log_uniform(rng, 20, 1000)) for _ in range(2)]
    size = math.hypot(*(sampled_size(s, rate, n) for s, n in zip(sigmas, counts, strict=True)))
    return {"s0": sigmas[0], "s1": sigmas[1], "rate": rate, "n0": counts[0], "n1": counts[1]}, size


def schedules_truth(s0, s1, rate, n0, n1):
    parts = [(s, [0, 1], [1 - rate, rate], n) for s, n in ((s0, n0), (s1, n1))]
    return {way: composed.sampled_gaussians(parts, way) for way in ("remove", "add")}


def schedule(s0, s1, rate, n0, n1):
    return m.Composed([m.PoissonSampled(m.Gaussian(s), rate) for s in (s0, s1)], [n0, n1])


def fixed_samples(rng):
    sigma, size, steps = log_uniform(rng, 0.8, 8), int(log_uniform(rng, 30, 600)), int(log_uniform(rng, 4, 100))
    given = {"sigma": sigma, "sample_size": size, "dataset_size": 1000, "steps": steps}
    return given, size / 1000 * math.sqrt(steps * math.expm1(1 / sigma**2))


def fixed_truth(sigma, sample_size, dataset_size, steps):
    return composed.gaussians_without_replacement(1 / sigma, sample_size / dataset_size, steps)


def fixed_sample(sigma, sample_size, dataset_size):
    return m.SampledWithoutReplacement(m.Gaussian(sigma), sample_size, dataset_size)


def top(*pairs, steps):
    """Probability that every run has the largest finite loss, of the likelier pair."""
    found = 0.0
    for p, q in pairs:
        p, q = np.asarray(p, truths.Long), np.asarray(q, truths.Long)
        ratio = np.divide(p, q, out=np.zeros_like(p), where=q > 0)
        found = max(found, float(p[np.isclose(ratio.astype(float), float(ratio.max()), rtol=1e-12)].sum() ** steps))
    return found


def responses_edge(epsilon, steps, categories=2):
    return top(truths.response(epsilon, 0.0, categories), steps=steps)


def sampled_responses_edge(epsilon, rate, steps):
    pair = truths.response(epsilon)
    return top(*(truths.sampled_table(*pair, rate, way) for way in ("remove", "add")), steps=steps)


def tables_edge(p, q, steps):
    return top((p, q), (q, p), steps=steps)


def integer_laplaces_edge(scale, sensitivity, steps):
    return top(truths.discrete_laplace(scale, sensitivity), steps=steps)


def far(draw, **limits):
    return lambda rng: draw(rng, **limits)


BOTH, OFTEN, DELTA, EPSILON = ("delta", "epsilon"), ("delta", "delta", "delta", "epsilon"), ("delta",), ("epsilon",)
SYMMETRIC, DIRECTED = RELATIONS[:1], RELATIONS[1:]
PLAIN, NUMBERS = ("",), ("", "jit")
_sampled = sampled_made(m.Gaussian)
COMPOSED = {
    "Gaussians": Kind(gaussians, gaussians_truth, m.Gaussian, size=1024, batches=12),
    "Gaussians of three kinds": Kind(
        three_gaussians, three_gaussians_truth, composed_three, relations=SYMMETRIC, size=1024, batches=10),
    "zCDP runs": Kind(
        concentrated_runs, concentrated_member, m.ZeroConcentratedDP, SUM, relations=SYMMETRIC, size=1024, batches=3,
        limit=truths.concentrated),
    "Rényi runs": Kind(
        renyi_runs, renyi_member, m.RenyiDP, SUM, relations=SYMMETRIC, size=1024, batches=3, limit=renyi_limit),
    "responses": Kind(responses, responses_truth, m.ApproximateDP, SUM, DELTA, SYMMETRIC, 1024, 4),
    "sampled responses": Kind(
        sampled_responses, sampled_responses_truth, sampled_made(m.PureDP), SUM, EPSILON, RELATIONS),
    "sampled Gaussians": Kind(sampled_gaussians, sampled_truth, _sampled, INTEGRAL, OFTEN, RELATIONS, 256, 8),
    "categories": Kind(categorical, responses_truth, m.RandomizedResponse, SUM, DELTA, SYMMETRIC, 512, 3),
    "tables": Kind(tables, tables_truth, m.FromTables, SUM, DELTA, batches=3, ways=NUMBERS),
    "integer Laplaces": Kind(
        integer_laplaces, integer_laplaces_truth, m.DiscreteLaplace, SUM, EPSILON, SYMMETRIC, 512, 2),
    "Gaussians and pure DP": Kind(mixed, mixed_truth, mixed_made, SUM, DELTA, SYMMETRIC, 512, 3),
    "Laplaces": Kind(laplaces, laplaces_truth, m.Laplace, SUM, BOTH, SYMMETRIC, 256, 4),
    "Laplaces (dp_accounting)": Kind(
        laplaces, laplaces_elsewhere, m.Laplace, 1e-9, DELTA, SYMMETRIC, 64, 1, ways=PLAIN),
    "exponential mechanisms": Kind(exponentials, composed.exponentials, m.Exponential, SUM, BOTH, SYMMETRIC, 512, 2),
    "mixtures of Gaussians": Kind(
        mixtures, mixtures_truth, mixture_of, INTEGRAL, DELTA, DIRECTED, 256, 2, ways=NUMBERS),
    "integer Gaussians": Kind(
        integer_gaussians, integer_gaussians_truth, m.DiscreteGaussian, SUM, DELTA, SYMMETRIC, 256, 2),
    "schedules of sampled Gaussians": Kind(schedules, schedules_truth, schedule, INTEGRAL, DELTA, RELATIONS, 128, 3),
    "samples of fixed size": Kind(fixed_samples, fixed_truth, fixed_sample, 2e-6, DELTA, ("replace",), 32, 2),
    "sampled Gaussians, few steps": Kind(few_sampled, sampled_truth, _sampled, INTEGRAL, DELTA, DIRECTED, 128, 2),
    "sampled Gaussians, 1e6 to 1e9 steps": Kind(
        many_sampled, sampled_truth, _sampled, 2e-6, OFTEN, RELATIONS, 64, 8, far=True),
    "Gaussians, far": Kind(far(gaussians, most=1e12), gaussians_truth, m.Gaussian, size=1024, far=True),
    "responses, far": Kind(many_responses, responses_truth, m.PureDP, FAR, BOTH, SYMMETRIC, 256, 4, far=True),
    "Laplaces, far": Kind(
        far(laplaces, least=1e-3, most=80), laplaces_truth, m.Laplace, SUM, BOTH, SYMMETRIC, 128, 2, far=True),
    "exponential mechanisms, far": Kind(
        far(exponentials, least=1e-3, most=80), composed.exponentials, m.Exponential, SUM, BOTH, SYMMETRIC, 128, 2,
        far=True),
    "responses, at the edge": Kind(
        many_responses, responses_truth, m.PureDP, SUM, EPSILON, SYMMETRIC, 512, 4, edge=responses_edge),
    "categories, at the edge": Kind(
        categorical, responses_truth, m.RandomizedResponse, SUM, EPSILON, SYMMETRIC, 512, 4, edge=responses_edge),
    "sampled responses, at the edge": Kind(
        sampled_responses, sampled_responses_truth, sampled_made(m.PureDP), SUM, EPSILON, RELATIONS, 512, 6,
        edge=sampled_responses_edge),
    "tables, at the edge": Kind(
        tables, tables_truth, m.FromTables, SUM, EPSILON, RELATIONS, 512, 6, ways=NUMBERS, edge=tables_edge),
    "integer Laplaces, at the edge": Kind(
        integer_laplaces, integer_laplaces_truth, m.DiscreteLaplace, SUM, EPSILON, SYMMETRIC, 512, 2,
        edge=integer_laplaces_edge),
}  # fmt: skip
