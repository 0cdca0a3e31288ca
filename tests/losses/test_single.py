"""One run, and bounds without a lattice: against 60 digits, from epsilon 1e-7 to 6e5 and delta down to 1e-193."""

import jax
import mpmath
import numpy as np
import pytest

import jaxacct

CASES = [
    (1.0, 1.0, 0.5),
    (0.05, 1.0, 600.0),
    (0.01, 1.0, 6000.0),
    (1e-3, 1.0, 6e5),
    (1e4, 1.0, 1e-3),
    (1.0, 1.0, 30.0),
    (1.0, 0.01, 3.0),
    (1.0, 1e-6, 9e-7),
    (0.02, 0.3, 1000.0),
    (0.1, 0.9, 2.29),
]


def _truth(sigma, rate, epsilon, relation):
    """delta from the definition: the likelihood ratio crosses e^eps at one outcome."""
    mpmath.mp.dps = 60
    s, q, e = (mpmath.mpf(value) for value in (sigma, rate, epsilon))
    upper_tail = lambda z: mpmath.erfc(z / mpmath.sqrt(2)) / 2  # noqa: E731
    # remove: P(x > c) - e^eps Q(x > c); add: Q(x < c) - e^eps P(x < c), with ratio e^eps or e^-eps at c.
    inside = (mpmath.exp(e if relation == "remove" else -e) + (q - 1)) / q  # exact where q is 1
    if inside <= 0:
        return mpmath.mpf(0)
    c = s**2 * mpmath.log(inside) + mpmath.mpf(1) / 2
    sign = 1 if relation == "remove" else -1
    base, shifted = upper_tail(sign * c / s), upper_tail(sign * (c - 1) / s)
    mixture = (1 - q) * base + q * shifted
    return mixture - mpmath.exp(e) * base if relation == "remove" else base - mpmath.exp(e) * mixture


@pytest.mark.parametrize("relation", ["remove", "add"])
def test_a_single_run_is_exact_at_every_scale(relation):
    sigma, rate, epsilon = np.array(CASES).T
    mechanism = jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)
    bounds = jaxacct.delta(mechanism, epsilon, relation=relation)
    truth = [_truth(*case, relation) for case in CASES]
    for low, high, value in zip(bounds.lower, bounds.upper, truth, strict=True):
        assert low <= value <= high
        assert high - low <= 2e-11 * high or high < 1e-300
    seen = np.array([1e-300 < value < 1 for value in truth])
    target = np.where(seen, np.array([float(value) for value in truth]), 0.5)
    back = jaxacct.epsilon(mechanism, target, relation=relation)
    assert np.all((back.lower <= epsilon * (1 + 1e-6))[seen] & (epsilon * (1 - 1e-6) <= back.upper)[seen])
    assert np.all((back.upper - back.lower <= 2e-6 * back.upper)[seen])


def test_a_billion_gaussians_of_tiny_noise_have_an_epsilon():
    bounds = jaxacct.epsilon(jaxacct.Gaussian(1e-3), 1e-100, steps=10**9)
    # mu^2 / 2 + mu z for mu = 1e3 sqrt(1e9) and the normal quantile z = 21.27 of 1e-100, up to a few units.
    assert 5.0000067e14 < bounds.lower <= bounds.upper < 5.0000068e14


@pytest.mark.slow
def test_losses_beyond_every_double_still_have_a_finite_epsilon():
    # Each sampled step has losses around 5e5: no lattice holds them, but the Gaussian without sampling does.
    with pytest.warns(RuntimeWarning, match="wide"):
        bounds = jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(1e-3), 0.5), 1e-5, steps=2)
    whole = jaxacct.epsilon(jaxacct.Gaussian(1e-3), 1e-5, steps=2)
    assert 600 < bounds.lower < bounds.upper <= whole.upper * (1 + 1e-9)


@pytest.mark.slow
def test_records_that_are_hardly_ever_sampled_cost_nothing():
    # With probability 1 - 1e-4 at least the record is in no sample at all.
    mechanism = jaxacct.PoissonSampled(jaxacct.Gaussian(0.01), 1e-7)
    assert jaxacct.epsilon(mechanism, 1.1e-4, steps=1000).upper == 0.0
    assert jaxacct.delta(mechanism, 0.0, steps=1000).upper <= 1e-4


def test_both_ends_of_epsilon_stay_where_the_curve_certified_them():
    # Computed again by another part of a program a curve may round to the other side of delta.
    rng = np.random.default_rng(0)
    scale, rate, delta = np.exp(rng.uniform(np.log([[0.2], [1e-3], [1e-12]]), np.log([[50.0], [1.0], [0.2]]), (3, 512)))
    answer = lambda *x: jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Laplace(x[0]), x[1]), x[2], relation="remove")  # noqa: E731
    lower, upper = (np.asarray(end, float) for end in jax.jit(answer)(scale, rate, delta))
    assert np.all(lower >= upper * (1.0 - 1e-6))
    assert np.count_nonzero(upper) > 50
