"""The box: an adaptive worst case against its promise, and the ledger."""

from __future__ import annotations

import functools

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
    RandomizedResponse,
    UserLevel,
    filters,
)

EPSILON, DELTA = 1.5, 1e-3
NEVER = 2**31 - 1
BOXES = {"one rate": ((1.2, 1.5), (0.03, 0.03)), "a range of rates": ((1.2, 2.4), (0.01, 0.03))}


@pytest.fixture(scope="module", params=["one rate", pytest.param("a range of rates", marks=pytest.mark.slow)])
def box(request):
    """The box's ranges and its filter; the table of the second takes half a minute."""
    sigma, rate = BOXES[request.param]
    extra = [Laplace(20.0), Gaussian(25.0)]
    given = rate if rate[0] < rate[1] else rate[0]
    return sigma, rate, filters.sampled_gaussian(sigma=sigma, rate=given, epsilon=EPSILON, delta=DELTA, extra=extra)


def query(sigma, rate):
    return PoissonSampled(Gaussian(float(sigma)), float(rate))


def at(ledger, left):
    """The state with so many units left."""
    return ledger.init()._replace(spent=jnp.int32(int(ledger.budget) - left))


@pytest.mark.parametrize(
    ("sigma", "rate", "few", "records"),
    [
        ((0.8, 1.0), 0.15, ((0.83, 0.14), (0.89, 0.15), (0.97, 0.15)), 1),
        ((1.5, 1.7), 0.12, ((1.53, 0.112), (1.61, 0.12), (1.68, 0.12)), 3),
        # A table of half a minute.
        pytest.param(*((0.8, 1.5), (0.15, 0.2), ((0.83, 0.19), (1.07, 0.2), (1.31, 0.177)), 1), marks=pytest.mark.slow),
    ],
)
def test_no_adaptive_play_of_queries_between_the_grids_points_exceeds_the_promise(sigma, rate, few, records):
    """The least curve above every adaptive play of three queries at their own prices, from below, on a lattice."""
    box = filters.sampled_gaussian(sigma=sigma, rate=rate, records=records, epsilon=2.0, delta=3e-3)
    users = [UserLevel(Gaussian(s), q, records) for s, q in few]
    few = [query(*x) for x in few]
    grid = LossGrid(0.02, -400, 801)
    laws = [
        jaxacct.PLD.from_mechanism(one, "lower", relation="remove", grid=LossGrid(0.02, -150, 301)) for one in users
    ]

    @functools.cache
    def worst(left):
        best = np.zeros(grid.size)
        for law, one in zip(laws, few, strict=True):
            price = int(box.price(one, at(box, left)))
            if price <= left:
                known = np.concatenate([np.zeros(150), worst(left - price), np.zeros(150)])
                alone = np.asarray(jaxacct.PrivacyProfile.from_pld(law).on(grid).excess)
                best = np.maximum(best, alone + np.convolve(known, np.asarray(law.masses), mode="valid"))
        return best

    found = worst(int(box.budget))
    assert worst.cache_info().currsize > 100
    at_epsilon = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    claimed = np.asarray(box.guarantee.delta(at_epsilon))
    lower = np.interp(at_epsilon, grid.losses, found)
    assert (claimed >= 0.995 * lower).all()  # read between lattice points
    assert claimed[-1] < 2.6 * lower[-1]  # of some ten runs only whole ones count


def test_a_box_for_users_counts_all_their_records_and_names_what_it_does_not_take():
    ranges = {"sigma": (1.6, 1.9), "rate": 0.12, "epsilon": 2.0, "delta": 3e-3}
    box = filters.sampled_gaussian(**ranges, records=3, extra=[Gaussian(25.0)])
    assert "owns at most 3" in box.guarantee.statement
    for sigma in (1.6, 1.7, 1.9):
        user, steps = UserLevel(Gaussian(sigma), 0.12, 3), int(box.steps_left(query(sigma, 0.12)))
        assert jaxacct.epsilon(user, 3e-3, steps=steps).upper <= 2.0
        assert jaxacct.epsilon(user, 3e-3, steps=steps).upper > 0.85 * 2.0
    louder = int(box.price(query(1.5, 0.13)))  # priced online, for the user as well
    assert int(box.price(query(1.6, 0.12))) < louder < NEVER
    # The entry is all records at once, the query each of them.
    assert int(box.price(0)) < 0.2 * int(box.price(Gaussian(25.0)))
    with pytest.raises(ValueError, match="records"):
        box.update(Laplace(20.0), box.init())
    with pytest.raises(ValueError, match="single records"):
        filters.per_example(box, examples=10)
    with pytest.raises(ValueError, match="records"):
        filters.sampled_gaussian(**ranges, records=0)


def test_a_constant_schedule_spends_nearly_all_of_epsilon_and_never_more(box):
    (low, high), (rarest, rate), ledger = box
    for one in (query(low, rate), query((low * high) ** 0.5, (rarest * rate) ** 0.5), query(high, rarest)):
        steps = int(ledger.steps_left(one))
        fixed = jaxacct.epsilon(one, DELTA, steps=steps)
        assert fixed.upper <= float(ledger.guarantee.epsilon(DELTA)) <= EPSILON
        assert fixed.upper > 0.87 * EPSILON  # the loudest corner, of which the curves make a dearer one, spends least
    assert ledger.guarantee.is_bound


def test_the_ledger_is_the_same_in_every_kind_of_program(box):
    (low, high), (rarest, most), ledger = box
    sigma = jnp.asarray(np.random.default_rng(2).uniform(0.92 * low, 1.08 * high, 60), jnp.float32)
    rate = jnp.asarray(np.random.default_rng(3).uniform(0.9 * rarest, 1.01 * most, 60), jnp.float32)

    def run(box, sigma, rate):
        def body(state, one):
            admitted, state = box.update(PoissonSampled(Gaussian(one[0]), one[1]), state)
            return state, (admitted, state.spent)

        return jax.lax.scan(body, box.init(), (sigma, rate))[1]

    admitted, spent = jax.jit(run)(ledger, sigma, rate)
    inside = (sigma >= np.float32(low)) & (rate <= np.float32(most))
    assert admitted[:10].tolist() == inside[:10].tolist()
    assert not (admitted & ~inside).any()
    with jax.enable_x64(True):
        wide = jax.jit(run)(ledger, jnp.asarray(sigma, jnp.float64), jnp.asarray(rate, jnp.float64))
    assert np.abs(np.asarray(wide[1]) - np.asarray(spent)).max() <= 60
    both = jax.vmap(run, (None, 0, 0))(ledger, jnp.stack([sigma, sigma[::-1]]), jnp.stack([rate, rate[::-1]]))
    assert (both[1][0] == spent).all()
    state = ledger.init()
    for s, q, expected in zip(sigma[:8], rate[:8], spent[:8], strict=True):
        if float(s) >= low and float(q) <= most:
            state = ledger.update(query(s, q), state)[1]
            assert abs(int(state.spent) - int(expected)) <= 8
    assert (ledger.remaining(state) == int(ledger.budget) - state.spent).all()


def test_what_is_outside_is_refused_in_a_program_and_priced_online_elsewhere(box):
    (_, high), (rarest, _), ledger = box
    louder = query(1.1, 0.03)
    update = jax.jit(lambda s, q: ledger.update(PoissonSampled(Gaussian(s), q), ledger.init()))
    refused, state = update(1.1, 0.03)
    assert not refused
    assert int(state.spent) == 0
    assert int(ledger.price(query(1.2, 0.03))) < int(ledger.price(louder)) < int(ledger.budget)
    assert int(ledger.price(Laplace(20.0))) == int(ledger.price(0)) < int(ledger.price(Laplace(10.0)))
    assert 0 <= int(ledger.price(1)) - int(ledger.price(Gaussian(25.0))) <= 50  # of 11,000,000: a hair less noise
    assert abs(int(ledger.price(query(5.0, 0.03))) - int(ledger.price(query(high, 0.03)))) <= 2  # the next float32
    assert int(ledger.price(query(0.2, 0.03))) == NEVER
    for wrong in (float("nan"), 0.0, -1.0, float("inf")):
        assert not update(wrong, 0.03)[0]
        assert not update(1.4, wrong - 1.5)[0]
    for place in (-1, 2, 2**31 - 1):
        assert int(ledger.price(place)) == NEVER
    assert not ledger.update(query(high, rarest), at(ledger, 1))[0]
    assert not ledger.update(query(high, rarest), ledger.init()._replace(spent=jnp.int32(-5)))[0]
    # Outside of the ranges, and dominated by a further entry.
    admitted, state = update(30.0, 1.0)
    assert admitted
    assert int(state.spent) == int(ledger.price(1))
    assert not update(24.0, 1.0)[0]
    with pytest.raises(ValueError, match="priced outside"):
        jax.jit(lambda x: ledger.update(Laplace(x), ledger.init()))(1.0)


def test_a_query_a_hair_louder_than_the_range_costs_no_less_than_the_nearest_in_it(box):
    """Its own least price may be less than that of a corner, which pays for all queries around it."""
    (low, high), (rarest, most), ledger = box
    for louder, nearest in (
        ((low * (1 - 1e-5), most), (low, most)),
        ((low * 0.97, rarest), (low, rarest)),
        ((low, most * (1 + 1e-5)), (low, most)),
        ((high, most * 1.03), (high, most)),
        ((low * 0.99, most * 1.01), (low, most)),
    ):
        for left in (ledger.budget, ledger.budget // 3, ledger.budget // 30):
            state = at(ledger, int(left))
            assert int(ledger.price(query(*louder), state)) >= int(ledger.price(query(*nearest), state))


@pytest.mark.parametrize(
    ("entry", "epsilon"),
    [
        (RandomizedResponse(0.994), 1.47),
        (RandomizedResponse(1.0), 2.9),
        (Composed([Laplace(20.0), Laplace(30.0)], [2, 1]), 1.47),
    ],
)
def test_a_further_entry_that_fits_once_alone_is_held_once(entry, epsilon):
    """The curves of the range alone have no room for it: they follow it, too."""
    box = filters.sampled_gaussian(sigma=2.0, rate=0.1, epsilon=epsilon, delta=1e-5, extra=[entry])
    admitted, state = box.update(0, box.init())
    assert admitted
    rest, whole = (int(box.steps_left(query(2.0, 0.1), one)) for one in (state, box.init()))
    assert whole > 25
    both = Composed([entry, query(2.0, 0.1)], [1, rest]) if rest else entry
    for spent in (jaxacct.epsilon(both, 1e-5), jaxacct.epsilon(query(2.0, 0.1), 1e-5, steps=whole)):
        assert spent.lower <= float(box.guarantee.epsilon(1e-5)) <= epsilon


@pytest.mark.parametrize("p", [[0.5, 0.5, 0.0], [0.5, 0.5, 1e-30]], ids=["never", "next to never"])
def test_outcomes_that_only_the_other_data_set_has_are_paid_for(p):
    """At loss -infinity for `remove`, at infinity for `add`: 0.0001 of delta for each run, whatever epsilon is."""
    query = FromTables(np.array(p), np.array([0.4999, 0.5, 1e-4]))
    box = filters.sampled_gaussian(sigma=10.0, rate=1.0, epsilon=3.0, delta=0.1)
    admitted, state = 0, box.init()
    for _ in range(1500):  # which cost .139
        more, state = box.update(query, state)
        admitted += int(more)
    assert admitted > 0
    assert jaxacct.delta(query, 3.0, steps=admitted).lower <= 0.1


@pytest.mark.parametrize(
    ("sigma", "norm", "rate"),
    [
        ((1.0, 1.28), 0.8, 0.02),
        # Tables of half a minute; the last is of so few runs that a query takes most of what is left.
        pytest.param((1.0, 6.0), 0.05, 0.02, marks=pytest.mark.slow),
        pytest.param((1.0, 3.0), 0.3, 0.1, marks=pytest.mark.slow),
    ],
)
def test_each_example_pays_at_least_what_its_own_norm_costs_now_and_little_more(sigma, norm, rate):
    count = 400
    box = filters.per_example(
        filters.sampled_gaussian(sigma=sigma, rate=rate, epsilon=EPSILON, delta=DELTA), examples=count
    )
    rng = np.random.default_rng(4)
    norms = np.exp(rng.uniform(np.log(norm), np.log(2.0), count)).astype(np.float32)
    norms[:4] = 0.0, np.nan, -1.0, np.inf
    whole = int(box.filter.budget)
    spent = whole - (whole * np.exp(rng.uniform(np.log(1e-3), 0, count))).astype(np.int32)
    state = box.init()._replace(words=jnp.asarray(spent))
    one = PoissonSampled(Gaussian(1.2, sensitivity=1.0), rate)
    takes_part, after = box.update(one, norms, state)
    charged = np.asarray(box.spent(after)) - spent
    assert (charged[~np.asarray(takes_part)] == 0).all()
    assert not takes_part[:4].any()
    fresh = box.filter.init()
    own = jax.jit(
        jax.vmap(lambda n, s: box.filter.price(PoissonSampled(Gaussian(1.2, n), rate), fresh._replace(spent=s)))
    )
    prices = np.asarray(own(np.clip(norms[4:], 1e-3, 1.0), spent[4:]))
    runs = np.asarray(takes_part[4:])
    assert (charged[4:][runs] >= prices[runs]).all()
    assert runs.sum() > 200
    assert np.median(charged[4:][runs] / prices[runs]) < 1.06
    assert (np.asarray(box.bounds(one, norms, after)) <= 1.0).all()
    assert box.guarantee.is_bound


def test_steps_are_counted_after_a_step_was_compiled_in_float32():
    box = filters.sampled_gaussian(sigma=2.0, rate=0.05, epsilon=1.0, delta=1e-5)
    asked = lambda sigma, rate: PoissonSampled(Gaussian(sigma), rate)  # noqa: E731
    step = jax.jit(lambda sigma, rate, spent: box.update(asked(sigma, rate), box.init()._replace(spent=spent)))
    assert step(jnp.float32(2.0), jnp.float32(0.05), jnp.int32(0))[0]
    assert 0 < int(box.steps_left(query(2.0, 0.05))) < 200


def test_several_runs_cost_what_they_cost_one_by_one(box):
    ledger, one = box[2], query(1.4, 0.03)
    state = ledger.init()
    for _ in range(3):
        state = ledger.update(one, state)[1]
    together = ledger.update(Composed([one], 3), ledger.init())[1]
    assert int(together.spent) == int(state.spent)
    steps = int(ledger.steps_left(one))
    assert ledger.update(Composed([one], steps), ledger.init())[0]
    assert not ledger.update(Composed([one], steps + 1), ledger.init())[0]
    assert not ledger.update(Composed([one], 2_000_000_000), ledger.init())[0]  # ends when nothing fits


def test_it_says_what_it_is_and_is_kept_on_disk(box, tmp_path, monkeypatch):
    (low, high), _, ledger = box
    assert repr(ledger).startswith(f"sampled_gaussian(sigma {low} to {high}, rate 0.0")
    assert ", 2 further entries; epsilon 1.5" in repr(ledger)
    seen = []
    make = functools.partial(filters.sampled_gaussian, sigma=4.0, rate=0.02, epsilon=0.5, delta=1e-3)
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    made = make(progress=lambda *x: seen.append(x))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    again = make(progress=lambda *x: pytest.fail("computed anew"))
    assert (np.asarray(made.lines) == np.asarray(again.lines)).all()
    assert float(made.guarantee.epsilon(1e-3)) == float(again.guarantee.epsilon(1e-3))


def test_bad_arguments_are_named():
    def make(**given):
        return filters.sampled_gaussian(**{"sigma": (1.0, 2.0), "rate": 0.1, "epsilon": 1.0, "delta": 1e-5, **given})

    for bad in ({"epsilon": 0.0}, {"delta": 1.0}, {"sigma": 0.0}, {"rate": 1.5}, {"extra": [3]}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))} must"):
            make(**bad)
    with pytest.raises(ValueError, match="sigma and rate must rise"):
        make(sigma=(2.0, 1.0))
    with pytest.raises(ValueError, match="one or two numbers"):
        make(sigma=(1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda e: make(epsilon=e))(1.0)
