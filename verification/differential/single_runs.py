"""One run of every mechanism: random settings, their truths, the mechanism of arrays of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpmath import mpf

from jaxacct import mechanisms as m
from verification.differential import truths

EXACT, SUM = 1e-14, 1e-13
RELATIONS = ("add_or_remove", "remove", "add")


class Kind(NamedTuple):
    """What is asked, and what it is judged by.

    Attributes:
        draw: random generator -> (parameters, rough size of the loss). ``steps`` is a parameter.
        truth: parameters -> curve, or a dictionary of curves by direction; of a class of mechanisms, that of its
            Gaussian member.
        made: arrays of parameters but ``steps`` -> mechanism.
        tolerance: how well the truth is known, relative.
        questions, relations: asked in turn, a batch each.
        size: settings a batch.
        batches: how many.
        limit: parameters -> curve that a class's upper bound is documented to keep under.
        far: whether goals go to extremes.
        ways: how queries are asked: "" as they are, "jit" in a float64 program,
            "float32 program" in one of the user's with everything traced.
        edge: parameters -> probability of the largest finite loss; goals for epsilon then go to its neighbourhood.
    """

    draw: Callable[..., Any]
    truth: Callable[..., Any]
    made: Callable[..., Any]
    tolerance: float = EXACT
    questions: tuple[str, ...] = ("delta", "epsilon")
    relations: tuple[str, ...] = RELATIONS
    size: int = 512
    batches: int = 6
    limit: Callable[..., Any] | None = None
    far: bool = False
    ways: tuple[str, ...] = ("", "jit", "float32 program")
    edge: Callable[..., float] | None = None


def log_uniform(rng, low, high):
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def tabled(p, q):
    """Curves of both directions, and what ``on_a_sample`` needs."""
    return {"remove": truths.table(p, q), "add": truths.table(q, p), "table": (p, q)}


def gaussian(rng):
    sigma = log_uniform(rng, 0.2, 50)
    return {"sigma": sigma, "sensitivity": log_uniform(rng, 0.3, 3)}, 1 / sigma


def gaussian_truth(sigma, sensitivity):
    return truths.gaussian(mpf(sensitivity) / mpf(sigma))


def gdp(rng):
    mu = log_uniform(rng, 0.01, 6)
    return {"mu": mu}, mu


def laplace(rng):
    scale, sensitivity = log_uniform(rng, 0.2, 50), log_uniform(rng, 0.3, 3)
    return {"scale": scale, "sensitivity": sensitivity}, sensitivity / scale / 3


def laplace_truth(scale, sensitivity):
    return truths.laplace(mpf(sensitivity) / mpf(scale))


def discrete_laplace(rng):
    scale, gap = log_uniform(rng, 0.3, 10), int(rng.integers(1, 4))
    return {"scale": scale, "sensitivity": gap}, gap / scale / 3


def discrete_gaussian(rng):
    sigma, gap = log_uniform(rng, 0.3, 6), int(rng.integers(1, 4))
    return {"sigma": sigma, "sensitivity": gap}, gap / sigma


def randomized_response(rng):
    pure = log_uniform(rng, 1e-3, 6)
    return {"epsilon": pure, "categories": int(log_uniform(rng, 2, 100))}, pure / 3


def response_truth(epsilon, delta=0.0, categories=2):
    # The bounds of one run are as close as extended precision rounds.
    return tabled(*truths.response(epsilon, delta, categories, number=mpf))


def pure(rng):
    epsilon = log_uniform(rng, 1e-3, 6)
    return {"epsilon": epsilon}, epsilon / 3


def approximate(rng):
    epsilon = log_uniform(rng, 1e-3, 6)
    return {"epsilon": epsilon, "delta": log_uniform(rng, 1e-12, 1e-1)}, epsilon / 3


def exponential(rng):
    epsilon = log_uniform(rng, 1e-2, 6)
    return {"epsilon": epsilon}, epsilon / 3


def from_tables(rng):
    p, q = rng.dirichlet(np.ones(3), size=2) * 0.999 + 0.001 / 3
    if rng.random() < 0.3:
        p[0], p[1] = 0.0, p[0] + p[1]
    return {"p": p / p.sum(), "q": q / q.sum()}, 0.5


def table_truth(p, q):
    p, q = (np.asarray(x, truths.Long) / np.asarray(x, truths.Long).sum() for x in (p, q))
    return tabled(p, q)


def from_profile(rng):
    epsilons = np.sort(rng.uniform(0.05, 3, 3))
    deltas = np.exp(-rng.uniform(1, 3) - 2 * epsilons) * rng.uniform(0.3, 1, 3)
    return {"epsilons": epsilons, "deltas": deltas}, 0.6


def profile_truth(epsilons, deltas):
    return truths.hull(list(zip(epsilons, deltas, strict=True)))


def mixture(rng):
    sigma, moves, weights = log_uniform(rng, 0.4, 8), [0.0, *rng.uniform(0.3, 2, 2)], rng.dirichlet(np.ones(3))
    given = {f"s{i}": s for i, s in enumerate(moves)} | {f"w{i}": w for i, w in enumerate(weights)}
    return {"sigma": sigma} | given, 1 / sigma


def mixture_truth(sigma, s0, s1, s2, w0, w1, w2):
    return {way: truths.mixture(sigma, [s0, s1, s2], [w0, w1, w2], way) for way in ("remove", "add")}


def mixture_of(sigma, s0, s1, s2, w0, w1, w2):
    return m.RandomSensitivityGaussian(sigma, (s0, s1, s2), (w0, w1, w2))


def concentrated(rng):
    rho = log_uniform(rng, 1e-4, 10)
    return {"rho": rho}, math.sqrt(2 * rho)


def concentrated_member(rho, steps=1):
    return truths.gaussian(mpf(2 * steps * mpf(rho)) ** mpf("0.5"))


def renyi(rng):
    order, epsilon = 1 + log_uniform(rng, 0.1, 60), log_uniform(rng, 1e-4, 5)
    return {"order": order, "epsilon": epsilon}, math.sqrt(2 * epsilon / order)


def renyi_member(order, epsilon, steps=1):
    return truths.gaussian((2 * steps * mpf(epsilon) / mpf(order)) ** mpf("0.5"))


def renyi_limit(order, epsilon, steps=1):
    return truths.renyi(order, mpf(epsilon) * steps)


def without_replacement(rng):
    sigma, size, total = log_uniform(rng, 0.3, 20), int(log_uniform(rng, 1, 500)), 1000
    return {"sigma": sigma, "sample_size": size, "dataset_size": total}, size / total / sigma + 0.05


def without_replacement_truth(sigma, sample_size, dataset_size):
    return truths.without_replacement(truths.gaussian(1 / mpf(sigma)), mpf(sample_size) / dataset_size)


def fixed_sample(sigma, sample_size, dataset_size):
    return m.SampledWithoutReplacement(m.Gaussian(sigma), sample_size, dataset_size)


_SUMS = ("", "jit")  # numbers that must sum up to 1 are none of float32's
_CONCRETE = ("",)  # profiles are not traced
ALONE = {
    "Gaussian": Kind(gaussian, gaussian_truth, m.Gaussian),
    "GDP": Kind(gdp, truths.gaussian, m.GDP),
    "Laplace": Kind(laplace, laplace_truth, m.Laplace),
    "DiscreteLaplace": Kind(
        discrete_laplace, lambda scale, sensitivity: tabled(*truths.discrete_laplace(scale, sensitivity)),
        m.DiscreteLaplace, SUM,
    ),
    "DiscreteGaussian": Kind(
        discrete_gaussian, lambda sigma, sensitivity: tabled(*truths.discrete_gaussian(sigma, sensitivity)),
        m.DiscreteGaussian, SUM,
    ),
    "RandomizedResponse": Kind(randomized_response, response_truth, m.RandomizedResponse, SUM),
    "PureDP": Kind(pure, response_truth, m.PureDP, SUM),
    "PermuteAndFlip": Kind(pure, response_truth, m.PermuteAndFlip, SUM),
    "ApproximateDP": Kind(approximate, response_truth, m.ApproximateDP, SUM),
    "Exponential": Kind(exponential, truths.bounded_range, m.Exponential, SUM),
    "FromTables": Kind(from_tables, table_truth, m.FromTables, SUM, ways=_SUMS),
    "FromProfile": Kind(from_profile, profile_truth, m.FromProfile, SUM, ways=_CONCRETE),
    "RandomSensitivityGaussian": Kind(mixture, mixture_truth, mixture_of, SUM, ways=_SUMS),
    "ZeroConcentratedDP": Kind(
        concentrated, concentrated_member, m.ZeroConcentratedDP, SUM, limit=truths.concentrated
    ),
    "RenyiDP": Kind(renyi, renyi_member, m.RenyiDP, SUM, limit=renyi_limit),
}  # fmt: skip


def on_a_sample(kind: Kind) -> Kind:
    """The same on a Poisson sample of a random rate; the conversion of a class is not documented for samples."""

    def draw(rng):
        given, size = kind.draw(rng)
        rate = log_uniform(rng, 1e-3, 1)
        return given | {"rate": rate}, 0.3 * rate * size

    def truth(rate, **given):
        inner = kind.truth(**given)
        if isinstance(inner, dict) and "table" in inner:
            p, q = inner["table"]
            return {way: truths.table(*truths.sampled_table(p, q, rate, way)) for way in ("remove", "add")}
        inner = inner if isinstance(inner, dict) else {"remove": inner, "add": inner}
        return {way: truths.sampled(inner[way], rate, way) for way in ("remove", "add")}

    tolerance = max(kind.tolerance, SUM)
    return kind._replace(draw=draw, truth=truth, made=sampled_made(kind.made), tolerance=tolerance, limit=None)


def sampled_made(made):
    return lambda rate, **given: m.PoissonSampled(made(**given), rate)


ONCE = {f"{name}, once": kind for name, kind in ALONE.items()}
ONCE |= {f"{name} on a sample, once": on_a_sample(kind) for name, kind in ALONE.items()}
ONCE["SampledWithoutReplacement, once"] = Kind(
    without_replacement, without_replacement_truth, fixed_sample, SUM, relations=("replace",), batches=4
)
