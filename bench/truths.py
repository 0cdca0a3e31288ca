"""Hockey sticks H(e^x) = delta(x) that share no code with the library: closed forms, exact sums, contour integrals.

Each function returns a curve, x -> delta; those of one run hold at every real x.
"""

from __future__ import annotations

import functools
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


def bounded_range(pure):
    """The worst two-point law of range ``pure``, by a search over where it lies (Dong, Durfee, Rogers 2020)."""
    pure = Long(pure)

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
    """Outcomes of probabilities p and q."""
    p, q = np.asarray(p, Long), np.asarray(q, Long)
    return lambda x: np.maximum(p - np.exp(Long(float(x))) * q, 0).sum()


def response(pure, delta=0.0, categories=2):
    """(p, q) of randomized response that gives itself away with probability ``delta``."""
    up, rest = np.exp(Long(pure)), categories - 2
    total = up + categories - 1
    keep = 1 - Long(delta)
    p = [keep * up / total, keep / total, keep * rest / total, delta, 0]
    q = [keep / total, keep * up / total, keep * rest / total, 0, delta]
    return np.asarray(p, Long), np.asarray(q, Long)


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
    if relation == "remove":
        return Long(rate) * p + (1 - Long(rate)) * q, q
    return q, Long(rate) * p + (1 - Long(rate)) * q


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


# --- compositions


@functools.lru_cache(4)
def log_factorials(n):
    return np.concatenate([[Long(0)], np.cumsum(np.log(np.arange(1, n + 1).astype(Long)))])


@functools.lru_cache(512)
def counted(outcomes, steps):
    """How often each outcome occurs, for every way in which ``steps`` runs divide among them; log multinomials."""
    bars = np.array(list(itertools.combinations(range(steps + outcomes - 1), outcomes - 1)), int)
    bars = bars.reshape(-1, outcomes - 1)
    ends = np.concatenate([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), steps + outcomes - 1)], 1)
    counts = np.diff(ends, axis=1) - 1
    logs = log_factorials(512)
    return counts, logs[steps] - logs[counts].sum(1)


def composed_table(p, q, steps):
    """(p, q) of ``steps`` runs of a table: one outcome for every multinomial count, one for what is infinite."""
    p, q = np.asarray(p, Long), np.asarray(q, Long)
    both = (p > 0) & (q > 0)
    counts, ways = counted(int(both.sum()), steps)
    sums = [np.exp(ways + counts @ np.log(one[both])) for one in (p, q)]
    lost_p = -np.expm1(steps * np.log1p(-p[~both & (p > 0)].sum()))
    lost_q = -np.expm1(steps * np.log1p(-q[~both & (q > 0)].sum()))
    return np.append(sums[0], [lost_p, 0]), np.append(sums[1], [0, lost_q])


def lattice_power(p, steps):
    """Masses of a sum of ``steps`` equal laws on a lattice, by long multiplication."""
    found, power = None, np.asarray(p, Long)
    while steps:
        if steps & 1:
            found = power if found is None else np.convolve(found, power)
        steps >>= 1
        power = np.convolve(power, power) if steps else power
    return found


def gaussian_and_table(mu, p, q):
    """A Gaussian with a composed table."""
    inner = gaussian(mu)
    terms = [
        (mpf(str(a)), mpmath.log(mpf(str(a))) - mpmath.log(mpf(str(b)))) for a, b in zip(p, q, strict=True) if a and b
    ]
    lost = mpmath.fsum(mpf(str(a)) for a, b in zip(p, q, strict=True) if a and not b)
    return lambda x: lost + mpmath.fsum(w * inner(x - loss) for w, loss in terms)


def inverse(level, integrand, decay=None):
    """(1 / 2 pi) int exp(K(t + iw) - (t + iw) x) / ((t + iw) (t + iw + 1)) dw along a saddle's contour, to 1e-9.

    ``level(t)`` is the real exponent K(t) - t x for an array t > 0; ``integrand(z, shift)`` is exp(K(z) - z x - shift).
    The trapezoid rule is doubled until two results agree to 1e-9; raises ArithmeticError where that takes too long.
    Where the integrand falls like a power only, ``decay`` says how small is small enough.
    """
    grid = np.exp(np.linspace(np.log(1e-3), np.log(1e3), 90))
    with np.errstate(over="ignore", invalid="ignore"):
        heights = level(grid) - np.log(grid * (grid + 1))
    t = float(grid[np.nanargmin(heights)])
    shift = float(level(np.array([t]))[0])

    def value(w):
        z = t + 1j * w
        return integrand(z, shift) / (z * (z + 1))

    small = (decay or 1e-13) / (t * (t + 1))
    width = 1e-2 * t
    while np.abs(value(np.linspace(width, 2 * width, 40))).max() * (width / t if decay else 1.0) > small:
        width *= 1.5
        if width > 1e5 * t + 1e6:
            raise ArithmeticError("the contour has no end")
    width *= 2
    nodes = 257
    w = np.linspace(0, width, nodes)
    total = np.trapezoid(value(w).real, w)
    while True:
        extra = value(0.5 * (w[1:] + w[:-1])).real.sum() * (w[1] - w[0])
        finer = 0.5 * (total + extra)
        if abs(finer - total) <= 1e-9 * abs(finer):
            return finer / np.pi * np.exp(shift)
        nodes, total = 2 * nodes - 1, finer
        w = np.linspace(0, width, nodes)
        if nodes > 70_000:
            raise ArithmeticError("the contour integral does not converge")


def sampled_gaussians(parts, relation):
    """Compositions of mixtures of Gaussians: ``parts`` holds (sigma, moves, weights, steps)."""

    def exponents(sigma, moves, weights, fine):
        """(loss, log mass) on a grid of outcomes, whose trapezoid rule converges geometrically."""
        h = sigma * 0.1 / fine
        y = np.arange(-40 * sigma, 60 * sigma + 2 * max(moves), h)
        terms = [
            np.log(w) + s * y / sigma**2 - s * s / (2 * sigma**2) for s, w in zip(moves, weights, strict=True) if w
        ]
        ratio = np.logaddexp.reduce(terms)
        base = -0.5 * (y / sigma) ** 2 - 0.5 * np.log(2 * np.pi) - np.log(sigma) + np.log(h)
        return (ratio, base + ratio) if relation == "remove" else (-ratio, base)

    def curve(x):
        x = float(x)
        before, fine = np.inf, 1
        while True:
            laws = [(*exponents(*part[:3], fine), part[3]) for part in parts]

            def summed(z, laws=laws):
                total = 0.0
                for loss, log_p, steps in laws:
                    exponent = log_p + z.real.max() * loss
                    kept = exponent > exponent.max() - 60.0
                    # In pieces: a table of nodes and outcomes.
                    pieces = []
                    for some in np.array_split(z, max(1, z.size * int(kept.sum()) // 200_000)):
                        each = np.exp(log_p[kept] + some[:, None] * loss[kept] - exponent.max())
                        pieces.append(np.log(each.sum(1)))
                    total = total + steps * (np.concatenate(pieces) + exponent.max())
                return total

            def level(t, laws=laws, fine=fine):
                total = 0.0
                for loss, log_p, steps in laws:
                    thin = slice(None, None, fine)
                    exponent = log_p[thin] + np.log(fine) + t[:, None] * loss[thin]
                    top = exponent.max(1)
                    total = total + steps * (np.log(np.exp(exponent - top[:, None]).sum(1)) + top)
                return total - t * x

            now = inverse(level, lambda z, shift: np.exp(summed(z) - z * x - shift))
            if abs(now - before) <= 2e-9 * abs(now):
                return now
            before, fine = now, 2 * fine
            if fine > 16:
                raise ArithmeticError("the grid of outcomes does not converge")

    return curve


def exponentials(pure, steps):
    """Compositions of the pair of bounded range, whose loss has density exp((l - eps) / 2) / (2 (1 - exp(-eps)))."""

    def log_mgf(z):
        rate = z + 0.5
        # int exp(rate l) dl over [-eps, eps], without overflow.
        return rate * pure + np.log(-np.expm1(-2 * rate * pure) / rate) - pure / 2 - np.log(-2 * np.expm1(-pure))

    def curve(x):
        x = float(x)
        if x >= steps * pure:
            return 0.0
        return inverse(
            lambda t: steps * log_mgf(t) - t * x,
            lambda z, shift: np.exp(steps * log_mgf(z) - z * x - shift),
            decay=1e-11,
        )

    return curve


def laplaces(pure, steps):
    """Compositions of Laplace mechanisms: the atoms at both ends in closed form, what has two densities by contour."""
    k = np.arange(steps + 1)

    def binomial(n):
        counts, ways = counted(2, n)
        p = np.exp(ways - np.log(Long(2)) * n - counts[:, 1] * Long(pure))
        return np.asarray((counts[:, 0] - counts[:, 1]) * Long(pure)), p

    def ends(z):
        return 0.5 * np.exp(z * pure) + 0.5 * np.exp(-(z + 1) * pure)

    def inside(z):
        return np.exp(-pure / 2) * np.sinh((z + 0.5) * pure) / (2 * (z + 0.5))

    def curve(x):
        at = Long(float(x))
        losses, p = binomial(steps)
        total = (p * np.maximum(-np.expm1(at - losses), 0)).sum()
        losses, p = binomial(steps - 1)
        low = np.clip(at - losses, -Long(pure), Long(pure))
        primitive = lambda at_loss: np.exp(at_loss / 2) + np.exp(at - losses - at_loss / 2)  # noqa: E731
        total += steps * (p * np.exp(-Long(pure) / 2) / 2 * (primitive(Long(pure)) - primitive(low))).sum()
        x = float(x)

        def level(t):
            return steps * np.log(ends(t) + inside(t)) - t * x

        def integrand(z, shift):
            a, c = np.log(ends(z)), inside(z)
            rest = (ends(z) + c) ** steps - np.exp(steps * a) - steps * np.exp((steps - 1) * a) * c
            return rest * np.exp(-z * x - shift)

        return float(total) + inverse(level, integrand, decay=1e-11)

    assert k.size > 2
    return curve


def gaussians_without_replacement(mu, rate, steps):
    """Compositions of Gaussians on samples of fixed size at x > 0, to 1e-6; runs without any loss add nothing there."""
    u, w = np.polynomial.legendre.leggauss(1000)
    far = 45.0
    above, below = mu / 2 + far / 2 * (1 + u), mu / 2 - far / 2 * (1 + u)
    weight = np.log(w * far / 2 / np.sqrt(2 * np.pi))
    shift_above, shift_below = mu * above - mu * mu / 2, -(mu * below - mu * mu / 2)
    loss_above = np.logaddexp(np.log1p(-rate), np.log(rate) + shift_above)
    loss_below = -np.logaddexp(np.log1p(-rate), np.log(rate) + shift_below)
    losses = np.concatenate([loss_above, loss_below])
    logs = np.concatenate([loss_above - above**2 / 2 + weight, -((below - mu) ** 2) / 2 + weight])
    atom = 1 - np.exp(logs).sum()
    single = without_replacement(gaussian(mu), rate)

    def moving(z):
        pieces = np.array_split(z, max(1, z.size // 100))
        return np.concatenate([np.exp(logs + some[:, None] * losses).sum(1) for some in pieces])

    def curve(x):
        once = steps * atom ** (steps - 1) * float(single(mpf(x)))
        x = float(x)

        def level(t):
            return steps * np.log(atom + moving(t)) - t * x

        def integrand(z, shift):
            c = moving(z)
            return ((atom + c) ** steps - atom**steps - steps * atom ** (steps - 1) * c) * np.exp(-z * x - shift)

        return once + inverse(level, integrand, decay=1e-9)

    return curve
