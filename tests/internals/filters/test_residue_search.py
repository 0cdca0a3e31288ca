"""How the residue solver searches, and what it is handed: certificates that are made up, terms out of range, limits."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.filters.residues import solver

NO_NODES = solver.Nodes(*[np.zeros(())] * 10)
LAW = np.array([[0.0, 0.5]]), np.array([[0.5, 0.5]])


def searched(monkeypatch, holds, step, tries, tolerance=1e-4):
    """`largest` of (mu, start, root), certificates ``holds`` and ``step`` of (charge, what nodes are for, root).

    The root is handed through in place of the ratio.
    """
    monkeypatch.setattr(solver, "_nodes", lambda mu, at, *_: NO_NODES._replace(unit=at))
    made = lambda mu, charge, x, p, root, nodes: solver.Check(  # noqa: E731
        holds(charge, nodes.unit, root), step(charge, nodes.unit, root)
    )
    monkeypatch.setattr(solver, "certified", made)
    run = lambda mu, start, root: solver.largest(mu, *LAW, np.zeros(1), root, start, tolerance, tries)  # noqa: E731
    return jax.jit(jax.vmap(run))


@jax.enable_x64(True)
def test_the_root_of_what_is_left_is_rounded_down_by_a_few_units(monkeypatch):
    rng = np.random.default_rng(3)
    mu = 10.0 ** rng.uniform(-2, 1, 32)
    root = mu * mu * rng.uniform(1e-6, 0.5, 32)
    run = searched(monkeypatch, lambda c, _, root: c >= root, lambda c, _, root: root - c, 5, tolerance=0.0)
    for m, r, left in zip(mu, root, np.asarray(run(mu, root, root)), strict=True):
        exact = Fraction(m) ** 2 - Fraction(r)
        assert exact * (1 - Fraction(1, 2**47)) <= Fraction(left) ** 2 <= exact


@jax.enable_x64(True)
def test_where_nothing_is_certain_or_there_is_no_budget_nothing_is_found(monkeypatch):
    never = searched(monkeypatch, lambda c, *_: c < 0, lambda c, *_: c, 9)
    assert (np.asarray(never(np.array([1.0, 5.0]), np.full(2, 0.1), np.ones(2))) == -1).all()
    always = searched(monkeypatch, lambda c, *_: c > 0, lambda c, *_: -0.5 * c, 60)
    found = np.asarray(always(np.array([1.0, 0.0, -1.0, np.nan, np.inf]), np.full(5, 0.1), np.ones(5)))
    assert 1 - 1e-12 <= found[0] <= 1
    assert (found[1:] == -1).all()
    # One direction that says no is enough.
    monkeypatch.setattr(solver, "certified", lambda mu, charge, x, *_: solver.Check((x[1] > 0) & (charge > 0.1), 0.0))
    for sign, wanted in ((1.0, True), (-1.0, False)):
        losses, masses = np.array([[0.0, 0.5], [0.0, 0.5 * sign]]), np.full((2, 2), 0.5)
        best = solver.largest(jnp.float64(1.0), losses, masses, np.zeros(2), 1.0, 0.2, 1e-4, 40)
        assert (float(best) > 0) == wanted


@jax.enable_x64(True)
def test_terms_out_of_range_are_replaced_by_their_maximum_and_others_are_not():
    unit, kappa = 0.01, 0.05
    nodes, _, offsets = solver._pattern(3)
    end, furthest = nodes[-1] * unit, offsets.max() * unit
    run = jax.jit(solver._at_nodes)
    kept = 600.0 / furthest - 2 * kappa * end
    for share, near in ((1 - 1e-9, True), (1 + 1e-9, False)):
        for sign in (1.0, -1.0):
            rates = np.array([sign * kept * share, 0.3, -0.2])
            constant = np.array([-3.0 - max(rates[0], 0.0) * end, -1.0, -2.0])
            found = np.asarray(run(constant, rates, kappa, unit, end))
            t = nodes * unit
            each = np.exp(constant[:, None] + rates[:, None] * t - kappa * t * t)
            allowed = 1e-10 * each.sum(0)
            assert np.all(found >= each.sum(0) - allowed)
            extra = 0.0 if near else np.exp(-3.0)
            np.testing.assert_allclose(found, each[1 if not near else 0 :].sum(0) + extra, rtol=1e-9)


@jax.enable_x64(True)
def test_nodes_fit_up_to_the_last_budget_and_the_widest_cell_that_the_quadratures_error_is_proven_for():
    losses, masses = np.array([-0.1, 0.1]), np.array([0.4, 0.6])
    make = jax.jit(lambda mu, charge, room: solver._nodes(mu, charge, losses, masses, room, 1.0))
    for mu, room, good in (
        (1.0, 0.0, True), (1.0, 1e-6, True), (1.0, -1e-300, False), (1.0, np.nan, False), (20.0, 0.0, True),
        (20.001, 0.0, False), (0.2, 0.0, True), (np.nan, 0.0, False),
    ):  # fmt: skip
        assert bool(make(mu, 0.5 * mu * mu, room).fit) == good, (mu, room)
    # What makes underflow impossible.
    assert max(solver._pattern(n)[0][-1] for n in (1, 2, 16, 32, 64, 128, 1000)) <= 766
    seen = []
    for mu in (1.0, 8.0):
        for charge in mu * mu * np.geomspace(1e-4, 0.1, 120) / mu:
            nodes = make(mu, charge, 0.0)
            t, unit = np.asarray(nodes.t), float(nodes.unit)
            widest = 2 * unit * (t[-1] / mu + 0.5 * mu) / mu
            assert abs(widest - 2) < 1e-9 or bool(nodes.fit) == (widest <= 2), charge
            assert not nodes.fit or (t[-1] < 28 * mu and 2 * unit <= mu / 7)
            seen.append(widest)
    assert max(x for x in seen if x < 2) > 1.8
    assert min(x for x in seen if x > 2) < 2.2


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
    # The allowance for rounding: some units of the exponents' sizes.
    sizes = 100 + kappa * t[-1] ** 2 + t[-1] ** 2 / m2 + scale * ((t[-1] + scale) / m2 + 1) + mu * mu / 8
    last = (1 - f[-1]) / (1 - left(t[-1:, None])[0]) - 1
    top = 0.25 * kappa * width[-1] ** 2
    around = (1 - left(t[-2:, None])).max() / (1 - left(t[-1:, None])[0])
    assert 16 * sizes * 2.0**-52 <= last - top / (1 - top) * around <= 64 * sizes * 2.0**-52 + 2e-14 + 1e-12
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


@jax.enable_x64(True)
def test_the_allowance_for_rounding_goes_with_the_size_of_every_exponent(monkeypatch):
    given = []
    monkeypatch.setattr(solver, "_on_cells", lambda *x: given.append(x[3]) or x[0][:-1])
    monkeypatch.setattr(solver, "_at_nodes", lambda constant, rates, kappa, unit, end: jnp.ones(512))
    masses = np.array([0.4, 0.6])

    @jax.jit
    def read(mu, charge, reach, end):
        t = end * solver._pattern(2)[0] / 766.0
        nodes = solver.Nodes(end / 766.0, t, t, t, *np.zeros((2, 2, 511)), 0.0, False, 0.0, True)
        solver.certified(mu, charge, reach * np.array([-1.0, 0.5]), masses, 1.0, nodes)
        return given[-1]

    assert solver._pattern(2)[0].size == 512
    # Each term has its turn: of the constant, of either square of the end, of the losses (two), of mu.
    for mu, charge, reach, end in (
        (1.0, 0.01, 0.1, 0.5), (2.0, 3.96, 1e-3, 6.0), (2.0, 0.01, 1e-3, 40.0), (1.0, 0.1, 20.0, 20.0),
        (0.3, 0.001, 8.0, 0.1), (10.0, 0.1, 900.0, 0.1), (19.0, 0.1, 0.01, 1.0), (100.0, 1.0, 0.01, 0.1),
    ):  # fmt: skip
        m2 = mu * mu - charge
        kappa = (1 / m2 - 1 / mu**2) / 2
        sizes = [100, kappa * end**2, end**2 / m2, reach * (end + reach) / m2, reach, mu * mu / 8]
        bend = 0.25 * kappa * (2 * end / 766) ** 2
        # f is 1 less what stands at the node and what the chord may hide.
        found = (1 - float(read(mu, charge, reach, end)[-1])) / (1 + 1e-14) - 1 - bend / (1 - bend)
        allowed = (found - 1e-14) * 2.0**52
        assert 24 * sum(sizes) <= allowed <= 40 * sum(sizes) + 50, (mu, charge, reach, end)
