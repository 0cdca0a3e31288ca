"""Cases of the batches that are drawn otherwise than by Poisson sampling, and of replaced records, in 50 digits.

Laws are those of the dominating pairs (docs/proofs): where data attain them both bounds are bounds of them, and where
an attack is the lower bound, it lies below.
"""

from __future__ import annotations

import bisect
import itertools
import math
from fractions import Fraction
from typing import Any

import jax
import mpmath as mp
import numpy as np
from mpmath import mpf

from jaxacct import mechanisms as m
from jaxacct._numerics.binomial import binomial_split
from jaxacct.mechanisms.samples.cut_cells import share_moved
from tests.sound import exact

Masses = tuple[list[Any], list[Any]]


def sampler_cases(rng: np.random.Generator, wild: bool) -> dict[str, exact.Case]:
    """A case of every sampler."""
    spread, number = exact.spread, exact.exact
    found: dict[str, exact.Case] = {}
    inner = exact.inner_laws(rng, wild)
    batches, relation = int(rng.choice([1, 2, 7, 1000])), str(rng.choice(["remove", "add"]))
    for name in ("laplace", "response", "approximate", "discrete laplace"):
        mechanism, law = inner[name]
        found[f"shuffled {name}"] = exact.Case(m.Shuffled(mechanism, batches), relation, law)
        whole = int(spread(rng, 2, 1e6))
        size = int(rng.choice([1, whole - 1, max(whole // 3, 1)]))
        true = exact.sampled(law, number(Fraction(size, whole)), relation)
        found[f"part {name}"] = exact.Case(m.SampledWithoutReplacement(mechanism, size, whole), relation, true)
    for name, (mechanism, p, q) in _few(rng, wild).items():
        rate = exact.some_rate(rng)
        true = exact.table(*_antipodal(p, q, number(rate)))
        found[f"replaced {name}"] = exact.Case(m.PoissonSampled(mechanism, rate), "replace", true)
        batches = int(rng.integers(2, 5 if len(p) < 5 else 4))
        epoch = _epoch(p, q, batches)
        law = exact.table(*(epoch if relation == "remove" else epoch[::-1]))
        found[f"allocated {name}"] = exact.Case(m.RandomAllocation(mechanism, batches), relation, law)
    sigma = spread(rng, 0.05, 50) if wild else spread(rng, 0.3, 5)
    records, rate = int(spread(rng, 2, 300)), exact.some_rate(rng)
    largest = int(rng.integers(1, records))
    cut = m.TruncatedPoisson(m.Gaussian(sigma), rate, largest, records)
    with jax.enable_x64(True):
        noise, odds = np.float64(sigma), np.float64(rate)
        share = float(share_moved(noise, odds, binomial_split(np.float64(records - 1), odds, np.float64(largest))))
    found["cut"] = exact.Case(
        cut, relation, _cut(number(sigma), number(rate), largest, records, relation, number(share))
    )
    batch = int(rng.integers(1, 9))
    records = int(spread(rng, batch + 1, 1e9))
    weights = [_binomial(batch, j, 1 / mpf(records)) for j in range(batch + 1)]
    law = exact.mixture(number(sigma), [mpf(j) for j in range(batch + 1)], weights, relation == "add")
    drawn = m.SampledWithReplacement(m.Gaussian(sigma), batch, records)
    found["with replacement"] = exact.Case(drawn, relation, law)
    return found


def _few(rng: np.random.Generator, wild: bool) -> dict[str, tuple[Any, list[Any], list[Any]]]:
    """Mechanisms of few outcomes and their masses."""
    number = exact.exact
    pure = exact.spread(rng, 1e-6, 60) if wild else exact.spread(rng, 0.05, 3)
    lost, categories = exact.spread(rng, 1e-200, 0.3), int(exact.spread(rng, 2, 1e4))
    rows = [row / row.sum() for row in (rng.dirichlet(np.full(3, 0.5)) + 1e-9 for _ in range(2))]
    one, other = ([number(x) / mp.fsum(map(number, row)) for x in row] for row in rows)
    return {
        "response": (m.RandomizedResponse(pure, categories), *exact.response_masses(number(pure), categories)),
        "approximate": (m.ApproximateDP(pure, lost), *exact.response_masses(number(pure), 2, number(lost))),
        "table": (m.FromTables(*rows), one, other),
    }


def _antipodal(p: list[Any], q: list[Any], rate: Any) -> Masses:
    """Ranks of Q, the largest loss first, and their mirror image (docs/proofs/replaced-records.md)."""
    pairs = sorted(((a, b) for a, b in zip(p, q, strict=True) if b), key=lambda pair: -pair[0] / pair[1])
    infinite = mp.fsum(a for a, b in zip(p, q, strict=True) if not b)
    # Ranks are counted from their own end, so that small ones keep their digits.
    rising, falling = ([mpf(0), *itertools.accumulate(b for _, b in way)] for way in (pairs, pairs[::-1]))
    half = mpf(1) / 2
    cuts = sorted({min(end, half) for end in (*rising, *falling, half)})
    found: Masses = ([rate * infinite, mpf(0)], [mpf(0), rate * infinite])
    for start, stop in itertools.pairwise(cuts):
        middle, densities = (start + stop) / 2, []
        for ends, way in ((rising, pairs), (falling, pairs[::-1])):
            w, o = way[min(bisect.bisect_right(ends, middle), len(way)) - 1]
            densities.append((stop - start) * (1 - rate + rate * w / o))
        for side, masses in zip((densities, densities[::-1]), found, strict=True):
            masses.extend(side)
    return found


def _epoch(p: list[Any], q: list[Any], batches: int) -> Masses:
    """One epoch of random allocation: multisets of outcomes of all batches, of which one has the record."""
    found: Masses = ([], [])
    for chosen in itertools.combinations_with_replacement(range(len(p)), batches):
        counts = [chosen.count(i) for i in range(len(p))]
        ways = mpf(math.factorial(batches) // math.prod(map(math.factorial, counts)))
        found[1].append(ways * mp.fprod(q[i] for i in chosen))
        held = (p[i] * mp.fprod(q[j] for j in (*chosen[:k], *chosen[k + 1 :])) for k, i in enumerate(chosen))
        found[0].append(ways * mp.fsum(held) / batches)
    return found


def _binomial(trials: int, count: int, rate: Any) -> Any:
    return mpf(math.comb(trials, count)) * rate**count * (1 - rate) ** (trials - count)


def _cut(sigma: Any, rate: Any, largest: int, records: int, relation: str, share: Any) -> exact.Law:
    """A Poisson sample that is cut: the theorem of docs/proofs/truncated-poisson.md, which holds for any ``share``."""
    *fewer, just = (_binomial(records - 1, k, rate) for k in range(largest))
    chances = {k: _binomial(records - 1, k, rate) for k in range(largest, records)}
    often = mp.fsum(chances.values())
    held = rate * mp.fsum(chance * largest / (k + 1) for k, chance in chances.items()) / often
    near, left = just + share * often * held, 1 - share * held
    cells = [
        (mp.fsum(fewer), mpf(1), rate, 1),
        (near, just / near, (rate * just + share * often * held) / near, 1),
        (often * left, 1 / left, (1 - share) * held / left, 2),
    ]

    def curve(x: Any) -> Any:
        found = mpf(0)
        with mp.workdps(150):  # rates next to 1 cancel
            for weight, without, odds, distance in cells:
                weight, ratio = (weight * without, 1 / without) if relation == "add" else (weight, without)
                if weight:
                    epsilon, law = x + mp.log(ratio), exact.gaussian(distance / sigma)
                    excess = exact.sampled(law, odds, relation).curve(epsilon) if odds else -mp.expm1(epsilon)
                    found += weight * max(excess, mpf(0))
        return found

    return exact.Law(curve)
