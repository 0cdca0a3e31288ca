"""delta of compositions to some 25 digits: residues, integrals along other lines, and all pairs of outcomes."""

import functools

import mpmath
import numpy as np


def laplace_delta(scale, runs, at):
    """Exactly: a sum of residues. With k = z + 1/2, E[exp(z L)] is a polynomial in exp(+-z eps) and 1 / k."""
    with mpmath.workdps(30 + 2 * runs):
        eps, at = 1 / mpmath.mpf(scale), mpmath.mpf(at)
        total = mpmath.mpf(0)
        for j in range(runs + 1):
            shift = (2 * j - runs) * eps - at
            if shift <= 0:
                continue
            # (1 + u / 2)^j (1 - u / 2)^(runs - j), u = 1 / k, by powers of u.
            powers = [mpmath.mpf(1)]
            for sign in [1] * j + [-1] * (runs - j):
                powers = [a + sign * b / 2 for a, b in zip([*powers, 0], [0, *powers], strict=True)]
            # exp(k shift) / (k^2 - 1/4) by powers of k.
            growth = [shift**n / mpmath.factorial(n) for n in range(runs + 1)]
            series = [-4 * mpmath.fsum(growth[n - 2 * m] * 4**m for m in range(n // 2 + 1)) for n in range(runs + 1)]
            at_pole = mpmath.fsum(p * series[i - 1] for i, p in enumerate(powers) if i)
            at_0 = mpmath.exp(shift / 2) * mpmath.fsum(p * 2**i for i, p in enumerate(powers))
            at_1 = -mpmath.exp(-shift / 2) * mpmath.fsum(p * (-2) ** i for i, p in enumerate(powers))
            weight = mpmath.binomial(runs, j) / mpmath.mpf(2) ** runs * mpmath.exp(-(runs - j) * eps)
            total += weight * mpmath.exp(-shift / 2) * (at_pole + at_0 + at_1)
        return total


def inverted(transform, theta, spacing, nodes):
    """delta as a function of epsilon: an integral along Re z = theta, at 30 digits, of what decays by the last node."""

    @functools.cache
    def terms():
        found = []
        for j in range(nodes):
            z = mpmath.mpc(theta, spacing * j)
            found.append((z, (1 if j else mpmath.mpf(1) / 2) * transform(z) / (z * (z + 1))))
        return found

    def value(at):
        with mpmath.workdps(30):
            return mpmath.re(mpmath.fsum(term * mpmath.exp(-z * at) for z, term in terms())) * spacing / mpmath.pi

    return value


def on_points(points, log_ratio):
    """E_Q[exp((1 + z) L)] over weighted points, as a function of z."""
    known = [(mpmath.mpf(q), log_ratio(x)) for x, q in points]
    return lambda z: mpmath.fsum(q * mpmath.exp((1 + z) * loss) for q, loss in known)


@functools.cache
def normal_points():
    """The trapezoid rule under N(0, 1), to 30 digits for entire functions that grow moderately."""
    with mpmath.workdps(30):
        step = mpmath.mpf(1) / 5
        return [(step * k, step * mpmath.npdf(step * k)) for k in range(-50, 95)]


@functools.cache
def laplace_points(scale):
    """Under Q, in losses of the mechanism: two atoms, and a rule of 60 nodes between them."""
    with mpmath.workdps(30):
        eps = 1 / mpmath.mpf(scale)
        start = np.polynomial.legendre.leggauss(60)[0]
        points = [(-eps, mpmath.mpf(1) / 2), (eps, mpmath.exp(-eps) / 2)]
        for x in start:
            root = mpmath.findroot(lambda t: mpmath.legendre(60, t), mpmath.mpf(x))
            weight = 2 * (1 - root**2) / (60 * mpmath.legendre(59, root)) ** 2
            points.append((eps * root, eps * weight * mpmath.exp(-eps * (1 + root) / 2) / 4))
        return points


def gaussians(rows):
    """log of sum_i v_i exp(k_i t - k_i^2 / 2) for rows (k, v)."""
    return lambda t: mpmath.log(mpmath.fsum(mpmath.mpf(v) * mpmath.exp(k * t - k * k / 2) for k, v in rows))


@functools.cache
def sampled_laplace(scale, rate):
    with mpmath.workdps(30):
        return on_points(laplace_points(scale), lambda m: mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(m)))


@functools.cache
def mixture(rows):
    with mpmath.workdps(30):
        return on_points(normal_points(), gaussians(rows))


def of_outcomes(p, q, at):
    """Two runs: all pairs of outcomes."""
    with mpmath.workdps(30):
        total = mpmath.mpf(0)
        growth = mpmath.exp(mpmath.mpf(at))
        for a, b in zip(p, q, strict=True):
            for c, d in zip(p, q, strict=True):
                total += max(a * c - growth * b * d, mpmath.mpf(0))
        return total


def whole_numbers(mass, rate, reach=45):
    with mpmath.workdps(30):
        masses = [mass(x) for x in range(-reach, reach + 2)]
        total = mpmath.fsum(masses)
        q = [m / total for m in masses]
        p = [mass(x - 1) / total for x in range(-reach, reach + 2)]
        return [rate * a + (1 - mpmath.mpf(rate)) * b for a, b in zip(p, q, strict=True)], q


def skellam_mass(mu):
    return lambda x: mpmath.besseli(abs(x), 2 * mpmath.mpf(mu))


def gaussian_mass(sigma):
    return lambda x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * mpmath.mpf(sigma) ** 2))
