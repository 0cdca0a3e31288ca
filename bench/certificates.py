"""Queries drawn at random, half of them next to an edge, answered by the engine and in ball arithmetic.

Run as ``python -m bench.certificates --seconds 600 --seed 1``; needs the extra ``certify``. Each disagreement is shown
with the query in full and is a bug in one of both. Edges: atoms of one run and of several, the largest loss, its
floating-point neighbours, rates next to 0 and 1, masses down to 1e-300, up to 10^12 steps, extreme deltas.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import math
import time
import warnings
from fractions import Fraction

import numpy as np

import jaxacct
from jaxacct.certificates.enclosures import delta_enclosure
from jaxacct.certificates.laws import is_symmetric, laws_of
from jaxacct.certificates.limits import NoCertificateError
from jaxacct.certificates.written import fraction_of, written_mechanism


def _log(rng, low, high):
    return float(10 ** rng.uniform(math.log10(low), math.log10(high)))


def _rate(rng, edge):
    if not edge:
        return _log(rng, 1e-3, 0.9)
    return rng.choice([1e-300, 1e-14, 1e-10, 1e-6, 0.5, 1 - 1e-10, 1 - 2.0**-53, 1 - 1e-3, 1.0])


def _steps(rng, most):
    return int(min(most, max(1, round(_log(rng, 1, most)))))


def _gaussian(rng, edge):
    sigma = _log(rng, 0.02, 500) if edge else _log(rng, 0.3, 30)
    return jaxacct.Gaussian(sigma), _steps(rng, 1e12 if edge else 1e4), lambda k: []


def _sampled_gaussian(rng, edge):
    sigma = _log(rng, 0.3, 50) if edge else _log(rng, 0.5, 5)
    steps = _steps(rng, 1e12 if edge else 1e5)
    return jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), _rate(rng, edge)), steps, lambda k: []


def _mixture(rng, edge):
    moves = sorted(rng.uniform(0, 2, 3)) if rng.random() < 0.5 else [0.0, 1.0]
    weights = rng.dirichlet(np.ones(len(moves)))
    if edge:
        small = _log(rng, 1e-15, 1e-6)
        weights = np.array([small, 1 - small] if len(moves) == 2 else [small, small, 1 - 2 * small])
    weights = [float(w) for w in weights]
    moves = [float(m) for m in moves]
    mechanism = jaxacct.MixtureOfGaussians(_log(rng, 0.05 if edge else 0.5, 5), moves, weights)
    return mechanism, _steps(rng, 1e3 if edge else 100), lambda k: []


def _laplace(rng, edge):
    scale = _log(rng, 1e-17, 1e6) if edge else _log(rng, 0.2, 100)
    steps = int(rng.choice([1, 1, 2, 3, 10, 100]))
    return jaxacct.Laplace(scale), steps, lambda k: [j / scale for j in range(k, -1, -2)]


def _sampled_laplace(rng, edge):
    scale, rate = _log(rng, 0.01, 100), _rate(rng, edge)
    top = 1 / scale
    atoms = [math.log1p(rate * math.expm1(top)) if top < 700 else top + math.log(rate)]
    return jaxacct.PoissonSampled(jaxacct.Laplace(scale), rate), 1, lambda k: atoms


def _response(rng, edge):
    epsilon = _log(rng, 1e-12, 600) if edge else _log(rng, 0.01, 3)
    mechanism = jaxacct.RandomizedResponse(epsilon, int(rng.choice([2, 2, 3, 10, 1000])))
    steps = _steps(rng, 1e12) if edge and rng.random() < 0.3 else int(rng.choice([1, 1, 2, 3, 10, 100]))
    return mechanism, steps, lambda k: [j * epsilon for j in range(min(k, 50), -1, -1)]


def _sampled_response(rng, edge):
    epsilon, rate = _log(rng, 1e-6, 30) if edge else _log(rng, 0.1, 3), _rate(rng, edge)
    atoms = [math.log1p(rate * math.expm1(epsilon)), -math.log1p(rate * math.expm1(-epsilon))]
    mechanism = jaxacct.PoissonSampled(jaxacct.RandomizedResponse(epsilon), rate)
    return mechanism, int(rng.choice([1, 1, 2, 5, 50])), lambda k: [k * a for a in atoms]


def _approximate(rng, edge):
    lost = _log(rng, 1e-300, 0.5) if edge else _log(rng, 1e-10, 0.1)
    epsilon = _log(rng, 1e-6, 5)
    return (
        jaxacct.ApproximateDP(epsilon, lost),
        int(rng.choice([1, 2, 3, 20, 300])),
        lambda k: [j * epsilon for j in range(min(k, 50), 0, -2)],
    )


def _tables(rng, edge):
    size = int(rng.integers(2, 6))
    p, q = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    if edge:
        place = rng.integers(size)
        p[place] = rng.choice([0.0, 1e-300, 1e-15])
        p /= p.sum()
        if rng.random() < 0.5:
            q[rng.integers(size)] = rng.choice([0.0, 1e-300, 1e-15])
            q /= q.sum()
    with np.errstate(all="ignore"):
        atoms = [float(a) for a in np.log(p) - np.log(q) if np.isfinite(a)]
    steps = int(rng.choice([1, 1, 2, 3, 10]))
    return jaxacct.FromTables(p, q), steps, lambda k: [k * abs(a) for a in atoms]


def _discrete_laplace(rng, edge):
    scale, gap = _log(rng, 0.02 if edge else 0.3, 50), int(rng.choice([1, 1, 2, 5]))
    steps = _steps(rng, 1e9) if edge and rng.random() < 0.3 else int(rng.choice([1, 1, 2, 7]))
    return jaxacct.DiscreteLaplace(scale, gap), steps, lambda k: [j / scale for j in range(k * gap, -1, -1)][:20]


def _discrete_gaussian(rng, edge):
    sigma, gap = _log(rng, 0.03 if edge else 0.4, 30), int(rng.choice([1, 1, 2, 3]))
    steps = _steps(rng, 1e9) if edge and rng.random() < 0.3 else int(rng.choice([1, 1, 2, 7]))
    first = gap * (2 - gap) / (2 * sigma**2)
    return jaxacct.DiscreteGaussian(sigma, gap), steps, lambda k: [k * first + j * gap / sigma**2 for j in range(12)]


def _skellam(rng, edge):
    mu = _log(rng, 1e-6 if edge else 0.1, 1e3)
    return jaxacct.Skellam(mu, int(rng.choice([1, 2]))), 1, lambda k: []


def _sampled_discrete(rng, edge):
    inner = (_discrete_gaussian, _discrete_laplace, _skellam)[rng.integers(3)](rng, False)[0]
    return jaxacct.PoissonSampled(inner, _rate(rng, edge)), 1, lambda k: []


def _two_kinds(rng, edge):
    first, n, _ = _sampled_gaussian(rng, False)
    second, m, _ = (_laplace, _response, _approximate, _gaussian)[rng.integers(4)](rng, False)
    return jaxacct.Composed([first, second], [min(n, 1000), min(m, 20)]), 1, lambda k: []


FAMILIES = (
    _gaussian, _sampled_gaussian, _mixture, _laplace, _sampled_laplace, _response, _sampled_response, _approximate,
    _tables, _discrete_laplace, _discrete_gaussian, _skellam, _sampled_discrete, _two_kinds,
)  # fmt: skip


def _nudged(rng, value):
    """A neighbour in floating point, on either side, or the number itself."""
    value = abs(float(value))
    for _ in range(int(rng.integers(0, 4))):
        value = float(np.nextafter(value, rng.choice([0.0, np.inf])))
    return value


def query(rng):
    """(family, mechanism, steps, relation, question, its value)."""
    edge = bool(rng.random() < 0.5)
    family = FAMILIES[rng.integers(len(FAMILIES))]
    mechanism, steps, atoms = family(rng, edge)
    relation = str(rng.choice(["add_or_remove", "add", "remove"]))
    if rng.random() < 0.3:
        at = rng.choice([1e-300, 1e-100, 1e-20, 0.5, 1 - 1e-6, 1 - 1e-12]) if edge else _log(rng, 1e-12, 0.5)
        return family.__name__[1:], mechanism, steps, relation, "delta", float(at)
    near = [a for a in atoms(steps) if math.isfinite(a)] if edge else []
    epsilon = _nudged(rng, rng.choice(near)) if near else rng.choice([0.0, _log(rng, 1e-6, 50), _log(rng, 0.1, 5)])
    return family.__name__[1:], mechanism, steps, relation, "epsilon", float(epsilon)


def certified(mechanism, steps, relation, epsilon, digits):
    """Ends of delta as fractions."""
    laws = laws_of(mechanism, steps)
    ways = {"remove": (False,), "add": (True,)}.get(relation, (False, True))
    ways = (False,) if is_symmetric(laws) else ways
    found = [delta_enclosure(laws, Fraction(epsilon), way, digits) for way in ways]
    return max(fraction_of(one.lower) for one in found), max(fraction_of(one.upper) for one in found)


def disagreement(mechanism, steps, relation, question, at, digits):
    """What is wrong, in words; None where nothing is, and the engine's bounds."""
    if question == "epsilon":
        bounds = jaxacct.delta(mechanism, at, steps=steps, relation=relation)
        low, high = certified(mechanism, steps, relation, at, digits)
        if float(bounds.upper) < low:
            return f"delta's upper {float(bounds.upper)!r} is below {float(low)!r}", bounds
        if float(bounds.lower) > high:
            return f"delta's lower {float(bounds.lower)!r} is above {float(high)!r}", bounds
        return None, bounds
    bounds = jaxacct.epsilon(mechanism, at, steps=steps, relation=relation)
    upper, lower = float(bounds.upper), float(bounds.lower)
    if math.isfinite(upper) and upper < 5e3:
        low, _ = certified(mechanism, steps, relation, upper, digits)
        if low > Fraction(at):
            return f"delta is {float(low)!r} at epsilon's upper {upper!r}", bounds
    if 0 < lower < 5e3:
        _, high = certified(mechanism, steps, relation, lower, digits)
        if high < Fraction(at):
            return f"delta is {float(high)!r} at epsilon's lower {lower!r}", bounds
    return None, bounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--digits", type=float, default=8.0)
    arguments = parser.parse_args()
    rng, counts, start = np.random.default_rng(arguments.seed), collections.Counter(), time.monotonic()
    warnings.simplefilter("ignore")
    while time.monotonic() - start < arguments.seconds:
        family, mechanism, steps, relation, question, at = query(rng)
        spent = time.monotonic()
        wrong = None
        try:
            wrong, _ = disagreement(mechanism, steps, relation, question, at, arguments.digits)
            counts[family, "wrong" if wrong else "agree"] += 1
        except NoCertificateError:
            counts[family, "no certificate"] += 1
        except Exception as problem:  # a crash of either side is found as well
            wrong = f"{type(problem).__name__}: {problem}"
            counts[family, "error"] += 1
        spent = time.monotonic() - spent
        if wrong or spent > 20:
            text = written_mechanism(mechanism)
            print(f"{wrong or f'{spent:.0f} s'} | {question} {at!r} {relation} steps={steps} {text}", flush=True)
    with contextlib.suppress(BrokenPipeError):
        for key in sorted(counts):
            print(*key, counts[key])
        print("queries", sum(counts.values()), "wrong", sum(n for key, n in counts.items() if key[1] == "wrong"))


if __name__ == "__main__":
    main()
