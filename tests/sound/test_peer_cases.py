"""Numbers that dp_accounting's own tests expect, to the digits that they ask for, of the mechanisms that both have.

From its `privacy_loss_mechanism_test`, `privacy_loss_distribution_test`, `pld_privacy_accountant_test` and
`accountant_test`. Left out: discrete Gaussians on a truncated support, which are other mechanisms, and what its known
faults touch (counts of randomized response, the rounding of its transforms, Gaussians under its REPLACE_ONE).
"""

import math

import numpy as np
import pytest

import jaxacct as j

DIGITS = 5e-8  # its assertions are to seven places

# relation, epsilon, delta; what precedes them is the mechanism's own.
GAUSSIANS = [  # sigma, sensitivity, rate
    (1.0, 1.0, 1.0, "add", 1.0, 0.12693674),
    (2.0, 6.0, 1.0, "add", 1.0, 0.78760074),
    (5.0, 5.0, 1.0, "add", 2.0, 0.02092364),
    (1.0, 1.0, 1.0, "add", -2.0, 0.86749642),
    (1.0, 1.0, 0.8, "add", 1.0, 0.0231362104090899),
    (1.0, 3.0, 0.7, "add", 1.0, 0.1195051215523554),
    (2.0, 6.0, 0.4, "add", 1.0, 0.0),
    (5.0, 5.0, 0.2, "add", 2.0, 0.0),
    (1.0, 1.0, 0.2, "add", -0.3, 0.27768558),
    (1.0, 1.0, 0.2, "add", 0.2, 0.00020196),
    (2.0, 2.0, 0.8, "remove", 1.0, 0.0816951786585355),
    (1.0, 3.0, 0.7, "remove", 1.0, 0.5356298793262404),
    (2.0, 6.0, 0.4, "remove", 1.0, 0.2888308005139968),
    (1.0, 1.0, 0.3, "remove", 2.0, 0.0003341102928869332),
    (5.0, 5.0, 0.2, "remove", -0.25, 0.2211992169285951),
    (1.0, 1.0, 0.2, "remove", 0.0, 0.076584985),
    (1.0, 1.0, 0.2, "remove", 1.0, 0.00229682),
]
LAPLACES = [  # scale, sensitivity, rate
    (2.0, 4.0, 1.0, "add", 2.0, 0.0),
    (2.0, 4.0, 1.0, "add", 0.5, 0.52763345),
    (1.0, 1.0, 1.0, "add", 0.0, 0.39346934),
    (1.0, 1.0, 1.0, "add", -2.0, 0.86466472),
    (1.0, 1.0, 0.8, "add", 1.0, 0.0),
    (2.0, 4.0, 0.8, "add", 0.5, 0.3243606497234246),
    (1.0, 1.0, 0.6, "add", 0.2, 0.1401134521354217),
    (2.0, 2.0, 0.3, "add", 0.0, 0.1180408020862099),
    (2.0, 4.0, 0.8, "remove", 0.5, 0.4039564635032081),
    (1.0, 1.0, 0.6, "remove", 0.2, 0.1741992102060086),
    (2.0, 2.0, 0.3, "remove", 0.0, 0.1180408020862099),
    (5.0, 5.0, 0.2, "remove", -0.25, 0.2211992169285951),
]
DISCRETE_LAPLACES = [  # 1 / scale, sensitivity, rate
    (0.5, 4.0, 1.0, "add", 2.0, 0.0),
    (0.5, 4.0, 1.0, "add", 0.5, 0.54202002),
    (0.5, 4.0, 1.0, "add", 1.0, 0.39346934),
    (0.5, 4.0, 1.0, "add", -0.5, 0.72222110),
    (0.5, 4.0, 0.7, "add", 0.5, 0.2293628348747755),
    (0.5, 4.0, 0.6, "add", 0.6, 0.07668344250639381),
    (0.5, 4.0, 0.3, "add", 0.5, 0.0),
    (0.5, 4.0, 0.7, "remove", 0.5, 0.3523838505224567),
    (0.5, 4.0, 0.6, "remove", 1.0, 0.178181891763215),
    (0.5, 4.0, 0.3, "remove", 0.5, 0.1068168460276349),
    (1.0, 1.0, 0.2, "remove", -0.25, 0.2211992169285951),
]
SAMPLED = {
    "gaussian": (j.Gaussian, GAUSSIANS),
    "laplace": (j.Laplace, LAPLACES),
    "discrete_laplace": (lambda a, sensitivity: j.DiscreteLaplace(1.0 / a, sensitivity), DISCRETE_LAPLACES),
}


def _agrees(bounds, expected, digits):
    lower, upper = bounds
    assert np.all(lower <= np.asarray(expected) + digits)
    assert np.all(upper >= np.asarray(expected) - digits)
    assert np.all(upper - lower <= digits)


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("relation", ["add", "remove"])
def test_delta_of_one_sampled_run(name, relation):
    make, rows = SAMPLED[name]
    scale, sensitivity, rate, _, epsilon, delta = zip(*(row for row in rows if row[3] == relation), strict=True)
    mechanism = j.PoissonSampled(make(np.array(scale), np.array(sensitivity)), np.array(rate))
    _agrees(j.delta(mechanism, np.array(epsilon), relation=relation), delta, DIGITS)


@pytest.mark.parametrize(
    ("weights", "add", "remove"),
    [
        ((0.2, 0.6, 0.2), 0.036691263832032806, 0.15768284088654105),
        ((0.0, 0.2, 0.8), 0.3894964356580768, 0.433276675545065),
    ],
)
def test_delta_of_a_mixture_of_gaussians(weights, add, remove):
    mechanism = j.RandomSensitivityGaussian(1.0, (0.0, 1.0, 2.0), weights)
    _agrees(j.delta(mechanism, 1.0, relation="add"), add, DIGITS)
    _agrees(j.delta(mechanism, 1.0, relation="remove"), remove, DIGITS)


@pytest.mark.slow
def test_the_least_noise_of_a_discrete_gaussian():
    # Its expectations are those of the worse direction, also where it asks for the other one.
    rows = [
        (1, 1.0, 1.0, 0.12693674, 1.041),
        (2, 1.0, 1.0, 0.12693674, 1.972),
        (3, 1.0, 1.0, 0.78760074, 0.993),
        (6, 1.0, 1.0, 0.78760074, 2.014),
        (5, 1.0, 2.0, 0.02092364, 5.008),
        (2, 1.0, 16.0, 1e-5, 0.703),
        (1, 0.8, 1.0, 0.07850075632001355, 1.041),
        (2, 0.7, 1.0, 0.06665777574091321, 1.972),
        (3, 0.4, 1.0, 0.27122238416249084, 0.993),
        (6, 0.5, 1.0, 0.3604879495041193, 2.014),
        (1, 0.3, 2.0, 0.0002834863230938751, 1.038),
        (5, 0.1, 2.0, 2.340272571167144e-06, 5.008),
    ]
    sensitivity, rate, epsilon, delta, sigma = (np.array(column) for column in zip(*rows, strict=True))
    digits = 1e-3  # its three places, and its search
    at = lambda sigma: j.delta(j.PoissonSampled(j.DiscreteGaussian(sigma, sensitivity), rate), epsilon)  # noqa: E731
    assert np.all(at(sigma + digits).lower <= delta)
    assert np.all(at(sigma - digits).upper >= delta)


def test_hockey_sticks_of_tables():
    table = j.FromTables(p=np.array([0.6, 0.4]), q=np.array([0.5, 0.5]))
    for epsilon, delta in ((0.0, 0.1), (math.log(1.1), 0.06), (math.log(0.9), 0.15)):
        _agrees(j.delta(table, epsilon), delta, 1e-11)
    other = j.FromTables(p=np.array([0.5, 0.4, 0.1, 0.0]), q=np.array([0.2, 0.2, 0.0, 0.6]))
    for epsilon, delta in ((0.0, 0.6), (math.log(1.1), 0.6), (math.log(0.9), 0.64)):
        _agrees(j.delta(other, epsilon), delta, 1e-11)


def test_composed_gaussians():
    three = j.Gaussian(math.sqrt(3))
    _agrees(j.delta(three, 1.0, steps=3), 0.126936, 1e-6)
    _agrees(j.epsilon(three, 0.126936, steps=3), 1.0, 1e-4)


@pytest.mark.slow
def test_composed_sampled_gaussians():
    sampled = j.PoissonSampled(j.Gaussian(0.5), 0.2)
    _agrees(j.delta(sampled, 1.0, steps=3), 0.15594, 1e-4)
    _agrees(j.epsilon(sampled, 0.15594, steps=3), 1.0, 1e-3)


@pytest.mark.slow
def test_the_least_noise_of_sampled_gaussians():
    for sigma, sensitivity, rate, steps in ((0.67379294682, 1.0, 0.01, 1), (3.20956502598, 6.0, 0.001, 25)):
        at = lambda sigma: j.delta(j.PoissonSampled(j.Gaussian(sigma, sensitivity), rate), 1.0, steps=steps)  # noqa: B023, E731
        assert at(sigma * 1.001).lower <= 1e-5 <= at(sigma * 0.999).upper


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*bounds of epsilon are wide")
@pytest.mark.parametrize(
    ("mechanism", "largest", "digits"),
    [
        (j.Composed([j.Laplace(1.0), j.Laplace(2.0)], [3, 2]), 4.0, 1e-6),
        (j.Composed([j.PoissonSampled(j.Laplace(0.5), 0.2)], [3]), 2.46964, 1e-3),
        (j.Composed([j.DiscreteLaplace(1.0), j.DiscreteLaplace(2.0)], [3, 2]), 4.0, 1e-6),
        (j.Composed([j.PureDP(1.0), j.PureDP(2.0)]), 3.0, 1e-6),
        (j.Composed([j.RandomizedResponse(1.0, 4)]), 1.0, 1e-6),
    ],
)
def test_nothing_is_left_at_the_largest_loss(mechanism, largest, digits):
    assert j.delta(mechanism, largest + digits).upper <= 1e-6
    lower, upper = j.epsilon(mechanism, 1e-14)
    assert lower <= largest + digits
    assert upper <= largest + digits


@pytest.mark.slow
def test_failures_add_up():
    both = j.Composed([j.ApproximateDP(1.0, 0.1), j.ApproximateDP(2.0, 0.2)])
    _agrees(j.delta(both, 3.0), 0.28, 1e-9)
    assert j.epsilon(both, 0.28 * (1 + 1e-9)).upper <= 3.0 * (1 + 1e-6)


@pytest.mark.slow
def test_composed_mixtures_of_gaussians():
    first = j.RandomSensitivityGaussian(1.0, (0.0, 1.0, 2.0), (0.2, 0.6, 0.2))
    second = j.RandomSensitivityGaussian(2.0, (0.0, 2.0, 3.0), (0.33, 0.34, 0.33))
    lower, upper = j.epsilon(j.Composed([first, second], [3, 2]), 1e-6)
    assert lower <= 17.193115 <= upper * (1 + 1e-4)  # its own is rounded up to a lattice
    assert upper <= lower * (1 + 1e-3)
