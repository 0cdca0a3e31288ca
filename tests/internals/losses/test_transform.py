"""Transforms of a few losses, term by term, and what their roundings are charged."""

import jax
import numpy as np

from jaxacct.losses.engines.contour.transform import transform

RNG = np.random.default_rng(0)
LOSSES = RNG.normal(size=(2, 3, 5))
WEIGHTS = RNG.dirichlet(np.ones(5), (2, 3))
LOSSES -= (LOSSES * WEIGHTS).sum(-1, keepdims=True)
SPACING, NODES = np.array([0.4, 0.03]), 16
PHASES = LOSSES[:, :, None, :] * (SPACING[:, None] * np.arange(NODES))[:, None, :, None]
EXACT = (WEIGHTS[:, :, None, :] * np.exp(1j * PHASES)).sum(-1)


def test_in_double_precision_every_node_is_charged_alike():
    found = transform(LOSSES, WEIGHTS, SPACING, NODES)
    np.testing.assert_allclose(found.error, 2.0**-53 * (80 + 10 * 4 + 3 * 5), rtol=1e-14)
    assert np.all(np.abs(found.real + 1 - EXACT.real) <= found.error)
    assert np.all(np.abs(found.imag - EXACT.imag) <= found.error)
    with jax.enable_x64(True):
        ours = jax.jit(lambda *given: transform(*given, NODES))(LOSSES, WEIGHTS, SPACING)
    for one, other in zip(ours, found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-14)
