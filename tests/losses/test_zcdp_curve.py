"""What rho-zCDP implies in (epsilon, delta), against the best order found in high precision."""

from __future__ import annotations

import numpy as np
import pytest

import jaxacct
from jaxacct import FromProfile, PrivacyProfile, ZeroConcentratedDP
from jaxacct.losses.renyi.zcdp import zcdp_delta, zcdp_epsilon, zcdp_from_epsilon


@pytest.mark.parametrize("rho", [1e-8, 0.01, 0.5, 10.0])
def test_epsilon_is_the_inverse_and_so_is_the_budget(rho):
    for delta in (1e-30, 1e-9, 1e-5, 0.1):
        epsilon = float(zcdp_epsilon(rho, delta))
        assert float(zcdp_delta(rho, epsilon)) <= delta * (1 + 1e-9)
        if epsilon > 0:
            assert float(zcdp_delta(rho, epsilon * (1 - 1e-7))) > delta * (1 - 1e-6)
            back = float(zcdp_from_epsilon(epsilon * (1 + 1e-12), delta))
            assert rho * (1 - 1e-6) <= back
            assert float(zcdp_epsilon(back, delta)) <= epsilon * (1 + 1e-12)


def test_it_agrees_with_the_front_desk():
    ours = np.asarray(zcdp_delta(0.5, np.array([0.5, 1.0, 4.0])))
    desk = np.array([jaxacct.delta(ZeroConcentratedDP(0.5), epsilon=e).upper for e in (0.5, 1.0, 4.0)])
    np.testing.assert_allclose(ours[1:], desk[1:], rtol=1e-9)
    # Near gamma = 1 the desk also knows that a curve is convex and symmetric.
    assert desk[0] <= ours[0] <= 1.02 * desk[0]


def test_a_profile_of_a_table_has_one_curve_for_each_table():
    """Rows of atoms are no batch of settings."""
    epsilons, deltas = np.array([[0.5, 1.0], [0.5, 2.0]]), np.array([[0.1, 0.01], [0.1, 0.01]])
    curves = PrivacyProfile.from_mechanism(FromProfile(epsilons, deltas))
    assert curves.excess.shape == (2, curves.grid.size)
    np.testing.assert_allclose(curves.hockey_stick(0.5), 0.1, rtol=1e-3)
    np.testing.assert_allclose(curves.hockey_stick(2.5), 0.01, rtol=1e-3)
