"""Hockey sticks H(e^x) = delta(x) that share no code with the library: closed forms, exact sums, contour integrals.

Each function returns a curve, x -> delta; those of one run hold at every real x.
"""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
from mpmath import mpf

mpmath.mp.dps = 30
Long = np.longdouble  # 64 bits of mantissa where the processor has them


def gaussian(mu):
    """N(mu, 1) against N(0, 1) (Balle, Wang 2018)."""
    mu = mpf(mu)
    return lambda x: mpmath.ncdf(mu / 2 - x / mu) - mpmath.exp(x) * mpmath.ncdf(-mu / 2 - x / mu)


def laplace(pure):
    pure = mpf(pure)

    def curve(x):
        if x >= pure:
            return mpf(0)
        return 1 - mpmath.exp(x) if x <= -pure else -mpmath.expm1((x - pure) / 2)

    return curve


def bounded_range(epsilon):
    """The worst two-point law of range ``pure``, by a search over where it lies (Dong, Durfee, Rogers 2020)."""
    pure = Long(epsilon)

    def curve(x):
        x = Long(float(x))

        def at(t):
            p = np.expm1(t - pure) / np.expm1(-pure)
            return np.maximum(-p * np.expm1(x - t), 0) + np.maximum(-(1 - p) * np.expm1(x - t + pure), 0)

        low, high = max(x, Long(0)), pure
        if low >= high:
            return mpf(0)
        for _ in range(3):
            t = np.linspace(low, high, 1001, dtype=Long)
            best = int(np.argmax(at(t)))
            low, high = t[max(best - 1, 0)], t[min(best + 1, 1000)]
        return mpf(str(at(t)[best]))

    return curve


def table(p, q):
    """Outcomes of probabilities p and q, arrays of extended precision or of mpmath's numbers."""
    if p.dtype == object:
        return lambda x: np.maximum(p - mpmath.exp(x) * q, 0).sum()
    p, q = np.asarray(p, Long), np.asarray(q, Long)
    return lambda x: np.maximum(p - np.exp(Long(float(x))) * q, 0).sum()


def response(pure, delta=0.0, categories=2, number=Long):
    """(p, q) of randomized response that gives itself away with probability ``delta``."""
    up, rest = (np if number is Long else mpmath).exp(number(pure)), int(categories) - 2
    total = up + int(categories) - 1
    keep = 1 - number(delta)
    p = [keep * up / total, keep / total, keep * rest / total, number(delta), number(0)]
    q = [keep / total, keep * up / total, keep * rest / total, number(0), number(delta)]
    dtype = Long if number is Long else object
    return np.asarray(p, dtype), np.asarray(q, dtype)


def integer_noise(log_weight, gap, far):
    """(p, q) of integer noise with unnormalised log-masses, moved by ``gap``."""
    n = np.arange(-far, far + gap + 1).astype(Long)
    p, q = np.exp(log_weight(n)), np.exp(log_weight(n - gap))
    return q / q.sum(), p / p.sum()


def discrete_laplace(scale, gap):
    return integer_noise(lambda n: -np.abs(n) / Long(scale), gap, int(60 * scale) + 20)


def discrete_gaussian(sigma, gap):
    return integer_noise(lambda n: -(n**2) / (2 * Long(sigma) ** 2), gap, int(16 * sigma) + 10)


def sampled_table(p, q, rate, relation):
    """(p, q) of a Poisson sample of a table, of (q, p) for `add`."""
    rate = mpf(float(rate)) if p.dtype == object else Long(rate)
    mixed = rate * p + (1 - rate) * q
    return (mixed, q) if relation == "remove" else (q, mixed)


def hull(points):
    """The largest curve of a symmetric pair below (epsilon, delta): every chord and level, no convex hull."""
    gammas, heights = [mpf(0)], [mpf(1)]
    for epsilon, delta in points:
        gamma = mpmath.exp(epsilon)
        gammas += [gamma, 1 / gamma]
        heights += [mpf(delta), 1 - (1 - mpf(delta)) / gamma]

    def curve(x):
        gamma = mpmath.exp(x)
        best = mpf(1)
        for (a, f), (b, g) in itertools.combinations(zip(gammas, heights, strict=True), 2):
            (a, f), (b, g) = sorted(((a, f), (b, g)))
            if a <= gamma <= b and a < b:
                best = min(best, f + (g - f) * (gamma - a) / (b - a))
        return min([best, *(f for a, f in zip(gammas, heights, strict=True) if a <= gamma)])

    return curve


def mixture(sigma, moves, weights, relation):
    """sum w_i N(s_i, sigma^2) against N(0, sigma^2), or the reverse for `add`."""
    moves, weights = np.asarray(moves, float), np.asarray(weights, float)

    def ratio(y):
        exponent = np.log(np.maximum(weights, 1e-320)) + moves * y / sigma**2 - moves**2 / (2 * sigma**2)
        top = exponent.max()
        return top + np.log(np.exp(exponent - top).sum())

    def curve(x):
        # The event {loss > x} is {y > cut} for `remove`, {y < cut} for `add`; an error in its edge is of second order.
        level = float(x) if relation == "remove" else -float(x)
        low, high = -1e4 * sigma, 1e4 * sigma
        if ratio(low) > level:
            return -mpmath.expm1(x) if relation == "remove" else mpf(0)
        for _ in range(90):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if ratio(middle) > level else (middle, high)
        tail = lambda s: mpmath.ncdf((mpf(s) - low) / sigma)  # noqa: E731
        mixed, base = mpmath.fsum(mpf(w) * tail(s) for w, s in zip(weights, moves, strict=True)), tail(0)
        if relation == "remove":
            return mixed - mpmath.exp(x) * base
        return mpmath.ncdf(low / mpf(sigma)) - mpmath.exp(x) * mpmath.fsum(
            mpf(w) * mpmath.ncdf((low - mpf(s)) / mpf(sigma)) for w, s in zip(weights, moves, strict=True)
        )

    return curve


def sampled(curve, rate, relation):
    """One run on a Poisson sample, from the curve of the inner mechanism (Zhu, Dong, Wang 2022, Theorem 11)."""
    q = mpf(rate)

    def remove(x):
        left = q + mpmath.expm1(x)
        return q * mpf(curve(mpmath.log(left / q))) if left > 0 else -mpmath.expm1(x)

    def add(x):
        gamma = mpmath.exp(x)
        left = 1 - gamma * (1 - q)
        return left * mpf(curve(mpmath.log(gamma * q / left))) if left > 0 else mpf(0)

    return {"remove": remove, "add": add}[relation]


def without_replacement(curve, rate):
    """q H(1 + (gamma - 1) / q) at gamma >= 1 (Balle, Barthe, Gaboardi 2018), mirrored below."""
    above = sampled(curve, rate, "remove")
    return lambda x: above(x) if x >= 0 else -mpmath.expm1(x) + mpmath.exp(x) * above(-x)


def concentrated(rho, steps=1):
    """The conversion of Canonne, Kamath, Steinke 2020 (Proposition 12) at its best order, found by a search."""
    rho = rho * steps

    def curve(x):
        x = float(x)
        a = lambda u: 1 + np.exp(u)  # noqa: E731
        value = lambda u: np.exp(u) * (a(u) * rho - x + np.log1p(-1 / a(u))) - np.log(a(u))  # noqa: E731
        low, high = -35.0, 35.0
        for _ in range(6):
            grid = np.linspace(low, high, 401)
            with np.errstate(over="ignore"):
                best = int(np.argmin(value(grid)))
            low, high = grid[max(best - 1, 0)], grid[min(best + 1, 400)]
        return min(np.exp(value(grid[best])), 1.0)

    return curve


def renyi(order, epsilon):
    order, epsilon = mpf(order), mpf(epsilon)
    return lambda x: min(mpmath.exp((order - 1) * (epsilon - x + mpmath.log1p(-1 / order))) / order, mpf(1))
