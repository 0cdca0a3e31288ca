"""Random questions about attacks, mu with its regret, whole curves and kept bins, against truths of their own.

    python -m verification.summaries --queries 300 --json verification/results/summaries.json

Truths share no code with the library: the best test of two laws on a line, by its threshold; the largest of explicit
functions, refined around the best point of a grid, in mpmath; contour integrals of ``verification.differential``; and
for bins that are kept over epochs a quadrature over every output but the last. Prints each disagreement.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import pathlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf
from scipy.special import ndtr

import jaxacct
from bench.machine import about
from jaxacct import attacks, interop
from verification.differential import truths
from verification.differential import truths_composed as composed
from verification.differential.single_runs import log_uniform

Asked = list[tuple[str, float, float, float, float]]  # what, lower, truth, upper, and how well the truth is known
_ASIDE = 1e-8


def _mixture(rng: Any) -> tuple[Any, float, list[int], list[Any]]:
    """One run of a mixture of Gaussians against one: a Gaussian, a sampled one, or all records of a user."""
    sigma, rate = log_uniform(rng, 0.5, 8), log_uniform(rng, 1e-3, 0.9)
    records = int(rng.choice([1, 1, 4, 20]))
    if rng.random() < 0.2:
        return jaxacct.Gaussian(sigma), sigma, [1], [mpf(1)]
    q = mpf(rate)
    weights = [mpmath.binomial(records, j) * q**j * (1 - q) ** (records - j) for j in range(records + 1)]
    return jaxacct.UserLevel(jaxacct.Gaussian(sigma), rate, records), sigma, [*range(records + 1)], weights


def attacked(rng: Any) -> Asked:
    """Attacks on one run, whose likelihood ratio rises with the output: the best test is a threshold."""
    mechanism, sigma, moves, weights = _mixture(rng)
    rate, prior = log_uniform(rng, 1e-4, 0.9), rng.uniform(0.02, 0.98)
    above = lambda t: mpmath.fsum(w * mpmath.ncdf((j - t) / sigma) for j, w in zip(moves, weights, strict=True))  # noqa: E731
    below = lambda t: mpmath.fsum(w * mpmath.ncdf((t - j) / sigma) for j, w in zip(moves, weights, strict=True))  # noqa: E731
    base = lambda t: mpmath.ncdf(t / sigma)  # noqa: E731

    def threshold(rising: Callable[[Any], Any]) -> Any:
        low, high = mpf(-60) * sigma, mpf(60) * sigma + max(moves)
        for _ in range(110):
            middle = (low + high) / 2
            low, high = (low, middle) if rising(middle) > rate else (middle, high)
        return low

    powers = {"remove": above(-threshold(base)), "add": base(threshold(below))}
    found = []
    for relation in ("remove", "add", "add_or_remove"):
        most = max(powers.values()) if relation == "add_or_remove" else powers[relation]
        at = attacks.power(mechanism, rate, relation=relation)
        found.append((f"power {relation}", at.lower, most, at.upper, 1e-12))
    value = attacks.predictive_value(mechanism, prior, rate)
    truth = prior * most / (prior * most + (1 - prior) * mpf(rate))
    found.append(("predictive value", value.lower, truth, value.upper, 1e-12))
    # A guess errs least where it says what is likelier: at one threshold, or never looks.
    curve = {way: truths.mixture(sigma, moves, [float(w) for w in weights], way) for way in ("remove", "add")}
    advantage = attacks.advantage(mechanism)
    found.append(("advantage", advantage.lower, max(c(mpf(0)) for c in curve.values()), advantage.upper, 1e-10))
    errors = []
    for member in (prior, 1 - prior):  # whoever the mixture is
        wrong = lambda t: member * below(t) + (1 - member) * (1 - base(t))  # noqa: B023, E731
        grid = np.linspace(-12 * sigma, 12 * sigma + max(moves), 400)
        errors.append(_least(wrong, grid))
    risk = attacks.bayes_risk(mechanism, prior)
    found.append(("Bayes risk", risk.lower, min(*errors, prior, 1 - prior), risk.upper, 1e-9))
    return found


def _least(function: Callable[[Any], Any], grid: np.ndarray) -> Any:
    """The least value around the best point of a grid."""
    values = [function(mpf(float(x))) for x in grid]
    best = int(np.argmin(values))
    low, high = mpf(float(grid[max(best - 1, 0)])), mpf(float(grid[min(best + 1, grid.size - 1)]))
    for _ in range(90):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, second) if function(first) < function(second) else (first, high)
    return min(function((low + high) / 2), values[best])


def summarised(rng: Any) -> Asked:
    """mu and regret of one run: the largest of explicit functions of epsilon."""
    mechanism, sigma, moves, weights = _mixture(rng)
    both = [truths.mixture(sigma, moves, [float(w) for w in weights], way) for way in ("remove", "add")]
    curve = lambda x: max(one(x) for one in both)  # noqa: E731
    last = mpf(0)
    for step in (mpf(2) ** k for k in range(8, -40, -1)):  # delta has just come down to what is left aside
        last = last + step if curve(last + step) > _ASIDE else last

    def needed(x: Any) -> Any:
        """The mu whose delta at x is the run's."""
        goal, low, high = curve(x), mpf(0), mpf(60)
        for _ in range(70):
            middle = (low + high) / 2
            low, high = (middle, high) if truths.gaussian(middle)(x) < goal else (low, middle)
        return high

    grid = np.linspace(0.0, float(last), 60)
    mu = max(-_least(lambda x: -needed(min(max(x, mpf(0)), last)), grid), needed(last))
    given = jaxacct.gdp_summary(mechanism, delta_aside=_ASIDE)
    found = [("mu", given.mu.lower, mu, given.mu.upper, 1e-8)]
    if math.isfinite(given.mu.upper):
        of_mu = truths.gaussian(mpf(float(given.mu.upper)))
        gain = lambda x: (curve(abs(x)) - of_mu(abs(x))) / (1 + mpmath.exp(abs(x)))  # noqa: E731
        wide = np.concatenate([np.linspace(0.0, float(last), 120), float(last) * np.geomspace(1.01, 5.0, 20)])
        found.append(("regret", given.regret.lower, max(-_least(gain, wide), mpf(0)), given.regret.upper, 1e-9))
    return found


def curved(rng: Any) -> Asked:
    """Three of forty points of the curve of a composition, which are read off common lines."""
    sigma, rate, steps = log_uniform(rng, 0.8, 6), log_uniform(rng, 1e-2, 0.5), int(log_uniform(rng, 30, 3000))
    records = int(rng.choice([1, 1, 3, 8]))
    mechanism = jaxacct.UserLevel(jaxacct.Gaussian(sigma), rate, records)
    weights = [math.comb(records, j) * rate**j * (1 - rate) ** (records - j) for j in range(records + 1)]
    relation = str(rng.choice(["remove", "add"]))
    epsilons = np.linspace(0.0, float(jaxacct.epsilon(mechanism, 1e-10, steps=steps).upper), 40)
    if epsilons[-1] > 60:
        return []
    at = jaxacct.delta(mechanism, epsilons, steps=steps, relation=relation)
    curve = composed.sampled_gaussians([(sigma, list(range(records + 1)), weights, steps)], relation)
    found = []
    for i in rng.choice(40, 3, replace=False):
        try:
            truth = curve(mpf(float(epsilons[i])))
        except ArithmeticError:  # the contour did not settle
            continue
        low, high = truth if isinstance(truth, tuple) else (truth, truth)
        found.append((f"curve {relation}", at.lower[i], low, at.upper[i], 5e-8 + float(high / low - 1) if low else 1.0))
    return found


def kept(rng: Any) -> Asked:
    """Two bins that records keep for two epochs: a quadrature over three outputs, the fourth in closed form."""
    sigma = log_uniform(rng, 1.5, 6)
    strategy = type("BallsInBinsSampling", (), {"iterations": 4, "cycle_length": 2})()
    mechanism = interop.mechanism_of_selection(strategy, jaxacct.Gaussian(sigma))
    epsilon, s = rng.uniform(0.0, 1.5) / sigma, 1.0 / sigma
    nodes = np.linspace(-8.5, 8.5, 131)  # good to some 2e-5; Gauss's rule is not, where the closed form bends
    weights = np.exp(-0.5 * nodes**2)
    weights = weights / weights.sum()
    x, y, z = np.meshgrid(nodes, nodes, nodes, indexing="ij")
    mass = weights[:, None, None] * weights[:, None] * weights
    one, half = np.exp(s * (x + y) - s * s), np.exp(s * z - s * s / 2)  # of the first bin; of the second, so far

    def call(strike: np.ndarray) -> np.ndarray:
        """E[(r - strike)+] of the last output's ratio r."""
        at = -np.log(np.maximum(strike, 1e-300)) / s
        return np.where(strike <= 0, 1 - strike, ndtr(at + s / 2) - strike * ndtr(at - s / 2))

    def mean(gamma: float) -> float:
        return float((mass * 0.5 * half * call((2 * gamma - one) / half)).sum())

    truth = {"remove": mean(math.exp(epsilon))}
    truth["add"] = math.exp(epsilon) * (mean(math.exp(-epsilon)) - (1 - math.exp(-epsilon)))
    found = []
    for relation, value in truth.items():
        at = jaxacct.delta(mechanism, epsilon, relation=relation)
        found.append((f"kept bins {relation}", at.lower, value, at.upper, 1e-4))
    return found


KINDS = {"attacks": attacked, "mu and regret": summarised, "curves": curved, "kept bins": kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=300, help="of each kind")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    table: dict[str, Any] = {}
    for name in given.kinds:
        counts = {"queries": 0, "disagree": 0, "settings": 0}
        widths: dict[str, list[float]] = {}
        start = time.process_time()
        for setting in itertools.count():
            if counts["queries"] >= given.queries:
                break
            for what, lower, truth, upper, known in KINDS[name](np.random.default_rng([37, len(name), setting])):
                counts["queries"] += 1
                room = known * abs(truth) + 1e-15
                if not lower - room <= truth <= upper + room:
                    counts["disagree"] += 1
                    print(f"{name}, setting {setting}: {what} [{lower}, {upper}], truth {truth}")
                widths.setdefault(what, []).append(float(upper - lower) if math.isfinite(upper) else math.inf)
            counts["settings"] += 1
        middle = {what: float(np.median(some)) for what, some in widths.items()}
        table[name] = counts | {"median_width": middle, "seconds": round(time.process_time() - start, 1)}
        print(name, table[name], flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps({"kinds": table, "machine": about("mpmath")}, indent=1) + "\n")


if __name__ == "__main__":
    main()
