"""One step of the residue filter, in fractions: what atoms, a slack and Gaussians take, hand on and leave room for."""

from __future__ import annotations

import importlib
from fractions import Fraction as F

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.pieces import join, split_up
from jaxacct.filters.residues.prepare import Prepared

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
        wanted = 1 / (1 - both)
        assert wanted * (1 - width) <= F(ratio[n]) <= wanted * (1 + width), cases[n]
        for atom, value in zip(atoms, room[n], strict=True):
            exact = (both - atom) / (1 - both)
            assert exact * (1 - width) - width * s <= F(value) <= exact * (1 + width * (s > 0)) + width * s, cases[n]
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
