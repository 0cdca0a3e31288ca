"""The pieces of the residue solver: a parabola's least value, the law of what is left, integrals over cells, a root."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct.filters.residues import solver
from jaxacct.filters.residues.response import largest_for_response

RNG = np.random.default_rng(2)
MU, CHARGE = 1.3, 0.2
LOSSES, MASSES = np.array([-1.0, 0.0, 0.4, 0.9]), np.array([0.2, 0.0, 0.5, 0.3])


@jax.enable_x64(True)
def test_the_least_of_a_parabola_is_at_its_vertex_or_an_end():
    value, slope, curve = RNG.normal(size=(3, 400))
    curve[:20], slope[20:40] = 0.0, 0.0
    reach = RNG.uniform(0.01, 3.0, 400)
    found = np.asarray(jax.jit(solver._least)(value, slope, curve, reach))
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = np.nan_to_num(np.clip(-slope / curve, 0.0, reach))
    truth = np.min([value + slope * x + 0.5 * curve * x * x for x in (0.0 * reach, reach, vertex)], 0)
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-14)


@jax.enable_x64(True)
def test_the_law_of_what_is_left_is_that_of_the_documented_formula_and_falls_from_its_turn_on():
    law = jax.jit(solver._law)
    m2, kappa, constant, turn = map(np.asarray, law(MU, CHARGE, LOSSES, MASSES))
    m, s = np.sqrt(MU**2 - CHARGE), np.linspace(0.0, 12.0, 400)[:, None]
    assert m2 == pytest.approx(m * m, rel=1e-15)
    assert kappa == pytest.approx((1 / m2 - 1 / MU**2) / 2, rel=1e-12)
    direct = MASSES * MU / m * np.exp(LOSSES * (s - LOSSES / 2) / m2 - LOSSES / 2 + CHARGE / 8)
    direct = np.exp(-kappa * s[:, 0] ** 2) * direct.sum(-1)
    terms = jax.jit(solver._sum_of_exponentials)(constant, LOSSES / m2, s[:, 0], kappa * s[:, 0] ** 2)
    np.testing.assert_allclose(terms, direct, rtol=1e-13)
    assert (np.diff(direct)[s[1:, 0] > turn + 0.03] < 0).all()
    assert turn == pytest.approx(0.9 / (2 * kappa * m2), rel=1e-8)
    assert float(law(MU, CHARGE, -np.abs(LOSSES), MASSES)[3]) == 0.0


@jax.enable_x64(True)
def test_cells_hold_the_integrals_of_the_density_against_what_falls_and_what_rises():
    room, masses = 1e-6, jnp.array(MASSES)
    make, law, far = map(jax.jit, (solver._nodes, solver._law, solver._tail))
    for scale, ratio in ((1.0, 1.0), (1.0, 1.000001), (0.3, 1.001)):
        nodes = make(MU, CHARGE, scale * LOSSES, masses, room, ratio)
        t, unit = np.asarray(nodes.t), float(nodes.unit)
        assert bool(nodes.fit)
        assert t == pytest.approx(unit * solver._pattern(4)[0], rel=1e-15)
        np.testing.assert_allclose(nodes.gamma, np.exp(t), rtol=1e-14)
        density = lambda s: np.exp(-0.5 * ((s - MU**2 / 2) / MU) ** 2) / (MU * np.sqrt(2 * np.pi))  # noqa: E731
        np.testing.assert_allclose(nodes.density, density(t), rtol=1e-13)
        at, weights = np.polynomial.legendre.leggauss(40)
        width = np.diff(t)
        s = t[:-1] + 0.5 * (1 + at[:, None]) * width
        rise = (s - t[:-1]) / width
        for row, factor in enumerate((np.ones_like(s), np.exp(-s))):
            a = density(s) * factor * 0.5 * width * weights[:, None]
            np.testing.assert_allclose(nodes.stop[row], (a * rise).sum(0), rtol=1e-9, atol=1e-300)
            np.testing.assert_allclose(nodes.start[row], (a * (1 - rise)).sum(0), rtol=1e-9, atol=1e-300)
        tail = float(far(MU, scale * LOSSES, masses, room, ratio))
        assert bool(nodes.bounded) == (t[-1] == tail)
        assert float(nodes.room) == pytest.approx(room * (31 / 32 if nodes.bounded else 1.0), rel=1e-15)
        m2, kappa, constant = map(np.asarray, law(MU, CHARGE, scale * LOSSES, masses)[:3])
        safe = float(nodes.safe)
        late = np.array([[safe], [safe + 1.0], [safe + 5.0]])
        assert (ratio * np.exp(constant + scale * LOSSES / m2 * late - kappa * late**2).sum(-1) < 1).all()
        # The tail's promise: even the query after the whole budget holds little beyond.
        beyond = sum(
            p * float(mpmath.ncdf(-((tail - x) / MU - MU / 2))) for x, p in zip(scale * LOSSES, MASSES, strict=True)
        )
        assert beyond * ratio <= room / 32
        assert tail < 36 * MU
    assert float(far(MU, LOSSES, masses, 0.0, 1.0)) == np.inf


@jax.enable_x64(True)
def test_what_is_left_after_a_response_is_the_root_of_its_total_variation_rounded_down():
    pairs = [(1.0, 0.0), (1.0, 0.25), (0.3, 0.2), (4.0, 3.0), (10.0, 1.0), (30.0, 5.0), (1e-3, 1e-4), (0.5, 1e-6)]
    none = [(0.3, 0.5), (1e-3, 1.0), (np.nan, 0.1), (1.0, np.nan), (1.0, -0.1), (0.0, 0.1), (np.inf, 0.1)]
    mu, epsilon = (np.array(x) for x in zip(*pairs, *none, (1.0, np.inf), (-1.0, 0.1), strict=True))
    found = np.asarray(jax.jit(largest_for_response)(mu, epsilon))
    assert (found[len(pairs) :] == -1).all()
    with mpmath.workdps(40):
        root = mpmath.sqrt(mpmath.mpf("0.5"))
        for m, e, value in zip(mu.tolist(), epsilon.tolist(), found.tolist()[: len(pairs)], strict=False):
            p = 1 / (1 + mpmath.exp(-mpmath.mpf(e)))

            def variation(x, e=e, p=p, root=root):
                return p * mpmath.erf((x / 2 + e / x) * root) + (1 - p) * mpmath.erf((x / 2 - e / x) * root)

            target = mpmath.erf(mpmath.mpf(m) / 2 * root)
            assert 0 < value <= m
            assert 0 <= target - variation(mpmath.mpf(value)) <= 2.0**-47 * (target + 1.5) + 2.0**-50 * m


@pytest.mark.parametrize("doubt", [0.0, 1e-3])
@jax.enable_x64(True)
def test_the_bound_on_a_cell_is_below_the_least_value_there_and_near_it(doubt):
    """D(t) = room + integral over s > t of (1 - e^(t - s)) a(s) f(s) ds for some piecewise linear f, by fine sums."""
    t = np.linspace(0.0, 4.0, 17)
    f = np.array([-1.0, -0.8, -0.9, -0.3, 0.4, 0.9, 0.2, -0.5, -0.9, -0.2, 0.3, 0.7, 0.9, 0.6, 0.9, 1.0, 0.9])
    density = lambda s: np.exp(-0.5 * ((s - MU**2 / 2) / MU) ** 2) / (MU * np.sqrt(2 * np.pi))  # noqa: E731
    s = np.linspace(0.0, 4.0, 16 * 500 + 1)
    middle = 0.5 * (s[1:] + s[:-1])
    weight = density(middle) * np.interp(middle, t, f) * np.diff(s)
    after, faded = (np.append(np.cumsum(x[::-1])[::-1], 0.0) for x in (weight, weight * np.exp(-middle)))
    whole = 0.05 + after - np.exp(s) * faded
    least = np.array([whole[500 * i : 500 * i + 501].min() for i in range(16)])
    slope = (np.exp(s) * faded)[::500]
    # Slopes off by as much as is doubted, either way, leave bounds.
    for off in (-doubt, doubt):
        given = whole[::500], slope + off, np.full(17, doubt), f, density(t), np.diff(t)
        bound = np.asarray(jax.jit(solver._on_cells)(*given))
        assert np.all(bound <= least + 1e-7)
        assert np.all(bound >= least - 2e-3 - 2 * doubt)


@jax.enable_x64(True)
def test_a_charge_is_certified_from_the_residue_on_and_only_where_all_that_a_proof_needs_is_there():
    epsilon = 0.4
    losses = np.array([-epsilon, epsilon, 0.0])
    masses = np.array([1 / (1 + np.exp(epsilon)), 1 / (1 + np.exp(-epsilon)), 0.0])
    m = float(jax.jit(largest_for_response)(MU, epsilon))
    exact = MU**2 - m**2
    make = jax.jit(lambda losses: solver._nodes(MU, exact, losses, masses, 0.0, 1.0))
    check = jax.jit(lambda charge, losses, nodes: solver.certified(MU, charge, losses, masses, 1.0, nodes))
    nodes = make(losses)
    assert not nodes.bounded
    good, bad = check(1.001 * exact, losses, nodes), check(0.999 * exact, losses, nodes)
    assert (bool(good.holds), bool(bad.holds)) == (True, False)
    assert float(good.step) < 0 < float(bad.step)
    assert abs(float(good.step)) < 0.01 * exact
    # A loss that the sum has no mass at moves the turn beyond the nodes: nothing is known of what lies there.
    assert not check(1.001 * exact, np.array([-epsilon, epsilon, 90.0]), nodes).holds
    for charge in (0.0, -1.0, MU**2, 2.0 * MU**2, np.nan):
        assert not check(charge, losses, nodes).holds
    assert not check(1.001 * exact, losses, nodes._replace(fit=np.False_)).holds
