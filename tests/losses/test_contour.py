"""The contour's certificates one by one, against 30 digits; then the bounds that they add up to."""

import functools

import jax
import mpmath
import numpy as np
import pytest

from jaxacct.losses.contour import Size, contour_bounds
from jaxacct.mechanisms._gaussian_pair import GaussianPair
from jaxacct.mechanisms._gaussian_quadrature import decay, log_moment, quadrature
from tests.truth import contour_delta

# noise, rate, reverse, theta
LAWS = [
    (1.0, 0.01, 0.0, 4.0),
    (0.6, 0.2, 0.0, 3.0),
    (4.0, 0.5, 1.0, 20.0),
    (1.3, 1e-4, 0.0, 11.0),
    (2.0, 1.0, 0.0, 2.0),
    (0.9, 0.03, 1.0, 9.0),
    (50.0, 0.9, 0.0, 300.0),
]


def _moment(noise, rate, reverse, z):
    """E_P[exp(z L)] to 30 digits, by Gauss-Legendre over the output."""
    with mpmath.workdps(30):
        mu, q = 1 / mpmath.mpf(noise), mpmath.mpf(rate)
        b = -z if reverse else 1 + z

        def integrand(t):
            ratio = 1 - q + q * mpmath.exp(mu * t - mu * mu / 2)
            return mpmath.exp(-t * t / 2) * ratio**b

        ends = min(0, float(mpmath.re(b) * mu)) - 14, max(0, float(mpmath.re(b) * mu)) + 14
        points = mpmath.linspace(ends[0], ends[1], 24)
        return mpmath.quad(integrand, points) / mpmath.sqrt(2 * mpmath.pi)


@functools.cache
def _parts(size):
    with jax.enable_x64(True):
        pairs = GaussianPair(*np.array(LAWS).T[:3])
        thetas = np.array(LAWS)[:, 3]
        run = jax.jit(jax.vmap(lambda pair, theta: quadrature(pair, theta, size, 35.0)))
        upper = jax.jit(jax.vmap(lambda pair, theta: log_moment(pair, theta, size, 35.0)))
        return jax.tree.map(np.asarray, run(pairs, thetas)), np.asarray(upper(pairs, thetas))


@pytest.mark.parametrize("size", [64, 256])
@pytest.mark.parametrize("law", range(len(LAWS)))
def test_the_quadrature_errs_by_less_than_it_says(law, size):
    parts, upper = _parts(size)
    part = jax.tree.map(lambda x: x[law], parts)
    noise, rate, reverse, theta = LAWS[law]
    total = _moment(noise, rate, reverse, mpmath.mpf(theta))
    deviation = np.sqrt((part.weights * part.losses**2).sum())
    with jax.enable_x64(True):
        for w in (0.0, 0.3 / deviation, 3.0 / deviation):
            truth = _moment(noise, rate, reverse, mpmath.mpc(theta, w)) / total
            truth *= mpmath.exp(-1j * mpmath.mpf(w) * mpmath.mpf(float(part.mean)))
            ours = mpmath.fsum(
                mpmath.mpf(float(p)) * mpmath.expj(mpmath.mpf(w) * mpmath.mpf(float(x)))
                for p, x in zip(part.weights, part.losses, strict=True)
            )
            assert abs(ours - truth) <= float(part.error(np.asarray(w)))
            if size == 256 and w * deviation < 1 and w < 100 * noise:
                assert float(part.error(np.asarray(w))) < 1e-11
        assert abs(mpmath.log(total) - float(part.log_total)) <= 1.5 * float(part.error(np.asarray(0.0)))
    assert mpmath.log(total) <= upper[law]


@pytest.mark.parametrize("law", range(len(LAWS)))
def test_the_transform_decays_at_least_as_fast_as_the_layers_say(law):
    parts, _ = _parts(256)
    part = jax.tree.map(lambda x: x[law], parts)
    deviation = np.sqrt((part.weights * part.losses**2).sum())
    frequencies = np.geomspace(0.1, 30.0, 200) / deviation
    fine, _ = _parts(4096)
    weights, losses = fine.weights[law], fine.losses[law]
    moduli = np.abs(np.exp(1j * frequencies[:, None] * losses) @ weights)
    with jax.enable_x64(True):
        bound = np.asarray(decay(part.layer_masses, part.layer_lengths, frequencies))
    assert np.all(np.diff(bound) >= 0)
    # It must hold for everything beyond a frequency, not only at it.
    assert np.all(1 - np.maximum.accumulate(moduli[::-1])[::-1] >= bound - 1e-9)
    # And be of use: at one standard deviation's frequency a fair part of what there is.
    assert bound[100] > 0.05 * (1 - moduli[100])


@functools.partial(jax.jit, static_argnums=(0, 1))
def _batch(kind, size, pairs, counts, goal):
    return jax.vmap(functools.partial(contour_bounds, kind, size))(pairs, counts, goal)


def _bounds(kind, size, settings, goal):
    noise, rate, reverse, steps = (np.array(column, float)[:, None] for column in zip(*settings, strict=True))
    with jax.enable_x64(True):
        return [np.asarray(x) for x in _batch(kind, size, GaussianPair(noise, rate, reverse), steps, goal)]


SETTINGS = [
    (1.0, 0.01, 0.0, 1000.0),
    (1.0, 0.01, 1.0, 1000.0),
    (2.0, 0.05, 0.0, 300.0),
    (4.0, 0.3, 1.0, 50.0),
    (1.5, 0.9, 0.0, 40.0),
    (0.8, 0.001, 0.0, 20000.0),
    (6.0, 0.02, 1.0, 1e5),
    (1.2, 0.02, 0.0, 400.0),
]
EPSILONS = np.array([2.0, 2.0, 1.5, 1.0, 30.0, 2.0, 1.0, 6.0])


def test_bounds_enclose_the_truth_and_are_tight():
    truth = np.array(
        [contour_delta(s, q, t, e, reverse=r > 0) for (s, q, r, t), e in zip(SETTINGS, EPSILONS, strict=True)]
    )
    lower, upper = _bounds("delta", Size(256, 256), SETTINGS, EPSILONS)
    assert np.all(lower <= truth * (1 + 1e-9))
    assert np.all(truth * (1 - 1e-9) <= upper)
    rare = np.array([rate * steps < 50 and steps > 1e4 for _, rate, _, steps in SETTINGS])  # decays slowly
    assert np.all(upper / lower - 1 < np.where(rare, 2e-4, 3e-7))
    low, high = _bounds("epsilon", Size(256, 256), SETTINGS, truth)
    assert np.all((low <= EPSILONS * (1 + 1e-9)) & (high >= EPSILONS * (1 - 1e-9)))
    assert np.all(high / low - 1 < np.where(rare, 2e-5, 3e-7))


@pytest.mark.slow
def test_few_points_and_nodes_cost_width_and_not_soundness():
    good_lower, good_upper = _bounds("delta", Size(256, 256), SETTINGS, EPSILONS)
    for size in (Size(24, 16), Size(48, 16), Size(32, 64)):
        lower, upper = _bounds("delta", size, SETTINGS, EPSILONS)
        assert np.all(lower <= good_upper)
        assert np.all(good_lower <= upper)


def test_where_the_contour_does_not_suit_it_says_so():
    # Hardly any step is sampled; the noise is next to nothing; epsilon lies beyond every loss.
    settings = [(1.0, 1e-6, 0.0, 10.0), (0.001, 0.5, 0.0, 3.0), (1.0, 0.1, 1.0, 5.0)]
    goal = np.array([1.0, 1.0, 1.0])
    lower, upper = _bounds("delta", Size(128, 64), settings, goal)
    assert np.all((lower >= 0) & (upper <= 1) & (lower <= upper))
    assert lower[1] <= 0.875 <= upper[1]
    assert lower[2] == 0.0
    low, high = _bounds("epsilon", Size(128, 64), settings, np.full(3, 1e-5))
    assert np.all(low <= high)


@pytest.mark.slow
def test_not_a_number_is_no_bound():
    lower, upper = _bounds("delta", Size(128, 64), [(np.nan, 0.1, 0.0, 100.0), (1.0, 0.1, 0.0, np.nan)], np.ones(2))
    assert np.all(upper == 1.0)
    assert np.all(lower == 0.0)
    _, high = _bounds("epsilon", Size(128, 64), [(np.nan, 0.1, 0.0, 100.0)], np.full(1, 1e-5))
    assert np.all(np.isinf(high))
