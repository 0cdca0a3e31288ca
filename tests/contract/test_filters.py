"""What every filter promises, whatever its theorem."""

from __future__ import annotations

import contextlib
import math
import re
from decimal import Decimal
from fractions import Fraction

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import PLD, Gaussian, PoissonSampled, filters
from jaxacct.filters import Reason
from tests.contract.filter_cases import CASES, in_programs, law, leaves, play

every_filter = pytest.mark.parametrize("name", CASES)
with_numbers = pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.number])


def test_every_public_filter_has_a_case_or_a_place_of_its_own():
    held = {type(case.make()).__name__ for case in CASES.values()}
    made = [getattr(make, "__annotations__", {}).get("return", "") for make in vars(filters).values() if callable(make)]
    public = {name for one in made for name in one.split(" | ") if name.endswith("Filter")}
    assert len(public) > 10
    assert public <= held


@every_filter
def test_it_takes_every_kind_of_query_that_it_names(name):
    ledger = CASES[name].make()
    start = ledger.init()
    for query in CASES[name].accepts():
        admitted, state = ledger.update(query, start)
        assert admitted, query
        assert int(ledger.reason(query, start)) == Reason.ADMITTED
        assert np.any(leaves(state) != leaves(start)), query


@every_filter
def test_what_is_no_law_or_too_leaky_is_refused_for_a_reason_and_changes_nothing(name):
    """Nor does it close a door."""
    ledger = CASES[name].make()
    for state in (ledger.init(), ledger.update(CASES[name].small(1.0), ledger.init())[1]):
        for query in (CASES[name].big, *CASES[name].refuses()):
            admitted, after = ledger.update(query, state)
            assert not admitted, query
            chex.assert_trees_all_equal(state, after)
            reason = ledger.reason(query, state)
            assert reason.dtype == jnp.int32
            assert int(reason) == int(ledger.reason(query, state, admitted=admitted)) != Reason.ADMITTED
            assert filters.sentence(reason, ledger, query)
        assert ledger.update(CASES[name].small(1.0), state)[0]
    for query, message in CASES[name].rejects():
        with pytest.raises(ValueError, match=message):
            ledger.update(query, state)


@every_filter
def test_it_satisfies_the_protocol_and_names_its_theorem(name):
    if not CASES[name].promises:
        with pytest.raises(ValueError, match="guarantee"):
            _ = CASES[name].make().guarantee
        return
    guarantee = CASES[name].make().guarantee
    assert isinstance(guarantee, filters.Guarantee)
    assert 0 < float(guarantee.delta(0.9)) <= 1
    target = 1e-5 if np.isfinite(guarantee.epsilon(1e-5)) else 1e-2
    assert float(guarantee.delta(guarantee.epsilon(target))) <= target * (1 + 1e-6)
    assert guarantee.epsilon(np.array([1e-5, 1e-3])).shape == (2,)
    assert guarantee.is_bound == CASES[name].is_bound
    assert ("not a bound" in guarantee.statement) == (not guarantee.is_bound)
    # Signed far from the documentation: a name that only its pages explain ("the residue paper") leads nowhere.
    assert re.search(r"arXiv \d{4}\.\d{5}|[A-Z]\w+ 20\d\d|docs/proofs/|Tran, Koskela", guarantee.statement)
    assert not re.search(r"(residue|f-DP filters?) paper|paper on", guarantee.statement)


@in_programs
def test_the_profile_is_the_curve_of_the_guarantee_from_above(name):
    if not CASES[name].promises:
        pytest.skip("there is no guarantee")
    guarantee = CASES[name].make().guarantee
    epsilons = np.array([0.25, 0.5, 0.9, 3.0, 5.0])
    curve, deltas = guarantee.profile().hockey_stick(epsilons), np.asarray(guarantee.delta(epsilons))
    # Never above what `delta` knows (a curve is convex, of which `delta` alone makes no use), hardly below it where
    # it says anything.
    assert np.all(curve <= deltas * (1 + 2e-3) + 1e-16)
    close = (deltas < 0.3) & (deltas > 1e-9)
    np.testing.assert_allclose(curve[close], deltas[close], rtol=3e-2 if "approximate-dp" in name else 1e-3)


@every_filter
def test_update_is_pure_and_a_refusal_changes_nothing(name):
    case = CASES[name]
    ledger, query = case.make(), case.small(1.0)
    start = ledger.init()
    chex.assert_trees_all_equal(ledger.update(query, start), ledger.update(query, start))
    admitted, same = ledger.update(case.big, start)
    assert not admitted
    chex.assert_trees_all_equal(same, start, ledger.init())
    history, state = play(ledger, query, 250)
    assert history[0]
    assert not history[-1]
    assert history == sorted(history, reverse=True), "equal queries are admitted until the budget is spent"
    assert int(ledger.reason(query, state)) == Reason.SPENT
    for asked in (query, case.big):
        admitted, after = ledger.update(asked, state)
        assert not admitted
        chex.assert_trees_all_equal(state, after)


@every_filter
def test_a_state_goes_through_a_file_and_a_filter_through_its_tree(name, tmp_path):
    case = CASES[name]
    ledger = case.make()
    _, state = ledger.update(case.small(1.0), ledger.init())
    held, structure = jax.tree.flatten(state)
    np.savez(tmp_path / "state.npz", *held)
    with np.load(tmp_path / "state.npz") as file:
        back = jax.tree.unflatten(structure, [file[key] for key in file.files])
    chex.assert_trees_all_equal(ledger.update(case.small(1.0), state), ledger.update(case.small(1.0), back))
    again = jax.tree.unflatten(*jax.tree.flatten(ledger)[::-1])
    assert repr(again) == repr(ledger)
    chex.assert_trees_all_equal(again.update(case.small(1.0), state), ledger.update(case.small(1.0), state))


@every_filter
def test_spent_rises_remaining_falls_and_both_stay_within_the_budget(name):
    case = CASES[name]
    ledger = case.make()
    state = ledger.init()
    spent, left = leaves(ledger.spent(state)), leaves(ledger.remaining(state))
    assert np.all(spent == 0)
    assert float(ledger.fraction(state)) == 0.0
    for _ in range(20):
        admitted, state = ledger.update(case.small(1.0), state)
        assert admitted
        now, rest = leaves(ledger.spent(state)), leaves(ledger.remaining(state))
        assert np.all(now >= spent)
        assert np.all(rest <= left)
        if case.amounts:
            assert np.any(now > spent)
            assert np.any(rest < left)
            assert 0 < float(ledger.fraction(state)) < 1
        spent, left = now, rest


@with_numbers
def test_numbers_that_make_no_sense_are_refused_and_nothing_is_too_small_to_be_counted(name):
    case = CASES[name]
    ledger = case.make()
    _, state = ledger.update(case.number(1e-8), ledger.init())
    assert not np.array_equal(leaves(state), leaves(ledger.init()))
    for bad in (math.nan, -1.0, -1e-30, math.inf, 1e300):
        admitted, after = ledger.update(case.number(bad), state)
        assert not admitted, bad
        chex.assert_trees_all_equal(state, after)
    _, state = ledger.update(case.small(1.0), state)
    for tiny in (1e-30, 1e-310, 0.0):
        before = leaves(state)
        admitted, state = ledger.update(case.number(tiny), state)
        assert admitted
        assert np.any(leaves(state) > before)


def test_a_rate_that_is_traced_or_outside_of_the_regime_raises_whatever_is_asked():
    gdp, approximate = filters.gdp(1.0), filters.approximate_gdp(1.0)
    with pytest.raises(ValueError, match="cannot account for a Poisson-sampled"):
        jax.jit(lambda rate: gdp.update(PoissonSampled(Gaussian(2.0), rate), gdp.init()))(1.0)
    with pytest.raises(ValueError, match=r"rate must be below"):
        approximate.clip_scale(Gaussian(1.0), approximate.init())


NO_NUMBERS = (
    np.array([[0.1]]).view(np.matrix), True, np.True_, 0.1 + 0j,
    np.complex64(0.1), "0.1", b"1", None, np.array(0.1, object), Decimal("0.1"), Fraction(1, 10), np.timedelta64(1),
    np.array(1, "m8[s]"), np.datetime64(1, "s"), np.zeros((), [("a", float)]), jnp.array(True),
    jax.random.key(0),
)  # fmt: skip


@every_filter
def test_a_cost_that_is_no_number_raises(name):
    """A time was read as a position on a menu."""
    case = CASES[name]
    ledger = case.make()
    state = ledger.init()
    pair = case.number is not None and isinstance(case.number(1.0), tuple)
    for bad in NO_NUMBERS:
        for query in (bad, (bad, bad)) if pair else (bad,):
            with pytest.raises(ValueError, match=r"query must|must be"):
                ledger.update(query, state)


@every_filter
def test_what_a_mask_hides_is_refused_as_nan_is(name):
    """`np.ma.masked` was read as the cost 0."""
    ledger = CASES[name].make()
    for masked in (np.ma.masked, np.ma.array(0.1, mask=True), np.ma.array([0.1], mask=[True])):
        with contextlib.suppress(ValueError):  # of a filter of mechanisms only, or of one account
            assert not np.any(ledger.update(masked, ledger.init())[0])
    for masked in (np.ma.masked, np.ma.array(50.0), np.ma.array([50.0, 60.0], mask=[False, True])):
        with pytest.raises(ValueError, match="must"):
            ledger.update(Gaussian(masked), ledger.init())
        hidden = Gaussian(50.0)
        object.__setattr__(hidden, "sigma", masked)
        with pytest.raises(ValueError, match="query must"):
            ledger.update(hidden, ledger.init())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.number])
@pytest.mark.parametrize("wide", [True, False])
def test_the_least_negative_number_is_refused_and_zero_with_a_sign_is_zero(name, wide):
    """Compiled code reads subnormal numbers as 0."""
    case = CASES[name]
    least = np.float64(-5e-324) if wide else np.float32(-1e-45)
    with jax.enable_x64(wide):
        ledger = case.make()
        like = lambda x: jax.tree.map(lambda one: np.full(np.shape(one), x, least.dtype), case.number(1.0))  # noqa: E731
        for update in (ledger.update, jax.jit(ledger.update)):
            assert not update(like(least), ledger.init())[0]
            assert update(like(-0.0), ledger.init())[0]


@every_filter
def test_what_masses_leave_of_1_is_an_infinite_loss(name):
    """One filter forgave up to 1e-6 of a law's mass, and another 1e-9."""
    case = CASES[name]
    if not any(isinstance(query, PLD) for query in case.accepts()):
        pytest.skip("takes no PLD")
    ledger = case.make()
    grid = next(query.grid for query in case.accepts() if isinstance(query, PLD))
    whole = law(grid.spacing, grid=grid)
    for missing in (1e-11, 1e-9, 9e-7):  # more is no law
        masses = np.asarray(whole.masses) * (1.0 - missing)
        lacking = PLD(masses, whole.infinity_mass, whole.grid)
        said = PLD(masses, np.float64(missing), whole.grid)
        (found, one), (other, two) = (ledger.update(query, ledger.init()) for query in (lacking, said))
        assert found == other, missing
        if found:
            for read in (ledger.spent, ledger.remaining):
                np.testing.assert_allclose(leaves(read(one)), leaves(read(two)), rtol=1e-6, atol=1e-12)


def test_what_lies_outside_of_a_menu_is_named_with_its_numbers():
    menu = CASES["menu"].make()
    for query, words in (
        (PoissonSampled(Gaussian(0.9), 0.1), "noise 0.9 is below the least, 2, that this filter was made for"),
        (PoissonSampled(Gaussian(2.0), 0.3), "rate 0.3 is above the largest, 0.1, that this filter was made for"),
        (5, "position 5 is none of the 2 that this filter has entries for"),
    ):
        reason = jax.jit(menu.reason)(query, menu.init())
        assert int(reason) == Reason.OUTSIDE
        assert filters.sentence(reason, menu, query) == words
    with pytest.raises(ValueError, match="reason must be"):
        filters.sentence(17)
