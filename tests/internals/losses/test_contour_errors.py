"""The contour's sum and every error in it, term by term from what docs/proofs/contour.md says; in NumPy."""

import numpy as np
import pytest

from jaxacct.losses.engines.inversion.composed_transform import composition
from jaxacct.losses.engines.inversion.integrand import Integrand, plain_integrand
from jaxacct.losses.engines.inversion.inversion_bounds import Size, inversion_bounds, prepare
from jaxacct.losses.engines.inversion.read_off import Known, read_epsilon
from jaxacct.losses.engines.inversion.tilt_plan import tilt_plan
from jaxacct.losses.engines.inversion.transform import Transform, transform
from jaxacct.losses.engines.lines.uniform_layers import decay
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
        made = prepare("delta", SIZE, tilt_plan("delta", (PAIRS,), COUNTS, GOAL), (PAIRS,), COUNTS)
    return made, made.transforms[0]


def plain(made, part):
    with np.errstate(all="ignore"):
        whole = composition([part], made.spacing)
        return whole, plain_integrand([whole], made.plan, made.spacing, made.tilts, made.moments)


def expected(made, part, b):
    """Terms, their errors and what a cut leaves out, of one setting."""
    h, theta, counts, found = made.spacing[b], made.plan.theta[b], COUNTS[b], part.transform
    w = h * np.arange(SIZE.nodes)
    moduli, power = np.ones(SIZE.nodes), np.ones(SIZE.nodes, complex)
    bounds, left, rounding = np.ones(SIZE.nodes), np.ones(SIZE.nodes), np.full(SIZE.nodes, 2.0)
    for k, count in enumerate(counts):
        value = 1 + found.real[b, k] + 1j * found.imag[b, k]
        modulus = np.abs(value).astype(np.longdouble)  # differences of powers cancel
        power, moduli = power * value**count, moduli * modulus**count
        bounds = bounds * (modulus + found.error[b, k]) ** count
        fallen = decay(part.law.layer_masses[b, k], part.law.layer_lengths[b, k], w + h)
        left = left * (1 - fallen) ** count
        rounding += count * (np.abs(np.log(np.abs(value))) + np.abs(np.angle(value)))
    terms = h / np.pi * power / ((theta + 1j * w) * (theta + 1 + 1j * w))
    terms[0] /= 2
    off = np.abs(terms) / moduli * (np.minimum(bounds, np.e) - moduli + moduli * rounding * 2 * 10 * UNIT)
    beyond = left / np.pi / np.maximum(w, 1e-300)  # of the terms after each
    beyond[0] = np.inf
    total = np.cumsum(off) + beyond
    return terms, total, w


def test_moments_around_the_tilt_are_sums_over_parts_rounded_up(prepared):
    made, _ = prepared
    ((line, _),) = made.above
    with np.errstate(all="ignore"):
        terms = np.where(COUNTS > 0, COUNTS * line.log_moments(made.tilts), 0.0).astype(np.longdouble)
    seen = (made.tilts > 0) & np.isfinite(made.moments)
    gap = made.moments[seen] - terms.sum(-1)[seen]
    share = (gap / (UNIT * 16 * np.abs(terms).sum(-1)[seen])).astype(float)
    assert seen.sum() > 20
    assert share.min() >= 0.8
    assert share.max() <= 1.2
    assert np.all(made.moments[made.tilts == 0] == 0)
    above, below = np.split(made.tilts, 2)
    assert np.all(above > made.plan.theta)
    assert np.all((below < made.plan.theta) & (below >= 0))


@pytest.mark.parametrize("error", [None, 0.0, 1e-9, 1e-5])
def test_terms_and_their_errors(prepared, error):
    made, part = prepared
    eta = part.transform.error + (error or 0.0) * np.array([1.0, 3.0])[:, None] * (1 + np.arange(SIZE.nodes))
    eta = 0.0 * eta if error is None else eta
    part = part._replace(transform=part.transform._replace(error=eta), law=part.law._replace(error=eta))
    whole, i = plain(made, part)
    for b in range(2):
        with np.errstate(all="ignore"):
            terms, total, w = expected(made, part, b)
        ours = i.real[0, b] + 1j * i.imag[0, b]
        last = np.flatnonzero(ours).max()
        kept = np.arange(SIZE.nodes) <= last
        assert last > 3
        assert last + 1 in whole.checks
        assert total[last] <= 1.1 * total.min()
        np.testing.assert_array_equal(ours[~kept], 0.0)
        np.testing.assert_allclose(ours[kept], terms[kept], rtol=1e-11)
        size = np.abs(terms[kept])
        rounding = 16 * UNIT * (size * (1 + np.abs(np.unwrap(np.angle(terms[kept]))))).sum()
        assert total[last] <= i.error[0, b] <= total[last] * (1 + 2e-5) + 1.5 * rounding
        assert i.phase_error[0, b] == pytest.approx((size * w[kept]).sum(), rel=1e-9)
        used = COUNTS[b] > 0
        logs, means, off = (COUNTS[b] * x[b] for x in (part.law.log_total, part.law.mean, eta[..., 0]))
        assert i.log_total[0, b] == pytest.approx(logs[used].sum(), rel=1e-14)
        assert i.mean[0, b] == pytest.approx(means[used].sum(), rel=1e-14)
        unit = 10 * UNIT
        assert i.mean_error[0, b] == pytest.approx(unit * np.abs(means[used]).sum())
        assert i.log_error[0, b] == pytest.approx(1.5 * off.sum() + unit * (np.abs(logs[used]).sum() + 1), rel=1e-9)
        assert i.log_error[0, b] >= -(COUNTS[b] * np.log1p(-eta[b, :, 0])).sum()


def test_totals_that_are_half_error_bound_nothing(prepared):
    made, part = prepared
    for size, finite in ((0.49, True), (0.51, False)):
        error = part.law.error.copy()
        error[0, 1, 0] = error[1, 1, 0] = size  # a part that does not run may be as wrong as it likes
        _, i = plain(made, part._replace(law=part.law._replace(error=error)))
        assert np.isfinite(i.log_error[0, 0]) == finite
        assert np.isfinite(i.log_error[0, 1])
        assert not finite or i.log_error[0, 0] >= -7 * np.log1p(-size)


def test_parts_that_do_not_run_change_nothing(prepared):
    made, _ = prepared
    with np.errstate(all="ignore"):
        alone = GaussianPair(*(x[1:, :1] for x in (PAIRS.noise, PAIRS.rate, PAIRS.reverse)))
        one = tilt_plan("delta", (alone,), COUNTS[1:, :1], GOAL[1:])
        for both, single in zip(made.plan, one, strict=True):
            assert both[1] == pytest.approx(single[0], rel=1e-9)
        for kind, goals in (("delta", GOAL), ("epsilon", np.array([1e-5, 1e-5]))):
            low, high = inversion_bounds(kind, Size(256, 256), (PAIRS,), COUNTS, goals)
            lower, upper = inversion_bounds(kind, Size(256, 256), (alone,), COUNTS[1:, :1], goals[1:])
            np.testing.assert_allclose([low[1], high[1]], [lower[0], upper[0]], rtol=1e-7)
            assert np.all(high - low <= 3e-7 * high)
    # The best tilt is where the tilted mean of all losses is the goal, but for the order's own 1 / t + 1 / (t + 1).
    assert np.all((made.plan.theta > 1) & (made.plan.theta < 60))
    assert np.all(made.plan.log_delta < 0)


def test_an_epsilon_is_found_where_bounds_meet_to_the_last_bits():
    """A curve without errors: half of e^-epsilon, whose root is looked for from both sides."""
    one, zero = np.ones(3), np.zeros(3)
    real = np.zeros((3, 16))
    real[:, 0], none = 0.5, zero[None]
    integrand = Integrand(
        theta=one, spacing=1e-3 * one, log_total=none, log_error=none, mean=none, mean_error=none, real=real[None],
        imag=0 * real[None], error=none, phase_error=none, tilts=np.array([[2.0], [0.5]]) * one,
        log_moments=np.full((2, 3), -1e4),
    )  # fmt: skip
    known = Known(zero, zero, np.inf * one)
    goal = np.array([1e-3, 1e-9, 1e-60])
    truth = np.log(0.5 / goal)
    for off in (0.51, 1.0, 300.0):
        with np.errstate(all="ignore"):
            low, high = read_epsilon(integrand, known, off * truth, goal)
        assert np.all((low <= truth * (1 + 1e-15)) & (truth * (1 - 1e-15) <= high))
        assert np.all(high - low <= 3e-13 * truth)
    with np.errstate(all="ignore"):
        low, high = read_epsilon(integrand, known, one, np.array([0.5, 0.51, 0.9]))
    np.testing.assert_array_equal(high[1:], 0.0)
    np.testing.assert_array_equal(low[1:], 0.0)


def test_the_transform_is_what_it_is_given():
    found = transform(np.array([[[0.5, -0.25]]]), np.array([[[0.25, 0.75]]]), np.array([2.0]), 16)
    w = 2.0 * np.arange(16)
    truth = 0.25 * np.exp(0.5j * w) + 0.75 * np.exp(-0.25j * w) - 1
    assert isinstance(found, Transform)
    np.testing.assert_allclose(found.real[0, 0] + 1j * found.imag[0, 0], truth, atol=1e-14)
    np.testing.assert_allclose(found.error, (80 + 10 * 4 + 3 * 2) * UNIT, rtol=1e-12)
