"""What an atom, a Gaussian and a slack leave of a budget, in fractions."""

from __future__ import annotations

import importlib
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct.filters.guarantees import of_parameters as guarantees

# The package's name for this is the function's.
residue = importlib.import_module("jaxacct.filters.residues.gdp_residue")
RNG = np.random.default_rng(4)


def test_a_slack_hands_on_less_than_is_left_and_takes_back_more():
    curve = guarantees.Curve("mu", lambda mu, delta: delta, lambda mu, epsilon: jnp.asarray(epsilon), lambda mu: None)
    slack = np.concatenate([10.0 ** RNG.uniform(-18, -0.1, 60), [0.0]])
    delta = np.minimum(slack * np.resize([1 + 1e-9, 1.5, 1e3, 1.0], 61), 0.999)
    delta[-1] = 0.1
    part = np.minimum(RNG.uniform(0.0, 1.5, 61), 1.0)
    with jax.enable_x64(True):
        guarantee = guarantees.ParameterGuarantee(curve, jnp.float64(1.0), "", fails=jnp.asarray(slack))
    assert guarantee.is_bound is True
    left, whole = np.asarray(guarantee.epsilon(delta)), np.asarray(guarantee.delta(part))
    for s, d, rest, v, total in zip(slack, delta, left, part, whole, strict=True):
        s, d, v = Fraction(s), Fraction(d), Fraction(v)
        exact, lost = (d - s) / (1 - s), (2 * d - s) / (1 - s) / 2**48
        if rest == np.inf:
            assert exact <= lost
        else:
            assert 0 < Fraction(rest) <= exact <= Fraction(rest) + lost
        exact = s + (1 - s) * v
        assert exact * (1 - Fraction(1, 2**60)) <= Fraction(total) <= min(exact * (1 + Fraction(1, 2**48)), 1)


@jax.enable_x64(True)
def test_after_an_atom_and_after_a_gaussian_less_is_left_than_there_was():
    delta, atom = 10.0 ** RNG.uniform(-9, -0.1, 50), 10.0 ** RNG.uniform(-12, -0.2, 50)
    atom[:4], delta[4:6], atom[4:6] = 0.0, (0.3, 0.0), (0.3, 0.0)
    atom_taken, gaussian_taken = jax.jit(residue._after_atom), jax.jit(residue._after_gaussian)
    atom[6], delta[6] = 1.0, 0.5
    left, payable = (np.asarray(x) for x in atom_taken(delta, atom))
    for d, a, rest, can in zip(delta.tolist(), atom.tolist(), left.tolist(), payable.tolist(), strict=True):
        if a == 1:
            assert not can
            continue
        exact = (Fraction(d) - Fraction(a)) / (1 - Fraction(a))
        if a == 0:
            assert (rest, can) == (d, True)
            continue
        near = Fraction(d) / 2**49
        assert 0 <= Fraction(rest) <= max(exact, 0)
        assert max(exact, 0) - Fraction(rest) <= near + max(exact, 0) / 2**49
        assert not can or exact >= 0
        assert can or exact <= near
    mu, cost = RNG.uniform(0.1, 3.0, 50), RNG.uniform(0.0, 9.0, 50)
    cost[:3], cost[3] = 0.0, mu[3] ** 2
    after = np.asarray(gaussian_taken(mu, cost))
    for m, c, rest in zip(mu.tolist(), cost.tolist(), after.tolist(), strict=True):
        exact = Fraction(m) ** 2 - Fraction(c)
        if rest < 0:
            assert rest == -1
            assert exact < Fraction(m) ** 2 / 2**50
        else:
            assert Fraction(rest) ** 2 <= max(exact, 0) + Fraction(m) ** 2 / 2**52
            assert exact * (1 - Fraction(1, 2**46)) - Fraction(m) ** 2 / 2**50 <= Fraction(rest) ** 2
        assert c > 0 or rest == m
    bad = np.resize([1.0, np.nan, 1.0, -0.1, 0.0, 0.0, -1.0, 0.5, np.nan, 0.0], (50, 2)).T
    assert (np.asarray(gaussian_taken(*bad)) == -1).all()
