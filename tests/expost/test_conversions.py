"""Table 3, its derivation by brute force, and the noise of the two accuracy checks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from jaxacct import expost

BUDGETS = np.logspace(-2, 0, 7)
TABLE_3 = [0.615943, 0.627488, 0.652359, 0.705943, 0.821387, 1.070102, 1.605943]


def test_table_3_to_six_digits():
    found = expost.approximate_epsilon(BUDGETS, order=20, delta=1e-5)
    np.testing.assert_allclose(found, TABLE_3, rtol=0, atol=5.1e-7)
    assert found.dtype == np.float64


def worst_excess(shift, order):
    """max of E[(1 - e^(shift - l))_+] over laws of l with E[e^((order - 1) l)] <= 1, by search over two points."""
    losses = np.linspace(-1.0, 30.0, 200_001)
    # One atom at l and the rest at -infinity is extremal: mass min(1, e^(-(order - 1) l)).
    return np.max(np.minimum(1, np.exp(-(order - 1) * losses)) * np.maximum(-np.expm1(shift - losses), 0))


@pytest.mark.parametrize(("order", "delta"), [(20.0, 1e-5), (2.0, 1e-2), (1.5, 0.1), (100.0, 1e-12)])
def test_the_tight_conversion_is_exactly_what_the_definition_allows(order, delta):
    plain = float(expost.approximate_epsilon(0.0, order=order, delta=delta))
    tight = float(expost.approximate_epsilon(5.0, order=order, delta=delta, tight=True)) - 5.0
    assert tight < plain
    assert worst_excess(tight, order) == pytest.approx(delta, rel=1e-4)
    # Markov's inequality is attained by the atom at the plain shift: no smaller one is good for probabilities.
    assert np.exp(-(order - 1) * plain) == pytest.approx(delta, rel=1e-9)


def test_bayes_factors_grow_past_the_bound_with_the_stated_probability_at_most():
    factor = float(expost.bayes_factor(0.1, order=20, confidence=0.99))
    assert np.log(factor) == pytest.approx(0.1 + np.log(100) / 19)
    m = 0.1 / 20
    assert stats.norm.sf(np.log(factor), m, np.sqrt(2 * m)) <= 0.01


def appendix_d(epsilon, order, sensitivity):
    """Equations 67 to 69 as printed, with t found by a generic minimiser."""

    def sigma(t):
        middle = 2 * np.sqrt(2) * sensitivity / np.sqrt((1 - t) / t)
        return (middle + np.sqrt(middle**2 + 2 * epsilon * order * sensitivity**2)) / (2 * epsilon)

    best = optimize.minimize_scalar(lambda t: np.log(sigma(t) ** 2 / t), bounds=(1e-9, 1 - 1e-9), method="bounded")
    return sigma(best.x), sigma(best.x) * np.sqrt((1 - best.x) / best.x) / np.sqrt(2), sigma(best.x) ** 2 / best.x


@pytest.mark.parametrize("setting", [(0.01, 20, 1 / 9044), (1.0, 2, 1.0), (0.3, 5, 0.1), (100.0, 50, 3.0)])
def test_sparse_vector_scales_solve_appendix_d(setting):
    epsilon, order, sensitivity = setting
    sigma, scale = (float(v) for v in expost.scales.sparse_vector_scales(epsilon, order=order, sensitivity=sensitivity))
    spent = order * sensitivity**2 / (2 * sigma**2) + 2 * sensitivity / scale
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=1e-12)
    want_sigma, want_scale, variance = appendix_d(*setting)
    assert sigma == pytest.approx(want_sigma, rel=1e-3)
    assert scale == pytest.approx(want_scale, rel=1e-3)
    assert sigma**2 + 2 * scale**2 <= variance * (1 + 1e-12), "no split of the minimiser's is better"


def test_a_sparse_vector_with_these_scales_keeps_its_renyi_bound():
    """P(first "above" is answer k) by quadrature over the threshold's noise, for the worst shift of the queries."""
    order, epsilon = 4.0, 0.8
    sigma, scale = (float(v) for v in expost.scales.sparse_vector_scales(epsilon, order=order, sensitivity=1.0))
    noise = np.linspace(-12 * sigma, 12 * sigma, 40_001)
    weight = stats.norm.pdf(noise, 0, sigma) * (noise[1] - noise[0])
    rng = np.random.default_rng(0)
    worst = -np.inf
    for _ in range(30):
        queries = rng.normal(0, 3, 6)
        laws = []
        for one in (queries, queries + rng.choice([-1.0, 0.0, 1.0], 6)):
            below = stats.laplace.cdf(noise[:, None] - one, scale=scale)
            running = np.cumprod(np.concatenate([np.ones((noise.size, 1)), below], 1), 1)
            halts = np.concatenate([running[:, :-1] * (1 - below), running[:, -1:]], 1)
            laws.append(weight @ halts)
        p, q = laws
        assert p.sum() == pytest.approx(1)
        worst = max(worst, np.log(np.sum(p**order * q ** (1 - order))) / (order - 1))
    assert 0 < worst <= epsilon


def test_plain_gaussian_answers_compose_to_the_budget():
    sigma = float(expost.scales.plain_gaussian_scale(0.01, order=20, sensitivity=1 / 9044, checks=6))
    assert 6 * 20 / (2 * (9044 * sigma) ** 2) <= 0.01
    assert sigma == pytest.approx(np.sqrt(20 * 6 / (2 * 0.01)) / 9044, rel=1e-12)


CALLS = {
    "approximate_epsilon": lambda e: expost.approximate_epsilon(e, order=20, delta=1e-5),
    "tight": lambda e: expost.approximate_epsilon(e, order=20, delta=1e-5, tight=True),
    "bayes_factor": lambda e: expost.bayes_factor(e, order=20, confidence=0.9),
    "plain_gaussian_scale": lambda e: expost.scales.plain_gaussian_scale(e, order=20, sensitivity=0.1, checks=3),
    "sparse_vector_scales": lambda e: expost.scales.sparse_vector_scales(e, order=20, sensitivity=0.1),
}


@pytest.mark.parametrize("name", CALLS)
def test_numbers_broadcast_jit_vmap_and_fail_closed(name):
    call = CALLS[name]
    eager = [np.asarray(x) for x in jax.tree.leaves(call(BUDGETS))]
    for other in (jax.jit(call)(BUDGETS), jax.vmap(call)(BUDGETS)):
        for a, b in zip(eager, jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)  # budgets enter a float32 jit rounded

    @jax.jit
    def program(x):
        return sum(jnp.sum(v.astype(x.dtype)) for v in jax.tree.leaves(call(x))) + x.sum()

    assert program(jnp.asarray(BUDGETS, jnp.float32)).dtype == jnp.float32
    for bad in (np.nan, -1.0):
        assert all(np.all(np.isinf(v)) for v in jax.tree.leaves(jax.jit(call)(bad)))
        with pytest.raises(ValueError, match="epsilon must be"):
            call(bad)


def test_scales_that_would_underflow_are_refused():
    """Zero noise would pass for noise."""
    for call in (
        lambda e, s: expost.scales.plain_gaussian_scale(e, order=2, sensitivity=s, checks=1),
        lambda e, s: expost.scales.sparse_vector_scales(e, order=2, sensitivity=s),
    ):
        with pytest.raises(ValueError, match="epsilon must be between"):
            call(1e300, 1.0)
        with pytest.raises(ValueError, match="sensitivity must be between"):
            call(1.0, 1e-200)
        with jax.enable_x64(True):
            for bad in ((1e300, 1e-300), (1.0, 1e-310)):
                assert all(np.isinf(v) for v in jax.tree.leaves(jax.jit(call)(*bad)))


def test_an_infinite_epsilon_stays_infinite():
    assert np.isinf(expost.approximate_epsilon(np.inf, order=20, delta=1e-5))
    found = expost.ExPostResult(0, np.inf, expost.RenyiExPost(20))
    assert np.isinf(expost.convert(found, expost.ApproximateExPost(1e-5)).epsilon)
    assert "epsilon inf" in expost.loop.Released(found, 1, True, np.zeros(3)).report()
