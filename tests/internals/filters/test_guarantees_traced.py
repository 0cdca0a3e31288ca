"""Guarantees inside compiled programs, where nothing can raise: what makes no sense is worth no privacy at all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.filters.guarantees import of_parameters as _guarantees

# From a parameter to a guarantee, and what a delta of 0 still promises.
KINDS = {
    "pure": (lambda p: _guarantees.PureDPGuarantee(p, ""), 0.7),
    "concentrated": (lambda p: _guarantees.ZCDPGuarantee(p, ""), np.inf),
    "concentrated and fails": (lambda p: _guarantees.ZCDPGuarantee(p, "", 1e-6), np.inf),
    "fails": (lambda p: _guarantees.ZCDPGuarantee(jnp.asarray(0.5), "", p), np.inf),
    "first order": (lambda p: _guarantees.AnyOrderGuarantee(jnp.stack([p, 0 * p], -1), (3.0, 8.0), ""), np.inf),
    "last order": (lambda p: _guarantees.AnyOrderGuarantee(jnp.stack([0 * p, p], -1), (3.0, 8.0), ""), np.inf),
    "gdp and a slack": (lambda p: _guarantees.GDPGuarantee(p, "", fails=jnp.asarray(1e-6)), np.inf),
    "a slack": (lambda p: _guarantees.GDPGuarantee(jnp.asarray(0.5), "", fails=p), np.inf),
}


@pytest.mark.parametrize("name", KINDS)
@jax.enable_x64(True)
def test_what_is_no_parameter_no_delta_or_no_epsilon_is_worth_nothing(name, monkeypatch):
    # Stand-ins that compile quickly; what the conversions themselves make of such numbers is tested with them.
    good = lambda p, x: (p >= 0) & (p < np.inf) & (x >= 0)  # noqa: E731
    for module, notion in ((_guarantees, "zcdp"), (_guarantees, "gdp")):
        inverse = lambda p, d: jnp.where(good(p, d), p * jnp.maximum(-jnp.log(d), 0.0), np.inf)  # noqa: E731
        monkeypatch.setattr(module, f"{notion}_epsilon", inverse)
        monkeypatch.setattr(module, f"{notion}_delta", lambda p, e: jnp.where(good(p, e), jnp.exp(-e / p), 1.0))
    make, at_zero = KINDS[name]
    read = jax.jit(lambda p, d, e: (make(p).epsilon(d), make(p).delta(e)))
    parameters = np.array([0.7, np.nan, -1.0, np.inf, 3.0])
    deltas, epsilons = np.array([0.95, 0.0, -1.0, np.nan, 1.0, 2.0]), np.array([0.3, -1.0, np.nan])
    epsilon, delta = (np.asarray(x) for x in read(parameters, deltas[:, None], epsilons[:, None]))
    assert 0 <= epsilon[0, 0] < 1
    assert 0 < delta[0, 0] < 1
    assert (epsilon[1:4, 0] == at_zero).all()
    assert (epsilon[4:, 0] < 1e-14).all()
    assert (delta[1:, 0] == 1).all()
    assert (epsilon[:4, 1:4] == np.inf).all()
    assert (delta[:, 1:4] == 1).all()
    if name in ("fails", "a slack"):  # more than 1 is no probability
        assert (epsilon[:4, 4] == np.inf).all()
        assert (delta[:, 4] == 1).all()
