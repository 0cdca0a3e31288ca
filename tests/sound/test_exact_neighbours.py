"""One run of every mechanism, asked at the floats next to every atom and largest loss, against truths of 50 digits."""

import warnings

import jax
import mpmath as mp
import numpy as np
import pytest
from mpmath import mpf

import jaxacct
from jaxacct import mechanisms as m
from tests.sound import exact

CASES = exact.cases(np.random.default_rng(4), wild=True)
TAME = exact.cases(np.random.default_rng(1))
DIGITS = mpf(10) ** -40  # of the truths


def holds(lower, truth, upper):
    return mpf(float(lower)) * (1 - DIGITS) <= truth <= mpf(float(upper)) * (1 + DIGITS)


def places(law):
    """Floats at and next to atoms and the largest loss, and a few between."""
    losses = [*law.atoms[:4], *([] if law.largest is None else [law.largest])]
    near = [x for loss in losses for x in exact.neighbours(loss, (-2, 0, 1)) if abs(x) < 1e18]
    size = 2.0 if law.largest is None else float(law.largest)
    return np.array([*near, 0.0, 0.4 * size, 0.999 * size])


@pytest.mark.parametrize("name", CASES)
def test_bounds_hold_next_to_atoms_and_largest_losses(name):
    mechanism, relation, law = CASES[name]
    epsilons = places(law)
    truths = [law.curve(mpf(x)) for x in epsilons]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bounds may be wide next to an atom
        deltas = jaxacct.delta(mechanism, epsilons, relation=relation)
        goals = np.array(sorted({float(t) for t in truths if 1e-280 < t < 1 - 1e-6})[:4])
        found = jaxacct.epsilon(mechanism, goals, relation=relation) if goals.size else None
    for epsilon, lower, truth, upper in zip(epsilons, deltas.lower, truths, deltas.upper, strict=True):
        assert holds(lower, truth, upper), f"delta({epsilon!r}) = {mp.nstr(truth, 20)} of {mechanism}"
    for i, goal in enumerate(goals):
        lower, upper = float(found.lower[i]), float(found.upper[i])
        assert upper == np.inf or law.curve(mpf(upper)) <= goal, f"epsilon({goal!r}) <= {upper!r} of {mechanism}"
        assert lower == 0 or law.curve(mpf(lower)) >= goal, f"epsilon({goal!r}) >= {lower!r} of {mechanism}"


@pytest.mark.filterwarnings("ignore:.*wide")
@pytest.mark.parametrize("name", TAME)
def test_delta_of_one_run_is_narrow_into_the_tail(name):
    mechanism, relation, law = TAME[name]
    end = 0.5 if law.largest is None else float(law.largest)
    while law.largest is None and end < 100 and law.curve(mpf(2 * end)) > mpf(10) ** -200:
        end *= 2
    epsilons = end * np.array([-0.1, 0.0, 0.03, 0.31, 0.9])
    found = jaxacct.delta(mechanism, epsilons, relation=relation)
    # Rates and weights next to 0 or 1 cost the last digits of 1.
    room = 0.0 if name in exact.inner_laws(np.random.default_rng(1), False) else 1e-12
    assert np.all(found.upper - found.lower <= 1e-7 * found.upper + room)
    for lower, epsilon, upper in zip(found.lower, epsilons, found.upper, strict=True):
        assert holds(lower, law.curve(mpf(epsilon)), upper)


def test_weights_next_to_0_and_1_keep_their_complements():
    mixture = m.RandomSensitivityGaussian(0.05, (0.0, 1.0), (1e-10, 1 - 1e-10))
    law = exact.mixture(mpf(0.05), [mpf(0), mpf(1)], [mpf(1e-10), mpf(1 - 1e-10)], True)
    found = jaxacct.delta(mixture, 23.02585088, relation="add")
    assert holds(found.lower, law.curve(mpf(23.02585088)), found.upper)
    assert found.lower > 0.99 * found.upper


def test_three_runs_of_a_mixture_reach_their_largest_losses():
    mixture = m.RandomSensitivityGaussian(0.05, (0.0, 1.0), (1e-13, 1 - 1e-13))
    found = jaxacct.epsilon(mixture, 1e-6, steps=3, relation="add")
    # With noise of 0.05 the mixed and the base law hardly meet: the losses are 3 log(1e13), but for 1e-6 of them.
    truth = 3 * -mp.log(mpf(1e-13) / (mpf(1e-13) + mpf(1 - 1e-13))) + mp.log(1 - mpf(1e-6))
    assert mpf(float(found.lower)) <= truth <= mpf(float(found.upper))


def test_sums_of_many_gaussians_are_those_of_all_digits():
    parts = 5000
    found = jaxacct.delta(m.Composed([m.Gaussian(42.82)] * parts), 20.0)
    assert holds(found.lower, exact.gaussian(mp.sqrt(parts) / mpf(42.82)).curve(mpf(20)), found.upper)
    assert found.upper - found.lower < 1e-11 * found.upper


@pytest.mark.parametrize("gap", [1e-10, 1e-13, 2.0**-53])
def test_rates_of_nested_samples_next_to_1(gap):
    rate = 1.0 - gap
    mechanism = m.Gaussian(0.05)
    for _ in range(3):
        mechanism = m.PoissonSampled(mechanism, rate)
    law = exact.sampled(exact.gaussian(1 / mpf(0.05)), mpf(rate) ** 3, "add")
    found = jaxacct.epsilon(mechanism, 1e-9, relation="add")
    assert law.curve(mpf(float(found.lower))) >= mpf(1e-9) >= law.curve(mpf(float(found.upper)))
    assert found.upper - found.lower < 1e-12 * found.upper


@pytest.mark.filterwarnings("ignore:.*wide")
@pytest.mark.parametrize("scale", [3e-6, 3e-17, 0.3, 7.0])
def test_the_largest_loss_of_a_laplace_mechanism_is_rounded_up(scale):
    law = exact.laplace(1 / mpf(scale))
    for epsilon in exact.neighbours(1 / mpf(scale)):
        found = jaxacct.delta(m.Laplace(scale), epsilon)
        assert holds(found.lower, law.curve(mpf(epsilon)), found.upper)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_bounds_that_no_normal_float32_holds_stay_bounds(compiled):
    truth = exact.gaussian(mpf(1)).curve(mpf(float(np.float32(13.3))))

    def program(epsilon):
        return jaxacct.delta(m.Gaussian(1.0), epsilon)

    context = jaxacct.without_callbacks if compiled else jax.named_scope
    with context(*([] if compiled else ["host"])), jax.enable_x64(False):
        found = jax.jit(program)(np.float32(13.3))
        assert np.asarray(found.upper).dtype == np.float32
        assert holds(np.asarray(found.lower), truth, np.asarray(found.upper))


def test_more_than_six_samples_of_samples_are_refused():
    mechanism = m.Gaussian(1.0)
    for _ in range(6):
        mechanism = m.PoissonSampled(mechanism, 0.9)
    with pytest.raises(ValueError, match="mechanism"):
        m.PoissonSampled(mechanism, 0.9)
