"""Pieces of trade-off curves and of moves between curves, on small numbers that a loop can follow."""

import math
from fractions import Fraction as F

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import PLD, LossGrid, PrivacyProfile, TradeOff
from jaxacct.losses import conversions, extremes, nodes, tradeoff
from jaxacct.losses._parametric import delta_of
from jaxacct.losses.attack import bayes_risk
from jaxacct.losses.contour_read import Integrand, read_delta
from jaxacct.losses.delta_divergence import _bisect, delta_divergence_of_trade_offs
from jaxacct.losses.gaussian_order import _dominated_one, _dominating, _exactly
from jaxacct.losses.gaussian_order import mu_of as between
from jaxacct.losses.single import single_epsilon
from jaxacct.mechanisms._pair import Tails

EPS = 2.0**-52


@pytest.fixture(autouse=True)
def _in_float64():
    with jax.enable_x64(True):
        yield


ALPHA, BETA = np.array([0.0, 0.1, 0.3, 0.6, 1.0]), np.array([0.8, 0.5, 0.2, 0.05, 0.0])


@pytest.fixture(scope="module")
def read():
    """A traced curve through points, by its segments: what fails closed is one outcome, or two disjoint ones."""
    return jax.jit(lambda a, b, bound: TradeOff.from_points(a, b, bound), static_argnums=2)


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_traced_points_with_one_mistake_anywhere_fail_closed(read, bound):
    good = read(ALPHA, BETA, bound)
    np.testing.assert_allclose(good.widths, [0.0, 0.1, 0.2, 0.3, 0.4], atol=1e-15)
    np.testing.assert_allclose(good.drops, [0.2, 0.3, 0.3, 0.15, 0.05], atol=1e-15)
    mistakes = []
    for k in range(1, 4):
        # A vertex above the line between its neighbours, below the next one, or left of the one before.
        line = np.interp(ALPHA[k], ALPHA[[k - 1, k + 1]], BETA[[k - 1, k + 1]])
        mistakes.append((ALPHA, np.where(np.arange(5) == k, line + 1e-3, BETA)))
        mistakes.append((ALPHA, np.where(np.arange(5) == k, BETA[k + 1] - 1e-3, BETA)))
        mistakes.append((np.where(np.arange(5) == k, ALPHA[k - 1] - 1e-3, ALPHA), BETA))
        mistakes.append((np.where(np.arange(5) == k, math.nan, ALPHA), BETA))
        mistakes.append((ALPHA, np.where(np.arange(5) == k, math.nan, BETA)))
    first, last = np.array([1.0, 0, 0, 0, 0]), np.array([0, 0, 0, 0, 1.0])
    mistakes += [(ALPHA, BETA + 0.3 * first), (ALPHA, BETA + 1e-8 * last), (ALPHA * (1 - 1e-8), BETA)]
    mistakes += [(ALPHA * (1 - 0.7e-9), BETA + 0.7e-9 * last)]
    for alpha, beta in mistakes:
        found = read(alpha, beta, bound)
        nothing = ([0, 0, 0, 0, 1], [1, 0, 0, 0, 0]) if bound == "lower" else ([1, 0, 0, 0, 0],) * 2
        np.testing.assert_array_equal([found.widths, found.drops], nothing)


def test_traced_points_may_be_off_by_rounding(read):
    """A bend by 1e-9 of a product of two pieces, ends off by 1e-9 together, a rise by 1e-14."""
    for bend, refused in ((0.4e-9, False), (0.6e-9, True)):
        # Equal pieces of 1/4: the cross product is off by a quarter of twice the bend.
        beta = np.linspace(0.5, 0.0, 5)
        beta[2] += bend * 4
        found = read(np.linspace(0.0, 1.0, 5), beta, "lower")
        assert (found.widths[0] == 0 and found.widths[-1] == 1) == refused
    for off, refused in ((0.4e-9, False), (0.6e-9, True)):
        found = read(ALPHA * (1 - off), BETA + off * (np.arange(5) == 4), "lower")
        assert (found.widths[-1] == 1) == refused
    for rise, refused in ((0.5e-14, False), (1e-13, True)):
        beta = np.array([0.5, 0.25, 0.0, rise, 0.0])
        found = read(np.array([0.0, 0.25, 0.5, 0.75, 1.0]), beta, "lower")
        assert (found.widths[-1] == 1) == refused
        assert np.all(np.asarray(found.drops) >= 0)


def test_a_batch_of_points_is_judged_row_by_row(read):
    bad = np.where(np.arange(5) == 2, 0.9, BETA)
    found = read(np.stack([ALPHA, ALPHA, ALPHA]), np.stack([BETA, bad, BETA + 1e-8 * (np.arange(5) == 4)]), "lower")
    np.testing.assert_allclose(found.widths[0], [0.0, 0.1, 0.2, 0.3, 0.4], atol=1e-15)
    np.testing.assert_array_equal(found.widths[1:], [[0, 0, 0, 0, 1]] * 2)


def test_sizes_of_products():
    one = TradeOff(np.full(3, 1 / 3), np.full(3, 1 / 3))
    assert one.compose(one).widths.shape == (11,)
    for bound, room in (("lower", 11), ("upper", 9)):
        curve = TradeOff(one.widths, one.drops, bound)
        with pytest.raises(ValueError, match="size must be at least 16"):
            curve.compose(curve, size=room - 1)
        with pytest.raises(ValueError, match=f"size must be at most {2**24} or the {room}"):
            curve.compose(curve, size=2**24 + 1)
    long = TradeOff(np.full(40, 1 / 40), np.full(40, 1 / 40))
    with pytest.raises(ValueError, match="size must be at least 16, got 15"):
        long.compose(one, size=15)


def test_curves_of_many_sizes_share_a_few():
    for n, size in ((32, 32), (33, 64)):
        widths, drops = tradeoff.padded(TradeOff(np.full((2, n), 1 / n), np.full((2, n), 1 / n)))
        assert widths.shape == drops.shape == (2, size)
        np.testing.assert_array_equal(widths[:, n:], 0.0)
        np.testing.assert_array_equal(drops[:, :n], 1 / n)


def test_vertices_are_sums_of_segments():
    curve = TradeOff(np.array([[0.0, 0.25, 0.75], [0.5, 0.5, 0.0]]), np.array([[0.5, 0.375, 0.125], [0.75, 0.25, 0.0]]))
    alpha, beta = curve.points()
    np.testing.assert_array_equal(alpha, [[0.0, 0.25, 1.0], [0.5, 1.0, 1.0]])
    np.testing.assert_array_equal(beta, [[0.5, 0.125, 0.0], [0.25, 0.0, 0.0]])


def test_tails_of_segments_are_sums_over_their_losses():
    widths = np.array([0.0, 0.0, 0.125, 0.25, 0.5, 0.125, 0.0, 0.0])
    drops = np.array([0.25, 0.0, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0])
    each = [-math.inf, None, math.log(0.5), 0.0, math.log(2), math.inf, None, None]
    losses = np.array([-50.0, math.log(0.5) + 1e-12, -0.5, 0.0, 0.1, math.log(2) - 1e-12, 3.0])
    found = tradeoff._tails(*map(jnp.asarray, (widths, drops, losses)))
    for k, at in enumerate(losses):
        above = [i for i, x in enumerate(each) if x is not None and x > at]
        below = [i for i, x in enumerate(each) if x is not None and x <= at]
        assert found.p_above[k] == sum(widths[above])
        assert found.p_below[k] == sum(widths[below])
        assert found.q_above[k] == sum(drops[above])
        assert found.q_below[k] == sum(drops[below])
    np.testing.assert_allclose(found.error, 16 * EPS, rtol=1e-12)


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_a_profiles_atoms_become_segments_that_are_rounded_to_its_side(bound, sign):
    grid = LossGrid(20.0, -3, 7)
    losses = grid.losses
    masses = np.array([0.05, 0.1, 0.2, 0.2, 0.2, 0.1, 0.05])
    excess = np.array(
        [sum(m * max(-math.expm1(e - x), 0) for m, x in zip(masses, losses, strict=True)) + 0.1 for e in losses]
    )
    excess = excess - np.maximum(-np.expm1(losses), 0)
    excess = np.maximum(excess, 1e-30) * np.exp(np.minimum(losses, 0)) ** 0
    profile = PrivacyProfile(excess, grid, bound)
    found, law = TradeOff.from_profile(profile), profile.to_pld()
    assert found.bound == ("lower" if bound == "upper" else "upper")
    assert found.widths.shape == (9,)
    assert found.widths[0] == found.drops[-1] == 0.0
    assert found.widths[-1] == law.infinity_mass
    units = lambda value, truth, x: (F(float(value)) / F(float(truth)) - 1) / F(EPS) / F(float(1 + abs(x)))  # noqa: E731
    for k, x in enumerate(losses):
        if law.masses[k] > 1e-300:
            assert 7 <= sign * units(found.widths[k + 1], law.masses[k], x) <= 9
            assert 6.5 <= sign * units(found.drops[k + 1], law.masses[k] * math.exp(-x), x) <= 9.5
    assert 6.5 <= sign * units(found.drops[0], excess[0] * math.exp(60.0), 60.0) <= 9.5


def test_a_row_of_a_law_that_is_no_number_is_one_row():
    grid = LossGrid(1.0, -1, 3)
    masses = conversions.masses_of_excess(jnp.array([[0.1, 0.2, 0.1], [math.nan, 0.2, 0.1]]), grid, "upper")[0]
    assert np.isfinite(np.asarray(masses[0])).all()
    assert np.isnan(np.asarray(masses[1])).any()


# Curves between grids.

GRID = LossGrid(0.5, -3, 7)
EXCESS = np.array([0.02, 0.05, 0.1, 0.2, 0.15, 0.12, 0.1])


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
@pytest.mark.parametrize("to", [(-6, 12), (-2, 4), (-3, 7), (-5, 7), (0, 7), (-8, 9)])
def test_a_moved_curve_is_the_old_one_a_line_and_a_constant(bound, sign, to):
    to = LossGrid(0.5, *to)
    found = np.asarray(conversions.moved(jnp.asarray(EXCESS), GRID, to, bound))
    for value, k in zip(found, range(to.lowest, to.highest + 1), strict=True):
        truth = EXCESS[min(max(k, -3), 3) + 3]
        if k < -3:
            truth *= math.exp((k + 3) * 0.5)
            assert 6 * EPS <= sign * (value / truth - 1) / (1 + abs(k) * 0.5) <= 10 * EPS
            continue
        if bound == "lower" and k == to.lowest and to.lowest > -3:
            # Left of it the curve is a line to (0, 1), and the old one's slope at 0 is what is known.
            growth = (to.lowest + 3) * 0.5
            truth = min(truth, EXCESS[0] * math.exp(growth) * (1 - 8 * EPS * (1 + growth)))
        if bound == "lower" and k == to.highest and to.highest < 3:
            truth = min(EXCESS[-1], truth) if to.size > 1 else truth
        assert value == pytest.approx(truth, rel=2e-16)


def test_a_supremum_from_below_takes_the_piece_that_is_largest_in_the_middle():
    rng = np.random.default_rng(0)
    for members in (2, 3):
        family = rng.integers(0, 16, (members, 2, 6)) / 16
        found = np.asarray(conversions.supremum_excess(jnp.asarray(family), "lower"))
        np.testing.assert_array_equal(conversions.supremum_excess(jnp.asarray(family), "upper"), family.max(0))
        np.testing.assert_array_equal(conversions.supremum_excess(jnp.asarray(family), "point"), family.max(0))
        for row in range(2):
            best = [int(np.argmax(family[:, row, k] + family[:, row, k + 1])) for k in range(5)]
            for k in range(6):
                pieces = [family[best[c], row, k] for c in (k - 1, k) if 0 <= c < 5]
                assert found[row, k] == min(pieces)


def test_debts_of_masses_are_paid_by_larger_losses_in_turn():
    """Masses from below that came out negative: the next larger ones pay until nothing is owed."""
    grid = LossGrid(math.log(2), -2, 6)

    def excess_of(masses, infinite):
        return np.array([
            sum(m * max(1 - 2.0 ** (k - j), 0) for j, m in enumerate(masses)) + infinite
            - max(1 - 2.0 ** (k - 2), 0) for k in range(6)
        ])  # fmt: skip

    cases = [
        ([0.1, 0.2, 0.3, 0.2, 0.1, 0.05], 0.05),
        ([0.1, -0.05, 0.3, 0.2, 0.2, 0.15], 0.1),
        ([0.1, 0.3, -0.3, 0.2, 0.2, 0.3], 0.2),
        ([0.2, 0.2, 0.3, 0.3, -0.2, 0.1], 0.1),
    ]
    for masses, infinite in cases:
        curve = jnp.asarray(excess_of(masses, infinite))
        debt, paid = 0.0, []
        # The lowest mass is what makes the line to the left; that of the law itself is not known from a curve.
        made, above = (np.asarray(x) for x in conversions.masses_of_excess(curve, grid, "lower"))
        upper, same = (np.asarray(x) for x in conversions.masses_of_excess(curve, grid, "upper"))
        assert float(same) == float(curve[-1])
        np.testing.assert_allclose(upper[1:], np.maximum(masses[1:], 0), atol=1e-14)
        first = float(made[0])
        for m in masses[1:]:
            rest = m - debt
            debt = max(-rest, 0.0)
            paid.append(max(rest, 0.0))
        if first == 0 and all(p == 0 for p in made):
            assert infinite - debt < 0
            continue
        np.testing.assert_allclose(made[1:], paid, atol=1e-13)
        assert float(above) == pytest.approx(infinite - debt, abs=1e-13)


def test_arrays_that_cannot_pay_are_no_curve():
    """A debt of 1e-12 at most is rounding; beyond it nothing is known of the law."""
    grid = LossGrid(math.log(2), -2, 6)
    losses = np.arange(-2, 4)
    good = np.array([0.1, 0.2, 0.5, 0.25, 0.15, 0.1]) * np.array([0.25, 0.5, 1.0, 1.0, 1.0, 1.0])
    assert losses.size == good.size
    masses, infinite = conversions.masses_of_excess(jnp.asarray(good), grid, "lower")
    assert float(infinite) == pytest.approx(0.1, abs=1e-13)
    assert np.asarray(masses).max() > 0.1
    for below, known in ((-0.5e-12, True), (-2e-12, False), (-1.0, False)):
        # The curve ends below 0 by that much.
        masses, infinite = conversions.masses_of_excess(
            jnp.asarray(good - 0.1 * (np.arange(6) == 5) + below * (np.arange(6) == 5)), grid, "lower"
        )
        assert float(infinite) == 0.0
        assert bool(np.any(np.asarray(masses))) == known


def test_a_curve_of_one_parameter_is_rounded_up_by_its_exponential():
    found = np.asarray(delta_of(np.array([1.0, 3.0, 8.0]), 0.5, lambda p, e: -p - e))
    units = (found / np.exp(-np.array([1.5, 3.5, 8.5])) - 1) / EPS
    assert np.all((units >= 3) & (units <= 5.5))


# What is made of curves.


def test_a_float32_program_does_not_round_what_is_made_of_curves():
    """The distance of randomized responses is known to 12 digits although the caller's precision is single."""
    ends = [np.array([0.0, 1 / 3, 2 / 3]), np.array([0.0, 1 / 4, 3 / 4])]
    a, b = (TradeOff(x, x[::-1].copy()[[2, 0, 1]]) for x in ends)
    with jax.enable_x64(False):
        found = delta_divergence_of_trade_offs(a, b)
        risk = bayes_risk(a, 0.5)
    assert found.dtype == risk.dtype == np.float64
    assert float(found) == pytest.approx(1 / 12, abs=1e-12)
    assert float(risk) == pytest.approx(1 / 3, abs=1e-14)


def test_the_distance_of_trade_off_curves_is_decided_at_the_vertices_of_both():
    """The least Delta with f(x + Delta) - Delta <= g(x) wherever x and x + Delta are in [0, 1], both ways."""
    rng = np.random.default_rng(1)

    def polygon():
        slopes, widths = np.sort(rng.exponential(1.5, 4))[::-1], rng.dirichlet(np.ones(4))
        drops = slopes * widths
        drops *= rng.uniform(0.5, 1.0) * min(1.0, 1 / drops.sum())
        alpha, beta = np.append(0.0, np.cumsum(widths)), np.append(np.cumsum(drops[::-1])[::-1], 0.0)
        return alpha / alpha[-1], np.minimum(beta, 1 - alpha / alpha[-1])

    for _ in range(12):
        f, g = polygon(), polygon()
        x = np.linspace(0, 1, 20001)

        def worst(delta, f=f, g=g, x=x):
            at = x[x <= 1 - delta]
            both = [np.interp(at + delta, *a) - delta - np.interp(at, *b) for a, b in ((f, g), (g, f))]
            return max(v.max() for v in both)

        found = float(_bisect(*(tuple(map(jnp.asarray, one)) for one in (f, g))))
        assert worst(found + 1e-9) <= 1e-12
        assert found < 1e-12 or worst(found - 1e-3) > 0


def test_what_underflow_may_hide_is_not_claimed():
    """A tail that came out as 0 may have been up to 1e-290."""
    losses, zero = jnp.array([-1.0, 0.0, 1.0]), np.zeros(5)
    nothing = Tails(*(jnp.zeros(5),) * 5)
    np.testing.assert_array_equal(nodes.nodes_above(losses, nothing, jnp.zeros(())), 1e-290)
    for mass in (0.9e-290, 3e-290):
        for name, at in (("q_below", 0), ("p_above", 2)):
            tails = dict(zip(Tails._fields, [zero] * 5, strict=True)) | {name: np.full(5, mass)}
            three = Tails(**{k: jnp.asarray(v[:3]) for k, v in tails.items()})
            two = Tails(**{k: jnp.asarray(v[:2]) for k, v in tails.items()})
            gamma = math.exp(float(losses[at]))
            truth = max(mass * gamma - 1e-290, 0.0) if at == 0 else max(mass - 1e-290 * gamma, 0.0)
            assert float(nodes.points_below(losses, three)[at]) == pytest.approx(truth, rel=1e-12)
            # A line that is used at both ends of a cell, or not at all.
            ends = [float(losses[k]) for k in ((0, 1) if at == 0 else (1, 2))]
            lines = [mass * math.exp(e) - 1e-290 if at == 0 else mass - 1e-290 * math.exp(e) for e in ends]
            found = np.asarray(nodes.nodes_below(losses, two, jnp.ones(()), jnp.ones(())))
            wanted = lines if min(lines) > 0 else [0.0, 0.0]
            assert found[at] == pytest.approx(wanted[0 if at == 0 else 1], rel=1e-12)


def test_small_curves_keep_their_digits_from_loss_0_on():
    """Left of it the identity is off by a unit of 1, on the right there is none."""
    grid, masses = LossGrid(0.25, -4, 9), np.array([0, 0, 0, 0, 1.0, 0, 0, 0, 1e-25])
    for bound, sign in (("upper", 1), ("lower", -1)):
        found = np.asarray(conversions.pld_excess(PLD(masses, np.float64(1e-26), grid, bound), grid))
        truth = 1e-25 * -np.expm1(np.minimum(grid.losses - 1.0, 0)) + 1e-26
        assert np.all(sign * (found - truth)[4:] >= 0)
        np.testing.assert_allclose(found[4:], truth[4:], rtol=1e-12)


@pytest.mark.parametrize(("bound", "sign"), [("lower", 1), ("upper", -1)])
def test_what_a_float32_program_rounded_is_moved_by_one_of_its_units(bound, sign):
    """By 2^-23: the mass that counts on its side of slope 1 to the safe side, the other one back; equal ones meet."""
    widths, drops = np.array([0.125, 0.25, 0.625], np.float32), np.array([0.5, 0.25, 0.25], np.float32)
    w, d = (np.asarray(x) for x in tradeoff.arrays(TradeOff(widths, drops, bound)))
    unit = sign * 2.0**-23
    if bound == "lower":
        np.testing.assert_array_equal([w[0], d[0]], [0.0, 0.25 * (1 - 2.0**-23) * 2.0**-22])
        w, d = w[1:], d[1:]
        equal = [0.25 * (1 + unit), 0.25 * (1 - unit)]
    else:
        equal = [0.25 * (1 + unit)] * 2  # they do not pass each other
    np.testing.assert_array_equal(w, [0.125 * (1 - unit), equal[0], 0.625 * (1 + unit)])
    np.testing.assert_array_equal(d, [0.5 * (1 + unit), equal[1], 0.25 * (1 - unit)])


class Law:
    """What stands for a law in the next test."""


def test_what_a_mechanisms_excess_is_made_of(monkeypatch):
    """One run of one pair from its tails, all else from a law of the same side; both directions' maximum."""
    asked = []
    grid = LossGrid(0.5, -2, 5)

    def from_mechanism(mechanism, bound, *, relation, grid):
        asked.append((type(mechanism).__name__, bound, relation))
        return Law()

    monkeypatch.setattr(conversions.PLD, "from_mechanism", from_mechanism)
    monkeypatch.setattr(conversions, "pld_excess", lambda law, grid: jnp.full(grid.size, 0.25))
    monkeypatch.setattr(
        conversions, "_pair_excess", lambda pair, losses, bound: asked.append(bound) or jnp.full((1, 5), 0.5)
    )
    one, sampled = jaxacct.Laplace(1.0), jaxacct.PoissonSampled(jaxacct.Laplace(1.0), 0.5)
    ask = lambda mechanism, bound, relation: np.asarray(conversions.mechanism_excess(mechanism, grid, bound, relation))  # noqa: E731
    for bound in ("upper", "lower", "point"):
        asked.clear()
        np.testing.assert_array_equal(ask(one, bound, "add_or_remove"), [0.5] * 5)
        assert asked == [bound]
        asked.clear()
        np.testing.assert_array_equal(ask(sampled, bound, "add_or_remove"), [0.5] * 5)
        assert asked == [bound] * 2
        side = "upper" if bound == "upper" else "lower"
        for many in (jaxacct.Composed([sampled], 2), jaxacct.Composed([sampled, jaxacct.Laplace(2.0)])):
            asked.clear()
            np.testing.assert_array_equal(ask(many, bound, "add_or_remove"), [0.25] * 5)
            assert asked == [("Composed", side, "remove"), ("Composed", side, "add")]
            asked.clear()
            np.testing.assert_array_equal(ask(many, bound, "add"), [0.25] * 5)
            assert asked == [("Composed", side, "add")]
        asked.clear()
        jax.jit(lambda n: conversions.mechanism_excess(jaxacct.Composed([sampled], n), grid, bound, "add"))(1)  # noqa: B023
        assert asked == [("Composed", side, "add")]
        asked.clear()
        np.testing.assert_array_equal(ask(jaxacct.Composed([sampled], 1), bound, "add"), [0.5] * 5)
        assert asked == [bound]


@pytest.mark.parametrize(("bound", "sign"), [("lower", 1), ("upper", -1)])
def test_a_risk_is_rounded_by_its_order_and_two_units(bound, sign):
    """16 units of 1 + |log odds| times the prior, 4 of what is saved, and 2 of its own."""
    curve = TradeOff(np.array([0.25, 0.75]), np.array([0.75, 0.25]), bound)
    for prior in (0.5, 0.3, 0.62, 0.26, 0.74):
        p = F(prior)
        exact = min(p * F(1, 4), (1 - p) * F(3, 4)) + min(p * F(3, 4), (1 - p) * F(1, 4))
        found = F(float(bayes_risk(curve, prior)))
        odds = abs(math.log((1 - prior) / prior))
        saved = float(min(p, 1 - p) - exact)
        gamma, read = (1 - prior) / prior, 0.0
        for w, d in ((0.25, 0.75), (0.75, 0.25)):
            if (w > gamma * d) == (gamma >= 1):
                read += EPS * (4 + 2 * odds) * (w + gamma * d)
        room = prior * (16 * (1 + odds) * EPS + read + 2 * EPS * saved) + 4 * EPS * saved + 2 * EPS
        assert 0.8 * room <= sign * float(exact - found) <= 1.2 * room + 2 * EPS


def test_a_dominating_mu_is_that_of_the_worst_vertex():
    """max over vertices of Phi^-1(1 - alpha) - Phi^-1(beta), of the segments up to slope 1 from the left."""
    from scipy.stats import norm

    widths = np.array([0.01, 0.04, 0.15, 0.2, 0.3, 0.3, 0.0])
    drops = np.array([0.2, 0.3, 0.2, 0.15, 0.1, 0.05, 0.0])
    alpha, beta = np.cumsum(widths)[:5], 1 - np.cumsum(drops)[:5]
    truth = max(norm.isf(a) - norm.ppf(b) for a, b in zip(alpha, beta, strict=True))
    found = float(_dominating(*map(jnp.asarray, (widths, drops, 0.0))))
    assert truth * (1 - 1e-15) <= found <= truth * (1 + 1e-12)
    for k in range(5):  # and each vertex alone may be the worst
        w = np.array([alpha[k], 1 - alpha[k], 0.0, 0.0, 0.0, 0.0, 0.0])
        d = np.array([1 - beta[k], beta[k], 0.0, 0.0, 0.0, 0.0, 0.0])
        found = float(_dominating(*map(jnp.asarray, (w, d, 0.0))))
        assert found == pytest.approx(norm.isf(alpha[k]) - norm.ppf(beta[k]), rel=1e-12)
    # What delta covers asks for nothing, and all else for (1 - beta - delta) / (1 - delta) and alpha / (1 - delta).
    delta = 0.1
    found = float(_dominating(*map(jnp.asarray, (widths, drops, delta))))
    left = [k for k in range(4) if drops[k] > widths[k]]
    asked = [norm.isf(alpha[k] / (1 - delta)) + norm.ppf((1 - beta[k] - delta) / (1 - delta)) for k in left]
    p_rest, q_rest = np.cumsum(widths[::-1])[::-1], np.cumsum(drops[::-1])[::-1]
    right = [k for k in range(6) if drops[k] <= widths[k]]
    asked += [norm.ppf((p_rest[k] - delta) / 0.9) - norm.ppf(q_rest[k] / 0.9) for k in right if p_rest[k] > delta]
    assert found == pytest.approx(max(asked), rel=1e-12)
    singular = np.array([0.0, 1.0, 0, 0, 0, 0, 0]), np.array([0.05, 0.95, 0, 0, 0, 0, 0])
    assert float(_dominating(*map(jnp.asarray, (*singular, 0.0)))) == math.inf
    assert float(_dominating(*map(jnp.asarray, (*singular, 0.06)))) < 1e-6


def test_gaussians_of_traced_or_several_runs_are_not_answered_in_closed_form():
    exact = between(jaxacct.Gaussian(2.0))
    assert 2.0**-51 < (0.5 - exact.dominated) / 0.5 < 2.0**-49
    assert 2.0**-51 < (exact.dominating - 0.5) / 0.5 < 2.0**-49
    sampled = jaxacct.PoissonSampled(jaxacct.Gaussian(2.0), 0.5)
    others = [sampled, jaxacct.Composed([sampled], 2), jaxacct.Laplace(1.0)]
    others.append(jaxacct.PoissonSampled(jaxacct.Gaussian(np.array([2.0, 2.0])), np.array([1.0, 0.5])))
    for other in others:
        for relation in ("remove", "add_or_remove"):
            assert _exactly(other, relation) is None
    assert _exactly(jaxacct.Gaussian(np.array([2.0, 0.5])), "remove").dominated.shape == (2,)
    traced = []
    jax.jit(lambda x: traced.append(_exactly(jaxacct.Gaussian(x), "remove")) or x)(2.0)
    assert traced == [None]


def test_a_curve_with_delta_added_dominates_the_gaussian_that_just_fits_below_it():
    """H_mu(|l|) <= delta + (1 - delta) E / gamma at every node, gamma = 1 from loss 0 on."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    for delta in (0.0, 0.02, 0.3):
        for losses, low in (([-1.5, 0.5], [0.02, 0.1]), ([-0.5, 2.0], [0.2, 0.01]), ([0.0, 0.75], [0.2, 0.1])):
            losses = np.array(losses)
            height = delta + (1 - delta) * np.array(low) / np.exp(np.minimum(losses, 0))

            at = np.abs(losses)

            def spare(mu, height=height, at=at):
                a = at / mu
                return (height - norm.cdf(mu / 2 - a) + np.exp(at) * norm.cdf(-mu / 2 - a)).min()

            truth = brentq(spare, 1e-3, 20.0, xtol=1e-14)
            found = float(_dominated_one(*map(jnp.asarray, (losses, np.array(low), delta))))
            assert truth * (1 - 1e-10) <= found <= truth * (1 + 1e-13)


def hull_of(points):
    """The lower convex hull of points, in exact arithmetic."""
    kept = []
    for x, y in sorted(points):
        if kept and kept[-1][0] == x:
            continue
        while len(kept) > 1 and (kept[-1][1] - kept[-2][1]) * (x - kept[-2][0]) >= (y - kept[-2][1]) * (
            kept[-1][0] - kept[-2][0]
        ):
            kept.pop()
        kept.append((x, y))
    return kept


@pytest.mark.parametrize("leakier", [True, False])
def test_the_hull_of_curves_is_that_of_their_vertices_but_for_a_margin(leakier):
    rng = np.random.default_rng(2)
    n, error = 4, 8 * 8 * EPS
    for _ in range(6):
        rows = []
        for _ in range(3):
            w, d = (np.sort(rng.multinomial(64, np.ones(n) / n)) / 64 for _ in range(2))
            rows.append((w, d[::-1]))
        widths, drops = (np.stack(x) for x in zip(*rows, strict=True))
        found_w, found_d = (np.asarray(x) for x in extremes._hull(jnp.asarray(widths), jnp.asarray(drops), leakier))
        assert found_w.shape == found_d.shape == (3 * n + 3,)
        points = [(F(0), F(1)), (F(1), F(0))]
        for w, d in rows:
            for k in range(1, n + 1):
                points.append((F(float(w[:k].sum())), min(F(float(d[k:].sum())), 1 - F(float(w[:k].sum())))))
        corners = hull_of(points)
        if leakier:
            assert found_w[-1] == error
            assert found_d[0] - error == pytest.approx(1 - float(corners[0][1]), abs=EPS)
            alpha, beta = np.cumsum(found_w[:-1]), 1 - np.cumsum(np.append(found_d[0] - error, found_d[1:-1]))
            at = np.interp([float(x) for x, _ in corners], alpha, beta)
            for value, (x, y) in zip(at, corners, strict=True):
                assert x == 0 or abs(value - float(y)) < 4 * EPS
        else:
            # Every vertex moved up and to the right by the margin: the hull of those.
            moved = [(F(0), F(1)), (F(1), F(0))]
            moved += [(min(x + F(error), F(1)), min(y + F(error), 1 - min(x + F(error), F(1)))) for x, y in points[2:]]
            corners = hull_of(moved)
            alpha, beta = np.cumsum(found_w), 1 - np.cumsum(found_d)
            for x, y in corners[1:]:
                assert abs(np.interp(float(x), alpha, beta) - float(y)) < 8 * EPS


def test_a_sequence_of_batches_is_a_family_of_batches():
    grid = LossGrid(0.5, -2, 5)
    rng = np.random.default_rng(3)
    one, other = (PrivacyProfile(rng.uniform(0, 0.1, (2, 5)), grid) for _ in range(2))
    np.testing.assert_array_equal(extremes.supremum([one, other]).excess, np.maximum(one.excess, other.excess))
    np.testing.assert_array_equal(extremes.supremum(one).excess, one.excess.max(0))
    longer = LossGrid(0.5, -3, 7)
    found = extremes.supremum(one, grid=longer)
    assert found.grid == longer
    np.testing.assert_array_equal(found.excess[1:-1], one.excess.max(0))


@pytest.mark.parametrize("row", range(6))
def test_a_sum_of_terms_is_charged_every_error(row):
    """Each of them where it is the largest: offsets of a million, exponents of 1e10, errors that are given."""
    nodes_, rng = 16, np.random.default_rng(4)
    real, imag = rng.uniform(-1e-3, 1e-3, (2, 1, nodes_))
    real[0, 0] = 0.3
    theta, log_total, epsilon, mean = [(1e-6, 1.0, 2.0, -1e6), (1e-6, 1.0, 700.0, 1e-3), (1e-6, 1.0, 2.0, 1.0)][
        min(row, 2)
    ]
    if row == 3:
        theta, log_total, epsilon = 1e10, 2e10, 2.0
    given = {"error": 0.0, "phase_error": 1e-3, "mean_error": 0.0, "log_error": 0.0, "left_out": 0.0}
    given |= [{}, {}, {"mean_error": 1e-3}, {}, {"error": 1e-3, "left_out": 2e-3}, {"log_error": 1e-3}][row]
    one = np.ones(1)
    integrand = Integrand(
        theta=theta * one, mean=mean * one, log_total=log_total * one, spacing=1e-9 * one, real=real, imag=imag,
        tilts=np.array([[2 * theta], [0.0]]), log_moments=np.full((2, 1), -1e12),
        **{k: v * one for k, v in given.items()},
    )  # fmt: skip
    lower, upper, _, _ = read_delta(integrand, np.array([epsilon]))
    unit, phase = EPS / 2, 1e-9 * np.arange(nodes_) * (epsilon - mean)
    turned = (real[0] + 1j * imag[0]) * np.exp(-1j * phase)
    total, scale = turned.real.sum(), math.exp(log_total - theta * epsilon)
    away = given["mean_error"] + 4 * unit * (abs(epsilon) + abs(mean) + abs(epsilon - mean))
    sums = (np.abs(turned.real) + np.abs(turned.imag)).sum() * (16 + nodes_) * unit
    error = given["error"] + given["phase_error"] * away + sums
    log_error = given["log_error"] + 4 * unit * (1 + abs(log_total) + abs(theta * epsilon))
    above = scale * (error + total * math.expm1(log_error)) + given["left_out"]
    below = scale * (error - total * math.expm1(-log_error))
    assert upper[0] - scale * total == pytest.approx(above, rel=0.05 if row < 4 else 2e-3)
    assert scale * total - lower[0] == pytest.approx(below, rel=0.05 if row < 4 else 2e-3)


def test_a_small_epsilon_of_one_run_keeps_its_digits():
    """The search begins at 1 where 1 is enough: 60 halvings of a billion would end at 1e-9."""
    pair = jaxacct.Laplace(1e7)._dominating("remove")[0][0]
    low, high = (float(x) for x in jax.jit(single_epsilon)(pair, 1e-8))
    truth = 1e-7 + 2 * math.log1p(-1e-8)
    assert low <= truth <= high
    assert high - low <= 1e-6 * truth
