"""Compositions of every family with a transform: the truth lies within bounds that are a millionth wide."""

import functools

import mpmath
import numpy as np
import pytest

from jaxacct import (
    Composed,
    DiscreteGaussian,
    Gaussian,
    Laplace,
    MixtureOfGaussians,
    PoissonSampled,
    RandomizedResponse,
    Skellam,
    delta,
    epsilon,
)


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


SAMPLED = PoissonSampled(Laplace(2.0), 0.01)
MIXTURE = MixtureOfGaussians(1.0, (0, 1, 2), (0.9, 0.09, 0.01))
ROWS = ((0.0, 0.9), (1.0, 0.09), (2.0, 0.01))
SHIFT = ((0.0, 0.99), (1.0, 0.01))  # a sampled Gaussian
# Name: the mechanism, runs, and its delta in the direction `remove` as a function of epsilon.
TRUTHS = {
    "Laplace, 40": (Laplace(6.25), 40, lambda at: laplace_delta(6.25, 40, at)),
    "Laplace, 10": (Laplace(6.25), 10, lambda at: laplace_delta(6.25, 10, at)),
    "Laplace, 3": (Laplace(0.5), 3, lambda at: laplace_delta(0.5, 3, at)),
    "sampled Laplace": (
        SAMPLED,
        1000,
        inverted(lambda z: sampled_laplace(2.0, 0.01)(z) ** 1000, 40, 3, 300),
    ),
    "mixture": (MIXTURE, 1000, inverted(lambda z: mixture(ROWS)(z) ** 1000, 0.4, 0.04, 75)),
    "composed": (
        Composed((PoissonSampled(Gaussian(1.0), 0.01), Laplace(20.0)), (500, 20)),
        1,
        inverted(lambda z: mixture(SHIFT)(z) ** 500 * sampled_laplace(20.0, 1.0)(z) ** 20, 5, 0.3, 200),
    ),
    "sampled discrete Gaussian": (
        PoissonSampled(DiscreteGaussian(2.0), 0.1),
        2,
        lambda at: of_outcomes(*whole_numbers(gaussian_mass(2.0), 0.1), at),
    ),
    "Skellam": (Skellam(4.0), 2, lambda at: of_outcomes(*whole_numbers(skellam_mass(4.0), 1), at)),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_bounds_enclose_the_truth(name):
    mechanism, runs, truth = TRUTHS[name]
    found = epsilon(mechanism, 1e-5, steps=runs, relation="remove")
    if found.lower > 0:
        assert truth(float(found.lower)) >= mpmath.mpf("1e-5")
    assert truth(float(found.upper)) <= mpmath.mpf("1e-5")
    for at in (0.3 * float(found.upper), float(found.upper)):
        lower, upper = delta(mechanism, at, steps=runs, relation="remove")
        assert lower <= truth(at) <= upper


NARROW = {
    **{name: (mechanism, runs) for name, (mechanism, runs, _) in TRUTHS.items() if runs > 3},
    "Laplace, 100": (Laplace(10.0), 100),
    "discrete Gaussian": (DiscreteGaussian(5.0), 100),
    "sampled discrete Gaussian, 500": (PoissonSampled(DiscreteGaussian(4.0), 0.02), 500),
    "Skellam, 100": (Skellam(50.0), 100),
    "randomized response": (RandomizedResponse(0.01, 4), 10_000),
    "Laplace, 100,000": (Laplace(632.0), 100_000),
}


@pytest.mark.parametrize("name", NARROW)
def test_bounds_are_a_millionth_wide(name):
    mechanism, runs = NARROW[name]
    lower, upper = epsilon(mechanism, np.array([1e-5, 1e-9, 1e-12]), steps=runs)
    assert (upper <= lower * (1 + 1e-6)).all(), upper / lower - 1
    lower, upper = delta(mechanism, upper[0], steps=runs)
    assert upper <= lower * (1 + 1e-6)


def test_known_answers():
    # From prototypes of other methods.
    assert float(epsilon(Laplace(10.0), 1e-5, steps=100).upper) == pytest.approx(4.2203472361, rel=1e-6)
    assert float(epsilon(SAMPLED, 1e-5, steps=1000, relation="remove").upper) == pytest.approx(0.5304450592, rel=1e-9)
