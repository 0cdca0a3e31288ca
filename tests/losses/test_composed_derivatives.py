"""Derivatives of compositions of every family with a density, against 30 digits and in every kind of program."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct import (
    Composed,
    DiscreteGaussian,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    RandomSensitivityGaussian,
    delta,
    epsilon,
)
from tests.compositions import (
    gaussian_mass,
    inverted,
    laplace_delta,
    mixture,
    of_outcomes,
    sampled_laplace,
    whole_numbers,
)


def rows(sigma, shift):
    sigma, shift = mpmath.mpf(sigma), mpmath.mpf(shift)
    return ((mpmath.mpf(0), 1 - shift - mpmath.mpf("0.125")), (1 / sigma, mpmath.mpf("0.125")), (2 / sigma, shift))


def schedule(sigma, scale):
    gaussian, laplace = mixture(((mpmath.mpf(0), 0.875), (1 / mpmath.mpf(sigma), 0.125))), sampled_laplace(scale, 1.0)
    return inverted(lambda z: gaussian(z) ** 30 * laplace(z) ** 4, 2, 0.25, 160)


# Name: mechanism and delta(epsilon) as functions of the parameters; the parameters; runs.
CASES = {
    "Laplace": (Laplace, lambda s: lambda at: laplace_delta(s, 12, at), (4.0,), 12),
    "sampled Laplace": (
        lambda s, q: PoissonSampled(Laplace(s), q),
        lambda s, q: inverted(lambda z: sampled_laplace(s, q)(z) ** 400, 12, 1, 250),
        (2.0, 0.0625),
        400,
    ),
    "mixture": (
        lambda s, w: RandomSensitivityGaussian(s, (0.0, 1.0, 2.0), (0.875 - w, 0.125, w)),
        lambda s, w: inverted(lambda z: mixture(rows(s, w))(z) ** 50, 1.5, 0.125, 100),
        (1.5, 0.0625),
        50,
    ),
    "schedule": (
        lambda s, b: Composed((PoissonSampled(Gaussian(s), 0.125), Laplace(b)), (30, 4)),
        schedule,
        (1.25, 4.0),
        1,
    ),
    "discrete Gaussian": (
        DiscreteGaussian,
        lambda s: lambda at: of_outcomes(*whole_numbers(gaussian_mass(s), 1), at),
        (2.0,),
        2,
    ),
}


HEAVY = {"sampled Laplace", "schedule"}  # whose truths take seconds


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in HEAVY else ()) for name in CASES]
)
def test_derivatives_are_right_to_a_millionth(name):
    made, truth, numbers, runs = CASES[name]
    target = 2.0**-14
    with jax.enable_x64(True):
        at = float(epsilon(made(*numbers), target, steps=runs, relation="remove").upper)
        of_epsilon = jax.grad(
            lambda t, *x: epsilon(made(*x), t, steps=runs, relation="remove").upper, range(1 + len(numbers))
        )(target, *numbers)
        of_delta = jax.grad(
            lambda e, *x: delta(made(*x), e, steps=runs, relation="remove").upper, range(1 + len(numbers))
        )(at, *numbers)
    with mpmath.workdps(30):
        step = mpmath.mpf("1e-8")

        def slope(place):
            moved = lambda sign: [mpmath.mpf(x) + sign * step * (i == place) for i, x in enumerate((at, *numbers))]  # noqa: E731
            high, low = moved(1), moved(-1)
            return (truth(*high[1:])(high[0]) - truth(*low[1:])(low[0])) / (2 * step)

        slopes = [slope(place) for place in range(1 + len(numbers))]
    np.testing.assert_allclose(of_delta, [float(x) for x in slopes], rtol=1e-6)
    expected = [1 / slopes[0], *(-x / slopes[0] for x in slopes[1:])]
    np.testing.assert_allclose(of_epsilon, [float(x) for x in expected], rtol=1e-6)


def test_what_has_no_derivative_is_nan_or_says_so():
    # There is no law between whole numbers of runs.
    assert np.isnan(jax.grad(lambda t: epsilon(Laplace(4.0), 1e-5, steps=t).upper)(12.0))
    with pytest.raises(NotImplementedError, match="compositions have derivatives for"):
        jax.grad(lambda s: epsilon(RandomizedResponse(s), 1e-5, steps=3).upper)(1.0)


@pytest.mark.slow
def test_derivative_in_the_rate_at_a_rate_of_1_is_its_limit():
    def bounds(rate):
        return delta(PoissonSampled(Gaussian(2.0), rate), 3.0, steps=10, relation="add")

    with jax.enable_x64(True):
        at, near = jax.vmap(jax.grad(lambda rate: bounds(rate).upper))(jnp.array([1.0, 1.0 - 1e-9]))
    np.testing.assert_allclose(at, near, rtol=1e-6)
    assert float(at) > 0.1
