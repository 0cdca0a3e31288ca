"""Transforms of families: no further from the truth than they say, nor much wider than need be."""

import jax
import mpmath
import numpy as np
import pytest

from jaxacct import DiscreteGaussian, Laplace, PoissonSampled, RandomSensitivityGaussian, Skellam
from jaxacct.accounting.batch import Batch
from jaxacct.losses.engines.choose import grouped
from jaxacct.losses.engines.inversion.band_limited import one_sided
from jaxacct.losses.engines.inversion.transform import transform
from jaxacct.losses.engines.lines.line_of_pair import line_of

MIXTURE = RandomSensitivityGaussian(1.5, (0.0, 1.0, 2.5), (0.7, 0.25, 0.05))


def expectation(mechanism, relation):
    """E_P[exp(z L)] of one run, as a function of z, at 30 digits."""
    sampled = isinstance(mechanism, PoissonSampled)
    rate = mpmath.mpf(mechanism.rate) if sampled else mpmath.mpf(1)
    inner = mechanism.mechanism if sampled else mechanism

    def loss(ratio):
        """Of an outcome with P over Q in the inner pair: mixture over the base, which is Q."""
        return mpmath.log1p(rate * (ratio - 1))

    if isinstance(inner, Laplace):
        eps = mpmath.mpf(inner.sensitivity) / mpmath.mpf(inner.scale)
        atoms = [(mpmath.mpf(1) / 2, mpmath.exp(-eps)), (mpmath.exp(-eps) / 2, mpmath.exp(eps))]
        density = (lambda m: mpmath.exp(-(eps + m) / 2) / 4, [-eps, 0, eps], mpmath.exp)
    elif isinstance(inner, DiscreteGaussian | Skellam):
        atoms, density = [], None
        if isinstance(inner, Skellam):
            mass = lambda x: mpmath.exp(-2 * inner.mu) * mpmath.besseli(abs(x), 2 * mpmath.mpf(inner.mu))  # noqa: E731
        else:
            mass = lambda x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * mpmath.mpf(inner.sigma) ** 2))  # noqa: E731
        reach = 60
        total = mpmath.fsum(mass(x) for x in range(-reach, reach + 1))
        atoms = [(mass(x) / total, mass(x - 1) / mass(x)) for x in range(-reach, reach + 1)]
    else:
        sigma = mpmath.mpf(inner.sigma)
        parts = list(zip(inner.sensitivities, inner.weights, strict=True))

        def ratio(t):
            return mpmath.fsum(
                mpmath.mpf(w) * mpmath.exp(mpmath.mpf(s) / sigma * t - (mpmath.mpf(s) / sigma) ** 2 / 2)
                for s, w in parts
            )

        atoms = []
        density = (lambda t: mpmath.npdf(t), mpmath.linspace(-16, 30, 24), ratio)

    def value(z):
        power = 1 + z if relation == "remove" else -z
        total = mpmath.fsum(q * mpmath.exp(power * loss(r)) for q, r in atoms)
        if density is not None:
            weight, ends, ratio_at = density
            total += mpmath.quad(lambda m: weight(m) * mpmath.exp(power * loss(ratio_at(m))), ends)
        return total

    return value


CASES = [
    (Laplace(2.0), "remove", 3.0, 7.0),
    (Laplace(0.05), "remove", 0.7, 2.0),
    (PoissonSampled(Laplace(2.0), 0.01), "remove", 20.0, 300.0),
    (PoissonSampled(Laplace(2.0), 0.01), "add", 20.0, 300.0),
    (PoissonSampled(Laplace(0.1), 0.3), "remove", 1.0, 5.0),
    (PoissonSampled(Laplace(0.1), 0.3), "add", 1.0, 5.0),
    (DiscreteGaussian(3.0), "remove", 4.0, 11.0),
    (PoissonSampled(DiscreteGaussian(2.0), 0.1), "remove", 3.0, 20.0),
    (PoissonSampled(DiscreteGaussian(2.0), 0.1), "add", 3.0, 20.0),
    (Skellam(4.0), "remove", 2.0, 9.0),
    (MIXTURE, "remove", 1.5, 2.0),
    (MIXTURE, "add", 1.5, 2.0),
]


def made(mechanism, relation, theta, nodes, spacing):
    with jax.enable_x64(True), np.errstate(all="ignore"):
        batch = Batch.of(mechanism, 1.0, 2, relation)
        (group,), _ = grouped(batch.query[0], batch.query[1])
        line = line_of(group)(np.array([[theta]]), np.array([[-60.0]]), 256)
        found = line.quadrature(np.array([spacing]), nodes)
        other = transform(found.losses, found.weights, np.array([spacing]), nodes)
        return line, found, other.real, other.imag, other.error + found.error


@pytest.mark.parametrize(("mechanism", "relation", "theta", "spacing"), CASES)
def test_a_transform_errs_by_no_more_than_it_says(mechanism, relation, theta, spacing):
    nodes = 16
    line, found, real, imag, error = made(mechanism, relation, theta, nodes, spacing)
    tilts = np.array([[0.5 * theta], [theta], [1.3 * theta]])
    with np.errstate(all="ignore"):
        bounds = line.log_moments(tilts)[:, 0, 0]
    with mpmath.workdps(30):
        truth = expectation(mechanism, relation)
        total = truth(mpmath.mpf(theta))
        left = float(np.max(line.totals().left_out))
        assert left < 1e-20
        assert abs(mpmath.log(total) - found.log_total[0, 0]) <= error[0, 0, 0] + 1e-20
        for j in (0, 1, 2, 7, nodes - 1):
            w = mpmath.mpf(spacing) * j
            value = truth(mpmath.mpc(theta, w)) / total * mpmath.expj(-w * mpmath.mpf(found.mean[0, 0]))
            assert abs(value - mpmath.mpc(1 + real[0, 0, j], imag[0, 0, j])) <= error[0, 0, j] + 1e-20, j
            assert error[0, 0, j] < 1e-9 or j > 2
        for tilt, bound in zip(tilts[:, 0], bounds, strict=True):
            moment = mpmath.log(truth(mpmath.mpf(tilt)))
            assert moment <= bound + 1e-20
            assert bound <= moment + 1e-9 or bound == np.inf


@pytest.mark.parametrize(("theta", "width"), [(3.0, 40.0), (0.1, 5.0), (20.0, 10.0), (200.0, 1.0), (1.0, 1e3)])
def test_one_sided_functions_lie_on_their_sides(theta, width):
    nodes = 128
    spacing = width / nodes
    index = np.arange(nodes)
    found = one_sided(np.array([theta]), np.array([spacing]), np.array([float(nodes)]), nodes)
    period = 2 * np.pi / spacing
    # The sums over the frequencies are those over all x + k period.
    for x in np.concatenate([np.linspace(-2.0, 2.0, 11), [1e-9, -1e-9, 2 * np.pi / width * 60]]):
        with mpmath.workdps(30):
            step = -mpmath.mpf(period)
            first = mpmath.mpf(float(x)) % mpmath.mpf(period)
            payoff = mpmath.fsum(
                mpmath.exp(-theta * y) - mpmath.exp(-(theta + 1) * y)
                for y in (first - step * k for k in range(int(60 / (theta * period)) + 2))
                if y > 0
            )
            below, above = (
                mpmath.fsum(
                    (1 if j else 0.5) * mpmath.re(mpmath.mpc(values[0, j]) * mpmath.expj(j * mpmath.mpf(spacing) * x))
                    for j in index
                )
                * spacing
                / mpmath.pi
                for values in (found.below, found.above)
            )
        slack = found.error.sum() * spacing / np.pi
        assert below - slack <= payoff <= above + slack
        assert slack < 1e-10
