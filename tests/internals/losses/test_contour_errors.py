"""The contour's sum and every error in it, term by term from what docs/proofs/contour.md says; in NumPy."""

import numpy as np
import pytest

from jaxacct.losses.engines.contour.bounds import Size, _integrand, contour_bounds, prepare
from jaxacct.losses.engines.contour.layers import decay
from jaxacct.losses.engines.contour.plan import plan
from jaxacct.losses.engines.contour.points import placed
from jaxacct.losses.engines.contour.quadrature import log_moments
from jaxacct.losses.engines.contour.read_off import Integrand, read_epsilon
from jaxacct.losses.engines.contour.transform import Transform, transform
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

UNIT = 2.0**-53
SIZE = Size(64, 64)
# Two settings of two parts each.
PAIRS = GaussianPair(*(np.array(x) for x in ([[1.0, 3.0], [0.8, 2.0]], [[0.02, 0.5], [0.01, 1.0]], np.zeros((2, 2)))))
COUNTS = np.array([[300.0, 7.0], [1000.0, 0.0]])
GOAL = np.array([1.0, 0.8])


@pytest.fixture(scope="module")
def prepared():
    with np.errstate(all="ignore"):
        made = prepare("delta", SIZE, PAIRS, COUNTS, GOAL)
        return made, transform(made.parts.losses, made.parts.weights, made.spacing, SIZE.nodes)


def expected(made, found, b):
    """Terms, their errors and what a cut leaves out, of one setting."""
    h, theta, counts = made.spacing[b], made.plan.theta[b], COUNTS[b]
    w = h * np.arange(SIZE.nodes)
    moduli, power = np.ones(SIZE.nodes), np.ones(SIZE.nodes, complex)
    bounds, left, rounding = np.ones(SIZE.nodes), np.ones(SIZE.nodes), np.full(SIZE.nodes, 2.0)
    for k, count in enumerate(counts):
        value = 1 + found.real[b, k] + 1j * found.imag[b, k]
        modulus = np.abs(value).astype(np.longdouble)  # differences of powers cancel
        power, moduli = power * value**count, moduli * modulus**count
        bounds = bounds * (modulus + made.parts.error[b, k] + found.error[b, k]) ** count
        fallen = decay(made.parts.layer_masses[b, k], made.parts.layer_lengths[b, k], w[::4])
        left = left * np.repeat(1 - fallen, 4) ** count
        rounding += count * (np.abs(np.log(np.abs(value))) + np.abs(np.angle(value)))
    terms = h / np.pi * power / ((theta + 1j * w) * (theta + 1 + 1j * w))
    terms[0] /= 2
    off = np.abs(terms) / moduli * (np.minimum(bounds, np.e) - moduli + moduli * rounding * 2 * 10 * UNIT)
    beyond = left / np.pi / np.maximum(w - h, 1e-300)
    beyond[:2] = np.inf
    total = np.cumsum(off)[:-1] + beyond[1:]
    return terms, total, w


def test_moments_around_the_tilt_are_sums_over_parts_rounded_up(prepared):
    made, _ = prepared
    with np.errstate(all="ignore"):
        points = placed(PAIRS, np.repeat(made.plan.theta, 2).reshape(2, 2), SIZE.points,
                        np.repeat(30.0 + np.log(COUNTS.sum(-1)), 2).reshape(2, 2), made.plan.cut)  # fmt: skip
        each = log_moments(PAIRS, np.repeat(made.tilts[..., None], 2, -1), made.plan.cut, points)
    terms = np.where(COUNTS > 0, COUNTS * each, 0.0).astype(np.longdouble)
    seen = (made.tilts > 0) & np.isfinite(made.log_moments)
    gap = made.log_moments[seen] - terms.sum(-1)[seen]
    share = (gap / (UNIT * 10 * np.abs(terms).sum(-1)[seen])).astype(float)
    assert seen.sum() > 20
    assert share.min() >= 0.8
    assert share.max() <= 1.2
    assert np.all(made.log_moments[made.tilts == 0] == 0)
    above, below = np.split(made.tilts, 2)
    assert np.all(above > made.plan.theta)
    assert np.all((below < made.plan.theta) & (below >= 0))


@pytest.mark.parametrize("error", [None, 0.0, 1e-9, 1e-5])
def test_terms_and_their_errors(prepared, error):
    made, found = prepared
    eta = made.parts.error + (error or 0.0) * np.array([1.0, 3.0])[:, None] * (1 + np.arange(SIZE.nodes))
    eta = 0.0 * eta if error is None else eta
    made = made._replace(parts=made.parts._replace(error=eta))
    with np.errstate(all="ignore"):
        i = _integrand(made, COUNTS, found)
    for b in range(2):
        with np.errstate(all="ignore"):
            terms, total, w = expected(made, found, b)
        last = np.argmin(total)
        kept = np.arange(SIZE.nodes) <= last
        assert last > 3
        ours = i.real[b] + 1j * i.imag[b]
        np.testing.assert_array_equal(ours[~kept], 0.0)
        np.testing.assert_allclose(ours[kept], terms[kept], rtol=1e-11)
        size = np.abs(terms[kept])
        rounding = 16 * UNIT * (size * (1 + np.abs(np.unwrap(np.angle(terms[kept]))))).sum()
        assert total[last] <= i.error[b] <= total[last] * (1 + 2e-5) + 1.5 * rounding
        assert i.phase_error[b] == pytest.approx((size * w[kept]).sum(), rel=1e-9)
        used = COUNTS[b] > 0
        logs, means, off = (COUNTS[b] * x[b] for x in (made.parts.log_total, made.parts.mean, eta[..., 0]))
        assert i.log_total[b] == pytest.approx(logs[used].sum(), rel=1e-14)
        assert i.mean[b] == pytest.approx(means[used].sum(), rel=1e-14)
        unit = 10 * UNIT
        assert i.mean_error[b] == pytest.approx(unit * np.abs(means[used]).sum())
        assert i.log_error[b] == pytest.approx(1.5 * off.sum() + unit * (np.abs(logs[used]).sum() + 1), rel=1e-9)
        assert i.log_error[b] >= -(COUNTS[b] * np.log1p(-eta[b, :, 0])).sum()


def test_totals_that_are_half_error_bound_nothing(prepared):
    made, found = prepared
    for size, finite in ((0.49, True), (0.51, False)):
        error = made.parts.error.copy()
        error[0, 1, 0] = error[1, 1, 0] = size  # a part that does not run may be as wrong as it likes
        with np.errstate(all="ignore"):
            i = _integrand(made._replace(parts=made.parts._replace(error=error)), COUNTS, found)
        assert np.isfinite(i.log_error[0]) == finite
        assert np.isfinite(i.log_error[1])
        assert not finite or i.log_error[0] >= -7 * np.log1p(-size)


def test_parts_that_do_not_run_change_nothing(prepared):
    made, _ = prepared
    with np.errstate(all="ignore"):
        alone = GaussianPair(*(x[1:, :1] for x in (PAIRS.noise, PAIRS.rate, PAIRS.reverse)))
        one = prepare("delta", SIZE, alone, COUNTS[1:, :1], GOAL[1:])
        for both, single in zip(made.plan[:4], one.plan[:4], strict=True):
            assert both[1] == pytest.approx(single[0], rel=1e-9)
        for kind, goals in (("delta", GOAL), ("epsilon", np.array([1e-5, 1e-5]))):
            low, high = contour_bounds(kind, Size(256, 256), PAIRS, COUNTS, goals)
            lower, upper = contour_bounds(kind, Size(256, 256), alone, COUNTS[1:, :1], goals[1:])
            np.testing.assert_allclose([low[1], high[1]], [lower[0], upper[0]], rtol=1e-7)
            assert np.all(high - low <= 3e-7 * high)
        # The best tilt is where the tilted mean of all losses is the goal, but for the order's own 1 / t + 1 / (t + 1).
        chosen = plan("delta", PAIRS, COUNTS, GOAL)
    assert np.all((chosen.theta > 1) & (chosen.theta < 60))
    assert np.all(chosen.log_delta < 0)


def test_an_epsilon_is_found_where_bounds_meet_to_the_last_bits():
    """A curve without errors: half of e^-epsilon, whose root is looked for from both sides."""
    one, zero = np.ones(3), np.zeros(3)
    real = np.zeros((3, 16))
    real[:, 0] = 0.5
    integrand = Integrand(
        theta=one, mean=zero, mean_error=zero, log_total=zero, log_error=zero, spacing=1e-3 * one, real=real,
        imag=0 * real, error=zero, phase_error=zero, tilts=np.array([[2.0], [0.5]]) * one,
        log_moments=np.full((2, 3), -1e4), left_out=zero,
    )  # fmt: skip
    goal = np.array([1e-3, 1e-9, 1e-60])
    truth = np.log(0.5 / goal)
    for off in (0.51, 1.0, 300.0):
        with np.errstate(all="ignore"):
            low, high = read_epsilon(integrand, off * truth, goal)
        assert np.all((low <= truth * (1 + 1e-15)) & (truth * (1 - 1e-15) <= high))
        assert np.all(high - low <= 3e-13 * truth)
    with np.errstate(all="ignore"):
        low, high = read_epsilon(integrand, one, np.array([0.5, 0.51, 0.9]))
    np.testing.assert_array_equal(high[1:], 0.0)
    np.testing.assert_array_equal(low[1:], 0.0)


def test_the_transform_is_what_it_is_given():
    found = transform(np.array([[[0.5, -0.25]]]), np.array([[[0.25, 0.75]]]), np.array([2.0]), 16)
    w = 2.0 * np.arange(16)
    truth = 0.25 * np.exp(0.5j * w) + 0.75 * np.exp(-0.25j * w) - 1
    assert isinstance(found, Transform)
    np.testing.assert_allclose(found.real[0, 0] + 1j * found.imag[0, 0], truth, atol=1e-14)
    np.testing.assert_allclose(found.error, (80 + 10 * 4 + 3 * 2) * UNIT, rtol=1e-12)
