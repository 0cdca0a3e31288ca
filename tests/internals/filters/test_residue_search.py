"""How the residue solver searches, and what it is handed: certificates that are made up, terms out of range, limits."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxacct.filters.residues import solver


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
