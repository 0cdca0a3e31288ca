"""Random queries against an independent evaluation: closed forms in 40 digits, and a contour integral.

    python bench/differential.py --count 100000 --log differential.jsonl      # goes on where the log ends
    python bench/differential.py --log differential.jsonl --report bench/results/differential.json

Query number n is a function of n alone. The log has a line a query, appended when it is known; the report counts them,
by kind, and lists every disagreement. A query agrees if lower <= truth <= upper, within what the truth itself is known
to (1e-14 relative for closed forms, 1e-8 for the contour integral, both ends for dp_accounting).

Truths, none of which share code with the library:

- compositions of Gaussians: one Gaussian (Balle, Wang 2018), by mpmath;
- randomized response, (epsilon, delta)-DP in general (Kairouz, Oh, Viswanath 2015), samples, and compositions of them
  with and without Gaussians: sums over the number of unlikely outcomes, by mpmath;
- one run of a Laplace, Gaussian, discrete Laplace or discrete Gaussian mechanism, and of a sample: closed forms and
  sums, with amplification in both directions (Zhu, Dong, Wang 2022, Theorem 11), by mpmath;
- many runs of sampled Gaussians and of mixtures of Gaussians: tests/truth.py's integral along the saddle point's
  contour, in both directions;
- many runs of Laplace: dp_accounting's pessimistic and optimistic distributions, where it is installed.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import pathlib
import sys
import time
import warnings

import mpmath
import numpy as np
from machine import about
from mpmath import mpf

import jaxacct
from jaxacct import (
    ApproximateDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from truth import contour_delta

mpmath.mp.dps = 40
CLOSED, CONTOUR = 1e-14, 1e-8


# --- truths: each a function of epsilon, the larger of both directions where they differ


def gaussian_curve(mu):
    """H(e^x) of mu-GDP at any real x."""
    return lambda x: mpmath.ncdf(mu / 2 - x / mu) - mpmath.exp(x) * mpmath.ncdf(-mu / 2 - x / mu)


def laplace_curve(pure):
    """H(e^x) of one Laplace mechanism of parameter ``pure``, at any real x."""

    def curve(x):
        if x >= pure:
            return mpf(0)
        if x <= -pure:
            return 1 - mpmath.exp(x)
        return 1 - mpmath.exp((x - pure) / 2)

    return curve


def table_curve(losses, p):
    """H(e^x) of a finite law of losses."""
    return lambda x: mpmath.fsum(w * (1 - mpmath.exp(x - loss)) for loss, w in zip(losses, p, strict=True) if loss > x)


def lattice_curve(log_weight, gap, decay):
    """H(e^x) of integer noise with the given unnormalised log-mass, shifted by ``gap``."""
    far = decay + gap
    points = range(-far, far + 1)
    total = mpmath.fsum(mpmath.exp(log_weight(n)) for n in points)

    def curve(x):
        terms = (mpmath.exp(log_weight(n)) - mpmath.exp(x + log_weight(n + gap)) for n in range(-far - gap, far + 1))
        return mpmath.fsum(term for term in terms if term > 0) / total

    return curve


def sampled_curves(curve, rate):
    """`remove` and `add` of one run on a Poisson sample, at x >= 0, of a symmetric mechanism."""
    q = mpf(rate)

    def remove(x):
        return q * curve(mpmath.log1p(mpmath.expm1(x) / q)) if q > 0 else mpf(0)

    def add(x):
        gamma = mpmath.exp(x)
        left = 1 - gamma * (1 - q)
        return left * curve(mpmath.log(gamma * q / left)) if left > 0 else mpf(0)

    return remove, add


def response_law(pure, delta, steps, rate=1.0):
    """(losses, masses, infinite) of ``steps`` runs of (pure, delta)-DP in the direction `remove`, all at ``rate``."""
    pure, delta, q = mpf(pure), mpf(delta), mpf(rate)
    up = (1 - delta) * mpmath.exp(pure) / (1 + mpmath.exp(pure))
    down = (1 - delta) / (1 + mpmath.exp(pure))
    high, low = q * up + (1 - q) * down, q * down + (1 - q) * up
    # Under Q: `up` happens with `down`, and the other way round; delta is Q's alone, q delta P's alone.
    losses, masses = [], []
    for k in range(steps + 1):
        ways = mpmath.binomial(steps, k)
        losses.append((steps - k) * mpmath.log(high / down) + k * mpmath.log(low / up))
        masses.append(ways * high ** (steps - k) * low**k)
    # With the sample, Q's own atom has P-mass (1 - q) delta: only laws without it are asked for then.
    infinite = 1 - (1 - q * delta) ** steps
    return losses, masses, infinite


def reversed_law(losses, masses):
    """The law of the loss of Q against P under Q."""
    return [-x for x in losses], [w * mpmath.exp(-x) for x, w in zip(losses, masses, strict=True)]


# --- queries: kind -> (mechanism, steps, relation, curve at epsilon >= 0, tolerance)


def uniform_log(rng, low, high):
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def gaussians(rng):
    sigma, sensitivity = uniform_log(rng, 0.2, 50), uniform_log(rng, 0.3, 3)
    steps = int(uniform_log(rng, 1, 1e4))
    mu = mpf(sensitivity) / mpf(sigma) * mpmath.sqrt(steps)
    return Gaussian(sigma, sensitivity), steps, "add_or_remove", gaussian_curve(mu), CLOSED, float(mu)


def responses(rng):
    pure, steps = uniform_log(rng, 1e-3, 4), int(uniform_log(rng, 1, 300))
    delta = 0.0 if rng.random() < 0.5 else uniform_log(rng, 1e-12, 1e-2)
    losses, masses, infinite = response_law(pure, delta, steps)
    finite = table_curve(losses, masses)
    mechanism = ApproximateDP(pure, delta)
    return mechanism, steps, "add_or_remove", lambda x: infinite + finite(x), CLOSED, pure * math.sqrt(steps)


def sampled_responses(rng):
    pure, steps, rate = uniform_log(rng, 1e-2, 4), int(uniform_log(rng, 1, 200)), uniform_log(rng, 1e-3, 1)
    relation = ("add", "remove", "add_or_remove")[rng.integers(3)]
    losses, masses, _ = response_law(pure, 0.0, steps, rate)
    both = {"remove": table_curve(losses, masses), "add": table_curve(*reversed_law(losses, masses))}
    chosen = list(both.values()) if relation == "add_or_remove" else [both[relation]]
    mechanism = PoissonSampled(RandomizedResponse(pure), rate)
    return mechanism, steps, relation, lambda x: max(c(x) for c in chosen), CLOSED, rate * pure * math.sqrt(steps)


def mixed(rng):
    sigma, pure = uniform_log(rng, 0.5, 20), uniform_log(rng, 0.02, 2)
    many, few = int(uniform_log(rng, 1, 300)), int(uniform_log(rng, 1, 40))
    losses, masses, _ = response_law(pure, 0.0, few)
    mu = mpmath.sqrt(many) / mpf(sigma)
    curve = gaussian_curve(mu)

    def together(x):
        return mpmath.fsum(w * curve(x - loss) for loss, w in zip(losses, masses, strict=True))

    mechanism = Composed([Gaussian(sigma), ApproximateDP(pure, 0.0)], [many, few])
    return mechanism, 1, "add_or_remove", together, CLOSED, float(mu) + pure * math.sqrt(few)


def single_runs(rng):
    kind = rng.integers(4)
    if kind == 0:
        scale, sensitivity = uniform_log(rng, 0.2, 50), uniform_log(rng, 0.3, 3)
        mechanism, pure = Laplace(scale, sensitivity), mpf(sensitivity) / mpf(scale)
        curve, size = laplace_curve(pure), float(pure)
    elif kind == 1:
        sigma = uniform_log(rng, 0.2, 20)
        mechanism, curve, size = Gaussian(sigma), gaussian_curve(1 / mpf(sigma)), 1 / sigma
    elif kind == 2:
        scale, gap = uniform_log(rng, 0.3, 10), int(rng.integers(1, 4))
        mechanism = DiscreteLaplace(scale, gap)
        curve = lattice_curve(lambda n: -abs(n) / mpf(scale), gap, int(60 * scale) + 20)
        size = gap / scale
    else:
        sigma, gap = uniform_log(rng, 0.3, 6), int(rng.integers(1, 4))
        mechanism = DiscreteGaussian(sigma, gap)
        curve = lattice_curve(lambda n: -(mpf(n) ** 2) / (2 * mpf(sigma) ** 2), gap, int(14 * sigma) + 10)
        size = gap / sigma
    if rng.random() < 0.4:
        return mechanism, 1, "add_or_remove", curve, CLOSED, size
    rate = uniform_log(rng, 1e-3, 1)
    remove, add = sampled_curves(curve, rate)
    relation = ("add", "remove", "add_or_remove")[rng.integers(3)]
    chosen = {"remove": [remove], "add": [add], "add_or_remove": [remove, add]}[relation]
    return PoissonSampled(mechanism, rate), 1, relation, lambda x: max(c(x) for c in chosen), CLOSED, rate * size + 0.05


def sampled_gaussians(rng):
    sigma, rate = uniform_log(rng, 0.5, 10), uniform_log(rng, 1e-3, 0.9)
    steps = int(uniform_log(rng, 2, 5000))
    relation = ("add", "remove")[rng.integers(2)]

    def curve(x):
        return mpf(contour_delta(sigma, rate, steps, float(x), reverse=relation == "add"))

    size = rate * math.sqrt(steps * math.expm1(min(1 / sigma**2, 8.0)))
    return PoissonSampled(Gaussian(sigma), rate), steps, relation, curve, CONTOUR, size


def laplaces(rng):
    from dp_accounting.pld import privacy_loss_distribution as pld

    scale, steps = uniform_log(rng, 2, 50), int(uniform_log(rng, 2, 200))
    ends = [
        pld.from_laplace_mechanism(scale, pessimistic_estimate=side, value_discretization_interval=1e-3).self_compose(
            steps
        )
        for side in (False, True)
    ]

    def curve(x):
        return tuple(end.get_delta_for_epsilon(float(x)) for end in ends)

    return Laplace(scale), steps, "add_or_remove", curve, 1e-6, math.sqrt(steps) / scale


KINDS = {
    "gaussians": (gaussians, 0.24),
    "responses": (responses, 0.2),
    "sampled responses": (sampled_responses, 0.18),
    "single runs": (single_runs, 0.2),
    "gaussians and responses": (mixed, 0.1),
    "sampled gaussians": (sampled_gaussians, 0.07),
    "laplaces (dp_accounting)": (laplaces, 0.01),
}


def asked(number: int) -> dict:
    """Query ``number``, our answer and the truth."""
    rng = np.random.default_rng([20, number])
    names = list(KINDS)
    name = names[rng.choice(len(names), p=[share for _, share in KINDS.values()])]
    mechanism, steps, relation, curve, tolerance, size = KINDS[name][0](rng)
    # Around where delta is between 1e-1 and 1e-12, in units of the loss's spread.
    epsilon = float(size * rng.uniform(0.0, 7.0) + size * size / 2 * rng.uniform(0.0, 1.2))
    epsilon = min(max(epsilon, 1e-6), 300.0)
    truth = curve(mpf(epsilon))
    low, high = truth if isinstance(truth, tuple) else (truth, truth)
    low, high = mpf(low), mpf(high)
    row = {"n": number, "kind": name, "mechanism": repr(mechanism), "steps": steps, "relation": relation}
    start = time.perf_counter()
    inverse = rng.random() < 0.3 and low > 1e-14 and high < mpf("0.99")
    if inverse:
        delta = float((low + high) / 2)
        found = jaxacct.epsilon(mechanism, delta, steps=steps, relation=relation)
        lower, upper = float(found.lower), float(found.upper)
        # No lower than where the curve is above delta, no higher than where it is below.
        slack = max(tolerance, 1e-15)
        above = values(curve, lower)[1] * (1 + slack) >= mpf(delta) * (1 - slack) or lower == 0
        below = math.isinf(upper) or values(curve, upper)[0] * (1 - slack) <= mpf(delta) * (1 + slack)
        row |= {"delta": delta, "lower": lower, "upper": upper, "truth": epsilon, "agrees": bool(above and below)}
    else:
        found = jaxacct.delta(mechanism, epsilon, steps=steps, relation=relation)
        lower, upper = float(found.lower), float(found.upper)
        # Subnormal deltas are where floats, and not bounds, end.
        agrees = mpf(lower) <= high * (1 + tolerance) + mpf("1e-300") and low * (1 - tolerance) <= mpf(upper)
        row |= {"epsilon": epsilon, "lower": lower, "upper": upper, "truth": float(high), "agrees": bool(agrees)}
    row["seconds"] = round(time.perf_counter() - start, 5)
    return row


def values(curve, x):
    found = curve(mpf(x))
    return found if isinstance(found, tuple) else (found, found)


def reported(log: pathlib.Path) -> dict:
    kinds: dict = collections.defaultdict(lambda: {"queries": 0, "disagree": 0, "vacuous": 0, "widths": []})
    wrong = []
    for line in log.read_text().splitlines():
        row = json.loads(line)
        kind = kinds[row["kind"]]
        kind["queries"] += 1
        if "problem" in row or not row["agrees"]:
            kind["disagree"] += 1
            wrong.append(row)
            continue
        if row["truth"] > 1e-12 and "epsilon" in row:
            kind["widths"].append(row["upper"] / max(row["lower"], 1e-300) - 1)
        kind["vacuous"] += math.isinf(row["upper"])
    for kind in kinds.values():
        widths = np.array(kind.pop("widths") or [np.nan])
        kind["median_width"], kind["p99_width"] = (float(np.quantile(widths, q)) for q in (0.5, 0.99))
    return {"queries": sum(k["queries"] for k in kinds.values()), "kinds": dict(kinds), "disagreements": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=0, help="how many queries the log is to have")
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=math.inf)
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # wide bounds warn; the report counts widths
    start = time.monotonic()
    done = set()
    if given.log.exists():
        whole = given.log.read_text().rpartition("\n")[0]  # a line that a crash cut short is asked again
        given.log.write_text(whole + "\n" if whole else "")
        done = {json.loads(line)["n"] for line in whole.splitlines()}
    with open(given.log, "a", buffering=1) as log:
        for number in range(given.count):
            if number in done:
                continue
            if time.monotonic() - start > 60 * given.minutes:
                break
            try:
                row = asked(number)
            except Exception as problem:
                row = {"n": number, "kind": "error", "problem": f"{type(problem).__name__}: {problem}"[:500]}
            log.write(json.dumps(row) + "\n")
    if given.report:
        found = {**reported(given.log), "machine": about("mpmath")}
        given.report.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps({k: v for k, v in found.items() if k != "disagreements"}, indent=1))
        print(len(found["disagreements"]), "disagreements")


if __name__ == "__main__":
    main()
