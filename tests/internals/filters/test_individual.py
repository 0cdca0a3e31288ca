"""Individual ledgers: what each example pays, who drops out, and what is refused."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Composed, Gaussian, LossGrid, PoissonSampled, filters
from jaxacct.filters import amounts
from jaxacct.filters.accounts.menu import IndividualMenuFilter
from jaxacct.filters.additive.gdp import GDPFilter
from jaxacct.filters.marks import put
from jaxacct.filters.prices.menu import MenuFilter

SIGMA, RATE = np.geomspace(1.0, 4.0, 7).astype(np.float32), np.float32(0.1)
PRICES, BUDGET, NOBODY = np.rint(160 * SIGMA**-2.0).astype(np.int32), 1000, 2**31 - 1
STEP = PoissonSampled(Gaussian(1.0), RATE)
NORMS = np.concatenate(
    [
        [0.0, 1e-45, 1e-38, 1e-6, 0.2499, 0.25, 0.2501, 1.0, np.nextafter(np.float32(1), np.float32(0)), 1.5, 3e32],
        np.random.default_rng(0).uniform(0, 1.2, 500),
    ]
).astype(np.float32)
BAD = np.array([np.nan, np.inf, -np.inf, -1.0, -1e-45, -0.0], np.float32)


def menu_ledger(examples, budget=BUDGET):
    """A ledger without its table: only the guarantee needs that."""
    noise, rate = (np.asarray(amounts.split(np.float64(x))) for x in (SIGMA, np.full(7, RATE)))
    common = MenuFilter(PRICES, np.int32(budget), noise, rate, np.zeros(3), LossGrid(0.1, -1, 3))
    return IndividualMenuFilter(common, examples, 3 << 7)


def words(state):
    return np.asarray(state.words).tolist()


def test_everybody_pays_at_least_the_price_of_their_norm_and_hardly_more():
    ledger = menu_ledger(NORMS.size)
    takes_part, state = ledger.update(STEP, NORMS, ledger.init())
    spent = np.asarray(ledger.spent(state))
    norm = np.minimum(NORMS.astype(np.float64), 1.0)
    for n, price, took in zip(norm, spent, np.asarray(takes_part), strict=True):
        assert took == (n > 0)
        if n == 0:
            assert price == 0
        else:
            exact = lambda n: int(ledger.common.price(PoissonSampled(Gaussian(1.0, n), RATE)))  # noqa: E731
            assert exact(n) <= price <= exact(min(n * (1 + 2.0**-7), 1.0))
    assert spent[NORMS >= 1].tolist() == [PRICES[0]] * int((NORMS >= 1).sum()), "the clip norm itself is not rounded"
    bounds = np.asarray(ledger.bounds(STEP, NORMS, state))
    assert bounds.dtype == np.float32
    assert bounds.tolist() == np.minimum(NORMS, 1).tolist()


@pytest.mark.parametrize("clip", [1.0, 0.1, 3e-4, 7e5])
def test_the_unit_of_norms_is_the_clip_norms(clip):
    ledger = menu_ledger(NORMS.size)
    clip = np.float32(clip)
    query = PoissonSampled(Gaussian(np.float64(clip), clip), RATE)
    seen = np.asarray(ledger.spent(ledger.update(query, NORMS * clip, ledger.init())[1]))
    plain = [int(ledger.common.price(PoissonSampled(Gaussian(1.0, n), RATE))) for n in (0.2, 0.4, 0.8, 1.0)]
    near = [np.abs(NORMS - n).argmin() for n in (0.2, 0.4, 0.8, 1.0)]
    assert all(seen[i] >= 0.9 * p for i, p in zip(near, plain, strict=True))
    assert seen.max() == PRICES[0]
    assert (np.diff(seen[np.argsort(NORMS)]) >= 0).all()


def test_who_cannot_pay_drops_out_and_nothing_moves_any_more_but_for_cheaper_steps():
    ledger = menu_ledger(3)
    norms = np.array([1.0, 0.5, 0.0], np.float32)
    state, dear = ledger.init(), int(PRICES[0])
    took = []
    for _ in range(9):
        takes_part, state = ledger.update(STEP, norms, state)
        took.append(takes_part.tolist())
    runs = BUDGET // dear
    assert runs == 6
    assert [t[0] for t in took] == [True] * runs + [False] * (9 - runs)
    assert all(t[1] for t in took)
    assert not any(t[2] for t in took)
    assert ledger.spent(state).tolist()[0] == runs * dear
    assert ledger.bounds(STEP, norms, state).tolist() == [0.0, 0.5, 0.0]
    # A shorter gradient still fits.
    takes_part, after = ledger.update(STEP, np.float32([0.25, 0.5, 0.0]), state)
    assert takes_part.tolist() == [True, True, False]
    assert ledger.remaining(after).tolist()[0] == BUDGET - runs * dear - PRICES[-1]
    assert (np.asarray(ledger.fraction(after)) <= 1).all()


@pytest.mark.parametrize(
    "make", [menu_ledger, lambda n: filters.per_example(filters.approximate_gdp(0.05), examples=n)]
)
def test_norms_that_are_none_take_no_part_and_pay_nothing(make):
    ledger = make(BAD.size + 1)
    norms = np.append(BAD, np.float32(0.5))
    _, before = ledger.update(STEP, np.full(norms.size, 0.7, np.float32), ledger.init())
    takes_part, state = ledger.update(STEP, norms, before)
    assert takes_part.tolist() == [False] * BAD.size + [True]
    assert ledger.spent(state).tolist()[:-1] == ledger.spent(before).tolist()[:-1]
    assert ledger.bounds(STEP, norms, state).tolist() == [0.0] * BAD.size + [0.5]


@pytest.mark.parametrize(
    "make", [menu_ledger, lambda n: filters.per_example(filters.approximate_gdp(0.05), examples=n)]
)
def test_steps_that_are_none_have_no_participants_and_cost_nothing(make):
    ledger = make(4)
    norms = jnp.float32([0.5, 1.0, 0.3, 2.0])

    @jax.jit
    def run(sigma, clip, rate):
        query = PoissonSampled(Gaussian(sigma, clip), rate)
        _, state = ledger.update(query, norms, ledger.init())
        return ledger.spent(state), ledger.bounds(query, norms, state)

    nan, inf = math.nan, math.inf
    cases = [(nan, 1, 0.1), (-1, 1, 0.1), (0, 1, 0.1), (inf, 1, 0.1), (1, nan, 0.1), (1, -1, 0.1), (1, 0, 0.1)]
    cases += [(1, inf, 0.1), (1, 1, nan), (1, 1, -0.1), (1, 1, 0.3)]
    for case in cases:
        spent, bounds = run(*map(jnp.float32, case))
        assert not np.asarray(spent).any(), case
        assert not np.asarray(bounds).any(), case
    assert np.asarray(run(jnp.float32(1), jnp.float32(1), RATE)[1]).all()


def test_noise_off_the_menu_leaves_only_those_whom_an_entry_covers():
    ledger = menu_ledger(4)
    norms = np.float32([1.0, 0.6, 0.5, 0.1])
    takes_part, state = ledger.update(PoissonSampled(Gaussian(0.5), RATE), norms, ledger.init())
    assert takes_part.tolist() == [False, False, True, True]  # 0.5 / 0.5 is the loudest entry there is
    assert ledger.spent(state).tolist()[:3] == [0, 0, PRICES[0]]
    takes_part, _ = ledger.update(PoissonSampled(Gaussian(1.0), 0.11), norms, ledger.init())
    assert not takes_part.any()


def test_rates_of_their_own_are_priced_one_by_one():
    rates = np.float32([0.1, 0.05, 0.2, np.nan, 0.0])
    norms = np.float32([1.0, 0.5, 0.5, 0.5, 0.5])
    ledger = menu_ledger(5)
    ask = jax.jit(lambda rates: ledger.update(PoissonSampled(Gaussian(1.0), rates), norms, ledger.init()))
    takes_part, state = ask(rates)
    exact = [int(ledger.common.price(PoissonSampled(Gaussian(1.0, float(n)), RATE))) for n in norms]
    assert takes_part.tolist() == [True, True, False, False, True]
    assert ledger.spent(state).tolist() == [exact[0], exact[1], 0, 0, exact[4]]


@pytest.mark.parametrize(
    "common",
    [filters.gdp(1.2), filters.renyi(3.0, 1e-3, order=4)],
    ids=["gdp", "renyi"],
)
def test_any_filter_mapped_over_examples_is_that_filter_for_each(common):
    step = Gaussian(np.float32(2.0)) if isinstance(common, GDPFilter) else STEP
    ledger = filters.per_example(common, examples=4)
    norms = np.float32([1.0, 0.5, 0.0, np.nan])
    state, alone = ledger.init(), [common.init() for _ in range(4)]
    for _ in range(8):
        takes_part, state = ledger.update(step, norms, state)
        for i in range(2):
            own = Gaussian(2.0, norms[i]) if step is not STEP else PoissonSampled(Gaussian(1.0, norms[i]), RATE)
            admitted, alone[i] = common.update(own, alone[i])
            assert bool(takes_part[i]) == bool(admitted)
        assert ledger.bounds(step, norms, state).tolist() == np.where(takes_part, np.nan_to_num(norms), 0).tolist()
        for i in range(4):
            mine = jax.tree.map(lambda leaf: leaf[i].tolist(), state.each)  # noqa: B023
            assert mine == jax.tree.map(lambda leaf: leaf.tolist(), put(alone[i], None))  # one mark for all
    assert 0 < float(ledger.fraction(state)[1]) <= 1


@pytest.mark.parametrize(
    "make", [menu_ledger, lambda n: filters.per_example(filters.approximate_gdp(0.03), examples=n)]
)
def test_a_float32_scan_a_float64_program_and_donated_steps_keep_the_same_words(make):
    ledger = make(NORMS.size)
    shrink = jnp.linspace(1, 0.3, 12)

    @jax.jit
    def run(ledger, norms):
        def body(state, factor):
            query = PoissonSampled(Gaussian(1.0 / factor), RATE)
            takes_part, state = ledger.update(query, norms, state)
            return state, (takes_part, ledger.bounds(query, norms, state), ledger.fraction(state))

        return jax.lax.scan(body, ledger.init(), shrink)

    state, (takes_part, bounds, fraction) = run(ledger, NORMS)
    assert bounds.dtype == fraction.dtype == jnp.float32
    eager = ledger.init()
    for i, factor in enumerate(np.asarray(shrink)):
        before = eager
        query = PoissonSampled(Gaussian(np.float32(1) / factor), RATE)
        took, eager = ledger.update(query, NORMS, before, donate=True)
        assert before.words.is_deleted()
        assert took.tolist() == takes_part[i].tolist()
    assert words(eager) == words(state)
    assert 0 < takes_part[-1].sum() < takes_part[0].sum() <= NORMS.size
    with jax.enable_x64(True):
        wide, _ = run(ledger, NORMS)
    assert words(wide) == words(state)


def test_float64_norms_are_rounded_up_and_other_inputs_are_named():
    ledger = menu_ledger(2)
    just_above = np.float64(SIGMA[0] / SIGMA[3]) * (1 + 1e-12)  # in float32 it would be the cheaper side of a price
    _, state = ledger.update(STEP, np.array([just_above, 1e-300]), ledger.init())
    assert ledger.spent(state).tolist() == [int(ledger.common.price(PoissonSampled(Gaussian(1.0, 0.5 + 2**-8), RATE))),
                                            int(PRICES[-1])]  # fmt: skip
    good = np.ones(2, np.float32)
    for query, norms, message in [
        (3, good, "query must be a Gaussian or a PoissonSampled one, got int"),
        (Composed([STEP]), good, "query must be a Gaussian"),
        (PoissonSampled(Gaussian(np.ones(2)), 0.1), good, "sigma must be one number for everybody"),
        (PoissonSampled(Gaussian(1.0), np.ones(3) / 9), good, "rate must be one number or 2"),
        (STEP, np.ones(3, np.float32), r"norms must be 2 floats, one for each example, got float32\(3,\)"),
        (STEP, np.ones(2, int), "norms must be 2 floats"),
    ]:
        with pytest.raises(ValueError, match=message):
            ledger.update(query, norms, ledger.init())
    with pytest.raises(ValueError, match=r"state must hold int32\[2\] in words"):
        ledger.update(STEP, good, menu_ledger(3).init())
    for n in (0, 1.5, -1):
        with pytest.raises(ValueError, match="examples"):
            filters.per_example(filters.approximate_gdp(1.0), examples=n)
    with pytest.raises(ValueError, match="filter must have a single budget"):
        filters.per_example(filters.approximate_gdp(np.ones(2)), examples=2)
    with pytest.raises(ValueError, match="filter must have a single budget"):
        filters.per_example(filters.gdp(np.ones(2)), examples=2)
    ledger = filters.per_example(filters.approximate_gdp(1.0), examples=2)
    with pytest.raises(ValueError, match=r"rate must be below 0\.2"):
        ledger.update(PoissonSampled(Gaussian(1.0), 0.5), good, ledger.init())
