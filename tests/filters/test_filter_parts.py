"""Small parts of the filters by themselves: directions of rounding, ends of ranges, what is refused and how."""

from __future__ import annotations

import dataclasses
import importlib
import math
import pathlib
from fractions import Fraction
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct import GDP, PLD, Composed, DiscreteGaussian, Gaussian, LossGrid, filters
from jaxacct.filters import (
    _budget_table,
    _composed_law,
    _costs,
    _ledger,
    _profile_guarantee,
    _table_cache,
    individual_approximate_gdp,
)
from jaxacct.filters._examples import FLAG, settle_norms
from jaxacct.filters._menu_laws import MenuLaws
from jaxacct.losses.profile import PrivacyProfile
from tests.filters.cases import law as response_law

# The package's names for these are the functions'.
approximate, priced, residue, menu_table, plan, meter, natural = (
    importlib.import_module(f"jaxacct.filters.{name}")
    for name in (
        "individual_approximate_gdp",
        "individual_priced_menu",
        "gdp_residue",
        "priced_menu",
        "plan",
        "odometer",
        "natural_approximate_dp",
    )
)
RNG = np.random.default_rng(4)
WHOLE = 2**30


def test_an_example_pays_what_fits_and_its_last_step_is_marked_and_never_too_much(monkeypatch):
    spent = np.array([0, 1, 5, 2**29, WHOLE - 2**23, WHOLE - 5, WHOLE - 1, WHOLE])
    spent = np.repeat(spent, 8)
    left = WHOLE - spent
    units = np.ravel([[1, n, n - 1, n + 1, n * (1 - 2.0**-21), n * (1 + 2.0**-23), 2 * n, np.inf] for n in left[::8]])
    units = np.maximum(np.floor(units), 1.0).astype(np.float32)
    words = np.where(spent == WHOLE, WHOLE + 7, spent).astype(np.int32)
    monkeypatch.setattr(approximate, "_units", lambda *_: jnp.array(units))
    ledger = SimpleNamespace(common=SimpleNamespace(regime="small"), examples=units.size)
    with jax.enable_x64(True):
        step = jax.jit(lambda norms: approximate._update_words(ledger, (1.0, 1.0, 0.1), norms, words))
        takes, after = step(np.ones(units.size))
        nothing = step(np.resize([0.0, np.inf, np.nan, -1.0], units.size))
    assert after.dtype == jnp.int32
    for n, pay, part, word in zip(spent.tolist(), units.tolist(), takes, np.asarray(after), strict=True):
        last, paid = bool(word & WHOLE), int(word) & (WHOLE - 1)
        assert bool(part) == bool(word < 0) == (n < WHOLE)
        if n == WHOLE:
            assert word == WHOLE
        elif last:
            assert paid == n
            assert pay > (WHOLE - n) * (1 - 2.0**-21)
        else:
            assert paid == n + pay < WHOLE
    assert not nothing[0].any()
    assert np.array_equal(nothing[1], spent)


@jax.enable_x64(True)
def test_an_example_pays_at_least_its_cost_in_units_and_hardly_more():
    norms = np.concatenate([10.0 ** RNG.uniform(-6, 1, 40), [0.5, 1.0, 3.0, 1e-30]]).astype(np.float32)
    for regime, rate in (("small", 0.1), ("large", 0.9)):
        ledger = individual_approximate_gdp(0.7, examples=norms.size, regime=regime)
        found = np.asarray(jax.jit(approximate._units)(norms, jnp.float64(2.0), jnp.float64(1.7), rate, ledger))
        assert found.dtype == np.float32
        assert np.array_equal(found, np.floor(found))
        with mpmath.workdps(30):
            for norm, units in zip(norms.tolist(), found.tolist(), strict=True):
                square = (min(mpmath.mpf(norm), 2) / mpmath.mpf(1.7)) ** 2
                gain = mpmath.expm1(square) if regime == "small" else square
                cost = mpmath.mpf(rate) ** 2 * gain / 2 / 0.7 * WHOLE
                assert max(cost, 1) <= units <= cost * (1 + (6 + square) * 2.0**-19) + 1


@jax.enable_x64(True)
def test_a_norm_takes_part_when_it_is_a_number_and_bounds_round_up():
    norms = np.array([0.0, 0.3, 1.0, 7.0, np.inf, np.nan, -1.0, -0.0])
    clipped = jax.jit(lambda query: priced._clipped(query, norms, norms.size))
    clip, bits, good = clipped(Gaussian(1.0, sensitivity=1.0 + 1e-12))
    assert clip.dtype == jnp.float32
    assert 1.0 + 1e-12 <= float(clip) <= 1.0 + 2.0**-22
    assert good.tolist() == [True] * 4 + [False] * 4
    capped = np.asarray(bits)[:4].astype(np.int32).view(np.float32)
    assert capped.tolist() == [
        0.0,
        np.float32(0.3) if np.float32(0.3) >= 0.3 else np.nextafter(0.3, 1),
        1.0,
        float(clip),
    ]
    for bad in (0.0, -1.0, np.inf, np.nan):
        query = jax.tree.unflatten(jax.tree.structure(Gaussian(1.0)), [bad, bad])
        assert not clipped(query)[2].any()
    fine = 0.3 + 1e-12
    assert float(settle_norms(np.array([fine]), 1)[0]) >= fine


def test_an_individual_ledger_is_charged_no_less_than_a_float64_norm_and_asks_its_filter_of_each(monkeypatch):
    module = importlib.import_module("jaxacct.filters.individual")
    monkeypatch.setattr(module, "_update", lambda filter, query, norms, state: (norms, state))
    norms = np.array([0.5 + 1e-10, 0.1])
    ledger = filters.individual(filters.gdp(1.0), examples=2)
    assert np.all(np.asarray(ledger.update(Gaussian(2.0), norms, ledger.init())[0], np.float64) >= norms)
    asked = SimpleNamespace(filter=SimpleNamespace(remaining=lambda s: 2 * s, fraction=lambda s: s * s))
    state = ledger.init()._replace(each=np.arange(3))
    assert type(ledger).remaining(asked, state).tolist() == [0, 2, 4]
    assert type(ledger).fraction(asked, state).tolist() == [0, 1, 4]


def test_a_law_and_its_reversal_are_dominated_at_every_order_and_a_symmetric_one_stays():
    both_ways = jax.jit(natural._for_both)
    same = response_law(0.5, 1e-3, LossGrid(0.25, -8, 12))
    with jax.enable_x64(True):
        assert float(both_ways(same).infinity_mass) == 1e-3
    for grid in (LossGrid(0.25, -5, 12), LossGrid(0.25, -8, 12)):
        masses = RNG.uniform(0.0, 1.0, 12) * np.exp(0.5 * grid.losses)
        masses *= 0.99 / max(masses.sum(), (masses * np.exp(-grid.losses)).sum())
        atom = 1 - masses.sum()
        with jax.enable_x64(True):
            made = both_ways(PLD(masses, np.float64(atom), grid))
        q = masses * np.exp(-grid.losses)
        at = np.linspace(-4.0, 4.0, 65)[:, None]
        one = (masses * np.maximum(1 - np.exp(at - grid.losses), 0)).sum(-1)
        other = (q * np.maximum(1 - np.exp(at + grid.losses), 0)).sum(-1) + 1 - q.sum()
        both = one + float(made.infinity_mass)
        assert np.all(both >= np.maximum(one + atom, other) - 1e-12)
        turned = np.array([q[i] if 0 <= (i := -2 * grid.lowest - n) < 12 else 0.0 for n in range(12)])
        more = np.maximum(turned - masses, 0).sum() + q.sum() - turned.sum() + max(1 - q.sum() - atom, 0.0)
        assert float(made.infinity_mass) == pytest.approx(atom + more, rel=1e-12)


def test_an_online_price_is_certified_exactly_where_the_curve_after_the_query_fits():
    grid, lowest = LossGrid(0.25, -6, 14), -2
    masses = np.array([0.1, 0.2, 0.3, 0.15, 0.2, 0.05])  # losses -2 .. 3 points
    excess = RNG.uniform(0.01, 0.02, grid.size)
    after = RNG.uniform(0.2, 0.4, grid.size)
    wide = {
        k: after[k] if 0 <= k < 14 else after[13] * np.exp(-0.125 * (k - 13)) if k > 0 else after[0] * np.exp(0.125 * k)
        for k in range(-5, 20)
    }
    whole = np.array([e + sum(m * wide[k - (lowest + j)] for j, m in enumerate(masses)) for k, e in enumerate(excess)])
    for slack in (0.0, 1e-3):
        bump = slack * 2 * np.cosh(0.5 * grid.losses)
        # A node is 4 units: the curve after is at 4 units, that before at 8, and 6 lies half-way.
        for scale, fits in ((1 + 1e-12, True), (1 - 1e-12, False)):
            top = whole * scale
            worst = np.argmin(top)
            raised = top + np.where(np.arange(14) == worst, 0.0, 1e-3)
            curves = np.stack([0 * after, after - 4 * bump, raised - 8 * bump, raised])
            one = SimpleNamespace(
                common=SimpleNamespace(budget=np.int32(9)), grid=grid, curves=curves, node=4, slack=slack
            )
            one._curve = lambda units, one=one: filters.OnlineMenuFilter._curve(one, units)
            certified = lambda left, price, one=one: filters.OnlineMenuFilter.certified(  # noqa: E731
                one, masses, lowest, excess, left, price
            )
            assert certified(8, 4) == fits
            np.testing.assert_allclose(one._curve(6), 0.5 * (after + raised), rtol=1e-13)
            np.testing.assert_allclose(one._curve(5), 0.75 * after + 0.25 * raised - bump * 0, rtol=1e-13)
        assert [certified(*x) for x in ((8, 0), (4, 5), (10, 4))] == [False] * 3
    empty = SimpleNamespace(common=one.common, grid=grid, curves=np.zeros((4, 14)), node=4, slack=0.0)
    empty._curve = lambda units: filters.OnlineMenuFilter._curve(empty, units)
    assert filters.OnlineMenuFilter.certified(empty, masses, lowest, 0 * excess, 8, 8)
    assert filters.OnlineMenuFilter.certified(empty, masses, lowest, 0 * excess, 8, 1)
    assert not filters.OnlineMenuFilter.certified(empty, masses, lowest, 0 * excess + 1e-320, 8, 8)


@dataclasses.dataclass(frozen=True)
class Asked:
    """A filter whose guarantee shows the delta that it is asked at."""

    pieces: object

    @property
    def guarantee(self):
        return SimpleNamespace(epsilon=lambda delta: jnp.broadcast_to(delta, (*delta.shape[:-1], 3)))


@jax.enable_x64(True)
def test_levels_share_delta_and_divergences_are_rounded_up():
    counter = SimpleNamespace(filter=Asked(_ledger.split(0.7)), levels=3)
    empty = _ledger.empty(_ledger.split(0.7))
    levels = jax.jit(lambda state, delta: meter._of_levels(counter, state, delta))
    for delta in RNG.uniform(1e-9, 1e-3, 20):
        share = float(levels(empty, delta))
        assert Fraction(delta) * (1 - Fraction(1, 2**49)) <= 3 * Fraction(share) <= Fraction(delta)
    assert float(levels(_ledger.full(empty), 0.3)) == pytest.approx(0.1)
    state = _ledger.LedgerState(jnp.array(RNG.integers(2**20, 2**24, (40, 3)), jnp.uint32))
    for kind, factor in ((filters.renyi(3.0, 1e-5, order=8), None), (filters.zcdp(0.7), 1), (filters.gdp(0.7), 0.5)):
        counter = filters.odometer(kind, orders=None if factor is None else (2.0, 9.0))
        orders, sums = jax.jit(meter._sums)(counter, state)
        budget = Fraction(float(_ledger.join(kind.pieces)))
        assert orders.tolist() == ([8.0] if factor is None else [2.0, 9.0])
        for share, row in zip(jax.jit(_ledger.used)(state).tolist(), sums.tolist(), strict=True):
            rho = Fraction(share) * (budget * budget / 2 if factor == 0.5 else budget)
            for order, found in zip(orders.tolist(), row, strict=True):
                truth = rho * (1 if factor is None else Fraction(order))
                assert truth <= Fraction(found) <= truth * (1 + Fraction(1, 2**47))


def test_a_curve_that_starts_below_delta_needs_no_epsilon():
    curve = SimpleNamespace(hockey_stick=lambda e: 0.1 * jnp.exp(-jnp.asarray(e)), grid=LossGrid(1.0, -1, 11))
    guarantee = _profile_guarantee.ProfileGuarantee(curve, "")
    found = np.asarray(guarantee.epsilon(np.array([0.2, 0.01, 1e-6])))
    assert found.tolist() == [0.0, pytest.approx(math.log(10.0), rel=1e-9), np.inf]
    assert found[1] >= math.log(10.0)
    assert guarantee.is_bound is True


@jax.enable_x64(True)
def test_a_last_step_is_clipped_to_what_is_left_and_others_to_the_clip_norm():
    norms = np.concatenate([RNG.uniform(0.01, 5.0, 40), [2.0, 3.0, np.nan, 1.0]]).astype(np.float32)
    spent = RNG.integers(0, 2**30, norms.size).astype(np.int32)
    last = np.arange(norms.size) % 2 == 0
    words = (spent | np.where(last, 2**30, 0) | FLAG).astype(np.int32)
    words[-1] = spent[-1]  # takes no part
    for regime, rate in (("small", 0.1), ("large", 0.9)):
        ledger = individual_approximate_gdp(0.02, examples=norms.size, regime=regime)
        found = np.asarray(approximate._bounds(ledger, (2.0, 1.7, rate), norms, words))
        assert found.dtype == np.float32
        assert found[-2:].tolist() == [0.0, 0.0]
        with mpmath.workdps(30):
            for norm, used, ends, value in list(zip(norms.tolist(), spent.tolist(), last, found.tolist(), strict=True))[
                :-2
            ]:
                rest = mpmath.mpf(2**30 - used) / 2**30 * 0.02 * 2 / mpmath.mpf(rate) ** 2
                most = 1.7 * mpmath.sqrt(mpmath.log1p(rest) if regime == "small" else rest)
                clipped = min(norm, 2.0)
                if not ends or most > clipped * (1 + 1e-6):
                    assert value == clipped
                else:
                    assert most * (1 - 2.0**-22) <= value <= most


def test_the_tables_scan_is_given_an_error_and_fades_that_cover_rounding(monkeypatch):
    class Stop(Exception):
        pass

    given = []

    def levels(*arguments):
        given.append(arguments)
        raise Stop

    monkeypatch.setattr(_budget_table, "_levels", levels)
    grid = LossGrid(0.25, -6, 14)
    masses = RNG.uniform(0.0, 0.2, (2, 6))
    laws = MenuLaws(grid, masses, RNG.uniform(0.0, 0.1, (2, 14)), 2, 3)
    with pytest.raises(Stop):
        _budget_table.budget_table(laws, np.array([7, 12]), 5, lambda _: True, 100)
    carry, rows, n = given[0][0], jax.tree.map(np.asarray, given[0][1]), given[0][2]
    unit = 2.0**-53
    assert n == 32
    half = masses * np.exp(-0.125 * np.arange(-2, 4))
    eta = (1 + 8 * unit) ** (5 + 1) - 1
    wanted = eta * half.sum(-1) + (2 * eta + 8 * unit) * np.sqrt((half**2).sum(-1))
    assert np.all(rows.error >= wanted)
    assert np.all(rows.error <= 1.02 * wanted)
    kernel = np.fft.irfft(np.asarray(rows.spectra), n)
    assert np.allclose(kernel[:, np.arange(-2, 4)], half, rtol=1e-12)
    assert (rows.nodes.tolist(), rows.share.tolist()) == ([2, 3], [pytest.approx(0.4), pytest.approx(0.4)])
    for found, exact in (
        (rows.excess, laws.excess * np.exp(-0.5 * grid.losses)),
        (rows.left, np.exp(-0.125 * np.arange(3, 0, -1))),
        (rows.right, np.exp(-0.125 * np.arange(1, 3))),
    ):
        assert np.all(np.asarray(found) >= exact)
        assert np.all(np.asarray(found) <= exact * (1 + 200 * unit))
    assert carry.curve.shape == (14,)
    assert carry.ring.shape == (3, 17)
    assert (carry.last.shape, carry.pace.shape, carry.norms.shape) == ((2, 14), (2, 14), (3,))
    with pytest.raises(ValueError, match="prices must be above 7, the distance of nodes, got 7"):
        _budget_table.budget_table(laws, np.array([7, 12]), 7, lambda _: True, 100)


def test_an_odometer_says_by_which_theorem_it_reads():
    for kind, more, name in (
        (filters.pure_dp(1.0), {}, "pure"),
        (filters.renyi(3.0, 1e-5, order=8), {}, "one order"),
        (filters.zcdp(1.0), {"orders": (2.0, 8.0)}, "mixture"),
        (filters.zcdp(1.0), {"levels": 3}, "levels"),
    ):
        assert filters.odometer(kind, **more).statement == meter._STATEMENTS[name]


def test_a_slack_hands_on_less_than_is_left_and_takes_back_more(monkeypatch):
    monkeypatch.setattr(residue, "gdp_epsilon", lambda mu, delta: delta)
    monkeypatch.setattr(residue, "gdp_delta", lambda mu, epsilon: jnp.asarray(epsilon))
    slack = np.concatenate([10.0 ** RNG.uniform(-18, -0.1, 60), [0.0]])
    delta = np.minimum(slack * np.resize([1 + 1e-9, 1.5, 1e3, 1.0], 61), 0.999)
    delta[-1] = 0.1
    part = np.minimum(RNG.uniform(0.0, 1.5, 61), 1.0)
    with jax.enable_x64(True):
        guarantee = residue.ApproximateGDPGuarantee(jnp.float64(1.0), jnp.asarray(slack), "")
    assert guarantee.is_bound is True
    left, whole = np.asarray(guarantee.epsilon(delta)), np.asarray(guarantee.delta(part))
    for s, d, rest, v, total in zip(slack, delta, left, part, whole, strict=True):
        s, d, v = Fraction(s), Fraction(d), Fraction(v)
        exact, lost = (d - s) / (1 - s), (2 * d - s) / (1 - s) / 2**48
        if rest == np.inf:
            assert exact <= lost
        else:
            assert 0 < Fraction(rest) <= exact <= Fraction(rest) + lost
        exact = s + (1 - s) * v
        assert exact * (1 - Fraction(1, 2**60)) <= Fraction(total) <= min(exact * (1 + Fraction(1, 2**48)), 1)


@jax.enable_x64(True)
def test_after_an_atom_and_after_a_gaussian_less_is_left_than_there_was():
    delta, atom = 10.0 ** RNG.uniform(-9, -0.1, 50), 10.0 ** RNG.uniform(-12, -0.2, 50)
    atom[:4], delta[4:6], atom[4:6] = 0.0, (0.3, 0.0), (0.3, 0.0)
    atom_taken, gaussian_taken = jax.jit(residue._after_atom), jax.jit(residue._after_gaussian)
    atom[6], delta[6] = 1.0, 0.5
    left, payable = (np.asarray(x) for x in atom_taken(delta, atom))
    for d, a, rest, can in zip(delta.tolist(), atom.tolist(), left.tolist(), payable.tolist(), strict=True):
        if a == 1:
            assert not can
            continue
        exact = (Fraction(d) - Fraction(a)) / (1 - Fraction(a))
        if a == 0:
            assert (rest, can) == (d, True)
            continue
        near = Fraction(d) / 2**49
        assert 0 <= Fraction(rest) <= max(exact, 0)
        assert max(exact, 0) - Fraction(rest) <= near + max(exact, 0) / 2**49
        assert not can or exact >= 0
        assert can or exact <= near
    mu, cost = RNG.uniform(0.1, 3.0, 50), RNG.uniform(0.0, 9.0, 50)
    cost[:3], cost[3] = 0.0, mu[3] ** 2
    after = np.asarray(gaussian_taken(mu, cost))
    for m, c, rest in zip(mu.tolist(), cost.tolist(), after.tolist(), strict=True):
        exact = Fraction(m) ** 2 - Fraction(c)
        if rest < 0:
            assert rest == -1
            assert exact < Fraction(m) ** 2 / 2**50
        else:
            assert Fraction(rest) ** 2 <= max(exact, 0) + Fraction(m) ** 2 / 2**52
            assert exact * (1 - Fraction(1, 2**46)) - Fraction(m) ** 2 / 2**50 <= Fraction(rest) ** 2
        assert c > 0 or rest == m
    bad = np.resize([1.0, np.nan, 1.0, -0.1, 0.0, 0.0, -1.0, 0.5, np.nan, 0.0], (50, 2)).T
    assert (np.asarray(gaussian_taken(*bad)) == -1).all()


def test_a_raised_curve_is_raised_by_the_slack_and_no_further_than_no_privacy():
    grid = LossGrid(0.5, -4, 10)
    excess = np.minimum(np.exp(grid.losses), 1.0) * 0.4
    made = _profile_guarantee.raised(PrivacyProfile(excess, grid, "upper"), 0.1)
    assert np.asarray(made.excess) == pytest.approx(
        np.minimum(excess + 0.1, np.minimum(np.exp(grid.losses), 1)), rel=1e-14
    )
    assert made.bound == "upper"


@pytest.mark.parametrize(
    ("query", "rho"),
    [
        (GDP(0.7), 0.245),
        (Gaussian(4.0, sensitivity=2.0), 0.125),
        (DiscreteGaussian(4.0, 2), 0.125),
        (Composed([GDP(0.5), Gaussian(2.0)], [4, 3]), 0.875),
    ],
)
def test_gaussians_cost_half_their_squared_mu(query, rho):
    assert rho * (1 - 1e-15) <= float(_costs.concentrated_cost(query)) <= rho * (1 + 1e-13)


def test_a_law_that_holds_more_than_one_makes_no_online_table(monkeypatch):
    grid = LossGrid(0.5, -2, 5)
    for masses, fine in (([0.5, 0.5 + 3e-9], False), ([0.5, 0.5], True), ([0.9, 0.05], False)):
        # Losses -1 and 0 points: what Q holds is 0.5 e^0.5 + ..., so the third is too much on Q's side only.
        laws = SimpleNamespace(grid=grid, masses=np.array([masses]), below=1, above=0, excess=np.zeros((1, 5)))
        if fine or masses[0] == 0.5:
            laws.below, laws.above = 0, 1
        table = SimpleNamespace(budget=40, excess=np.full(5, 0.01), curves=np.zeros((3, 5)))
        monkeypatch.setattr(menu_table, "menu_laws", lambda *_, laws=laws: (laws, np.array([3.0])))
        monkeypatch.setattr(menu_table, "budget_table", lambda *_, table=table: table)
        if fine:
            kept = menu_table._table([], 1.0, 1e-3, 32, None, None, True)
            a = float(kept["slack"])
            assert a == pytest.approx(0.01 * 1e-3 / (1 + math.e) / 40)
            assert np.asarray(kept["excess"]) == pytest.approx(0.01 + 40 * a * (1 + np.exp(grid.losses)), rel=1e-12)
            assert int(kept["reach"]) == 1
            assert kept["prices"].tolist() == [32]
        else:
            with pytest.raises(ArithmeticError, match="more than probability 1"):
                menu_table._table([], 1.0, 1e-3, 32, None, None, True)
    table.budget = 31
    with pytest.raises(ValueError, match=r"menu must hold a query that fits within epsilon 1 at delta 0[.]001"):
        menu_table._table([], 1.0, 1e-3, 32, None, None, False)


def test_a_kept_table_that_misses_its_target_is_refused(monkeypatch):
    reached = SimpleNamespace(symmetrise=lambda: SimpleNamespace(hockey_stick=lambda epsilon: 0.659))
    monkeypatch.setattr(menu_table, "PrivacyProfile", lambda *_: reached)
    kept = {"excess": np.full(5, 0.4), "spacing": 0.5, "lowest": -2, "prices": np.array([32]), "budget": 40}
    with pytest.raises(ArithmeticError, match=r"the certified curve misses the target: delta 0[.]659"):
        menu_table.filter_of([Gaussian(1.0)], kept, 0.5, 0.65)


def test_where_tables_lie_and_what_is_left_of_a_write_that_fails(monkeypatch, tmp_path):
    monkeypatch.delenv("JAXACCT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _table_cache.directory() == tmp_path / "jaxacct"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _table_cache.directory() == pathlib.Path.home() / ".cache" / "jaxacct"
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path / "here"))
    assert _table_cache.directory() == tmp_path / "here"

    def broken(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(RuntimeError, match="no"):
        _table_cache.store("key", {"a": np.ones(1)})
    assert list((tmp_path / "here").iterdir()) == []


def test_a_traced_delta_of_one_is_no_budget_and_orders_say_how_much_epsilon_they_need():
    made = jax.jit(lambda delta: filters.approximate_zcdp(0.5, delta))(1.0)
    assert any(np.isnan(leaf).any() for leaf in jax.tree.leaves(made))
    with pytest.raises(ValueError, match="epsilon must be above") as raised:
        filters.renyi_any(0.5, 1e-5, (8, 16))
    needed = float(str(raised.value).split("above ")[1].split()[0])
    filters.renyi_any(needed * 1.0001, 1e-5, (8, 16))
    with pytest.raises(ValueError, match="epsilon must be above"):
        filters.renyi_any(needed * 0.9999, 1e-5, (8, 16))


def test_arguments_that_filters_refuse_are_named():
    with pytest.raises(ValueError, match="epsilon must be larger to leave any budget, got 1e-12"):
        filters.approximate_dp(1e-12, 1e-10)
    grid = LossGrid(0.25, -4, 9)
    with pytest.raises(ValueError, match="query must be a guarantee \\(bound 'upper'\\), got bound 'lower'"):
        _composed_law.on_grid(PLD(np.eye(9)[4], 0.0, grid, "lower"), grid, "remove", symmetric=False)
    with pytest.raises(ValueError, match="order must be a concrete number"):
        jax.jit(lambda order: filters.renyi(1.0, 1e-5, order=order))(8.0)
    for order in (None, np.array([2.0, 3.0])):
        with pytest.raises(ValueError, match=r"order must be (a|one) number"):
            filters.renyi(1.0, 1e-5, order=order)
    with pytest.raises(ValueError, match="grid must hold losses on either side of 0, got"):
        filters.natural_approximate_dp(1.0, 1e-5, rounds=4, grid=LossGrid(0.25, 0, 9))
    with pytest.raises(ValueError, match="grid must hold losses on either side of 0 where no family"):
        filters.natural(Gaussian(1.0), rounds=3)
    with pytest.raises(ValueError, match="rounds must be given with a family"):
        filters.natural(Gaussian(1.0), (Gaussian(2.0),))
    with pytest.raises(ValueError, match="rounds must give at most"):
        filters.natural(Gaussian(1.0), [Gaussian(2.0)] * 9, 99)
    with pytest.raises(ValueError, match="delta must be 0 or between 1e-18 and 1, got 1e-19"):
        filters.gdp_residue(1.0, 1e-19)
    with pytest.raises(ValueError, match="query must match the ledger: it has shape \\(3,\\)"):
        filters.gdp_residue(np.ones(2)).update(np.ones(3), filters.gdp_residue(np.ones(2)).init())


def test_a_plans_steps_are_counted_with_the_last_as_a_fraction():
    costs, steps = np.array([0.5, 0.25]), np.array([2.0, 4.0])  # 2 in all, over 6 steps
    assert plan._admitted(costs, steps, 5.0) == 2 * 6 + 2
    assert plan._admitted(costs, steps, 1.5) == 2 + 2
    assert plan._admitted(costs, steps, 1.125) == 2.5
    assert plan._admitted(0 * costs, steps, 1.0) == np.inf
    for budget, more in ((0.0, costs), (-1.0, costs), (1.0, np.array([np.inf, 0.0])), (1.0, np.array([np.nan, 0.0]))):
        assert plan._admitted(more, steps, budget) == 0.0
    with pytest.raises(ValueError, match="orders must be a sequence of at least one order"):
        plan._checked(Gaussian(1.0), 1e-5, 3, ())
    for bad in (1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match=r"orders must be .* above 1, got"):
            plan._checked(Gaussian(1.0), 1e-5, 3, (2.0, bad))


def test_what_a_residue_filter_was_given_can_be_read():
    made = filters.gdp_residue(np.array([1.0, 2.0]), 1e-6, steps=4)
    assert np.asarray(made.mu).tolist() == [1.0, 2.0]
    assert np.asarray(made.slack).tolist() == [1e-6, 1e-6]
    assert float(made.share) == 0.25
    left = np.asarray(made.remaining_slack(made.init()))
    assert left.dtype == np.float32
    assert np.all((left <= 1e-6) & (left > 1e-6 * (1 - 2.0**-22)))


def test_schedules_fixed_in_advance_run_as_often_as_their_price_allows(monkeypatch):
    asked = []

    def epsilon(query, delta, steps):
        asked.append((query, delta, steps))
        return menu_table.Bounds(0.1 * steps, 0.2 * steps)

    monkeypatch.setattr(menu_table.accounting, "epsilon", epsilon)
    ledger = SimpleNamespace(budget=np.int32(100), prices=np.array([30, 101, 50], np.int32))
    found = menu_table.constant_schedules(ledger, ["a", "b", "c"], 1e-5)
    assert asked == [("a", 1e-5, 3), ("c", 1e-5, 2)]
    assert found.lower == pytest.approx([0.3, 0.0, 0.2])
    assert found.upper == pytest.approx([0.6, 0.0, 0.4])


def test_a_grid_without_one_holds_epsilon_as_a_point_and_reaches_to_twice_it():
    grid = _composed_law.grid_for(2.0, 9)
    assert (grid.spacing, grid.lowest, grid.size) == (0.5, -4, 9)
    for epsilon in (0.1, 1.0, 3.0):
        grid = filters.natural_approximate_dp(epsilon, 1e-5, rounds=4).grid
        assert (grid.lowest, grid.size) == (-2048, 4097)
        assert abs(epsilon / grid.spacing - round(epsilon / grid.spacing)) < 1e-9
        assert grid.losses[-1] == pytest.approx(2 * epsilon + 1, rel=5e-3)


@jax.enable_x64(True)
def test_what_is_spent_is_rounded_up_and_what_remains_down_in_every_filters_own_unit():
    words = RNG.integers(1, 2**24, (60, 3)) * [1, 1, 0]
    words[::2, 1] = 0  # shares that float64 holds exactly: only the product's own rounding is left to cover
    state = _ledger.LedgerState(jnp.array(words, jnp.uint32))
    shares = [Fraction((int(a) << 64) + (int(b) << 32), 1 << 88) for a, b, _ in words]
    up, down = 1 + Fraction(1, 2**47), 1 - Fraction(1, 2**47)
    in_mu = jax.jit(importlib.import_module("jaxacct.filters.gdp")._in_mu, static_argnums=(2, 3))
    residues = jax.jit(residue._in_mu, static_argnums=(2, 3))
    for budget in (0.7, 1.0 / 3.0):
        pieces, exact = _ledger.split(budget), Fraction(budget)
        wide = jnp.broadcast_to(pieces, (60, 3))
        for name in ("_additive.in_budget", "approximate_gdp._in_budget"):
            module, function = name.split(".")
            reads = getattr(importlib.import_module(f"jaxacct.filters.{module}"), function)
            reads = jax.jit(reads, static_argnums=(2, 3))
            for share, spent in zip(shares, reads(pieces, state, "spent", "float64").tolist(), strict=True):
                assert exact * share <= Fraction(spent) <= exact * share * up
            for share, left in zip(shares, reads(pieces, state, "remaining", "float64").tolist(), strict=True):
                assert exact * (1 - share) * down <= Fraction(left) <= exact * (1 - share) * (1 + Fraction(1, 2**52))
        for share, spent in zip(shares, in_mu(pieces, state, "spent", "float64").tolist(), strict=True):
            assert exact**2 * share <= Fraction(spent) ** 2 <= exact**2 * share * up
        units = RNG.integers(0, 2**30, 60).astype(np.int32)
        ledger = SimpleNamespace(common=SimpleNamespace(pieces=pieces))
        read = {
            which: approximate._in_budget(ledger, jnp.array(units), which, "float64").tolist()
            for which in ("spent", "remaining", "fraction")
        }
        for n, spent, left, share in zip(units.tolist(), *read.values(), strict=True):
            part = Fraction(n, 2**30)
            assert exact * part <= Fraction(spent) <= exact * part * up
            assert exact * (1 - part) * down <= Fraction(left) <= exact * (1 - part)
            assert Fraction(share) == part
        gone = np.asarray(residue._whole(wide)) * RNG.uniform(0.0, 1.0, 60)
        left = _ledger.split(gone)
        whole = Fraction(float(residue._whole(pieces)))
        assert exact * (1 + Fraction(1, 2**41)) * (1 - Fraction(1, 2**52)) <= whole <= exact * (1 + Fraction(1, 2**40))
        for which in ("spent", "fraction", "remaining"):
            for rest, value in zip(gone.tolist(), residues(wide, left, which, "float64").tolist(), strict=True):
                used = whole**2 - Fraction(rest) ** 2
                if which == "remaining":
                    free = max(Fraction(rest) ** 2 - exact**2 / 2**40, 0)
                    assert free - exact**2 / 2**44 <= Fraction(value) ** 2 <= free + exact**2 / 2**51
                else:
                    value = Fraction(value) ** 2 if which == "spent" else Fraction(value) * exact**2
                    assert used <= value <= used * up
