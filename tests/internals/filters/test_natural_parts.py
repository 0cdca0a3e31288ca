"""Parts of the natural filters by themselves: laws for both directions, grids, curves that are raised."""

from __future__ import annotations

import importlib
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import PLD, LossGrid, adversary
from jaxacct.filters import guarantees as _profile_guarantee
from jaxacct.losses.curves.profile import PrivacyProfile
from tests.contract.filter_cases import law as response_law

# The package's name for this is the function's.
natural = importlib.import_module("jaxacct.adversary.filters.natural_approximate_dp")
RNG = np.random.default_rng(4)


def test_a_law_and_its_reversal_are_dominated_at_every_order_and_a_symmetric_one_pays_for_rounding():
    both_ways = jax.jit(natural._for_both)
    same = response_law(0.5, 1e-3, LossGrid(0.25, -8, 12))
    with jax.enable_x64(True):
        assert 0 < float(both_ways(same).infinity_mass) - 1e-3 <= 1e-13
    for grid in (LossGrid(0.25, -5, 12), LossGrid(0.25, -8, 12)):
        masses = RNG.uniform(0.0, 1.0, 12) * np.exp(0.5 * grid.losses)
        masses *= 0.99 / max(masses.sum(), (masses * np.exp(-grid.losses)).sum())
        atom = 1 - masses.sum()
        with jax.enable_x64(True):
            made = both_ways(PLD(masses, np.float64(atom), grid))
        q = masses * np.exp(-grid.losses)
        at = np.linspace(-4.0, 4.0, 65)[:, None]
        one = (masses * np.maximum(1 - np.exp(at - grid.losses), 0)).sum(-1)
        other = (q * np.maximum(1 - np.exp(at + grid.losses), 0)).sum(-1) + 1 - q.sum()
        both = one + float(made.infinity_mass)
        assert np.all(both >= np.maximum(one + atom, other) - 1e-12)
        turned = np.array([q[i] if 0 <= (i := -2 * grid.lowest - n) < 12 else 0.0 for n in range(12)])
        more = np.maximum(turned - masses, 0).sum() + q.sum() - turned.sum() + max(1 - q.sum() - atom, 0.0)
        assert float(made.infinity_mass) == pytest.approx(atom + more, rel=1e-12)


def test_a_curve_that_starts_below_delta_needs_no_epsilon():
    curve = SimpleNamespace(hockey_stick=lambda e: 0.1 * jnp.exp(-jnp.asarray(e)), grid=LossGrid(1.0, -1, 11))
    guarantee = _profile_guarantee.ProfileGuarantee(curve, "")
    found = np.asarray(guarantee.epsilon(np.array([0.2, 0.01, 1e-6])))
    assert found.tolist() == [0.0, pytest.approx(math.log(10.0), rel=1e-9), np.inf]
    assert found[1] >= math.log(10.0)
    assert guarantee.is_bound is True


def test_a_raised_curve_has_an_atom_of_the_slack_at_infinity():
    grid = LossGrid(0.5, -4, 10)
    excess = np.minimum(np.exp(grid.losses), 1.0) * 0.4
    made = _profile_guarantee.raised(PrivacyProfile(excess, grid, "upper"), 0.1)
    assert np.asarray(made.excess) == pytest.approx(np.minimum(np.exp(grid.losses), 1.0) * 0.5, rel=1e-14)
    assert made.bound == "upper"


def test_a_grid_without_one_holds_epsilon_as_a_point_and_reaches_to_twice_it():
    for epsilon in (0.1, 1.0, 3.0):
        grid = adversary.natural_approximate_dp(epsilon, 1e-5, rounds=4).grid
        assert (grid.lowest, grid.size) == (-2048, 4097)
        assert abs(epsilon / grid.spacing - round(epsilon / grid.spacing)) < 1e-9
        assert grid.losses[-1] == pytest.approx(2 * epsilon + 1, rel=5e-3)


def test_symmetric_laws_pay_for_rounding_alone_and_any_other_for_all_that_is_not():
    both_ways = jax.jit(natural._for_both)
    rng = np.random.default_rng(3)
    for half, spacing in ((20, 0.1), (1000, 1e-3)):
        grid = LossGrid(spacing, -half, 2 * half + 1)
        right = rng.uniform(0.0, 1.0, half + 1)
        masses = np.concatenate([(right * np.exp(-grid.losses[half:]))[:0:-1], right])
        masses *= (1 - 1e-3) / masses.sum()
        with jax.enable_x64(True):
            assert 0 < float(both_ways(PLD(masses, np.float64(1e-3), grid)).infinity_mass) - 1e-3 <= 4e-12
        # Mass that moves to a higher loss is more than the reversal has, by as much, and Q lacks some.
        for moved in (1e-11, 1e-6):
            other = masses.copy()
            other[half - 3] -= moved
            other[half + 3] += moved
            q = other * np.exp(-grid.losses)
            more = np.maximum(q[::-1] - other, 0).sum() + max(1 - q.sum() - 1e-3, 0.0)
            with jax.enable_x64(True):
                found = float(both_ways(PLD(other, np.float64(1e-3), grid)).infinity_mass) - 1e-3
            assert more * (1 - 1e-4) <= found <= more * (1 + 1e-3) + 2e-12


def test_what_rounding_may_hide_is_charged_some_units_and_four_for_every_point():
    grid = LossGrid(0.25, -4, 9)
    units = 16 + 4 * 9
    for lacks in (0, 3, units - 2, units + 2, 10**6):
        masses = np.zeros(9)
        masses[4] = 1 - lacks * 2.0**-52
        with jax.enable_x64(True):
            found = float(natural._for_both(PLD(masses, np.float64(0.0), grid)).infinity_mass)
        assert found == pytest.approx((lacks + units) * 2.0**-52, rel=1e-9)
