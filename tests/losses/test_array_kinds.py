"""The array in decides the array out: NumPy's and Python's give NumPy's, JAX's give JAX's, both float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import (
    PLD,
    Gaussian,
    Laplace,
    LossGrid,
    PoissonSampled,
    PrivacyProfile,
    TradeOff,
    dominates,
    filters,
    supremum,
)
from jaxacct.losses.compare.attack import advantage, bayes_risk, power
from jaxacct.losses.compare.chain import is_chain
from jaxacct.losses.compare.distance import delta_divergence
from jaxacct.losses.compare.gaussian_order import gaussian_trade_off, mu_of
from jaxacct.losses.compare.order import crossings
from jaxacct.losses.compare.suprema import infimum

GRID = LossGrid(0.25, -24, 49)
ALPHA = np.array([0.0, 0.25, 1.0])
BETA = np.array([0.9, 0.5, 0.0])


def _law(number):
    return PLD.from_mechanism(Gaussian(number(1.0)), grid=GRID)


def _lower(number):
    return PLD.from_mechanism(Gaussian(number(1.0)), "lower", grid=GRID)


def _profile(number):
    return PrivacyProfile.from_mechanism(Gaussian(number(1.0)), grid=GRID)


def _curve(number):
    return TradeOff.from_points(number(ALPHA), number(BETA))


# Of `number`, which makes an array of a kind, and of numbers that stay as they are.
CASES = {
    "a law": _law,
    "a lower law": _lower,
    "a law on a grid of its own": lambda number: PLD.from_mechanism(Laplace(number(1.0))),
    "a law from masses": lambda number: PLD.from_masses(number(np.full(49, 0.02)), GRID),
    "masses": lambda number: PLD(number(np.full(49, 1 / 49)), number(0.0), GRID),
    "hockey_stick": lambda number: _law(number).hockey_stick(0.5),
    "hockey_stick at": lambda number: _law(np.float64).hockey_stick(number([0.5, 1.0])),
    "trade_off": lambda number: _law(number).trade_off(0.5),
    "log_moment": lambda number: _law(number).log_moment(1.0),
    "tilt": lambda number: _law(number).tilt(1.0),
    "compose": lambda number: _law(number).compose(_law(np.float64)),
    "self_compose": lambda number: _lower(number).self_compose(3),
    "float64": lambda number: _law(number).float64(),
    "a profile": _profile,
    "a lower profile": lambda number: PrivacyProfile.from_mechanism(Gaussian(number(1.0)), "lower", grid=GRID),
    "a family of profiles": lambda number: PrivacyProfile.from_mechanism(Gaussian(number([1.0, 2.0])), grid=GRID),
    "from_values": lambda number: PrivacyProfile.from_values(number(_profile(np.float64).values()), GRID),
    "from_pld": lambda number: PrivacyProfile.from_pld(_law(number)),
    "to_pld": lambda number: _profile(number).to_pld(),
    "profile.hockey_stick": lambda number: _profile(number).hockey_stick(0.5),
    "profile.values": lambda number: _profile(number).values(),
    "on": lambda number: _profile(number).on(LossGrid(0.25, -30, 61)),
    "reflect": lambda number: _profile(number).reflect(),
    "symmetrise": lambda number: _profile(number).symmetrise(),
    "profile.compose": lambda number: _profile(number).compose(_profile(np.float64)),
    "from_points": _curve,
    "from_profile": lambda number: TradeOff.from_profile(_profile(number)),
    "trade-off.profile": lambda number: _curve(number).profile(GRID),
    "trade-off.trade_off": lambda number: _curve(np.asarray).trade_off(number(0.5)),
    "trade-off.power": lambda number: _curve(number).power(0.5),
    "trade-off.points": lambda number: _curve(number).points(),
    "trade-off.reflect": lambda number: _curve(number).reflect(),
    "trade-off.compose": lambda number: _curve(np.asarray).compose(_curve(number)),
    "supremum": lambda number: supremum([_profile(np.float64), _profile(number)]),
    "supremum of trade-offs": lambda number: supremum([_curve(np.asarray), _curve(number)]),
    "infimum": lambda number: infimum([_profile(np.float64), _profile(number)]),
    "dominates": lambda number: dominates(_profile(number), _profile(np.float64)),
    "crossings": lambda number: crossings(_profile(number), _profile(np.float64)),
    "is_chain": lambda number: is_chain([_profile(number), _profile(np.float64)]),
    "mu_of": lambda number: mu_of(_profile(number), delta=1e-3),
    "mu_of a Gaussian": lambda number: mu_of(Gaussian(number(1.0))),
    "delta_divergence": lambda number: delta_divergence(_profile(np.float64), _profile(number)),
    "gaussian_trade_off": lambda number: gaussian_trade_off(1.0, number(0.5)),
    "advantage": lambda number: advantage(_law(number)),
    "power": lambda number: power(_profile(number), 0.5),
    "bayes_risk": lambda number: bayes_risk(_law(np.float64), number(0.5)),
}


SLOW = {"a lower law", "self_compose", "infimum", "crossings", "is_chain", "mu_of", "trade-off.compose"}


def _on_device(x):
    with jax.enable_x64(True):
        return jnp.asarray(x, jnp.float64)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CASES])
def test_jax_arrays_give_jax_arrays_and_numbers_give_numpy_arrays(name):
    ours, theirs = CASES[name](np.asarray), CASES[name](_on_device)
    for leaf in jax.tree.leaves(ours):
        assert isinstance(leaf, np.ndarray)
    for leaf in jax.tree.leaves(theirs):
        assert isinstance(leaf, jax.Array)
        assert leaf.dtype.kind != "f" or leaf.dtype == np.float64
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    if not {"verdict", "count"} & set(
        getattr(ours, "_fields", ())
    ):  # where two curves differ most is a tie of roundings
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_a_law_that_a_float32_program_rounded_is_read_to_the_safe_side():
    upper, lower = (PLD.from_mechanism(Gaussian(jnp.float32(1.0)), bound, grid=GRID) for bound in ("upper", "lower"))
    narrow = lambda law: jax.tree.map(lambda x: x.astype(jnp.float32), law)  # noqa: E731
    at = np.linspace(-1.0, 3.0, 9)
    assert np.all(np.asarray(narrow(upper).hockey_stick(at)) >= np.asarray(upper.hockey_stick(at)))
    assert np.all(np.asarray(narrow(lower).hockey_stick(at)) <= np.asarray(lower.hockey_stick(at)))


@pytest.mark.parametrize(
    "read",
    [
        lambda s: PLD.from_mechanism(Gaussian(s), grid=GRID).hockey_stick(0.5),
        lambda s: PrivacyProfile.from_mechanism(Gaussian(s), grid=GRID).hockey_stick(0.5),
        lambda s: TradeOff.from_profile(PrivacyProfile.from_mechanism(Gaussian(s), grid=GRID)).trade_off(0.5),
        lambda s: PLD.from_mechanism(Gaussian(1.0), grid=GRID).hockey_stick(s),
    ],
)
def test_a_derivative_of_a_curve_is_refused_in_words(read):
    for differentiate in (jax.grad(read), jax.jit(jax.grad(read)), lambda s: jax.jvp(read, (s,), (s,))):
        with pytest.raises(NotImplementedError, match="have no derivatives"):
            differentiate(1.0)


def test_what_does_not_depend_on_a_curve_has_its_derivative_beside_it():
    law = PLD.from_mechanism(Gaussian(1.0), grid=GRID)
    read = lambda s: (s**2, law.hockey_stick(jax.lax.stop_gradient(s)))  # noqa: E731
    slope, value = jax.grad(read, has_aux=True)(0.5)
    assert slope == 1.0
    assert value == pytest.approx(float(law.hockey_stick(0.5)), rel=1e-12)


@pytest.mark.parametrize("name", ["hockey_stick", "compose", "profile.hockey_stick", "trade-off.trade_off", "supremum"])
def test_checks_for_nan_and_strict_types_raise_no_false_alarm(name):
    with jax.debug_nans(True), jax.numpy_dtype_promotion("strict"):
        CASES[name](_on_device)
        CASES[name](np.asarray)


def test_checks_for_nan_and_strict_types_raise_no_false_alarm_of_bounds_and_filters():
    step, budget = PoissonSampled(Gaussian(1.0), 0.01), filters.gdp_residue(1.0)
    with jax.debug_nans(True), jax.numpy_dtype_promotion("strict"):
        eager = jaxacct.epsilon(step, 1e-5, steps=100).upper
        program = jax.jit(lambda s: jaxacct.epsilon(PoissonSampled(Gaussian(s), 0.01), 1e-5, steps=100).upper)
        assert program(jnp.float32(1.0)) == pytest.approx(eager, rel=1e-6)
        assert np.isfinite(jax.grad(lambda s: jaxacct.epsilon(Gaussian(s), 1e-5).upper)(1.0))
        with jaxacct.without_callbacks():
            assert jax.jit(lambda s: jaxacct.delta(Gaussian(s), 1.0).upper)(jnp.float32(1.0)) < 1
        assert jax.jit(lambda s: budget.update(Gaussian(s), budget.init())[0])(jnp.float32(10.0))
