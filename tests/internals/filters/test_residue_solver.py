"""The pieces of the residue solver: a parabola's least value, the law of what is left, integrals over cells, a root."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct.filters.residues import solver
from jaxacct.filters.residues.response import largest_for_response

MU, CHARGE = 1.3, 0.2


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


@pytest.mark.parametrize(("mu", "charge", "spread"), [(1.0, 0.01, 1.0), (0.05, 0.002, 3.0), (1e-3, 1e-9, 20.0)])
def test_products_of_powers_are_the_exponentials_or_more(mu, charge, spread):
    losses = spread * np.random.default_rng(0).normal(size=128)
    m2, kappa, nodes = mu**2 - charge, 0.5 * charge / ((mu**2 - charge) * mu**2), solver._pattern(128)[0] * (mu / 20)
    constant = -np.log(128) - losses * (losses / m2 + 1) / 2
    with jax.enable_x64(True):
        found = np.asarray(solver._at_nodes(*map(jnp.asarray, (constant, losses / m2, kappa, mu / 20, nodes[-1]))))
    exponents = (np.longdouble(constant)[:, None] + losses[:, None] / np.longdouble(m2) * nodes) - kappa * nodes**2
    exact = np.exp(exponents).sum(0)
    size = 100 + np.abs(losses).max() * (nodes[-1] + np.abs(losses).max()) / m2 + kappa * nodes[-1] ** 2
    assert np.all(found >= exact * (1 - 32 * 2.0**-52 * size))
    np.testing.assert_allclose(found, np.float64(exact), rtol=64 * 2.0**-52 * size, atol=2e-40)
