"""Mechanisms with finitely many losses, and discrete noise, against sums over their outputs."""

import jax
import mpmath as mp
import numpy as np
import pytest

import jaxacct
from jaxacct import ApproximateDP, DiscreteGaussian, FromTables, Gaussian, RandomizedResponse

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of:RuntimeWarning")
P, Q = [0.5, 0.3, 0.1, 0.1, 0.0], [0.2, 0.3, 0.05, 0.4, 0.05]


def hockey_stick(p, q, epsilons):
    """sum_o (p_o - e^eps q_o)_+ in 400 digits."""
    with mp.workdps(400):
        p, q = ([mp.mpf(x) for x in table] for table in (p, q))
        gammas = [mp.exp(mp.mpf(float(e))) for e in np.ravel(epsilons)]
        return np.array([float(sum(max(a - g * b, mp.mpf(0)) for a, b in zip(p, q, strict=True))) for g in gammas])


def noise_tables(log_weight, shift, reach):
    with mp.workdps(400):
        weights = [mp.exp(log_weight(mp.mpf(x))) for x in range(-reach - shift, reach + 1)]
        total = mp.fsum(weights)
        weights = [w / total for w in weights]
        return [mp.mpf(0)] * shift + weights, weights + [mp.mpf(0)] * shift


def enclosed(bounds, truth, tight):
    """Sound to a unit (the truth is a float too), and tight: relative, and next to nothing where there is nothing."""
    assert np.all(bounds.lower <= truth * (1 + 1e-15))
    assert np.all(truth * (1 - 1e-15) <= bounds.upper)
    np.testing.assert_allclose(bounds.upper, truth, rtol=tight, atol=1e-280)
    np.testing.assert_allclose(bounds.lower, truth, rtol=tight, atol=1e-280)


@pytest.mark.parametrize(("sigma", "sensitivity"), [(0.3, 1), (1.0, 1), (9.9, 4), (10.1, 4), (50.0, 7)])
def test_discrete_gaussian_is_the_sum_over_integers_into_the_deep_tail(sigma, sensitivity):
    epsilons = sensitivity / sigma * np.array([-1.0, 0.0, 0.3, 1.0, 4.0, 12.0, 30.0])
    tables = noise_tables(lambda x: -(x**2) / (2 * mp.mpf(sigma) ** 2), sensitivity, int(45 * sigma) + 5)
    enclosed(jaxacct.delta(DiscreteGaussian(sigma, sensitivity), epsilons), hockey_stick(*tables, epsilons), 1e-8)


def test_a_wide_discrete_gaussian_is_a_gaussian():
    epsilons = np.array([0.1, 1.0, 3.0])
    discrete = jaxacct.delta(DiscreteGaussian(1e4, 10_000), epsilons)
    smooth = jaxacct.delta(Gaussian(1e4, 1e4), epsilons)
    np.testing.assert_allclose(discrete.upper, smooth.upper, rtol=1e-7)


@pytest.mark.parametrize("steps", [5_000, 1_000_000])
@pytest.mark.filterwarnings("ignore:.*bounds of epsilon are wide")
def test_next_to_no_noise_every_run_has_the_likeliest_loss(steps):
    """Another loss than 1 / (2 sigma^2) has probability 1e-33 a run: delta is 1 - e^(epsilon - the sum of them)."""
    lower, upper = jaxacct.epsilon(jaxacct.DiscreteGaussian(0.08), 1e-5, steps=steps)
    truth = steps / (2 * 0.08**2) + np.log1p(-1e-5)
    assert truth * (1 - 1e-11) <= lower <= truth * (1 + 1e-15) <= upper


def test_an_infinite_loss_stays_infinite():
    assert jaxacct.epsilon(ApproximateDP(0.1, 0.01), 1e-3).upper == np.inf
    # 0.99 e^0.1 / (1 + e^0.1) (1 - e^(eps - 0.1)) = 0.001
    epsilon = 0.1 + np.log1p(-0.001 * (1 + np.exp(-0.1)) / 0.99)
    np.testing.assert_allclose(jaxacct.epsilon(ApproximateDP(0.1, 0.01), 0.011).upper, epsilon, rtol=1e-9)


def test_traced_parameters_give_the_same_answer_and_bad_ones_fail_closed():
    def answer(epsilon, categories, p):
        return (
            jaxacct.delta(RandomizedResponse(epsilon, categories), 0.3).upper,
            jaxacct.delta(FromTables(p, np.array(Q)), 0.3).upper,
            jaxacct.delta(DiscreteGaussian(epsilon, categories), 0.3).upper,
        )

    with jax.enable_x64(True):
        good = jax.jit(answer)(1.0, 3.0, np.array(P))
        for one, other in zip(good, answer(1.0, 3.0, np.array(P)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)
        np.testing.assert_array_equal(jax.jit(answer)(-1.0, 2.0, np.array(P) * 1.1), 1.0)
        np.testing.assert_array_equal(jax.jit(answer)(1.0, 2.5, np.array(P) - 0.1)[::2], 1.0)
