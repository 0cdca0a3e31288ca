"""Where a menu's lattice reaches, and how often each query may run alone: against convolutions and normal tails."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jaxacct import PLD, Gaussian, LossGrid, PrivacyProfile
from jaxacct.filters.prices import laws as _menu_laws


def gaussians(menu, grid):
    """Laws N(mu^2 / 2, mu^2) on a lattice: in place of `_laws`, with numbers mu for a menu."""
    return [PLD.from_mechanism(Gaussian(1 / mu), "upper", relation="remove", grid=grid) for mu in menu]


def responses(epsilon_points, grid, infinite=0.0):
    """Randomized response, nothing in three of five cases, on a lattice next to an atom at infinity."""
    found = []
    for n in epsilon_points:
        masses, p = np.zeros(grid.size), 1 / (1 + math.exp(-n * grid.spacing))
        masses[[n - grid.lowest, -n - grid.lowest]] = 0.4 * p, 0.4 * (1 - p)
        masses[-grid.lowest] += 0.6
        masses *= 1 - infinite
        found.append(PLD(masses, np.float64(infinite), grid))
    return found


def test_powers_of_laws_are_their_convolutions_under_both_and_their_ends_where_little_is_left():
    grid, runs = LossGrid(0.25, -3, 7), np.array([1, 4, 6])
    laws = responses((1, 2, 3), grid, 1e-3)
    powers = _menu_laws._Powers(laws, 20)
    assert powers.size == 64  # above twice the reach
    assert np.array_equal(powers.losses, 0.25 * np.arange(-32, 32))
    both = powers.masses(runs.astype(float))
    exact = np.zeros((2, 3, 64))
    for m, (law, n) in enumerate(zip(laws, runs, strict=True)):
        for side, one in enumerate((law.masses, law.masses * np.exp(-grid.losses))):
            whole = np.ones(1)
            for _ in range(n):
                whole = np.convolve(whole, one)
            exact[side, m, 32 - 3 * n : 32 - 3 * n + whole.size] = whole
    np.testing.assert_allclose(both, exact, atol=1e-14)
    assert both.min() >= 0
    # Real powers: two halves make a whole.
    half = powers.masses(runs / 2.0)
    np.testing.assert_allclose(np.convolve(half[0, 1], half[0, 1])[32:96], exact[0, 1], atol=1e-12)
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        lost = 1 - (1 - 1e-3) ** runs
        remove = (exact[0] * np.maximum(1 - np.exp(epsilon - powers.losses), 0)).sum(-1) + lost
        add = (exact[1] * np.maximum(1 - np.exp(epsilon + powers.losses), 0)).sum(-1)
        np.testing.assert_allclose(powers.deltas(runs, epsilon), np.maximum(remove, add), atol=1e-13)
    for spared, gain in ((1e-3, math.e), (1e-5, 1.0)):
        low, high = powers.ends(runs.astype(float), spared, gain)
        above = max(x for x in powers.losses if exact[0][:, powers.losses >= x].sum(-1).max() > spared)
        below = min(
            x for x in powers.losses if math.exp(x) * exact[1][:, powers.losses <= x].sum(-1).max() > spared / gain
        )
        assert (low, high) == (below, above)


def test_runs_alone_are_the_most_that_meet_the_target_and_what_misses_it_at_once_is_named():
    grid = LossGrid(0.05, -4, 9)
    laws = responses((1, 2, 4), grid)
    powers = _menu_laws._Powers(laws, 400)
    epsilon, delta = 1.0, 1e-3
    runs = _menu_laws._runs(powers, epsilon, delta, 40)
    assert np.all(powers.deltas(np.floor(runs), epsilon) <= delta)
    assert np.all(powers.deltas(np.floor(runs) + 1, epsilon) > delta)
    # Randomised response at epsilon / 20 runs some 4 times as often as that at epsilon / 10.
    assert runs[0] / runs[1] == pytest.approx(4, rel=0.05)
    coarse = _menu_laws._runs(powers, epsilon, delta, 14)
    assert np.all((coarse <= runs) & (coarse >= runs * (1 - 2e-3)))
    masses = np.stack([law.masses for law in laws])
    held = _menu_laws.MenuLaws(LossGrid(0.05, -300, 501), masses, np.zeros((3, 501)), 4, 4)
    np.testing.assert_allclose(_menu_laws.runs_alone(held, epsilon, delta), runs, rtol=1e-7)
    with pytest.raises(
        ValueError, match=r"mechanisms must hold queries that meet epsilon 0.1 at delta 0.01 .* position 2"
    ):
        _menu_laws._runs(powers, 0.1, 1e-2, 4)
    never = _menu_laws._Powers(responses((1,), LossGrid(1e-13, -1, 3)), 10)
    assert _menu_laws._runs(never, epsilon, delta, 60)[0] == pytest.approx(2.0**40, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 0.6, 1.2499, 2.0])
def test_the_delta_of_a_curve_is_that_of_the_worse_direction(epsilon):
    grid, rng = LossGrid(0.25, -12, 25), np.random.default_rng(1)
    for _ in range(4):
        masses = rng.uniform(0.0, 1.0, 25) * np.exp(0.3 * rng.normal() * grid.losses)
        masses *= 0.99 / max(masses.sum(), (masses * np.exp(-grid.losses)).sum())
        gamma = np.exp(grid.losses)[:, None]
        excess = (masses * np.maximum(1 - gamma * np.exp(-grid.losses), 0)).sum(-1) + 1 - masses.sum()
        excess -= np.maximum(1 - gamma[:, 0], 0)
        exact = float(PrivacyProfile(excess, grid, "upper").symmetrise().hockey_stick(epsilon))
        assert exact * (1 - 1e-9) <= _menu_laws.delta_of(excess, grid, epsilon) <= exact * (1 + 3e-9)
