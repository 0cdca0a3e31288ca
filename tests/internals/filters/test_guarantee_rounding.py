"""The guarantees' own arithmetic, in high precision: on the safe side of the truth and next to it, at many points."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct.filters.guarantees import of_parameters as _guarantees
from jaxacct.losses.grids.grid import LossGrid
from tests import stored

RNG = np.random.default_rng(3)
MANY = 160


def above(found, truths, width, absolute=0.0):
    """Nowhere below the truth, nowhere above it by more than ``width`` of it or an ``absolute`` part."""
    for value, truth, more in zip(np.asarray(found), truths, np.broadcast_to(absolute, len(truths)), strict=True):
        assert truth <= value <= truth * (1 + width) + more, (value, truth)


def test_the_delta_of_pure_privacy_is_rounded_up_by_a_few_units():
    pure = np.concatenate([10.0 ** RNG.uniform(-9, 2.5, MANY - 4), [0.0, 1e-18, 700.0, 1e4]])
    epsilon = pure * np.resize([0.0, 0.2, 0.7, 1.0 - 1e-9, 1.0, 1.1], MANY)
    with jax.enable_x64(True):
        found = jax.jit(lambda p, e: _guarantees.PureDPGuarantee(p, "").delta(e))(pure, epsilon)
    with mpmath.workdps(50):
        for value, p, e in zip(np.asarray(found), pure.tolist(), epsilon.tolist(), strict=True):
            p, e = mpmath.mpf(p), mpmath.mpf(e)
            truth = -mpmath.expm1(e - p) / (1 + mpmath.exp(-p)) if e < p else mpmath.mpf(0)
            most = min(truth * (1 + 2.0**-46) + 2.0**-48 * p, 1) if e < p else 0
            assert truth <= value <= most, (value, p, e)
    pure, epsilon = np.float32([0.5, 0.5, 0.5, np.nan, -1.0]), np.array([-0.1, np.nan, 0.6, 0.1, 0.1])
    found = jax.jit(lambda p, e: _guarantees.PureDPGuarantee(p, "").delta(e))(pure, epsilon)
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 1.0, 0.0, 1.0, 1.0]
    guarantee = _guarantees.PureDPGuarantee(jnp.float32(0.5), "")
    with pytest.raises(ValueError, match="epsilon must be"):
        guarantee.delta(-0.1)


def test_the_epsilon_of_pure_privacy_is_rounded_up_by_a_few_units():
    pure = np.concatenate([10.0 ** RNG.uniform(-9, 2.5, MANY - 4), [1e-18, 700.0, 700.0, 1e4]])
    total = -np.expm1(-pure) / (1 + np.exp(-pure))  # from here on epsilon is 0
    delta = total * np.resize([1e-15, 1e-6, 0.1, 0.5, 0.9, 1.0 - 1e-12, 1.0 - 2.0**-52, 1.0 + 1e-12], MANY)
    delta = np.minimum(delta, 1.0 - 2.0**-53)
    with jax.enable_x64(True):
        found = jax.jit(lambda p, d: _guarantees.PureDPGuarantee(p, "").epsilon(d))(pure, delta)
    with mpmath.workdps(50):
        for value, p, d in zip(np.asarray(found), pure.tolist(), delta.tolist(), strict=True):
            p, d = mpmath.mpf(p), mpmath.mpf(d)
            truth, near = (
                p + mpmath.log(max(1 - c * d * (1 + mpmath.exp(-p)), mpmath.mpf(10) ** -9999))
                for c in (1, 1 - 2.0**-48)
            )
            assert max(truth, 0) <= value <= min(max(near, 0) * (1 + 2.0**-48) + 2.0**-47 * p, p), (value, p, d)
    guarantee = _guarantees.PureDPGuarantee(jnp.float32(0.5), "")
    pure, delta = np.float32([0.5] * 6 + [50.0]), np.array([0.0, 0.9, 1.0, 1.5, -1.0, np.nan, 1.0])
    found = jax.jit(lambda p, d: _guarantees.PureDPGuarantee(p, "").epsilon(d))(pure, delta)
    assert found.tolist() == [0.5, 0.0, 0.0, 0.0, 0.5, 0.5, 0.0]
    for bad in (-0.1, 1.0, [0.0, 1.0], np.nan):
        with pytest.raises(ValueError, match="delta must be"):
            guarantee.epsilon(bad)


def test_what_approximate_concentrated_privacy_hands_on_is_on_the_safe_side(monkeypatch):
    # The conversions themselves are tested elsewhere; here is what is left of delta for them, and what is made of it.
    monkeypatch.setattr(_guarantees, "zcdp_epsilon", lambda rho, rest: rest)
    monkeypatch.setattr(_guarantees, "zcdp_delta", lambda rho, epsilon: jnp.asarray(epsilon))
    fails = np.concatenate([10.0 ** RNG.uniform(-18, -0.01, MANY - 2), [0.0, 0.0]])
    delta = np.minimum(fails * np.resize([1 + 1e-9, 1.5, 3.0, 1e3], MANY) + np.r_[np.zeros(MANY - 2), 0.1, 1e-9], 0.999)
    guarantee = _guarantees.ZCDPGuarantee(0.5, "", fails)
    delta[:16] = np.nextafter(fails[:16], 1.0)
    delta[16:18] = fails[16], fails[17] / 2
    part = np.minimum(RNG.uniform(0.0, 1.5, MANY), 1.0)
    with jax.enable_x64(True):
        left, whole = map(np.asarray, jax.jit(lambda d, v: (guarantee.epsilon(d), guarantee.delta(v)))(delta, part))
    for f, d, rest, v, total in zip(fails, delta, left, part, whole, strict=True):
        f, d, v = Fraction(f), Fraction(d), Fraction(v)
        exact, lost = (d - f) / (1 - f), (2 * d - f) / (1 - f) / 2**48
        if rest == np.inf:
            assert exact <= lost
        else:
            assert 0 < Fraction(rest) <= exact <= Fraction(rest) + lost
        exact = f + (1 - f) * v
        assert exact <= Fraction(total) <= min(exact * (1 + Fraction(1, 2**48)), 1)
    assert (left[-2:] == delta[-2:]).all()
    assert (whole[-2:] == part[-2:]).all()
    assert float(np.asarray(_guarantees.ZCDPGuarantee(0.5, "").fails)) == 0.0
    guarantee = _guarantees.ZCDPGuarantee(0.5, "", 1e-6)
    with pytest.raises(ValueError, match="delta must be"):
        guarantee.epsilon(1.0)


def test_an_atom_lifts_a_curve_by_its_share_of_what_no_privacy_would_have():
    grid = LossGrid(0.5, -8, 24)
    excess = np.minimum(np.exp(grid.losses), 1.0) * RNG.uniform(0.0, 1.0, 24)
    curve = stored.profile(excess, grid)
    assert _guarantees._with_atom(curve, 0.0) is curve
    fails = np.array([0.0, 1e-9, 0.3, 1.0])
    lifted = _guarantees._with_atom(curve, fails)
    assert lifted.excess.shape == (4, 24)
    assert lifted.bound == "upper"
    with mpmath.workdps(40):
        for f, row in zip(fails.tolist(), np.asarray(lifted.excess), strict=True):
            above(
                row,
                [(1 - mpmath.mpf(f)) * e + f * min(mpmath.exp(s), 1) for e, s in zip(excess, grid.losses, strict=True)],
                2.0**-46,
            )


def test_of_several_orders_delta_is_that_of_their_mixture_and_epsilon_its_inverse():
    orders, rho = (3.0, 8.0, 20.0), np.array([[0.2, 0.5, 0.9], [0.01, 0.01, np.nan]])
    guarantee = _guarantees.AnyOrderGuarantee(jnp.asarray(rho, jnp.float32), orders, "")
    rho = np.asarray(guarantee.rho, np.float64)
    delta = np.asarray(guarantee.delta(np.array([2.0, 0.5])))
    with mpmath.workdps(40):
        a = [mpmath.mpf(x) for x in orders]
        kappas = [(1 - 1 / x) ** (x - 1) / x for x in a]
        total = lambda x: sum(k * mpmath.exp((o - 1) * x) for k, o in zip(kappas, a, strict=True))  # noqa: E731
        above_all = lambda x: -total(x) / mpmath.expm1(-x)  # noqa: E731
        gain = above_all(mpmath.findroot(lambda x: mpmath.diff(above_all, x), 0.15)) / 3
        truth = sum(k * mpmath.exp((o - 1) * (r - 2)) for k, o, r in zip(kappas, a, rho[0], strict=True)) / 3 / gain
        assert 1 < gain < 3
        assert truth * (1 - mpmath.mpf(2) ** -44) <= delta[0] <= truth * (1 + mpmath.mpf(2) ** -44)
    assert delta[1] == 1.0
    # Two orders that need as much of delta as each other: no share of it is left over.
    one = _guarantees.AnyOrderGuarantee(jnp.full((2,), 0.3, jnp.float32), (8.0, 8.001), "")
    targets = np.array([1e-9, 1e-3, 0.0, 1.0, -1.0, np.nan, 2.0])
    with jax.enable_x64(True):
        epsilon = np.asarray(jax.jit(one.epsilon)(targets))
        here, before = map(np.asarray, jax.jit(lambda e: (one.delta(e), one.delta(e * (1 - 1e-12))))(epsilon))
    assert np.all(here[:2] <= targets[:2] * (1 + 1e-13))
    assert np.all(targets[:2] < before[:2])
    assert epsilon[2:].tolist() == [np.inf, 0.0, np.inf, np.inf, 0.0]
    with pytest.raises(ValueError, match="delta must be"):
        one.epsilon(0.0)
    with pytest.raises(ValueError, match="epsilon must be"):
        one.delta(-1.0)


def test_the_curve_of_several_orders_goes_through_points_of_every_delta_that_matters(monkeypatch):
    made = []
    monkeypatch.setattr(_guarantees, "FromProfile", lambda points, deltas: made.append((points, deltas)))
    monkeypatch.setattr(_guarantees.PrivacyProfile, "from_mechanism", lambda mechanism, grid: grid)
    budgets = np.array([[1.0, 2.0]])
    guarantee = _guarantees.AnyOrderGuarantee(jnp.zeros((1, 2, 3)), (2.0, 4.0, 8.0), "")
    object.__setattr__(guarantee, "epsilon", lambda delta: -np.log(delta) * budgets)
    object.__setattr__(guarantee, "delta", lambda epsilon: np.exp(-epsilon / budgets))
    assert guarantee.profile("grid") == "grid"
    ((points, deltas),) = made
    assert points.shape == deltas.shape == (1, 2, 800)
    assert np.allclose(deltas, np.exp(-np.linspace(1e-3, 46.0, 800)))
    assert deltas.min() < 1.1e-20
    assert np.allclose(points[0, 1], 2 * points[0, 0])


def test_guarantees_are_bounds_unless_they_say_that_they_are_none():
    for kind, rest in (("GDP", ()), ("PureDP", ()), ("ZCDP", ()), ("Renyi", (8.0,)), ("AnyOrder", ((8.0,),))):
        assert getattr(_guarantees, f"{kind}Guarantee")(1.0, *rest, "").is_bound is True
