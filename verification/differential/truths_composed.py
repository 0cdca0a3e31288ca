"""Hockey sticks of compositions that share no code with the library: exact sums and contour integrals.

Each function returns a curve, x -> delta. A contour that does not settle raises ArithmeticError.
"""

from __future__ import annotations

import functools
import itertools

import mpmath
import numpy as np
from mpmath import mpf

from verification.differential.truths import Long, gaussian, without_replacement


@functools.lru_cache(1)
def log_factorials(n):
    return np.concatenate([[Long(0)], np.cumsum(np.log(np.arange(1, n + 1).astype(Long)))])


@functools.lru_cache(512)
def counted(outcomes, steps):
    """How often each outcome occurs, for every way in which ``steps`` runs divide among them; log multinomials."""
    bars = np.array(list(itertools.combinations(range(steps + outcomes - 1), outcomes - 1)), int)
    bars = bars.reshape(-1, outcomes - 1)
    ends = np.concatenate([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), steps + outcomes - 1)], 1)
    counts = np.diff(ends, axis=1) - 1
    logs = log_factorials(4096)
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


# --- losses with a density exp(l / 2) on [-pure, pure] and atoms at its ends. With w = z + 1/2 and E = exp(w pure) the
# transform of the loss is one of E + 1/E and (E - 1/E) / w, and its power a sum over E^m w^-k; delta is a sum over
# inverse Laplace transforms of w^-k / (w^2 - 1/4), which are series of positive terms.


@functools.lru_cache(256)
def signs(steps, k):
    """Coefficients of (E + 1/E)^(steps - k) (E - 1/E)^k, from E^-steps to E^steps."""
    found = [1]
    for sign in [1] * (steps - k) + [-1] * k:
        found = [sign * a + b for a, b in zip([*found, 0], [0, *found], strict=True)]
    return found


def edged(pure, steps, scale, shares):
    """Curve of ``scale`` times the sum of shares[k] (E + 1/E)^(steps - k) ((E - 1/E) / w)^k."""

    def total(x):
        terms = []
        for i in range(steps + 1):
            y = (2 * i - steps) * mpf(pure) - x
            if y <= 0:
                continue
            powers = [mpf(1)]  # y^n / n!
            while len(powers) < steps + 8 or powers[-1] > powers[0] * mpf(10) ** -mpmath.mp.dps:
                powers.append(powers[-1] * y / len(powers))
            inverses = [mpf(0)] * (len(powers) + 1)
            for k in reversed(range(len(powers) - 1)):
                inverses[k] = powers[k + 1] + inverses[k + 2] / 4
            terms += [share * signs(steps, k)[i] * inverses[k] for k, share in shares.items()]
        return mpmath.exp(x / 2) * scale() * mpmath.fsum(terms), mpmath.exp(x / 2) * scale() * mpmath.fsum(
            map(abs, terms)
        )

    def curve(x):
        if x >= steps * mpf(pure):
            return mpf(0)
        digits = 60
        while True:
            with mpmath.workdps(digits):
                value, largest = total(mpf(x))
            if abs(value) > largest * mpf(10) ** (20 - digits):
                return +value
            digits *= 2

    return curve


def laplaces(pure, steps):
    """Compositions of Laplace mechanisms."""
    shares = {k: mpmath.binomial(steps, k) / mpf(2) ** k for k in range(steps + 1)}
    return edged(pure, steps, lambda: mpmath.exp(-steps * mpf(pure) / 2) / 2**steps, shares)


def exponentials(epsilon, steps):
    """Compositions of the pair of bounded range, whose loss has density exp((l - eps) / 2) / (2 (1 - exp(-eps)))."""
    pure = mpf(epsilon)
    scale = lambda: (mpmath.exp(-pure / 2) / (-2 * mpmath.expm1(-pure))) ** steps  # noqa: E731
    return edged(pure, steps, scale, {steps: 1})


# --- contour integrals


@functools.lru_cache(16)
def legendre(n):
    return np.polynomial.legendre.leggauss(n)


def inverse(level, integrand, close=1e-10):
    """(1 / 2 pi) int exp(K(t + iw) - (t + iw) x) / ((t + iw) (t + iw + 1)) dw on a saddle's contour, to 10 ``close``.

    ``level(t)`` is the real exponent K(t) - t x for an array t > 0; ``integrand(z, shift)`` is exp(K(z) - z x - shift).
    Gauss and Legendre's rule on panels as wide as two rules agree on, up to where all that is left is small; raises
    ArithmeticError where that takes too long.
    """
    low, high = np.log(1e-4), np.log(1e6)
    for points in (100, 20, 20, 20):  # a saddle may be narrow
        grid = np.exp(np.linspace(low, high, points))
        with np.errstate(all="ignore"):
            best = int(np.nanargmin(level(grid) - np.log(grid * (grid + 1))))
        low, high = np.log(grid[max(best - 1, 0)]), np.log(grid[min(best + 1, points - 1)])
    t = float(grid[best])
    shift = float(level(np.array([t]))[0])

    def panel(low, high, nodes):
        at, weights = legendre(nodes)
        z = t + 1j * (0.5 * (low + high) + 0.5 * (high - low) * at)
        values = integrand(z, shift) / (z * (z + 1))
        return 0.5 * (high - low) * (weights @ values.real), np.abs(values).max()

    total, at, width = 0.0, 0.0, 0.1 * min(t, 1.0)
    for _ in range(400):
        fine, largest = panel(at, at + width, 96)
        rough, _ = panel(at, at + width, 48)
        if not np.isfinite(fine):
            break
        if abs(fine - rough) > close * max(abs(total + fine), 1e-3 * largest * width):
            width /= 2
            continue
        total, at, width = total + fine, at + width, 2 * width
        if largest * at <= close * abs(total):
            return total / np.pi * np.exp(shift)
    raise ArithmeticError("the contour integral does not converge")


def log1p(z):
    """log(1 + z) of complex z, small ones included."""
    u, v = z.real, z.imag
    return 0.5 * np.log1p(u * (2 + u) + v * v) + 1j * np.arctan2(v, 1 + u)


def sampled_gaussians(parts, relation):
    """Compositions of mixtures of Gaussians: ``parts`` holds (sigma, moves, weights, steps), the first move being 0.

    Of a million steps and more, a step's own moments are sums of expm1, so that the power keeps their digits.
    """

    def exponents(sigma, moves, weights, fine):
        """(loss, log mass) on a grid of outcomes, whose trapezoid rule converges geometrically."""
        h = sigma * 0.1 / fine
        y = np.arange(-40 * sigma, 60 * sigma + 2 * max(moves), h)
        terms = (w * np.expm1(s * y / sigma**2 - s * s / (2 * sigma**2)) for s, w in zip(moves, weights, strict=True))
        ratio = np.log1p(sum(terms))
        base = -0.5 * (y / sigma) ** 2 - 0.5 * np.log(2 * np.pi) - np.log(sigma) + np.log(h)
        return (ratio, base + ratio) if relation == "remove" else (-ratio, base)

    def power(z, loss, log_p, steps):
        exponent = log_p + z.real.max() * loss
        top = exponent.max()
        kept = exponent > top - 60.0
        found = []
        for some in np.array_split(z, max(1, z.size * int(kept.sum()) // 200_000)):  # a table of nodes and outcomes
            exponent, mass = some[:, None] * loss[kept], np.exp(log_p[kept])
            if steps >= 1e4:
                large = exponent[0].real > 1  # of which masses may be too small to be multiplied
                terms = mass * np.expm1(np.where(large, 0, exponent))
                terms[:, large] = np.exp(log_p[kept][large] + exponent[:, large]) - mass[large]
                found.append(log1p(terms.sum(1)))
            else:
                found.append(np.log(np.exp(log_p[kept] + exponent - top).sum(1)) + top)
        return steps * np.concatenate(found)

    def curve(x):
        x = float(x)
        before, fine = np.inf, 1
        while True:
            laws = [(*exponents(*part[:3], fine), part[3]) for part in parts]

            def level(t, laws=laws, fine=fine):
                total = 0.0
                for loss, log_p, steps in laws:
                    thin = slice(None, None, fine)
                    exponent = log_p[thin] + np.log(fine) + t[:, None] * loss[thin]
                    top = exponent.max(1)
                    total = total + steps * (np.log(np.exp(exponent - top[:, None]).sum(1)) + top)
                return total - t * x

            now = inverse(level, lambda z, shift: np.exp(sum(power(z, *law) for law in laws) - z * x - shift))  # noqa: B023
            if abs(now - before) <= (2e-9 if max(part[3] for part in parts) < 1e6 else 2e-7) * abs(now):
                return now
            before, fine = now, 2 * fine
            if fine > 16:
                raise ArithmeticError("the grid of outcomes does not converge")

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

        return once + inverse(level, integrand, close=1e-7)

    return curve
