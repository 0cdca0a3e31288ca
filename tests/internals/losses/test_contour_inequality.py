"""The inequality of docs/proofs/contour.md, term by term, against 40 digits."""

import mpmath as mp
import numpy as np

from jaxacct.losses.engines.inversion.composed_transform import power_error
from jaxacct.losses.engines.inversion.integrand import Integrand
from jaxacct.losses.engines.inversion.inversion_bounds import Size, inversion_bounds
from jaxacct.losses.engines.inversion.read_off import aliases
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

RNG = np.random.default_rng(19)


def gaussian(variance):
    """Transform, hockey stick and largest modulus from w on, of composed Gaussians of this variance of the loss."""
    s = mp.sqrt(variance)

    def hockey_stick(x):
        return mp.ncdf(s / 2 - x / s) - mp.exp(x) * mp.ncdf(-s / 2 - x / s)

    return lambda z: mp.exp(variance * z * (z + 1) / 2), hockey_stick, lambda w: mp.exp(-variance * w * w / 2)


def response(loss, runs):
    """The same of randomized response, whose transform does not decay."""
    p = 1 / (1 + mp.exp(-loss))
    atoms = [(loss * (2 * k - runs), mp.binomial(runs, k) * p**k * (1 - p) ** (runs - k)) for k in range(runs + 1)]

    def hockey_stick(x):
        return mp.fsum(mass * (1 - mp.exp(x - at)) for at, mass in atoms if at > x)

    return lambda z: (p * mp.exp(z * loss) + (1 - p) * mp.exp(-z * loss)) ** runs, hockey_stick, lambda w: mp.mpf(1)


def setting():
    """Transform, hockey stick, modulus, epsilon, theta, spacing, tilts on either side of theta, terms kept."""
    smooth = RNG.random() < 0.5
    law = gaussian(mp.mpf(RNG.uniform(0.05, 4))) if smooth else response(RNG.uniform(0.1, 2), int(RNG.integers(1, 7)))
    theta = float(np.exp(RNG.uniform(-1.5, 1.5)))
    tilts = [theta * RNG.uniform(1.05, 3), theta * RNG.uniform(0.05, 0.95) if RNG.random() < 0.7 else 0.0]
    return *law, RNG.uniform(-1, 5), theta, 2 * np.pi / RNG.uniform(3, 40), tilts, int(RNG.integers(2, 40))


def integrand(moment, z, epsilon):
    return mp.re(moment(z) * mp.exp(-z * epsilon) / (z * (z + 1)))


def test_aliases_and_truncation_bound_what_they_say():
    with mp.workdps(40):
        for _ in range(200):
            moment, hockey_stick, modulus, epsilon, theta, h, tilts, kept = setting()
            spacing, h, theta = h, mp.mpf(float(h)), mp.mpf(theta)
            c = 2 * mp.pi / h
            terms = [integrand(moment, mp.mpc(theta, j * h), epsilon) for j in range(kept)]
            total = h / mp.pi * (mp.fsum(terms) - terms[0] / 2)
            left = mp.exp(-theta * epsilon) * moment(theta) * modulus(kept * h) / (mp.pi * (kept - 1) * h)
            truth = hockey_stick(mp.mpf(epsilon))
            alias = lambda m: mp.exp(theta * m * c) * hockey_stick(epsilon + m * c)  # noqa: B023, E731
            away = mp.fsum(alias(-m) for m in range(1, int(70 / (theta * c)) + 2))
            away += mp.fsum(alias(m) for m in range(1, int(60 / c) + 2))
            logs = [mp.log(moment(t)) if t > 0 else mp.mpf(0) for t in tilts]
            left = left + mp.mpf(10) ** -28 * (truth + away)  # of the forty digits
            assert truth + away - left <= total <= truth + away + left
            zero = np.zeros(1)
            ours = Integrand(
                zero + float(theta), zero + spacing, zero, zero, zero, zero, zero, zero, zero, zero,
                np.array(tilts)[:, None], np.array([float(x) for x in logs])[:, None],
            )  # fmt: skip
            with np.errstate(over="ignore"):
                bound = mp.mpf(float(aliases(ours, zero + epsilon)[0]))
            assert bound >= away
            exact = mp.fsum(
                mp.exp(x - t * epsilon) / (1 + mp.mpf(t)) / mp.expm1(abs(mp.mpf(t) - theta) * c)
                for t, x in zip(tilts, logs, strict=True)
            )
            assert bound == mp.inf or bound <= exact * 1.001


def test_powers_differ_by_no_more_than_their_error():
    # One run whose transforms are as far apart as can be, then random ones.
    assert power_error(np.float64(0.0), np.log(3.0)) >= 2.0
    for _ in range(400):
        eta = float(np.exp(RNG.uniform(-30, 0.8)))
        b = RNG.uniform(0, 1.0 + min(eta, 1e-3)) ** 0.2 * np.exp(1j * RNG.uniform(-np.pi, np.pi))
        a = b + eta * RNG.uniform(0, 1) ** 0.3 * np.exp(1j * RNG.uniform(-np.pi, np.pi))
        a = a / max(1.0, abs(a))
        runs = int(np.exp(RNG.uniform(0, 12)))
        moved = max(abs(a - b), 1e-15)
        bound = power_error(runs * np.log(abs(b)), runs * np.log1p(moved / abs(b)))
        with mp.workdps(40):
            off = abs(mp.mpc(complex(a)) ** runs - mp.mpc(complex(b)) ** runs)
        assert off <= bound * (1 + 1e-9) + 1e-300


def test_bounds_of_delta_hold_the_closed_form():
    noises = np.exp(RNG.uniform(0.5, 14, 120))
    deviations = np.exp(RNG.uniform(-2, 1.2, noises.size))
    counts = np.maximum(np.round((deviations * noises) ** 2), 1.0)
    counts = np.minimum(counts, 1e12)
    variance = counts / noises**2
    epsilons = variance / 2 + np.sqrt(variance) * RNG.uniform(-1, 6, noises.size)
    epsilons = np.maximum(epsilons, 0.01)
    one = np.ones_like(noises)
    pairs = GaussianPair(noises[:, None], one[:, None], RNG.integers(0, 2, noises.size)[:, None].astype(float))
    with np.errstate(all="ignore"):
        lower, upper = inversion_bounds("delta", Size(256, 256), (pairs,), counts[:, None], epsilons)
    narrow = 0
    with mp.workdps(40):
        for low, high, noise, count, epsilon in zip(lower, upper, noises, counts, epsilons, strict=True):
            truth = gaussian(mp.mpf(float(count)) / mp.mpf(float(noise)) ** 2)[1](mp.mpf(float(epsilon)))
            assert low <= truth <= high
            narrow += high - low <= 0.05 * high
    assert narrow > 0.7 * len(noises)
