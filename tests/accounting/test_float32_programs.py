"""Float64 code inside a user's float32 program: everything lowers, and encloses what it does outside."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxacct
from jaxacct import LossGrid, PrivacyProfile, expost, mechanisms
from jaxacct.losses.compare import gaussian_order
from jaxacct.losses.compare.chain import is_chain

GRID = LossGrid(0.02, -200, 401)


def test_orders_of_curves():
    wide, narrow = (
        [PrivacyProfile.from_mechanism(mechanisms.Laplace(s), grid=GRID, bound=bound) for bound in ("upper", "lower")]
        for s in (1.0, 2.0)
    )
    best = jax.jit(lambda a, b: jaxacct.supremum([a, b]))(wide[1], narrow[1])
    np.testing.assert_allclose(best.excess, wide[1].excess, atol=1e-7)
    chain = jax.jit(lambda a, b: is_chain([a, b]))(wide[0], narrow[0])
    assert chain.verdict == is_chain([wide[0], narrow[0]]).verdict
    order = jax.jit(jaxacct.dominates)(wide[0], narrow[1])
    assert order.verdict == jaxacct.dominates(wide[0], narrow[1]).verdict
    inside, outside = (jax.tree.map(float, mu(wide[0])) for mu in (jax.jit(gaussian_order.mu_of), gaussian_order.mu_of))
    assert inside.dominated <= outside.dominating
    assert inside.dominating >= outside.dominated


def test_post_processing_of_tables():
    table, epsilons = jnp.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]), jnp.array([0.1, 0.1, 0.3])
    kernel = jnp.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])
    inside = jax.jit(expost.exact.post_processed_table)(table, epsilons, kernel)
    outside = expost.exact.post_processed_table(table, epsilons, kernel)
    for a, b in zip(inside, outside, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
