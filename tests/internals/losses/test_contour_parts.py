"""The contour's certificates one by one, against 30 digits: taper, quadrature, Chernoff bounds, decay, transform.

They run in NumPy; that the compiled formulas are the same ones is tested with the bounds.
"""

import functools

import mpmath
import numpy as np
import pytest

from jaxacct.losses.engines.inversion.integrand import Integrand
from jaxacct.losses.engines.inversion.read_off import summed
from jaxacct.losses.engines.lines.normal_line import log_moments, quadrature
from jaxacct.losses.engines.lines.normal_losses import NormalLoss
from jaxacct.losses.engines.lines.normal_points import placed
from jaxacct.losses.engines.lines.taper import CURVATURE, left_out, log_taper, log_taper_above, placed_cut
from jaxacct.losses.engines.lines.uniform_layers import decay
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

# noise, rate, reverse, theta, cut
LAWS = np.array(
    [
        (1.0, 0.01, 0.0, 4.0, np.inf),
        (0.6, 0.2, 0.0, 3.0, np.inf),
        (4.0, 0.5, 1.0, 20.0, np.inf),
        (1.3, 1e-4, 0.0, 11.0, np.inf),
        (2.0, 1.0, 0.0, 2.0, np.inf),
        (0.9, 0.03, 1.0, 9.0, np.inf),
        (50.0, 0.9, 0.0, 300.0, np.inf),
        (1.0, 0.01, 0.0, 6.7, 10.3),
        (1.93, 0.0016, 0.0, 83.0, 10.3),
        (0.6, 0.0012, 0.0, 4.1, 10.8),
        (4.3, 0.001, 0.0, 868.0, 9.9),
        (1.3, 1e-4, 0.0, 20.0, 7.0),  # the taper cuts through the tilted law
    ]
)
NODES = 64
SOFT = (CURVATURE - 1.0) ** -0.5  # the standard deviation of the taper


def _moment(noise, rate, reverse, cut, z):
    """E_P[g exp(z L)] to 25 digits: the trapezoid rule again, of a step that leaves nothing to be bounded."""
    with mpmath.workdps(30):
        mu, q = 1 / mpmath.mpf(noise), mpmath.mpf(rate)
        b = -z if reverse else 1 + z

        def integrand(t):
            ratio = 1 - q + q * mpmath.exp(mu * t - mu * mu / 2)
            kept = 1 if cut == np.inf else mpmath.erfc(-(mpmath.mpf(cut) - t) / (mpmath.sqrt(2) * SOFT)) / 2
            return kept * mpmath.exp(-t * t / 2) * ratio**b

        low, high = min(0, float(mpmath.re(b) * mu)) - 12, max(0, min(float(mpmath.re(b) * mu), cut)) + 12
        points = (mpmath.mpf(k) / 12 for k in range(int(12 * low), int(12 * high)))
        return mpmath.fsum(map(integrand, points)) / 12 / mpmath.sqrt(2 * mpmath.pi)


@functools.cache
def _parts(size):
    noise, rate, reverse, theta, cut = LAWS.T
    with np.errstate(all="ignore"):
        loss = NormalLoss.of(GaussianPair(noise, rate, reverse))
        points = placed(loss, theta, size, cut)
        first = quadrature(loss, theta, cut, points, np.ones(len(LAWS)), NODES)
        deviation = np.sqrt((first.weights * first.losses**2).sum(-1))
        # The same frequencies at every size.
        spacing = 0.3 / deviation if size == 256 else _parts(256)[1]
        part = quadrature(loss, theta, cut, points, spacing, NODES)
        return part, spacing, log_moments(loss, theta * np.array([[1.0], [1.03]]), cut, points)


@pytest.mark.parametrize("law", range(len(LAWS)))
def test_the_quadrature_errs_by_less_than_it_says(law):
    noise, rate, reverse, theta, cut = LAWS[law]
    total = _moment(noise, rate, reverse, cut, mpmath.mpf(theta))
    _, spacing, _ = _parts(256)
    for j in (0, 1, 10):
        w = mpmath.mpf(float(j * spacing[law]))
        truth = _moment(noise, rate, reverse, cut, mpmath.mpc(theta, w)) / total
        for size in (64, 256):
            part, _, _ = _parts(size)
            ours = mpmath.fsum(
                mpmath.mpf(float(p)) * mpmath.expj(w * mpmath.mpf(float(x)))
                for p, x in zip(part.weights[law], part.losses[law], strict=True)
            )
            turned = truth * mpmath.exp(-1j * w * mpmath.mpf(float(part.mean[law])))
            assert abs(ours - turned) <= part.error[law, j]
            if size == 256 and w < 10 * noise:  # a loss that hardly varies asks for high frequencies
                assert part.error[law, j] < 1e-11
    truths = [mpmath.log(total), mpmath.log(_moment(noise, rate, reverse, cut, mpmath.mpf(theta * 1.03)))]
    for size in (64, 256):
        part, _, upper = _parts(size)
        assert abs(truths[0] - float(part.log_total[law])) <= 1.5 * part.error[law, 0]
        assert truths[0] <= upper[0, law]
        assert truths[1] <= upper[1, law]
    assert upper[0, law] - truths[0] < 1e-9


@pytest.mark.parametrize("law", range(len(LAWS)))
def test_the_transform_decays_at_least_as_fast_as_the_layers_say(law):
    part, spacing, _ = _parts(256)
    deviation = 0.3 / spacing[law]
    frequencies = np.geomspace(0.1, 30.0, 200) / deviation
    fine, _, _ = _parts(4096)
    moduli = np.abs(np.exp(1j * frequencies[:, None] * fine.losses[law]) @ fine.weights[law])
    with np.errstate(all="ignore"):
        bound = decay(part.layer_masses[law], part.layer_lengths[law], frequencies)
    assert np.all(np.diff(bound) >= 0)
    # It must hold for everything beyond a frequency, not only at it.
    assert np.all(1 - np.maximum.accumulate(moduli[::-1])[::-1] >= bound - 1e-9)
    # And be of use: at one standard deviation's frequency a fair part of what there is.
    assert bound[100] > 0.05 * (1 - moduli[100])


def test_the_taper_is_what_its_bounds_say():
    cut = 3.0
    t = np.concatenate([np.linspace(-20, 12.9, 400), [13.0, 13.1, 20.0, 60.0, 500.0]])
    with np.errstate(all="ignore"), mpmath.workdps(40):
        ours, above = log_taper(t, np.asarray(cut)), log_taper_above(t, np.asarray(cut))
        width = mpmath.sqrt(2) * SOFT
        truth = np.array([float(mpmath.log(mpmath.erfc(-(cut - mpmath.mpf(x)) / width) / 2)) for x in t])
        assert np.all(np.abs(ours - truth) <= 2.0**-53 * (24 + 8 * np.abs(truth)))
        assert np.all(above >= truth - 1e-12 * np.abs(truth))
        # Off the real line, with the normal density.
        for x, y in [(0.0, 1.0), (3.0, 0.7), (5.0, 2.0), (9.0, 0.1)]:
            z = mpmath.mpc(x, y)
            value = lambda z: abs(mpmath.exp(-z * z / 2) * mpmath.erfc(-(cut - z) / width))  # noqa: E731
            assert value(z) <= value(mpmath.mpf(x)) * mpmath.exp(CURVATURE * y * y / 2) * (1 + mpmath.mpf(1e-25))


@pytest.mark.parametrize("law", [(1.0, 0.01), (0.3, 1e-5), (5.0, 0.7)])
def test_what_the_taper_leaves_out_is_bounded_and_about_what_was_asked(law):
    loss = NormalLoss.of(GaussianPair(*(np.asarray(x) for x in (*law, 0.0))))
    share = np.asarray(-30.0)
    with np.errstate(all="ignore"):
        cut = placed_cut(loss, share)
        bound = left_out(loss, cut)
    tail = lambda mean: mpmath.erfc((float(cut) - mean) / mpmath.sqrt(2 * (1 + SOFT**2))) / 2  # noqa: E731
    truth = (1 - law[1]) * tail(0.0) + law[1] * tail(1 / law[0])
    assert truth <= float(bound) < np.exp(-29.0)
    assert placed_cut(NormalLoss.of(GaussianPair(*map(np.asarray, (1.0, 0.1, 1.0)))), share) == np.inf


def test_a_sum_is_read_within_its_error_even_at_phases_of_a_million():
    """Terms, frequencies and mean are taken as given: what is wrong is the rounding of phases, offsets and sums."""
    rng, nodes = np.random.default_rng(2), 64
    terms = rng.uniform(-1e-3, 1e-3, (2, 1, nodes))
    terms[0, 0, 0] = 0.3
    for spacing, mean in ((1.0, 3.0), (1.0, -1e6), (2.0, 1e6)):
        one = np.ones(1)
        frequencies = spacing * np.arange(nodes)
        phase_error = (np.hypot(*terms[:, 0]) * frequencies).sum()
        theta, log_total = 1.5, 0.7
        tilts, log_moments = np.array([[3.0], [0.0]]), np.full((2, 1), -1e4)
        integrand = Integrand(
            theta * one, spacing * one, log_total * one, 0.0 * one, mean * one, 0.0 * one, *terms, 0.0 * one,
            phase_error * one, tilts, log_moments,
        )  # fmt: skip
        at = rng.uniform(0.4, 2.9, (60, 1))
        lower, upper, value, slope = summed(integrand, at)
        with mpmath.workdps(40):
            for k, (low, high) in enumerate(zip(lower[:, 0], upper[:, 0], strict=True)):
                offset = mpmath.mpf(float(at[k, 0])) - mean
                rows = [
                    (mpmath.mpf(float(r)), mpmath.mpf(float(i)), f * offset)
                    for (r, i), f in zip(terms[:, 0].T, frequencies, strict=True)
                ]
                real = [r * mpmath.cos(p) + i * mpmath.sin(p) for r, i, p in rows]
                imag = [i * mpmath.cos(p) - r * mpmath.sin(p) for r, i, p in rows]
                scale = mpmath.exp(log_total - mpmath.mpf(theta) * float(at[k, 0]))
                truth = scale * mpmath.fsum(real)
                assert low <= truth <= high
                room = 2.0**-53 * (phase_error * 4 * (2 * abs(mean) + 2 * at[k, 0]) + 100 * np.abs(terms).sum() + 10)
                assert high - low <= 2.1 * scale * room
                assert value[k, 0] == pytest.approx(float(truth), abs=room)
                falling = -scale * (
                    theta * mpmath.fsum(real) - mpmath.fsum(f * i for f, i in zip(frequencies, imag, strict=True))
                )
                assert slope[k, 0] == pytest.approx(float(falling), abs=1e-7)
