"""Float64 code inside a user's float32 program: everything lowers, and encloses what it does outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import FromTables, LossGrid, PrivacyProfile, expost, mechanisms
from jaxacct.losses.compare import gaussian_order
from jaxacct.losses.compare.chain import is_chain

GRID = LossGrid(0.02, -200, 401)
P, Q = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.5, 0.3])
MECHANISMS = {
    "tables": lambda: FromTables(P, Q),
    "sampled tables": lambda: mechanisms.PoissonSampled(FromTables(P, Q), 0.2),
    "categories": lambda: mechanisms.RandomizedResponse(1.0, 4),
    "profile": lambda: mechanisms.FromProfile([0.0, 1.0], [0.2, 0.01]),
    "Laplace": lambda: mechanisms.Laplace(2.0),
    "integer Laplace": lambda: mechanisms.DiscreteLaplace(2.0),
    "integer Gaussian": lambda: mechanisms.DiscreteGaussian(2.0),
    "exponential": lambda: mechanisms.Exponential(0.5),
    "mixture": lambda: mechanisms.RandomSensitivityGaussian(2.0, [0.0, 1.0], [0.5, 0.5]),
    "GDP": lambda: mechanisms.GDP(0.5),
    "zCDP": lambda: mechanisms.ZeroConcentratedDP(0.1),
    "schedule": lambda: mechanisms.Composed([FromTables(P, Q), mechanisms.Gaussian(2.0)], [2, 3]),
}


def check(name):
    mechanism = MECHANISMS[name]()
    outside = jaxacct.delta(mechanism, 0.5, steps=3)
    inside = jax.jit(lambda at: jaxacct.delta(mechanism, at, steps=3))(jnp.float32(0.5))
    assert inside.upper.dtype == jnp.float32
    assert inside.lower <= outside.upper
    assert outside.lower <= inside.upper <= outside.upper * 1.01


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_compositions_of_anything(name):
    check(name)


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
