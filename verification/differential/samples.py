"""One run on samples of other kinds than Poisson's: random settings, their truths, the mechanism of arrays of them.

Where only a proof from above and an attack from below are known, there are two kinds: the attack's curve must not be
below the lower bound, and the proven pair's curve not above the upper one.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
from mpmath import mpf

from jaxacct import mechanisms as m
from jaxacct._numerics.binomial import binomial_split
from jaxacct.mechanisms.samples.cut_cells import share_moved
from verification.differential import truths
from verification.differential.single_runs import SUM, Kind, log_uniform

_SIDES = ("remove", "add", "add_or_remove")
_RECORDS = 1000


def directions(curve):
    """Both directions of one run by a function of the direction."""
    return {way: curve(way) for way in ("remove", "add")}


def fixed(rng):
    sigma, size = log_uniform(rng, 0.3, 20), int(log_uniform(rng, 1, 300))
    return {"sigma": sigma, "size": size}, size / _RECORDS / sigma + 0.05


def without_truth(sigma, size):
    return directions(lambda way: truths.sampled(truths.gaussian(1 / mpf(sigma)), mpf(size) / _RECORDS, way))


def with_truth(sigma, size):
    """sum_j Bin(size, 1 / records)(j) N(j) against N(0); more than 40 draws are less likely than 1e-60."""
    rate = mpf(1) / _RECORDS
    draws = range(min(size, 40) + 1)
    weights = [float(mpmath.binomial(size, j) * rate**j * (1 - rate) ** (size - j)) for j in draws]
    return directions(lambda way: truths.mixture(sigma, list(draws), weights, way))


def poisson(rng):
    sigma, rate = log_uniform(rng, 0.3, 20), log_uniform(rng, 1e-3, 1)
    return {"sigma": sigma, "rate": rate}, rate / sigma + 0.05


def antipodal_truth(sigma, rate):
    """(1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1), whose loss rises with the output."""
    s, q = mpf(sigma), mpf(rate)

    def loss(y):
        one = lambda side: (1 - q) + q * mpmath.exp((side * y - mpf(1) / 2) / s**2)  # noqa: E731
        return mpmath.log(one(1)) - mpmath.log(one(-1))

    def curve(x):
        low, high = -200 * s - 200, 200 * s + 200
        if loss(high) <= x:
            return mpf(0)
        if loss(low) > x:
            return -mpmath.expm1(x)
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (low, middle) if loss(middle) > x else (middle, high)
        mass = lambda move: (1 - q) * mpmath.ncdf(-low / s) + q * mpmath.ncdf((move - low) / s)  # noqa: E731
        return mass(1) - mpmath.exp(x) * mass(-1)

    return curve


def two_batches(rng):
    sigma = log_uniform(rng, 0.4, 8)
    return {"sigma": sigma}, 0.7 / sigma


def two_batches_truth(sigma):
    """E[(R - gamma)+] of the mean R of two log-normals: an integral over one of them, the other in closed form."""
    s = 1 / mpf(sigma)

    def call(strike):
        """E[(r - strike)+] of one ratio, exp(N(-s^2 / 2, s^2))."""
        if strike <= 0:
            return 1 - strike
        at = -mpmath.log(strike) / s
        return mpmath.ncdf(at + s / 2) - strike * mpmath.ncdf(at - s / 2)

    def mean_call(gamma):
        inner = lambda z: mpmath.npdf(z) * call(2 * gamma - mpmath.exp(s * z - s * s / 2))  # noqa: E731
        kink = mpmath.log(2 * gamma) / s + s / 2  # from there on the first ratio is enough
        return mpmath.quad(inner, sorted({mpf(-13), mpf(-4), mpf(0), min(max(kink, mpf(-13)), mpf(20)), mpf(20)})) / 2

    def add(x):
        """E[(1 - e^x R)+], by E[(R - g)+] = 1 - g + E[(g - R)+]."""
        gamma = mpmath.exp(-x)
        return mpmath.exp(x) * (mean_call(gamma) - (1 - gamma))

    return {"remove": lambda x: mean_call(mpmath.exp(x)), "add": add}


def two_outcomes(rng):
    with_record, without = rng.uniform(0.02, 0.98, 2)
    return {"with_record": with_record, "without": without}, 1.0


def three_of_seven_truth(with_record, without):
    """Exact sums over how many of seven outputs are ones, and how many of those are among the record's three."""
    a, b = mpf(with_record), mpf(without)
    one, other, choose = a / b, (1 - a) / (1 - b), mpmath.binomial
    laws = []
    for j in range(8):
        ratio = mpmath.fsum(choose(j, i) * choose(7 - j, 3 - i) * one**i * other ** (3 - i) for i in range(4))
        mass = choose(7, j) * b**j * (1 - b) ** (7 - j)
        laws.append((mass * ratio / choose(7, 3), mass))

    def curve(way):
        pairs = laws if way == "remove" else [(q, p) for p, q in laws]
        return lambda x: mpmath.fsum(max(p - mpmath.exp(x) * q, mpf(0)) for p, q in pairs)

    return directions(curve)


def tables(with_record, without):
    """Two outcomes, of probability ``with_record`` and the rest, or ``without`` and the rest."""
    return m.FromTables(*(np.stack([x, 1.0 - np.asarray(x)], -1) for x in (with_record, without)))


def cut(rng):
    given, spread = poisson(rng)
    mean = given["rate"] * 100
    return given | {"largest": max(1, min(100, math.ceil(mean + rng.uniform(0, 4) * math.sqrt(mean))))}, spread


def _split(rate, largest):
    """P[K >= largest] and P[K = largest - 1] of the 99 others, and that the record is there and K >= largest."""
    q = mpf(rate)
    weights = [mpmath.binomial(99, k) * q**k * (1 - q) ** (99 - k) for k in range(100)]
    both = q * mpmath.fsum(w * largest / (k + 1) for k, w in enumerate(weights) if k >= largest)
    return mpmath.fsum(weights[largest:]), weights[largest - 1], both


def cut_attack(sigma, rate, largest):
    often, _, both = _split(rate, largest)
    return directions(lambda way: truths.sampled(truths.gaussian(1 / mpf(sigma)), both + rate * (1 - often), way))


def cut_pair(sigma, rate, largest):
    """The mean over three cells, of which the last two are not as likely with the record as without it.

    The share of the cut samples that count to the second is the library's: any would make a bound.
    """
    often, last, both = _split(rate, largest)
    one, two = (truths.gaussian(k / mpf(sigma)) for k in (1, 2))
    if largest == 100:
        return directions(lambda way: truths.sampled(one, rate, way))
    split = binomial_split(99.0, rate, float(largest))
    moved = mpf(float(share_moved(np.asarray(sigma), np.asarray(rate), split))) * both
    near, full = last + moved, often - moved

    def cell(inner, rate, with_record, without, way):
        curve = truths.sampled(inner, rate, way) if rate else lambda x: max(mpf(0), -mpmath.expm1(x))
        gain = mpmath.log(with_record / without)
        if way == "remove":
            return lambda x: with_record * curve(x - gain)
        return lambda x: without * curve(x + gain)

    def mean(way):
        usual = truths.sampled(one, rate, way)
        second = cell(one, (last * rate + moved) / near, near, last, way) if last else lambda x: mpf(0)
        third = cell(two, (both - moved) / full, full, often, way)
        return lambda x: (1 - often - last) * usual(x) + second(x) + third(x)

    return directions(mean)


def users(rng):
    sigma, rate, records = log_uniform(rng, 0.3, 20), log_uniform(rng, 1e-3, 1), int(log_uniform(rng, 1, 200))
    return {"sigma": sigma, "rate": rate, "records": records}, rate * records / sigma + 0.05


def users_truth(sigma, rate, records):
    """sum_j Bin(records, rate)(j) N(j) against N(0); numbers of records rarer than 1e-60 are left out."""
    q = mpf(rate)
    weights = [mpmath.binomial(records, j) * q**j * (1 - q) ** (records - j) for j in range(records + 1)]
    kept = [j for j, weight in enumerate(weights) if weight > mpf("1e-60")]
    return directions(lambda way: truths.mixture(sigma, kept, [float(weights[j]) for j in kept], way))


def kind(draw, truth, made, **given):
    return Kind(draw, truth, made, **{"tolerance": SUM, "relations": _SIDES, "size": 96, "ways": ("",)} | given)


SAMPLES = {
    "SampledWithoutReplacement, a record more, once": kind(
        fixed, without_truth, lambda sigma, size: m.SampledWithoutReplacement(m.Gaussian(sigma), size, _RECORDS)
    ),
    "SampledWithReplacement, once": kind(
        fixed, with_truth, lambda sigma, size: m.SampledWithReplacement(m.Gaussian(sigma), size, _RECORDS),
        tolerance=1e-12,
    ),
    "UserLevel, once": kind(
        users, users_truth, lambda sigma, rate, records: m.UserLevel(m.Gaussian(sigma), rate, records), tolerance=1e-10,
    ),
    "PoissonSampled Gaussian, replaced, once": kind(
        poisson, antipodal_truth, lambda sigma, rate: m.PoissonSampled(m.Gaussian(sigma), rate), relations=("replace",)
    ),
    "RandomAllocation of two batches, once": kind(
        two_batches, two_batches_truth, lambda sigma: m.RandomAllocation(m.Gaussian(sigma), 2),
        tolerance=1e-9, size=24, batches=4,
    ),
    "RandomAllocation of seven batches, three participations, once": kind(
        two_outcomes, three_of_seven_truth,
        lambda with_record, without: m.RandomAllocation(tables(with_record, without), 7, 3),
        tolerance=1e-9, size=24, batches=4,
    ),
    "TruncatedPoisson, attacked, once": kind(
        cut, cut_attack, lambda sigma, rate, largest: m.TruncatedPoisson(m.Gaussian(sigma), rate, largest, 100),
    ),
    "TruncatedPoisson, proven, once": kind(
        cut, cut_pair, lambda sigma, rate, largest: m.TruncatedPoisson(m.Gaussian(sigma), rate, largest, 100)
    ),
    "Shuffled, proven, once": kind(
        two_batches, lambda sigma: truths.gaussian(1 / mpf(sigma)), lambda sigma: m.Shuffled(m.Gaussian(sigma), 8),
        size=24, batches=2,
    ),
}  # fmt: skip
