"""The ladder of the additive filter: Lemma 10 in exact arithmetic, Theorem 9's closed form, products on the lattice."""

import math
from fractions import Fraction as F

import numpy as np
import pytest

from jaxacct.adversary.filters.ladder import Ladder, closed_form, copies, guarantee_of, product_law
from tests import finite


def test_lemma_10_holds_with_seven_copies_and_five_from_arcosh_two_and_no_fewer():
    # Five copies are enough from a ratio of 2 + sqrt 3 on, which lies between 3.73 and 3.74.
    for ratio in (F(101, 100), F(3, 2), F(3), F(373, 100), F(374, 100), F(20)):
        twice = finite.randomized_response(ratio**2)
        enough = [m for m in range(1, 9) if dominated(twice, ratio, m)]
        assert enough == [m for m in range(1, 9) if m >= copies(math.log(ratio))]
        assert min(enough) == (5 if ratio * ratio - 4 * ratio + 1 >= 0 else 7)
    assert copies(math.acosh(2.0)) == 7, "rounding errs to the proven side"
    assert copies(1e3) == 5


def dominated(twice, ratio, m):
    """By exact hockey sticks at every kink, with equal outcomes of m copies taken together."""
    p = ratio / (1 + ratio)
    masses = [math.comb(m, k) * p**k * (1 - p) ** (m - k) for k in range(m + 1)]
    return finite.at_most(twice, list(zip(masses, masses[::-1], strict=True)))


@pytest.mark.parametrize(
    ("epsilon", "rounds", "closed"),
    [
        (1, 16, (721, 1.44e-3)),
        (1, 100, (1169, 2.34e-3)),
        (1, 1000, (1629, 3.26e-3)),
        (1, 10000, (2236, 4.47e-3)),
        (0.1, 1000, (162.9, 3.28e-3)),
        (4, 1000, (6180, 3.09e-3)),
    ],
)
def test_the_closed_form_is_theorem_9s(epsilon, rounds, closed):
    found = closed_form(epsilon, 1e-6, rounds)
    assert found[0] == pytest.approx(closed[0], rel=1e-9)
    assert found[1] == pytest.approx(closed[1], rel=5e-3)


@pytest.mark.parametrize(
    ("epsilon", "rounds", "point"), [(1, 16, (50.72, 2.98e-6)), (1, 100, (57.26, 3.05e-6)), (1, 1000, (57.93, 3.17e-6))]
)
def test_the_lattice_certificate_is_at_most_that_of_the_note(epsilon, rounds, point):
    guarantee = guarantee_of(epsilon, 1e-6, rounds, "", natural=False)
    assert float(guarantee.delta(point[0])) <= point[1] * 1.01
    assert float(guarantee.delta(float(guarantee.epsilon(1e-5)))) <= 1e-5
    natural = guarantee_of(epsilon, 1e-6, rounds, "", natural=True)
    at = np.linspace(0.0, 80.0, 41)
    assert np.all(np.asarray(natural.delta(at)) <= np.asarray(guarantee.delta(at)))


def test_a_lattice_product_is_that_of_rational_arithmetic():
    bands = Ladder(np.log([2.0, 4.0, 16.0, np.inf]), np.zeros(4), np.array([3, 0, 1]), 0.01)
    law = product_law(bands)
    truth = finite.compose(*[finite.randomized_response(2)] * 3, finite.randomized_response(16))
    for gamma in (F(1), F(3, 2), F(7), F(40), F(127), F(128), F(10**6)):
        found = float(law.hockey_stick(math.log(gamma)))
        exact = float(finite.hockey_stick(truth, gamma))
        assert exact <= found + 1e-16
        assert found <= exact * (1 + 1e-8) + 1e-12
