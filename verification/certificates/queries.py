"""Queries drawn at random, half of them next to an edge, of every mechanism that has certificates.

Edges: atoms of one run and of several, the largest loss, its floating-point neighbours, rates next to 0 and 1, masses
down to 1e-300, up to 10^12 steps, deltas of 1e-300 and 1 - 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxacct import mechanisms as m

__all__ = ["FAMILIES", "Query", "draw"]

_PLAIN = ("add_or_remove", "add", "remove")
_ALL = (*_PLAIN, "replace", "replace_special", "zero_out", "fill_in")
_FIXED = (*_PLAIN, "replace")


class Query(NamedTuple):
    """A question to both sides; ``given`` is ``"epsilon"`` or ``"delta"``, ``at`` its value, ``more`` further ones."""

    family: str
    mechanism: Any
    steps: int
    relation: str
    given: str
    at: float
    edge: bool
    more: tuple[float, ...] = ()


class Drawn(NamedTuple):
    """A mechanism, its steps, losses that are atoms (of all steps together), relations."""

    mechanism: Any
    steps: int
    atoms: list[float]
    relations: tuple[str, ...] = _PLAIN


def _log(rng: Any, low: float, high: float) -> float:
    return float(10 ** rng.uniform(math.log10(low), math.log10(high)))


def _rate(rng: Any, edge: bool) -> float:
    if not edge:
        return _log(rng, 1e-3, 0.9)
    return float(rng.choice([1e-300, 1e-14, 1e-10, 1e-6, 0.5, 1 - 1e-10, 1 - 2.0**-53, 1 - 1e-3, 1.0]))


def _steps(rng: Any, most: float) -> int:
    return int(min(most, max(1, round(_log(rng, 1, most)))))


def _gaussian(rng: Any, edge: bool) -> Drawn:
    sigma = _log(rng, 0.02, 500) if edge else _log(rng, 0.3, 30)
    return Drawn(m.Gaussian(sigma), _steps(rng, 1e12 if edge else 1e4), [], _ALL)


def _sampled_gaussian(rng: Any, edge: bool) -> Drawn:
    sigma = _log(rng, 0.3, 50) if edge else _log(rng, 0.5, 5)
    steps = int(rng.choice([1, 2, 5])) if rng.random() < 0.4 else _steps(rng, 1e12 if edge else 1e4)
    return Drawn(m.PoissonSampled(m.Gaussian(sigma), _rate(rng, edge)), steps, [], _ALL)


def _moves(rng: Any, edge: bool) -> Any:
    moves = sorted(rng.uniform(0, 2, 3)) if rng.random() < 0.5 else [0.0, 1.0]
    weights = rng.dirichlet(np.ones(len(moves)))
    if edge:
        small = _log(rng, 1e-15, 1e-6)
        weights = np.array([small, 1 - small] if len(moves) == 2 else [small, small, 1 - 2 * small])
    return m.RandomSensitivityGaussian(
        _log(rng, 0.05 if edge else 0.5, 5), [float(x) for x in moves], [float(w) for w in weights]
    )


def _mixture(rng: Any, edge: bool) -> Drawn:
    return Drawn(_moves(rng, edge), _steps(rng, 1e3 if edge else 100), [], _ALL)


def _sampled_mixture(rng: Any, edge: bool) -> Drawn:
    return Drawn(m.PoissonSampled(_moves(rng, edge), _rate(rng, edge)), int(rng.choice([1, 1, 3, 20])), [], _ALL)


def _laplace(rng: Any, edge: bool) -> Drawn:
    scale = _log(rng, 1e-17, 1e6) if edge else _log(rng, 0.2, 100)
    steps = int(rng.choice([1, 1, 2, 3, 10, 100]))
    return Drawn(m.Laplace(scale), steps, [j / scale for j in range(steps, -1, -2)], _ALL)


def _sampled_laplace(rng: Any, edge: bool) -> Drawn:
    scale, rate = _log(rng, 0.01, 100), _rate(rng, edge)
    top = 1 / scale
    atoms = [math.log1p(rate * math.expm1(top)) if top < 700 else top + math.log(rate)]
    if edge and rate < 1:  # of replaced records
        gain = rate * math.expm1(top) if top < 700 else math.inf
        atoms.append(math.log1p(gain / (1 + rate * math.expm1(-top))) if math.isfinite(gain) else atoms[0])
    return Drawn(m.PoissonSampled(m.Laplace(scale), rate), 1, atoms, _ALL)


def _response(rng: Any, edge: bool) -> Drawn:
    epsilon = _log(rng, 1e-12, 600) if edge else _log(rng, 0.01, 3)
    mechanism = m.RandomizedResponse(epsilon, int(rng.choice([2, 2, 3, 10, 1000])))
    steps = _steps(rng, 1e12) if edge and rng.random() < 0.3 else int(rng.choice([1, 1, 2, 3, 10, 100]))
    return Drawn(mechanism, steps, [j * epsilon for j in range(min(steps, 50), -1, -1)], _ALL)


def _sampled_response(rng: Any, edge: bool) -> Drawn:
    epsilon, rate = _log(rng, 1e-6, 30) if edge else _log(rng, 0.1, 3), _rate(rng, edge)
    up, down = math.log1p(rate * math.expm1(epsilon)), math.log1p(rate * math.expm1(-epsilon))
    steps = int(rng.choice([1, 1, 2, 5, 50]))
    mechanism = m.PoissonSampled(m.RandomizedResponse(epsilon, int(rng.choice([2, 2, 5]))), rate)
    return Drawn(mechanism, steps, [steps * a for a in (up, -down, up - down)], _ALL)


def _approximate(rng: Any, edge: bool) -> Drawn:
    lost = _log(rng, 1e-300, 0.5) if edge else _log(rng, 1e-10, 0.1)
    epsilon, steps = _log(rng, 1e-6, 5), int(rng.choice([1, 2, 3, 20, 300]))
    mechanism = m.ApproximateDP(epsilon, lost)
    if rng.random() < 0.3:
        return Drawn(m.PoissonSampled(mechanism, _rate(rng, edge)), min(steps, 3), [], _ALL)
    return Drawn(mechanism, steps, [j * epsilon for j in range(min(steps, 50), 0, -2)], _ALL)


def _tables(rng: Any, edge: bool) -> Drawn:
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
    found = Drawn(m.FromTables(p, q), steps, [steps * abs(a) for a in atoms])
    if rng.random() < 0.5:
        rate = _rate(rng, edge)
        with np.errstate(all="ignore"):
            atoms = [abs(math.log1p(rate * math.expm1(a))) for a in atoms if a < 700 and rate * math.expm1(a) > -1]
        mechanism = m.PoissonSampled(found.mechanism, rate)
        return Drawn(mechanism, min(steps, 3), [min(steps, 3) * a for a in atoms], _ALL)
    return found


def _discrete_laplace(rng: Any, edge: bool) -> Drawn:
    scale, gap = _log(rng, 0.02 if edge else 0.3, 50), int(rng.choice([1, 1, 2, 5]))
    steps = _steps(rng, 1e9) if edge and rng.random() < 0.3 else int(rng.choice([1, 1, 2, 7]))
    return Drawn(m.DiscreteLaplace(scale, gap), steps, [j / scale for j in range(steps * gap, -1, -1)[:20]], _ALL)


def _discrete_gaussian(rng: Any, edge: bool) -> Drawn:
    sigma, gap = _log(rng, 0.03 if edge else 0.4, 30), int(rng.choice([1, 1, 2, 3]))
    steps = _steps(rng, 1e9) if edge and rng.random() < 0.3 else int(rng.choice([1, 1, 2, 7]))
    first = gap * (2 - gap) / (2 * sigma**2)
    atoms = [steps * first + j * gap / sigma**2 for j in range(12)]
    return Drawn(m.DiscreteGaussian(sigma, gap), steps, atoms, _ALL)


def _skellam(rng: Any, edge: bool) -> Drawn:
    mu = _log(rng, 1e-6 if edge else 0.1, 1e3)
    return Drawn(m.Skellam(mu, int(rng.choice([1, 2]))), int(rng.choice([1, 1, 1, 3])), [], _ALL)


def _sampled_discrete(rng: Any, edge: bool) -> Drawn:
    inner = (_discrete_gaussian, _discrete_laplace, _skellam)[rng.integers(3)](rng, False).mechanism
    return Drawn(m.PoissonSampled(inner, _rate(rng, edge)), 1, [], _ALL)


def _two_kinds(rng: Any, edge: bool) -> Drawn:
    del edge
    first = _sampled_gaussian(rng, False)
    second = (_laplace, _response, _approximate, _gaussian)[rng.integers(4)](rng, False)
    steps = [min(first.steps, 1000), min(second.steps, 20)]
    return Drawn(m.Composed([first.mechanism, second.mechanism], steps), 1, [], _ALL)


def _few(rng: Any) -> int:
    return int(rng.choice([1, 1, 1, 2, 5, 1000]))


def _truncated(rng: Any, edge: bool) -> Drawn:
    records = int(rng.choice([2, 10, 1000, 10_000]))
    rate = _rate(rng, edge) if edge or records < 100 else _log(rng, 1e-3, 0.2)
    mean = max(1.0, records * rate)
    largest = int(min(records, max(1, round(mean + rng.choice([-1, 0, 1, 3, 5, 8]) * math.sqrt(mean)))))
    sigma = _log(rng, 0.1, 50) if edge else _log(rng, 0.5, 5)
    return Drawn(m.TruncatedPoisson(m.Gaussian(sigma), rate, largest, records), _few(rng), [], _ALL)


def _sizes(rng: Any, edge: bool) -> tuple[int, int]:
    records = int(rng.choice([2, 3, 100, 10**6, 10**12] if edge else [10, 1000, 10_000]))
    return int(max(1, min(records, round(_log(rng, 1, records))))), records


def _without_replacement(rng: Any, edge: bool) -> Drawn:
    batch, records = _sizes(rng, edge)
    if batch < 1e-13 * records:
        batch = 1000
    if rng.random() < 0.3:
        scale = _log(rng, 0.05, 50)
        return Drawn(m.SampledWithoutReplacement(m.Laplace(scale), batch, records), 1, [], _FIXED)
    inner = m.Gaussian(_log(rng, 0.1, 50) if edge else _log(rng, 0.5, 5), float(rng.choice([1.0, 2.0])))
    return Drawn(m.SampledWithoutReplacement(inner, batch, records), _few(rng), [], _FIXED)


def _with_replacement(rng: Any, edge: bool) -> Drawn:
    batch, records = _sizes(rng, edge)
    inner = m.Gaussian(_log(rng, 0.2, 50) if edge else _log(rng, 0.5, 5), float(rng.choice([1.0, 2.0])))
    return Drawn(m.SampledWithReplacement(inner, batch, records), _few(rng), [], _FIXED)


def _random_allocation(rng: Any, edge: bool) -> Drawn:
    batches = int(rng.choice([1, 2, 3, 8, 30]))
    if edge and rng.random() < 0.5:
        inner = (m.Laplace(_log(rng, 0.5, 20)), m.RandomizedResponse(_log(rng, 0.05, 3)))[rng.integers(2)]
    else:
        inner = m.Gaussian(_log(rng, 0.5, 5))
    return Drawn(m.RandomAllocation(inner, batches), 1, [])


def _user_level(rng: Any, edge: bool) -> Drawn:
    records = int(rng.choice([1, 2, 33, 300] if edge else [1, 3, 10]))
    rate = float(rng.choice([1e-10, 1e-3, 0.1, 1.0])) if edge else _log(rng, 1e-3, 0.5)
    sigma = _log(rng, 0.3, 50) if edge else _log(rng, 1, 10)
    return Drawn(m.UserLevel(m.Gaussian(sigma), rate, records), _few(rng), [], _PLAIN)


def _shuffled(rng: Any, edge: bool) -> Drawn:
    inner = (_gaussian, _laplace, _response)[rng.integers(3)](rng, edge)
    mechanism = m.Shuffled(inner.mechanism, int(rng.choice([1, 4, 100])))
    return Drawn(mechanism, int(rng.choice([1, 1, 3])), [], _ALL)


_BUILDERS: tuple[Callable[[Any, bool], Drawn], ...] = (
    _gaussian, _sampled_gaussian, _sampled_gaussian, _mixture, _sampled_mixture, _laplace, _sampled_laplace, _response,
    _sampled_response, _approximate, _tables, _discrete_laplace, _discrete_gaussian, _skellam, _sampled_discrete,
    _two_kinds, _truncated, _without_replacement, _with_replacement, _random_allocation, _shuffled,
    _user_level,
)  # fmt: skip
FAMILIES = tuple(dict.fromkeys(one.__name__[1:] for one in _BUILDERS))


def _nudged(rng: Any, value: float) -> float:
    """A neighbour in floating point, on either side, or the number itself."""
    value = abs(float(value))
    for _ in range(int(rng.integers(0, 4))):
        value = float(np.nextafter(value, rng.choice([0.0, np.inf])))
    return value


def draw(rng: Any, only: str = "", more: int = 0) -> Query:
    """A query; with ``only``, of the families whose name holds it; with ``more`` epsilons or deltas to ask as well."""
    edge = bool(rng.random() < 0.5)
    builders = [one for one in _BUILDERS if only in one.__name__]
    build = builders[rng.integers(len(builders))]
    drawn = build(rng, edge)
    relation = str(rng.choice(drawn.relations))
    near = [a for a in drawn.atoms if math.isfinite(a)] if edge else []
    given = "delta" if rng.random() < 0.3 else "epsilon"

    def place() -> float:
        if given == "delta" and edge and rng.random() < 0.7:
            return float(rng.choice([1e-300, 1e-100, 1e-20, 0.5, 1 - 1e-6, 1 - 1e-12]))
        if given == "delta":
            return _log(rng, 1e-12, 0.5)
        if near:
            return _nudged(rng, rng.choice(near))
        return float(rng.choice([0.0, _log(rng, 1e-6, 50), _log(rng, 0.1, 5)]))

    places = tuple(place() for _ in range(1 + more))
    return Query(build.__name__[1:], drawn.mechanism, drawn.steps, relation, given, places[0], edge, places[1:])
