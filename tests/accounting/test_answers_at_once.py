"""No runs, a delta of 0 or 1, samples of all records: answers that are known without any engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import ApproximateDP, Composed, Gaussian, Laplace, PoissonSampled, RandomizedResponse

BOUNDED = {
    "Laplace": (Laplace(2.0), 0.5),
    "RandomizedResponse": (RandomizedResponse(0.3), 0.3),
    "DiscreteLaplace": (jaxacct.DiscreteLaplace(2.0), 0.5),
    "PoissonSampled": (PoissonSampled(Laplace(2.0), 0.1), np.log1p(0.1 * np.expm1(0.5))),
    "Composed": (Composed([Laplace(2.0), RandomizedResponse(0.3)], [2, 3]), 1.9),
}
compiled_or_called = pytest.mark.parametrize(
    "how", ["called", pytest.param("compiled", marks=pytest.mark.slow)], ids=["called", "compiled"]
)


def in_program(how, function, *arguments):
    if how == "called":
        return jax.jit(function)(*arguments)
    with jaxacct.without_callbacks():
        return jax.jit(function)(*arguments)


def test_no_runs_release_nothing():
    for mechanism in (Gaussian(1.0), PoissonSampled(Gaussian(1.0), 0.1), ApproximateDP(1.0, 0.5), Laplace(1e-3)):
        assert jaxacct.epsilon(mechanism, [0.0, 1e-5, 1.0], steps=0).upper.tolist() == [0.0, 0.0, 0.0]
        lower, upper = jaxacct.delta(mechanism, [-0.5, 0.0, 2.0], steps=0)
        truth = [-np.expm1(-0.5), 0.0, 0.0]
        assert np.all(lower <= truth)
        assert np.all(truth <= upper)
        np.testing.assert_allclose(lower, upper, rtol=1e-9)
    some = jaxacct.epsilon(Gaussian(2.0), 1e-5, steps=[0, 1, 5])
    assert some.upper[0] == 0.0
    assert some.upper[1] == jaxacct.epsilon(Gaussian(2.0), 1e-5).upper


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("steps", [1, 1000])
def test_epsilon_at_delta_0_is_the_largest_loss(name, steps):
    mechanism, largest = BOUNDED[name]
    lower, upper = jaxacct.epsilon(mechanism, 0.0, steps=steps)
    assert lower <= steps * largest * (1 + 1e-12)
    assert steps * largest <= upper * (1 + 1e-12)
    assert upper <= lower * (1 + 1e-8)


def test_epsilon_at_delta_0_is_infinite_where_losses_have_no_bound():
    for mechanism in (Gaussian(1.0), PoissonSampled(Gaussian(1.0), 0.1), ApproximateDP(0.1, 1e-9)):
        assert jaxacct.epsilon(mechanism, 0.0).upper == np.inf
        assert np.isfinite(jaxacct.epsilon(mechanism, [0.0, 1e-5], steps=3).upper).tolist() == [False, True]
    assert jaxacct.epsilon(ApproximateDP(0.1, 1e-9), 0.0).lower == np.inf


@compiled_or_called
def test_programs_give_the_same_answers(how):
    ask = lambda delta, steps: jaxacct.epsilon(Laplace(2.0), delta, steps=steps)  # noqa: E731
    found = in_program(how, jax.vmap(ask), jnp.array([0.0, 1e-5, 0.0, 1.0]), jnp.array([3.0, 0.0, 0.0, 2.0]))
    np.testing.assert_allclose(found.upper, [1.5, 0.0, 0.0, 0.0], rtol=1e-6)
    assert np.all(np.asarray(found.lower) <= [1.5, 0.0, 0.0, 0.0])
    for delta, steps in ((0.0, -1.0), (0.0, 1.5), (-1e-9, 1.0), (1.5, 1.0), (np.nan, 1.0)):
        assert in_program(how, ask, delta, steps).upper == np.inf, (delta, steps)


def test_derivatives_there_are_0_or_unknown_and_never_wrong():
    slope = jax.grad(lambda scale, delta, steps: jaxacct.epsilon(Laplace(scale), delta, steps=steps).upper)
    assert slope(2.0, 1e-5, 0.0) == 0.0
    assert slope(2.0, 1.0, 3.0) == 0.0
    assert np.isnan(slope(2.0, 0.0, 3.0))


@pytest.mark.parametrize(
    "sample", [lambda inner: PoissonSampled(inner, 1.0), lambda inner: jaxacct.SampledWithoutReplacement(inner, 7, 7)]
)
@pytest.mark.parametrize(
    "inner", [Gaussian(0.5), Laplace(2.0), RandomizedResponse(0.3), Composed([Gaussian(1.0)], [3])]
)
def test_a_sample_of_all_records_is_no_sample(sample, inner):
    for steps in (1, 10):
        for ask, at in ((jaxacct.epsilon, 1e-5), (jaxacct.delta, 0.5)):
            found, base = (ask(one, at, steps=steps) for one in (sample(inner), inner))
            np.testing.assert_allclose(found, base, rtol=1e-13)
            assert found.lower <= base.upper
            assert base.lower <= found.upper


def test_rates_of_1_among_others_are_answered_as_such():
    rates = np.array([[0.1, 1.0], [1.0, 0.5]])
    found = jaxacct.epsilon(PoissonSampled(Gaussian([0.5, 2.0]), rates), 1e-5, steps=[[3], [30]])
    for i, k in np.ndindex(2, 2):
        inner, steps = Gaussian([0.5, 2.0][k]), [3, 30][i]
        alone = inner if rates[i, k] == 1 else PoissonSampled(inner, rates[i, k])
        np.testing.assert_allclose([x[i, k] for x in found], jaxacct.epsilon(alone, 1e-5, steps=steps), rtol=1e-9)
    assert np.ptp([x[1, 0] for x in found]) < 1e-12 * found.upper[1, 0]
    # A part that is all records beside one that is not; a replaced record moves a sum of all of them by twice as much.
    both = Composed([PoissonSampled(Gaussian(1.0), 1.0), PoissonSampled(Laplace(1.0), 0.1)])
    plain = Composed([Gaussian(1.0), PoissonSampled(Laplace(1.0), 0.1)])
    np.testing.assert_allclose(jaxacct.delta(both, 1.0), jaxacct.delta(plain, 1.0), rtol=1e-9)
    twice = jaxacct.epsilon(Gaussian(0.5), 1e-5, steps=4)
    replaced = jaxacct.epsilon(PoissonSampled(Gaussian(1.0), 1.0), 1e-5, steps=4, relation="replace")
    np.testing.assert_allclose(replaced, twice, rtol=1e-13)


def test_a_count_that_is_too_large_names_the_limit():
    for steps in (10**18, 2**53 + 2, 10**400):
        with pytest.raises(ValueError, match=r"steps must be a whole number from 0 to 2\*\*53 = 9007199254740992, got"):
            jaxacct.epsilon(Gaussian(1.0), 1e-5, steps=steps)
    assert jaxacct.epsilon(Gaussian(1e9), 1e-5, steps=2**53).upper < 1.0
