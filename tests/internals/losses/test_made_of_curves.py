"""Distances, orders and readings that are made of curves, on small numbers that a loop can follow."""

import math
from fractions import Fraction as F

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import PLD, LossGrid
from jaxacct.losses.compare import suprema as extremes
from jaxacct.losses.compare.distance import _bisect
from jaxacct.losses.compare.gaussian_order import _dominated_one, _exactly, dominating_mu
from jaxacct.losses.compare.gaussian_order import mu_of as between
from jaxacct.losses.curves import conversions
from jaxacct.losses.curves import from_tails as nodes
from jaxacct.losses.engines.inversion.integrand import Integrand
from jaxacct.losses.engines.inversion.read_off import summed
from jaxacct.losses.engines.one_run import single_epsilon
from jaxacct.mechanisms.pairs.base import Tails

pytestmark = pytest.mark.usefixtures("in_float64")

EPS = 2.0**-52


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


def test_a_dominating_mu_is_that_of_the_worst_vertex():
    """max over vertices of Phi^-1(1 - alpha) - Phi^-1(beta), of the segments up to slope 1 from the left."""
    from scipy.stats import norm

    widths = np.array([0.01, 0.04, 0.15, 0.2, 0.3, 0.3, 0.0])
    drops = np.array([0.2, 0.3, 0.2, 0.15, 0.1, 0.05, 0.0])
    alpha, beta = np.cumsum(widths)[:5], 1 - np.cumsum(drops)[:5]
    truth = max(norm.isf(a) - norm.ppf(b) for a, b in zip(alpha, beta, strict=True))
    found = float(dominating_mu(*map(jnp.asarray, (widths, drops, 0.0))))
    assert truth * (1 - 1e-15) <= found <= truth * (1 + 1e-12)
    for k in range(5):  # and each vertex alone may be the worst
        w = np.array([alpha[k], 1 - alpha[k], 0.0, 0.0, 0.0, 0.0, 0.0])
        d = np.array([1 - beta[k], beta[k], 0.0, 0.0, 0.0, 0.0, 0.0])
        found = float(dominating_mu(*map(jnp.asarray, (w, d, 0.0))))
        assert found == pytest.approx(norm.isf(alpha[k]) - norm.ppf(beta[k]), rel=1e-12)
    # What delta covers asks for nothing, and all else for (1 - beta - delta) / (1 - delta) and alpha / (1 - delta).
    delta = 0.1
    found = float(dominating_mu(*map(jnp.asarray, (widths, drops, delta))))
    left = [k for k in range(4) if drops[k] > widths[k]]
    asked = [norm.isf(alpha[k] / (1 - delta)) + norm.ppf((1 - beta[k] - delta) / (1 - delta)) for k in left]
    p_rest, q_rest = np.cumsum(widths[::-1])[::-1], np.cumsum(drops[::-1])[::-1]
    right = [k for k in range(6) if drops[k] <= widths[k]]
    asked += [norm.ppf((p_rest[k] - delta) / 0.9) - norm.ppf(q_rest[k] / 0.9) for k in right if p_rest[k] > delta]
    assert found == pytest.approx(max(asked), rel=1e-12)
    singular = np.array([0.0, 1.0, 0, 0, 0, 0, 0]), np.array([0.05, 0.95, 0, 0, 0, 0, 0])
    assert float(dominating_mu(*map(jnp.asarray, (*singular, 0.0)))) == math.inf
    assert float(dominating_mu(*map(jnp.asarray, (*singular, 0.06)))) < 1e-6


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
    given = {"error": 0.0, "phase_error": 1e-3, "mean_error": 0.0, "log_error": 0.0}
    given |= [{}, {}, {"mean_error": 1e-3}, {}, {"error": 1e-3}, {"log_error": 1e-3}][row]
    one = np.ones(1)
    integrand = Integrand(
        theta=theta * one, mean=mean * one, log_total=log_total * one, spacing=1e-9 * one, real=real, imag=imag,
        tilts=np.array([[2 * theta], [0.0]]), log_moments=np.full((2, 1), -1e12),
        **{k: v * one for k, v in given.items()},
    )  # fmt: skip
    lower, upper, _, _ = summed(integrand, np.array([epsilon]))
    unit, phase = EPS / 2, 1e-9 * np.arange(nodes_) * (epsilon - mean)
    turned = (real[0] + 1j * imag[0]) * np.exp(-1j * phase)
    total, scale = turned.real.sum(), math.exp(log_total - theta * epsilon)
    away = given["mean_error"] + 4 * unit * (abs(epsilon) + abs(mean) + abs(epsilon - mean))
    sums = (np.abs(turned.real) + np.abs(turned.imag)).sum() * (16 + nodes_) * unit
    error = given["error"] + given["phase_error"] * away + sums
    log_error = given["log_error"] + 4 * unit * (1 + abs(log_total) + abs(theta * epsilon))
    above = scale * (error + total * math.expm1(log_error))
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
