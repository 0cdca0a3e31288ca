"""Hockey sticks of one run in 50 digits, of the very floats that a user wrote, and the losses of their atoms.

A curve is a function x -> H(e^x) of mpmath numbers. No code is shared with the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
from mpmath import mpf

from jaxacct import mechanisms as m

mp.mp.dps = 50


class Law(NamedTuple):
    """``curve``, the losses of some atoms, and the largest loss, or None."""

    curve: Callable[[Any], Any]
    atoms: tuple[Any, ...] = ()
    largest: Any = None


class Case(NamedTuple):
    """A mechanism and what is true of one run of it in ``relation``."""

    mechanism: Any
    relation: str
    law: Law


def exact(value: Any) -> Any:
    """The float, or the fraction, as it is."""
    return mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else mpf(float(value))


def gaussian(mu: Any) -> Law:
    def curve(x):
        with mp.extradps(40):
            return +max(mp.ncdf(mu / 2 - x / mu) - mp.exp(x) * mp.ncdf(-mu / 2 - x / mu), mpf(0))

    return Law(curve)


def laplace(pure: Any) -> Law:
    def curve(x):
        if x >= pure:
            return mpf(0)
        return -mp.expm1(x) if x <= -pure else -mp.expm1((x - pure) / 2)

    return Law(curve, (pure, -pure), pure)


def bounded_range(pure: Any) -> Law:
    def curve(x):
        if x >= pure:
            return mpf(0)
        return -mp.expm1(x) if x <= -pure else mp.expm1((x - pure) / 2) ** 2 / -mp.expm1(-pure)

    return Law(curve, (), pure)


def table(p: list[Any], q: list[Any], largest: Any = None) -> Law:
    """Outcomes of P- and Q-masses; the largest loss where its digits are known better than their quotient's."""
    both = [(a, b) for a, b in zip(p, q, strict=True) if a or b]
    losses = [mp.log(a / b) for a, b in both if a and b]
    infinite = any(a and not b for a, b in both)

    largest = None if infinite else max(losses) if largest is None else largest

    def curve(x):
        gamma = mp.exp(x)
        return mp.fsum(max(a - gamma * b, mpf(0)) for a, b in both) if largest is None or x < largest else mpf(0)

    return Law(curve, tuple(losses), largest)


def response_masses(pure: Any, categories: int = 2, delta: Any = 0) -> tuple[list[Any], list[Any]]:
    keep, up = 1 - mpf(delta), mp.exp(pure)
    total = up + categories - 1
    p = [keep * up / total, keep * (categories - 2) / total, keep / total, mpf(delta), mpf(0)]
    return p, [p[2], p[1], p[0], p[4], p[3]]


def response(pure: Any, categories: int = 2, delta: Any = 0) -> Law:
    law = table(*response_masses(pure, categories, delta))
    # Where only the infinite loss is left, exactly.
    curve = lambda x: law.curve(x) if x < pure else mpf(delta)  # noqa: E731
    return Law(curve, law.atoms, None if delta else pure)


def integers(log_mass: Callable[[int], Any], loss: Callable[[int], Any], gap: int, largest: Any = None) -> Law:
    """Symmetric noise on whole numbers of unnormalised log masses, moved by ``gap``; its loss is increasing."""

    def mass(n):
        return mp.exp(log_mass(abs(n)))

    n, total = 1, mass(0)
    while True:
        term = 2 * mass(n)
        total += term
        if term < total * mpf(10) ** -60:
            break
        n += 1

    def curve(x):
        if x < 0:
            return -mp.expm1(x) + mp.exp(x) * curve(-x)
        # The outcomes n of P with loss above x, from the first one on.
        low, high = -1, 1
        while loss(low) > x and low > -(2**40):
            low *= 2
        while loss(high) <= x and high < 2**40:
            high *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if loss(middle) <= x else (low, middle)
        gamma, found, n = mp.exp(x), mpf(0), high
        while True:
            term = mass(n - gap) - gamma * mass(n)
            found += term
            if n > gap and abs(term) <= abs(found) * mpf(10) ** -45:
                break
            n += 1
        return max(found, mpf(0)) / total if loss(high) > x else mpf(0)

    return Law(curve, tuple(loss(n) for n in range(-1, gap + 2)), largest)


def discrete_gaussian(sigma: Any, gap: int) -> Law:
    return integers(lambda n: -(mpf(n) ** 2) / (2 * sigma**2), lambda n: (2 * mpf(n) - gap) * gap / (2 * sigma**2), gap)


def discrete_laplace_masses(scale: Any, gap: int) -> tuple[list[Any], list[Any]]:
    t = mp.exp(-1 / scale)
    inner = (1 - t) / (1 + t)
    mass = lambda away: t**away * inner  # noqa: E731
    end = lambda away: t**away / (1 + t)  # noqa: E731
    p = [end(gap), *(mass(gap - n) for n in range(1, gap)), end(0)]
    return p, p[::-1]


def discrete_laplace(scale: Any, gap: int) -> Law:
    return table(*discrete_laplace_masses(scale, gap), gap / scale)._replace(
        atoms=tuple((2 * mpf(n) - gap) / scale for n in range(gap + 1))
    )


def skellam(mu: Any, gap: int) -> Law:
    logs: dict[int, Any] = {}

    def log_mass(n):
        if n not in logs:
            logs[n] = mp.log(mp.besseli(n, 2 * mu)) - 2 * mu
        return logs[n]

    return integers(log_mass, lambda n: log_mass(abs(n - gap)) - log_mass(abs(n)), gap)


def mixture(sigma: Any, moves: list[Any], weights: list[Any], reverse: bool) -> Law:
    """sum w_i N(s_i, sigma^2) against N(0, sigma^2), or the reverse."""
    total = mp.fsum(weights)
    parts = [(s, w / total) for s, w in zip(moves, weights, strict=True) if w]
    still = mp.fsum(w for s, w in parts if s == 0)

    def ratio(y):
        terms = [(s, w * mp.exp((s * y - s * s / 2) / sigma**2)) for s, w in parts]
        return mp.fsum(term for _, term in terms), mp.fsum(s * term for s, term in terms) / sigma**2

    def solved(level):
        """Newton's method from the right for the ratio, which is convex and increasing."""
        y, goal = sigma, mp.exp(level)
        while ratio(y)[0] < goal:
            y *= 2
        while True:
            value, slope = ratio(y)
            step = (value - goal) / slope
            y -= step
            if abs(step) <= abs(y) * mpf(10) ** -35:
                return y

    def curve(x):
        level = -x if reverse else x
        if still and level <= mp.log(still):
            return mpf(0) if reverse else -mp.expm1(x)
        with mp.extradps(30):
            y = solved(level)
        side = -1 if reverse else 1
        tail = lambda s: mp.ncdf(side * (s - y) / sigma)  # noqa: E731
        with mp.extradps(30):
            mixed, base = mp.fsum(w * tail(s) for s, w in parts), tail(mpf(0))
            return max(base - mp.exp(x) * mixed if reverse else mixed - mp.exp(x) * base, mpf(0))

    return Law(curve, (), -mp.log(still) if reverse and still else None)


def profile(points: list[tuple[Any, Any]]) -> Law:
    """The largest curve of a symmetric pair below (epsilon, delta): every chord and level."""
    gammas, heights = [mpf(0)], [mpf(1)]
    for epsilon, delta in points:
        gamma = mp.exp(epsilon)
        gammas += [gamma, 1 / gamma]
        heights += [delta, 1 - (1 - delta) / gamma]
    corners = list(zip(gammas, heights, strict=True))

    def curve(x):
        gamma = mp.exp(x)
        best = min([mpf(1), *(f for a, f in corners if a <= gamma)])
        for a, f in corners:
            for b, g in corners:
                if a < b and a <= gamma <= b:
                    best = min(best, f + (g - f) * (gamma - a) / (b - a))
        return best

    return Law(curve, tuple(sign * epsilon for epsilon, _ in points for sign in (1, -1)))


def sampled(law: Law, rate: Any, relation: str) -> Law:
    """One run on a Poisson sample, from the curve of the inner mechanism (Zhu, Dong, Wang 2022, Theorem 11)."""
    if rate == 1:
        return law
    rest = 1 - rate

    def remove(x):
        left = rate + mp.expm1(x)
        return rate * law.curve(mp.log(left / rate)) if left > 0 else -mp.expm1(x)

    def add(x):
        left = 1 - mp.exp(x) * rest
        return left * law.curve(x + mp.log(rate / left)) if left > 0 else mpf(0)

    image = lambda loss: mp.log(rest + rate * mp.exp(loss))  # noqa: E731
    if relation == "remove":
        largest = None if law.largest is None else image(law.largest)
        return Law(remove, tuple(image(loss) for loss in law.atoms), largest)
    # In the direction `add` losses of -inf stay, those of inf are log(1 / rest).
    largest = -mp.log(rest) if law.largest is None else -image(-law.largest)
    return Law(add, tuple(-image(-loss) for loss in law.atoms), largest)


def without_replacement(law: Law, rate: Any) -> Law:
    above = sampled(law, rate, "remove")

    def curve(x):
        return above.curve(x) if x >= 0 else -mp.expm1(x) + mp.exp(x) * above.curve(-x)

    return Law(curve, (*above.atoms, *(-loss for loss in above.atoms), mpf(0)), above.largest)


def replaced(law_of: str, scale: Any, rate: Any) -> Law:
    """(1 - q) R(0) + q R(1) against (1 - q) R(0) + q R(-1), R Gaussian or Laplace noise; the loss increases."""
    rest = 1 - rate

    def density(x, at):
        z = (x - at) / scale
        return mp.exp(-z * z / 2) if law_of == "gaussian" else mp.exp(-abs(z))

    def above(x, at):
        z = (x - at) / scale
        if law_of == "gaussian":
            return mp.ncdf(-z)
        return mp.exp(-z) / 2 if z >= 0 else 1 - mp.exp(z) / 2

    def ratio(x):
        up, down, still = density(x, 1), density(x, -1), density(x, 0)
        return (rest * still + rate * up) / (rest * still + rate * down)

    largest = mp.log(ratio(mpf(1))) if law_of == "laplace" else None

    def curve(x):
        if x < 0:
            return -mp.expm1(x) + mp.exp(x) * curve(-x)
        if largest is not None and x >= largest:
            return mpf(0)
        gamma = mp.exp(x)
        with mp.extradps(30):
            low, high = mpf(0), mpf(1)
            while largest is None and ratio(high) < gamma:
                high *= 2
            for _ in range(260):
                middle = (low + high) / 2
                low, high = (middle, high) if ratio(middle) < gamma else (low, middle)
            mixed = lambda at: rest * above(low, 0) + rate * above(low, at)  # noqa: E731
            return max(mixed(1) - gamma * mixed(-1), mpf(0))

    return Law(curve, () if largest is None else (largest, -largest), largest)


def neighbours(loss: Any, steps: tuple[int, ...] = (-3, -1, 0, 1, 2)) -> list[float]:
    """The float64 numbers around a loss."""
    found = float(loss)
    return [at for step in steps if math.isfinite(at := found + step * float(np.spacing(found)))]


def spread(rng: np.random.Generator, low: float, high: float) -> float:
    """Log-uniform."""
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def some_rate(rng: np.random.Generator) -> float:
    """A rate, often next to 0 or 1."""
    near = spread(rng, 1e-16, 0.3)
    return float(rng.choice([near if near >= 1e-14 else 1e-14, 1.0 - near, rng.uniform(0.05, 0.95), 1.0 - 2.0**-53]))


def inner_laws(rng: np.random.Generator, wild: bool) -> dict[str, tuple[Any, Law]]:
    """A symmetric mechanism of every family, and what is true of it; ``wild`` draws from everywhere."""
    sigma = spread(rng, 1e-3, 1e4) if wild else spread(rng, 0.3, 5)
    far = spread(rng, 1e-17, 1e17) if wild else spread(rng, 0.2, 5)
    pure = spread(rng, 1e-9, 300) if wild else spread(rng, 0.05, 5)
    mu, gap = spread(rng, 1e-3, 40), int(rng.integers(1, 4))
    delta = spread(rng, 1e-300, 0.5) if wild else spread(rng, 1e-9, 0.1)
    scale = spread(rng, 1e-2, 50) if wild else spread(rng, 0.3, 5)
    noise = spread(rng, 0.02, 30) if wild else spread(rng, 0.3, 4)
    sensitivity, categories = spread(rng, 0.3, 3), int(spread(rng, 2, 1e6))
    epsilons = np.sort(rng.uniform(0.05, 3, 2))
    deltas = np.exp(-rng.uniform(1, 3) - 2 * epsilons) * rng.uniform(0.3, 1, 2)
    points = [(exact(e), exact(d)) for e, d in zip(epsilons, deltas, strict=True)]
    return {
        "gaussian": (m.Gaussian(sigma, sensitivity), gaussian(exact(sensitivity) / exact(sigma))),
        "gdp": (m.GDP(1 / sigma), gaussian(exact(1 / sigma))),
        "laplace": (m.Laplace(far, sensitivity), laplace(exact(sensitivity) / exact(far))),
        "exponential": (m.Exponential(pure), bounded_range(exact(pure))),
        "response": (m.RandomizedResponse(pure, categories), response(exact(pure), categories)),
        "pure": (m.PureDP(pure), response(exact(pure))),
        "approximate": (m.ApproximateDP(pure, delta), response(exact(pure), 2, exact(delta))),
        "discrete laplace": (m.DiscreteLaplace(scale, gap), discrete_laplace(exact(scale), gap)),
        "discrete gaussian": (m.DiscreteGaussian(noise, gap), discrete_gaussian(exact(noise), gap)),
        "skellam": (m.Skellam(mu, gap), skellam(exact(mu), gap)),
        "profile": (m.FromProfile(epsilons, deltas), profile(points)),
    }


def cases(rng: np.random.Generator, wild: bool = False) -> dict[str, Case]:
    """A case of every family, as it is, on samples, on samples of samples, and without replacement."""
    found = {}
    for name, (mechanism, law) in inner_laws(rng, wild).items():
        found[name] = Case(mechanism, "remove", law)
        for relation in ("remove", "add"):
            rate = some_rate(rng)
            given = m.PoissonSampled(mechanism, rate)
            found[f"sampled {name}, {relation}"] = Case(given, relation, sampled(law, exact(rate), relation))
        first, second = some_rate(rng), some_rate(rng)
        if exact(first) * exact(second) >= mpf("1.01e-14"):
            relation = str(rng.choice(["add", "remove"]))
            nested = m.PoissonSampled(m.PoissonSampled(mechanism, first), second)
            true = sampled(law, exact(first) * exact(second), relation)
            found[f"nested {name}"] = Case(nested, relation, true)
        whole = int(spread(rng, 2, 1e12))
        size = int(rng.choice([1, whole - 1, max(whole // 3, 1)]))
        true = without_replacement(law, exact(Fraction(size, whole)))
        found[f"subset {name}"] = Case(m.SampledWithoutReplacement(mechanism, size, whole), "replace", true)
    noise, rate = spread(rng, 0.2, 20), some_rate(rng)
    for name, given in (("gaussian", m.Gaussian(noise)), ("laplace", m.Laplace(noise))):
        true = replaced(name, exact(noise), exact(rate))
        found[f"replaced {name}"] = Case(m.PoissonSampled(given, rate), "replace", true)
    p, q = (rng.dirichlet(np.full(4, 0.3)) + 1e-12 for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    one, other = ([exact(x) / mp.fsum(map(exact, row)) for x in row] for row in (p, q))
    for relation in ("remove", "add"):
        true = table(one, other) if relation == "remove" else table(other, one)
        found[f"table, {relation}"] = Case(m.FromTables(p, q), relation, true)
        rate = some_rate(rng)
        found[f"sampled table, {relation}"] = Case(
            m.PoissonSampled(m.FromTables(p, q), rate), relation, sampled(true, exact(rate), relation)
        )
        sigma = spread(rng, 0.05, 20) if wild else spread(rng, 0.3, 4)
        moves, weights = [0.0, *rng.uniform(0.3, 2, 2)], rng.dirichlet(np.ones(3) * (0.1 if wild else 1.0))
        weights = np.maximum(weights, 1e-13)
        near = some_rate(rng)
        weights = np.array([1 - near, near / 3, 2 * near / 3]) if rng.random() < 0.5 else weights / weights.sum()
        true = mixture(exact(sigma), [*map(exact, moves)], [*map(exact, weights)], relation == "add")
        found[f"mixture, {relation}"] = Case(
            m.RandomSensitivityGaussian(sigma, tuple(moves), tuple(weights)), relation, true
        )
    number, sigma = int(rng.integers(2, 400)), spread(rng, 1, 100)
    parts = [m.Gaussian(sigma)] * number + [m.GDP(0.01), m.Composed([m.Gaussian(3.0), m.Gaussian(7.0)], [3, 1])]
    square = number / exact(sigma) ** 2 + exact(0.01) ** 2 + mpf(3) / 9 + mpf(1) / 49
    found["composed gaussians"] = Case(m.Composed(parts), "remove", gaussian(mp.sqrt(square)))
    return found
