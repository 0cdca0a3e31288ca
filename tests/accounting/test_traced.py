"""delta and epsilon inside every transformation, in float32 and in float64 programs: the bounds of the eager call."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import (
    Composed,
    FromTables,
    Gaussian,
    Laplace,
    LossGrid,
    PoissonSampled,
    PrivacyProfile,
    RandomizedResponse,
    mechanisms,
)
from jaxacct.losses.compare import gaussian_order
from jaxacct.losses.compare.chain import is_chain

SIGMAS = np.array([0.875, 1.0, 1.25])  # float32 numbers
P, Q = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.5, 0.3])
BOTH = pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])


def program(wide):
    return jax.enable_x64(True) if wide else contextlib.nullcontext()


def sampled(sigma, rate=0.015625):
    return PoissonSampled(Gaussian(sigma), rate)


def bounds(sigma):
    return jaxacct.epsilon(sampled(sigma), 2.0**-16, steps=1000)


def upper(sigma):
    return bounds(sigma).upper


@pytest.fixture(scope="module")
def exact():
    return bounds(SIGMAS)


def check(found, exact, wide):
    """The eager bounds, or the float32 numbers next to them, outside of them."""
    lower, upper = (np.asarray(x) for x in found)
    if wide:
        np.testing.assert_array_equal(lower, exact.lower)
        np.testing.assert_array_equal(upper, exact.upper)
        return
    assert lower.dtype == upper.dtype == np.float32
    assert np.all(lower <= exact.lower)
    assert np.all(exact.lower < np.nextafter(lower, np.float32(np.inf)))
    assert np.all(np.nextafter(upper, np.float32(-np.inf)) < exact.upper)
    assert np.all(exact.upper <= upper)


ORDERS = {
    "jit of an array": lambda x: jax.jit(bounds)(x),
    "vmap": lambda x: jax.vmap(bounds)(x),
    "jit(vmap)": lambda x: jax.jit(jax.vmap(bounds))(x),
    "vmap(jit)": lambda x: jax.vmap(jax.jit(bounds))(x),
    "vmap(vmap)": lambda x: jax.tree.map(lambda y: y[0], jax.vmap(jax.vmap(bounds))(x[None])),
    "scan": lambda x: jax.jit(lambda x: jax.lax.scan(lambda c, s: (c, bounds(s)), 0, x)[1])(x),
    "map": lambda x: jax.jit(lambda x: jax.lax.map(bounds, x))(x),
    "cond": lambda x: jax.jit(lambda x: jax.lax.cond(x[0] < 1, bounds, lambda x: bounds(x + 1), x))(x),
    "remat": lambda x: jax.jit(jax.checkpoint(bounds))(x),
}


@BOTH
@pytest.mark.parametrize("order", ORDERS)
def test_every_transformation_gives_the_eager_bounds(order, wide, exact):
    with program(wide):
        found = ORDERS[order](jnp.asarray(SIGMAS))
        again = ORDERS[order](SIGMAS)  # whose elements vmap calls float32 while their buffers are float64
    if order in ("scan", "map"):  # which asks one by one; NumPy rounds an array's last entries in its own way
        exact = jaxacct.Bounds(*np.array([bounds(sigma) for sigma in SIGMAS]).T)
    check(found, exact, wide)
    check(again, exact, wide)


@BOTH
def test_a_while_loop_may_ask(wide):
    def enough(sigma):
        return jax.lax.while_loop(lambda s: upper(s) > 0.5, lambda s: s * 1.25, sigma)

    with program(wide):
        one, many = jax.jit(enough)(1.0), jax.jit(jax.vmap(enough))(jnp.array([1.0, 4.0]))
    assert upper(float(one)) <= 0.5 < upper(float(one) / 1.25)
    np.testing.assert_array_equal(many, [one, 4.0])


DERIVATIVES = {
    "grad": lambda x: [jax.grad(upper)(s) for s in x],
    "grad(jit)": lambda x: [jax.grad(jax.jit(upper))(s) for s in x],
    "jit(grad)": lambda x: [jax.jit(jax.grad(upper))(s) for s in x],
    "vmap(grad)": lambda x: jax.vmap(jax.grad(upper))(x),
    "jit(vmap(grad))": lambda x: jax.jit(jax.vmap(jax.grad(upper)))(x),
    "vmap(jit(grad))": lambda x: jax.vmap(jax.jit(jax.grad(upper)))(x),
    "grad(vmap)": lambda x: jax.grad(lambda x: jax.vmap(upper)(x).sum())(x),
    "grad of an array": lambda x: jax.jit(jax.grad(lambda x: upper(x).sum()))(x),
    "jacfwd": lambda x: jnp.diag(jax.jacfwd(upper)(x)),
    "jacrev": lambda x: jnp.diag(jax.jacrev(upper)(x)),
    "jvp": lambda x: jax.jvp(upper, (x,), (jnp.ones_like(x),))[1],
    "scan": lambda x: jax.jit(jax.grad(lambda x: jax.lax.scan(lambda c, s: (c + upper(s), 0), 0.0, x)[0]))(x),
}


@BOTH
@pytest.mark.parametrize("order", DERIVATIVES)
def test_every_order_of_differentiation_gives_the_slope_of_the_bounds(order, wide):
    truth = (upper(SIGMAS * (1 + 1e-4)) - upper(SIGMAS * (1 - 1e-4))) / (2e-4 * SIGMAS)
    with program(wide):
        found = np.asarray(DERIVATIVES[order](jnp.asarray(SIGMAS)))
    np.testing.assert_allclose(found, truth, rtol=1e-6)


def central(value, numbers, place, step):
    """The slope of ``value`` in one of its numbers, by a difference."""
    ends = [value(*(x + sign * step if i == place else x for i, x in enumerate(numbers))) for sign in (-1, 1)]
    return (ends[1] - ends[0]) / (2 * step)


@pytest.mark.parametrize("kind", ["epsilon", "delta"])
def test_derivatives_in_every_number(kind):
    def value(sigma, sensitivity, rate, target, first, second):
        parts = [PoissonSampled(Gaussian(sigma, sensitivity), rate), sampled(2.0)]
        return getattr(jaxacct, kind)(Composed(parts, [first, 50]), target, steps=second).upper

    numbers = (1.0, 1.125, 0.02, 1e-5 if kind == "epsilon" else 1.5, 100.0, 3.0)
    with jax.enable_x64(True):
        found = jax.grad(value, range(6))(*numbers)
    for place, slope in enumerate(found):
        step = 1.0 if place >= 4 else 1e-4 * numbers[place]  # steps are whole numbers
        rtol = {4: 1e-4, 5: 0.1}.get(place, 1e-6)
        np.testing.assert_allclose(slope, central(value, numbers, place, step), rtol=rtol)


@pytest.mark.parametrize(
    ("mechanism", "target"),
    [
        (Laplace, 2.0**-9),
        (lambda s: PoissonSampled(Laplace(s), 0.25), 2.0**-5),
        (lambda s: jaxacct.RandomSensitivityGaussian(s, (0.0, 1.0, 2.0), (0.5, 0.25, 0.25)), 2.0**-9),
        (RandomizedResponse, 2.0**-9),
        (sampled, 2.0**-9),
        (lambda s: PoissonSampled(FromTables(P, Q), s / 4), 2.0**-9),
    ],
)
def test_one_run_of_anything_has_derivatives(mechanism, target):
    value = lambda s, at: jaxacct.epsilon(mechanism(s), at).upper  # noqa: E731
    numbers = (1.25, target)
    with jax.enable_x64(True):
        found = jax.jit(jax.grad(value, (0, 1)))(*numbers)
    for place, slope in enumerate(found):
        np.testing.assert_allclose(slope, central(value, numbers, place, 1e-5 * numbers[place]), rtol=1e-5)


def test_derivatives_are_0_where_nothing_moves_and_nan_where_nothing_is_known():
    # Ten runs lose at most 10 log(1 / 0.99) in this direction.
    add = lambda s: jaxacct.delta(PoissonSampled(Gaussian(s), 0.01), 1.0, steps=10, relation="add").upper  # noqa: E731
    assert jax.grad(add)(1.0) == 0.0
    assert np.isnan(jax.grad(upper)(-1.0))
    assert np.isnan(jax.jit(jax.grad(lambda s: jaxacct.epsilon(Gaussian(s), 1e-5).upper))(np.nan))


def test_what_has_no_derivative_and_what_has_no_analysis_says_so():
    with pytest.raises(ValueError, match="no analysis"):
        jax.jit(lambda s: jaxacct.delta(PoissonSampled(jaxacct.Skellam(s), 0.1), 1.0, relation="replace"))(9.0)
    with pytest.raises(NotImplementedError, match="take finite differences"):
        jax.grad(lambda s: jaxacct.epsilon(RandomizedResponse(s), 1e-5, steps=3).upper)(1.0)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        jax.grad(jax.grad(upper))(1.0)
    table = jnp.array([0.5, 0.25, 0.25])
    with pytest.raises(NotImplementedError, match="entries of a table"):
        jax.grad(lambda p: jaxacct.delta(FromTables(p, p[::-1]), 0.5).upper)(table)


def test_wrong_traced_numbers_fail_closed_one_by_one():
    sigmas = jnp.array([1.0, -1.0, 0.0, jnp.nan, jnp.inf])
    for run in (jax.vmap(bounds), jax.jit(jax.vmap(bounds)), jax.jit(bounds)):
        found = run(sigmas)
        assert np.isfinite(found.upper[0])
        assert np.all(found.upper[1:] == np.inf)
    assert np.all(jax.jit(lambda s: jaxacct.delta(sampled(s), 1.0, steps=9))(sigmas).upper[1:] == 1.0)
    assert jax.jit(lambda d: jaxacct.epsilon(Gaussian(1.0), d))(-1.0).upper == np.inf
    for rho in (-1.0, np.nan):
        assert jax.jit(lambda rho: jaxacct.delta(jaxacct.ZeroConcentratedDP(rho), 1.0))(rho).upper == 1.0


def test_axes_of_vmap_come_before_those_of_settings():
    sigmas, deltas = np.array([[1.0], [2.0]]), np.array([2.0**-16, 2.0**-12, 2.0**-8])
    ask = lambda sigma, steps: jaxacct.epsilon(Gaussian(sigma), deltas, steps=steps)  # noqa: E731
    found = jax.jit(jax.vmap(ask, (0, None)))(sigmas, jnp.array([[1.0], [4.0]]))
    assert found.upper.shape == (2, 2, 3)
    check(found, jaxacct.epsilon(Gaussian(sigmas[:, :, None]), deltas, steps=np.array([[1.0], [4.0]])), False)
    found = jax.vmap(jax.vmap(ask, (0, None)), (None, 0))(sigmas[:, 0], np.array([1.0, 4.0]))
    check(found, jaxacct.epsilon(Gaussian(sigmas), deltas, steps=np.array([1.0, 4.0])[:, None, None]), False)
    slopes = jax.vmap(jax.grad(lambda s, t: ask(s, t).upper.sum()), (0, None))(sigmas[:, 0], 2.0)
    assert slopes.shape == (2,)


def test_bounds_below_the_smallest_normal_number_are_rounded_outwards():
    ask = lambda s: jaxacct.delta(Gaussian(s), 2.0)  # noqa: E731
    tiny, sigmas = np.finfo(np.float32).tiny, np.array([6.0, 6.5, 7.0, 16.0])
    exact, found = ask(sigmas), jax.jit(ask)(sigmas)
    below = exact.upper < tiny
    assert 0 < below.sum() < 4
    assert np.all(found.lower[below] == 0)
    assert np.all(found.upper[below] == tiny)
    check([x[~below] for x in found], jaxacct.Bounds(*(x[~below] for x in exact)), False)
    # A delta of exactly 0 stays 0.
    assert jax.jit(lambda e: jaxacct.delta(Laplace(2.0), e))(1.0) == (0.0, 0.0)


def test_programs_without_callbacks_hold_the_formulas():
    def calls(program):
        return "python_cpu_callback" in program

    ask = jax.jit(lambda s: jaxacct.epsilon(Laplace(s), 2.0**-9))
    exact = jaxacct.epsilon(Laplace(2.0), 2.0**-9)
    assert calls(ask.lower(2.0).as_text())
    with jaxacct.without_callbacks():  # the same function: contexts are a part of what caches of programs go by
        assert not calls(ask.lower(2.0).as_text())
        lower, upper = ask(2.0)
    assert lower <= exact.lower
    assert exact.upper <= upper <= exact.upper * (1 + 1e-6)
    assert not calls(jax.export.export(ask)(2.0).mlir_module())
    assert not calls(ask.trace(2.0).lower(lowering_platforms=("cuda",)).as_text())


def formulas(make, noise, steps, kind, target, wide):
    """Eager bounds, and those of a program without callbacks."""
    ask = lambda s: getattr(jaxacct, kind)(make(s), target, steps=steps)  # noqa: E731
    with program(wide), jaxacct.without_callbacks():
        found = jax.jit(jax.vmap(ask))(jnp.asarray(noise))
    return ask(noise), *(np.asarray(x, np.float64) for x in found)


ALONE = {  # widths of an epsilon of few settings, and of a delta or of many settings
    "sampled Gaussian": (sampled, 1000, {"epsilon": 4e-3, "delta": 1e-7}),
    "Laplace": (lambda s: Laplace(8.0 * s), 100, {"epsilon": 2e-3, "delta": 1e-4}),
    "composed": (lambda s: Composed([sampled(s), Laplace(16.0)], [50, 2]), 20, {"epsilon": 4e-3, "delta": 1e-4}),
}


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("kind", ["epsilon", "delta"])
@pytest.mark.parametrize("name", ALONE)
def test_formulas_in_a_program_are_as_tight_as_eager_bounds(name, kind, wide):
    make, steps, width = ALONE[name]
    exact, lower, upper = formulas(make, SIGMAS, steps, kind, 2.0**-16 if kind == "epsilon" else 0.5, wide)
    width = width[kind] if wide else width[kind] + 2.0**-22
    assert np.all((lower <= exact.upper) & (exact.lower <= upper))
    assert np.all((exact.lower * (1 - width) <= lower) & (upper <= exact.upper * (1 + width)))


@pytest.mark.slow
def test_formulas_of_many_settings_are_tighter_than_those_of_few():
    exact, lower, upper = formulas(sampled, np.linspace(0.875, 1.25, 9), 1000, "epsilon", 2.0**-16, True)
    assert np.all((lower <= exact.upper) & (exact.lower <= upper))
    assert np.all(upper <= exact.upper * (1 + 1e-7))


# Runs with atoms at the ends of their losses or in few places, and counts with and without odd digits.
OUTCOMES = np.random.default_rng(0).dirichlet(np.full(500, 20.0), 2)
ATOMS = {
    "sampled Laplace": (lambda s: PoissonSampled(Laplace(s), 5e-5), 0.75, 4655, 6.65e-4),
    "rare sampled Laplace": (lambda s: PoissonSampled(Laplace(s), 8.4e-4), 8.5, 8752, 7e-9),
    "Laplace and a sample": (
        lambda s: Composed([PoissonSampled(Gaussian(s), 3.5e-4), Laplace(20.0 * s)], [50, 3]), 4.0, 24, 4.5e-10
    ),
    "randomized response": (lambda s: PoissonSampled(RandomizedResponse(s), 0.08), 0.73, 20_249, 1.1e-5),
    "rare and many": (lambda s: PoissonSampled(Gaussian(s), 1e-3), 0.5, 100_000, 1e-5),
    "many outcomes": (lambda tables: FromTables(*tables), OUTCOMES, 10, 1e-5),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ATOMS)
def test_epsilons_in_a_program_lie_within_a_hundredth_of_eager_ones(name):
    make, noise, steps, target = ATOMS[name]
    ask = lambda s, steps: jaxacct.epsilon(make(s), target, steps=steps)  # noqa: E731
    exact = ask(noise, steps)
    with program(True), jaxacct.without_callbacks():
        lower, upper = (float(x) for x in jax.jit(ask)(noise, float(steps)))
    assert exact.lower <= upper <= 1.01 * exact.upper
    assert lower <= exact.upper
    assert lower >= 0.98 * exact.lower or name == "many outcomes"


@pytest.mark.slow
def test_derivatives_of_formulas_in_a_program_are_the_eager_ones():
    def ask(sigma, rate, count):
        parts = [sampled(sigma, rate), sampled(2.0)]
        return jaxacct.epsilon(Composed(parts, [count, 50]), 2.0**-16).upper

    slope, many = jax.grad(ask, (0, 1, 2)), jax.vmap(jax.grad(upper))
    with jax.enable_x64(True):
        eager = slope(0.875, 0.02, 300.0), many(SIGMAS)
        with jaxacct.without_callbacks():
            found = jax.jit(slope)(0.875, 0.02, 300.0), jax.jit(many)(SIGMAS)
    for one, other in zip(found, eager, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_compiled_programs_bound_delta_at_negative_epsilons():
    with jax.enable_x64(True), jaxacct.without_callbacks():
        compiled = jax.jit(lambda sigma, steps: jaxacct.delta(sampled(sigma, 0.0047), -0.994, steps=steps))
        for sigma, steps in ((0.1718, 1.0), (0.1718, 50.0), (1.0, 300.0)):
            lower, upper = compiled(sigma, steps)
            eager = jaxacct.delta(sampled(sigma, 0.0047), -0.994, steps=int(steps))
            assert eager.lower <= upper <= 1.001 * eager.upper
            assert lower <= eager.upper


def test_tables_of_float32_numbers_that_miss_the_sum_one_are_bounded_in_programs():
    p, q = (jnp.array(x, jnp.float32) for x in ([0.7, 0.1, 0.2], [0.2, 0.1, 0.7]))
    eager = jaxacct.delta(FromTables([0.7, 0.1, 0.2], [0.2, 0.1, 0.7]), 0.1)
    for found in (
        jax.jit(lambda p, q: jaxacct.delta(FromTables(p, q), 0.1))(p, q),
        jaxacct.delta(FromTables(p, q), 0.1),
    ):
        assert eager.upper - 1e-5 <= found.lower <= eager.lower
        assert eager.upper <= found.upper <= eager.lower + 1e-5
    with pytest.raises(ValueError, match="must sum up to 1"):
        FromTables(p, q.at[0].add(1e-5))


@pytest.mark.parametrize(
    ("make", "relation"),
    [
        (lambda sigma: jaxacct.TruncatedPoisson(Gaussian(sigma), 0.01, 120, 10_000), "add"),
        (lambda p: jaxacct.PoissonSampled(FromTables(jnp.stack([p, 1.0 - p]), jnp.array([0.5, 0.5])), 0.1), "replace"),
    ],
)
def test_float32_programs_hold_samples_that_choose_among_shares(make, relation):
    with jaxacct.without_callbacks():
        ask = lambda x, steps: jaxacct.epsilon(make(x), 1e-5, steps=steps, relation=relation)  # noqa: E731
        assert "f64" in jax.jit(ask).lower(0.75, 7.0).as_text()


def test_programs_say_that_they_make_no_tables_of_traced_numbers():
    with jax.enable_x64(True), jaxacct.without_callbacks(), pytest.warns(RuntimeWarning, match="RandomAllocation"):
        jax.jit(lambda sigma: jaxacct.epsilon(jaxacct.RandomAllocation(Gaussian(sigma), 10), 1e-5)).lower(1.0)


def test_compiled_programs_know_nothing_of_what_is_no_number_of_runs():
    with jax.enable_x64(True), jaxacct.without_callbacks():
        compiled = jax.jit(lambda sigma, steps: jaxacct.epsilon(sampled(sigma, 1e-3), 1e-5, steps=steps).upper)
        for sigma, steps in ((1.0, np.nan), (1.0, 2.5), (1.0, -3.0), (np.nan, 10.0), (-1.0, 10.0)):
            assert compiled(sigma, steps) == np.inf
        assert compiled(1.0, 10.0) < 0.1


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
