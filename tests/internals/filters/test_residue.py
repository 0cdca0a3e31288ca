"""The residue filter's step, in fractions, and its solver: what is taken and left, certificates, where it searches."""

from __future__ import annotations

import importlib
from fractions import Fraction as F

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct._numerics.pieces import join, split_up
from jaxacct.filters.residues import solver
from jaxacct.filters.residues.prepare import Prepared
from jaxacct.filters.residues.response import largest_for_response

module = importlib.import_module("jaxacct.filters.residues.gdp_residue")
UNITS = F(1, 2**46)


def stepped(monkeypatch):
    """`_residue` of (infinity and mu of the query, mu, delta, offer, best, plain), and what the solver is given."""
    given, made = [], {}

    def largest(mu, losses, masses, room, ratio, start, tolerance, tries):
        given.append((mu, losses, masses, room, ratio, start))
        return made["best"]

    monkeypatch.setattr(module, "largest", largest)
    monkeypatch.setattr(module, "largest_for_response", lambda mu, epsilon: made["plain"])
    losses, masses = np.array([[-0.5, 0.25], [-0.25, 0.5]]), np.array([[0.25, 0.75], [0.5, 0.5]])

    def one(infinity, dominating, mu, delta, offer, best, plain):
        made.update(best=best, plain=plain)
        pieces = map(split_up, (jnp.asarray(losses), jnp.asarray(masses), infinity, jnp.float64(1.0), dominating))
        return module._residue(Prepared(*pieces), mu, delta, offer), given[-1]

    return jax.jit(jax.vmap(one))


@jax.enable_x64(True)
def test_what_atoms_and_slack_take_of_delta_and_leave_as_room_is_on_the_safe_side(monkeypatch):
    cases = [
        (infinity, delta, offer)
        for infinity in ((0.0, 0.0), (0.25, 0.0), (2.0**-20, 2.0**-10), (2.0**-30, 2.0**-30), (0.5, 0.875))
        for delta in (0.0, 2.0**-10, 2.0**-5, 0.5, 0.9)
        for offer in (0.0, 2.0**-25, 2.0**-9, 0.3, 2.0)
    ]
    infinity, delta, offer = (np.array(x) for x in zip(*cases, strict=True))
    count = len(cases)
    arguments = (
        infinity,
        np.full(count, np.inf),
        np.full(count, 1.0),
        delta,
        offer,
        np.full(count, 0.75),
        -np.ones(count),
    )
    (after, less), (mu, losses, masses, room, ratio, start) = jax.tree.map(np.asarray, stepped(monkeypatch)(*arguments))
    assert (mu == 1).all()
    assert np.all(losses == [[-0.5, 0.25], [-0.25, 0.5]])
    assert np.all(masses == [[0.25, 0.75], [0.5, 0.5]])
    assert np.all(start == max(0.25 * 0.25 + 0.75 * 0.0625, 0.5 * 0.0625 + 0.5 * 0.25))
    for n, (atoms, d, most) in enumerate(cases):
        atoms, d = [F(a) for a in atoms], F(d)
        top = max(atoms)
        free = (d - top) / (1 - top)
        if d < top or d == top > 0:
            assert (after[n], less[n]) == (-1, 0), cases[n]
            continue
        # The most that a query may take, or all that there is.
        s = min(F(most), free * (1 - F(1, 10**9)))
        both = top + s - top * s
        width = UNITS + F(1, 10**12) * (s == free * (1 - F(1, 10**9)))
        assert after[n] == 0.75
        left = (d - both) / (1 - both) if both else d
        assert max(left, 0) - (d + s) * UNITS - width * d <= F(less[n]) <= max(left, 0) + width * d, cases[n]
        # The theorem: (1 - d') (atom + x) + d' <= (1 - d) y + d wherever y + room >= ratio x, exactly.
        kept = (1 - d) / (1 - F(less[n]))
        for atom, value in zip(atoms, room[n], strict=True):
            for x in (0, 1 - atom):
                assert x * (F(ratio[n]) * kept - 1) + 1 - kept - atom - F(value) * kept >= 0, cases[n]


@jax.enable_x64(True)
def test_a_query_that_a_gaussian_dominates_costs_no_more_than_it_and_one_that_is_no_law_is_refused(monkeypatch):
    run = stepped(monkeypatch)
    rng = np.random.default_rng(5)
    mu = np.concatenate([np.ones(5), 10.0 ** rng.uniform(-6, 1, 200)])
    dominating = np.concatenate([[0.6, 1.0, 1.1, 0.0, 1 - 2.0**-30], mu[5:] * np.tile([0.1, 0.7, 1 - 1e-9, 1.0], 50)])
    count = mu.size
    nothing = np.zeros(count)
    (after, _), _ = run(np.zeros((count, 2)), dominating, mu, nothing, nothing, nothing - 1, nothing - 1)
    np.testing.assert_allclose(after[:4], [0.8, -1.0, -1.0, 1.0], rtol=1e-14)
    with jax.enable_x64(True):
        taken = np.asarray(join(split_up(jnp.asarray(dominating))))
    for m, d, rest in zip(mu, taken, np.asarray(after), strict=True):
        exact = F(m) ** 2 - F(d) ** 2
        assert F(rest) ** 2 <= exact if rest >= 0 else exact <= F(m) ** 2 / 2**48
        assert rest < 0 or F(rest) ** 2 >= exact * (1 - F(1, 2**47)) - F(m) ** 2 / 2**48
    infinity = np.array([[np.nan, 0.0], [-0.1, 0.0], [0.0, -0.1], [1.0, 0.0], [1.5, 0.0], [0.0, 0.25]])
    some = np.ones(count)  # of one shape with those above: one program
    (after, _), (wanted, *_) = run(
        np.resize(infinity, (count, 2)), np.inf * some, some, 0.5 * some, 0.5 * some, some, some
    )
    assert np.isnan(np.asarray(wanted))[:6].tolist() == [True] * 5 + [False]
    assert np.asarray(after)[3:5].tolist() == [-1, -1]
    assert float(after[5]) == 1


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


@pytest.mark.parametrize(("scale", "charge", "ratio", "stretch"), [(1.0, 0.3, 1.0, 1.0), (0.2, 0.02, 1.3, 6.0)])
@jax.enable_x64(True)
def test_the_minorant_is_below_what_is_left_everywhere_and_near_it(monkeypatch, scale, charge, ratio, stretch):
    """f = 1 - rho R lies above the line between f at nodes, for long cells, too; D is its integral."""
    losses, masses, mu, room = scale * np.array([-1.0, 0.4, 0.9]), np.array([0.2, 0.5, 0.3]), 1.3, 0.01
    given = []
    monkeypatch.setattr(solver, "_on_cells", lambda *x: given.append(x) or x[0][:-1])
    nodes = jax.jit(solver._nodes)(mu, charge, losses, masses, room, ratio)
    if stretch > 1:  # of which only the chords are looked at
        nodes = nodes._replace(unit=nodes.unit * stretch, t=nodes.t * stretch)
    read = jax.jit(lambda: (solver.certified(mu, charge, losses, masses, ratio, nodes), given[-1]))
    (check, (value, slope, doubt, f, density, width)) = jax.tree.map(np.asarray, read())
    m2 = mu * mu - charge
    kappa = (1 / m2 - 1 / mu**2) / 2
    t = np.asarray(nodes.t)
    np.testing.assert_allclose(width, np.diff(t), rtol=1e-13)

    def left(s):
        each = masses * mu / np.sqrt(m2) * np.exp(losses * (s - losses / 2) / m2 - losses / 2 + charge / 8)
        return 1 - ratio * np.exp(-kappa * s[..., 0] ** 2) * each.sum(-1)

    inside = t[:-1] + width * np.linspace(0.0, 1.0, 21)[:, None]
    line = f[:-1] + (f[1:] - f[:-1]) * np.linspace(0.0, 1.0, 21)[:, None]
    exact = left(inside[..., None])
    assert np.all(line <= exact)
    bend = 0.25 * kappa * width.max() ** 2
    assert 1e-6 < bend < 0.5
    assert np.all(f >= left(t[:, None]) - 1.5 * bend * (1 - left(t[:, None]).min()) - 1e-11)
    if stretch > 1:
        return
    at, weights = np.polynomial.legendre.leggauss(20)
    s = t[:-1] + width * 0.5 * (1 + at[:, None])
    a = np.exp(-0.5 * (s / mu - mu / 2) ** 2) / (mu * np.sqrt(2 * np.pi)) * 0.5 * width * weights[:, None]
    line = f[:-1] + (f[1:] - f[:-1]) * 0.5 * (1 + at[:, None])
    plain, faded = ((a * w * line).sum(0) for w in (1.0, np.exp(-s)))
    plain, faded = (np.append(np.cumsum(x[::-1])[::-1], 0.0) for x in (plain, faded))
    whole = float(nodes.room) + plain - np.exp(t) * faded
    assert np.all(value <= whole + 1e-15)
    assert np.all(value >= whole - 1e-8)
    np.testing.assert_allclose(slope, np.exp(t) * faded, atol=2e-10)
    assert np.all(np.abs(slope - np.exp(t) * faded) <= doubt + 1e-15)
    assert doubt.max() < 1e-9
    np.testing.assert_allclose(density, np.exp(-0.5 * (t / mu - mu / 2) ** 2) / (mu * np.sqrt(2 * np.pi)), rtol=1e-12)
    assert bool(check.holds) == bool((value[:-1] >= 0).all())
