"""Transforms of a few losses, term by term, and what their roundings are charged."""

import jax
import numpy as np

from jaxacct.losses.engines.contour.transform import transform, transform_float32

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


def test_in_single_precision_every_node_is_charged_what_its_phases_may_be_off_by():
    given = (x.astype(np.float32) for x in (LOSSES, WEIGHTS, SPACING))
    found = jax.jit(lambda *given: transform_float32(*given, NODES))(*given)
    assert {x.dtype for x in found} == {np.dtype(np.float32)}
    found = jax.tree.map(lambda x: np.asarray(x, np.float64), found)
    second, third = 2 * np.sin(PHASES / 2) ** 2, np.abs(PHASES - np.sin(PHASES))
    size = (5 + 24) * (second + third) + 4 * np.abs(PHASES) * (np.abs(np.sin(PHASES)) + second)
    np.testing.assert_allclose(
        found.error, 2.0**-24 * (WEIGHTS[:, :, None, :] * size).sum(-1) * 1.01 + 1e-30, rtol=1e-4
    )
    # The sum of sin(x) is that of sin(x) - x where the mean is 0.
    assert np.all(np.abs(found.real + 1 - EXACT.real) <= found.error + 1e-15)
    assert np.all(np.abs(found.imag - EXACT.imag) <= found.error + 1e-15)
