"""What small random laws cost, against their sums in high precision; what is no law, and what float32 has lost."""

from __future__ import annotations

import jax
import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from jaxacct import PLD, LossGrid
from jaxacct.filters.additive import costs_of_plds as _law_costs
from tests import stored

GRID = LossGrid(2.0**-6, -5, 12)
LOSSES = GRID.losses
ORDERS = np.array([1.0 + 2.0**-12, 1.3, 1.0 + 1.0 / 1.5, 2.0, 5.0, 40.0, 900.0])
ATOMS = np.array([0.0, 0.0, 0.0, 0.0, 1e-9, 1e-4, 0.02, 1e-3])


@jax.jit
def costs(query):
    """In one program, that shares what they share."""
    return [
        cost(query) for cost in (_law_costs.pure_of_law, _law_costs.concentrated_of_law, _law_costs.gaussian_of_law)
    ]


def laws(lost) -> np.ndarray:
    """Random masses of which P lacks ``lost[0]`` and Q ``lost[1]``; some places are empty."""
    rng = np.random.default_rng(7)
    found = []
    for n, (mine, other) in enumerate(zip(*lost, strict=True)):
        p = rng.uniform(0.0, 0.3, GRID.size) ** 2 * (rng.uniform(size=GRID.size) < 0.6) * 10.0 ** -rng.uniform(0, 3)
        ends = np.array([[2, -2], [0, -1], [1, -1], [0, -2]][n % 4])
        p[:3] = p[-2:] = 0.0
        lacks = np.array([1 - mine - p.sum(), 1 - other - (p * np.exp(-LOSSES)).sum()])
        p[ends] = np.linalg.solve(np.stack([np.ones(2), np.exp(-LOSSES[ends])]), lacks)
        found.append(p)
    assert np.min(found) >= 0
    return np.array(found)


def both_ways(masses):
    """(masses, losses) of either direction, scaled to add up to 1, in high precision."""
    p = [mpmath.mpf(x) for x in masses.tolist()]
    q = [x * mpmath.exp(-s) for x, s in zip(p, LOSSES.tolist(), strict=True)]
    p, q = ([x / sum(v) for x in v] for v in (p, q))
    return [(a, b) for a, b in zip(p, q, strict=True) if a], [(b, a) for a, b in zip(p, q, strict=True) if a]


def divergence(pairs, order):
    return mpmath.log(sum(a * (a / b) ** (order - 1) for a, b in pairs)) / (order - 1)


def rhos(masses):
    """The most of divergence / order over a fine net of orders, in either direction."""
    t = np.geomspace(1e-4, 1e5, 6000)[:, None]
    seen = masses > 0
    p, losses = masses[seen], LOSSES[seen]
    q = p * np.exp(-losses)
    shift = np.log(p.sum()) - np.log(q.sum())
    for a, s in ((p / p.sum(), losses - shift), (q / q.sum(), shift - losses)):
        top = (t * s).max(-1, keepdims=True)
        k = np.log((a * np.exp(t * s - top)).sum(-1)) + top[:, 0]
        yield (np.where(t[:, 0] < 1e-2, (a * s).sum(), k / t[:, 0] / (1 + t[:, 0]))).max()


def test_a_law_without_atoms_costs_what_its_sums_say_rounded_up():
    masses = laws((0 * ATOMS, 0 * ATOMS))
    masses[-1] = 0.0
    masses[-1, 5:7] = 1.0, 1e-300  # its rho is at orders near 10^5
    query = PLD(masses.reshape(2, 4, -1), np.zeros((2, 4)), GRID)
    largest = [np.abs(LOSSES[p > 0]).max() for p in masses]
    found = np.asarray(_law_costs.renyi_of_law(query, ORDERS))
    assert found.shape == (2, 4, ORDERS.size)
    with jax.enable_x64(True):
        pure, rho, mu = (np.ravel(x) for x in costs(query))
    with mpmath.workdps(40):
        for p, top, most, curve, cost, gaussian in zip(
            masses, largest, pure, found.reshape(8, -1), rho, mu, strict=True
        ):
            assert top <= most <= top * (1 + 2.0**-48)
            for order, value in zip(ORDERS.tolist(), curve.tolist(), strict=True):
                truth = max(divergence(pairs, order) for pairs in both_ways(p))
                assert truth <= value <= truth * (1 + 1e-9) + 4e-12 / (order - 1), (truth, value, order)
            truth = max(rhos(p))
            assert truth * (1 - 1e-9) <= cost <= truth * (1.05 if 1e-300 in p else 1 + 2.2e-3)
            at = np.linspace(-0.09, 0.1, 1000)[:, None]
            stick = (p * np.maximum(1 - np.exp(at - LOSSES), 0.0)).sum(-1)
            for mu, dominates in ((gaussian, True), (gaussian * (1 - 1e-4), False)):
                budget = ndtr(mu / 2 - at / mu) - np.exp(at) * ndtr(-mu / 2 - at / mu)
                assert np.all(budget[:, 0] >= stick - 1e-14) == (dominates or 1e-300 in p)


def test_atoms_are_the_delta_and_what_is_left_is_scaled():
    masses = laws((ATOMS, ATOMS[::-1]))
    query = PLD(masses.reshape(2, 4, -1), ATOMS.reshape(2, 4), GRID)
    rho, delta = (np.asarray(x).reshape(-1) for x in _law_costs.approximate_of_law(query))
    doubt = 2.0**-52 * (16 + 4 * GRID.size + 8)
    with mpmath.workdps(40):
        for p, atom, cost, fails in zip(masses, ATOMS, rho, delta, strict=True):
            other = 1 - sum(mpmath.mpf(x) * mpmath.exp(-s) for x, s in zip(p.tolist(), LOSSES.tolist(), strict=True))
            truth = max(atom, other if other > 2 * doubt else 0)
            assert truth <= fails <= truth * (1 + 2.0**-48) + 3 * doubt
            top = max(rhos(p))
            assert top * (1 - 1e-9) <= cost <= top * (1 + 2.2e-3)
    with jax.enable_x64(True):
        assert all(np.isinf(cost).all() for cost in costs(query))
    found = _law_costs.renyi_of_law(query, ORDERS)
    assert np.isinf(found).all()


def test_what_is_no_law_costs_nan():
    totals = np.array([1 - 1.1e-6, 1 - 0.9e-6, 1 + 0.9e-3, 1 + 1.1e-3, 1.0, 1.0, 1.0, 1.0])
    masses = np.zeros((8, GRID.size))
    masses[:, 5], atoms = totals, np.zeros(8)
    masses[4, :2], atoms[5], masses[6, 0], atoms[7] = (-1e-3, 1e-3), -1e-9, np.nan, np.nan
    query = stored.law(masses.reshape(2, 4, -1), atoms.reshape(2, 4), GRID)
    deltas = lambda q: _law_costs.approximate_of_law(q)[1]  # noqa: E731
    for cost in (_law_costs.pure_of_law, deltas):
        assert np.isnan(cost(query)).reshape(-1).tolist() == [False, False, False, True, True, True, True, True]
    # What masses leave of 1 is an infinite loss.
    assert np.isinf(_law_costs.pure_of_law(query)).reshape(-1)[:3].tolist() == [True, True, False]
    missing = 1.0 - totals[:3]
    assert np.all(deltas(query).reshape(-1)[:3] >= np.maximum(missing, 0.0))
    with pytest.raises(ValueError, match=r"query must be an upper PLD .* got bound 'lower'"):
        _law_costs.pure_of_law(PLD(masses[1], 0.0, GRID, "lower"))
