"""The priced box: prices against exact worst cases, a search for a cell that is too cheap, and the ledger."""

from __future__ import annotations

import functools
import math
from fractions import Fraction as F

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

import jaxacct
from jaxacct import Composed, Gaussian, Laplace, PoissonSampled, filters
from jaxacct.filters.boxes import family as families
from jaxacct.filters.boxes import kernels, lines
from jaxacct.filters.boxes.look_up import left_by_lines
from jaxacct.filters.menus.units import MenuState
from jaxacct.losses.grids.grid import LossGrid

EPSILON, DELTA = 1.5, 1e-3
SIGMA, RATE = (1.2, 2.4), (0.01, 0.03)
UNITS = families.UNITS
NEVER = 2**31 - 1


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXACCT_CACHE_DIR", str(tmp_path_factory.mktemp("tables")))
        yield


@pytest.fixture(scope="module")
def ledger():
    extra = [Laplace(20.0), Gaussian(25.0)]
    return filters.priced_box(sigma=SIGMA, rate=RATE, epsilon=EPSILON, delta=DELTA, extra=extra)


def query(sigma, rate):
    return PoissonSampled(Gaussian(float(sigma)), float(rate))


def coin(offset, size):
    """Randomized response at epsilon = offset log 2, and its excess at gamma = 2^k, |k| <= size; exact."""
    ratio = F(2) ** offset
    law = {offset: ratio / (1 + ratio), -offset: 1 / (1 + ratio)}
    excess = []
    for k in range(-size, size + 1):
        gamma = F(2) ** k
        stick = sum(max(p - gamma * p / F(2) ** loss, F(0)) for loss, p in law.items())
        excess.append(stick - max(1 - gamma, F(0)))
    return law, excess


def at(left):
    return MenuState(jnp.int32(UNITS - left))


# The inequality itself, by other means: no transforms, no chords, the kernel by quadrature, off the lattice.


def hockey_stick(mu, loss):
    return ndtr(mu / 2 - loss / mu) - np.exp(loss) * ndtr(-loss / mu - mu / 2)


def kernel_by_quadrature(sigma, rate, width, offsets):
    """E of the query with a small Gaussian, less E of that Gaussian alone, over exp(loss / 2)."""
    z, step = np.linspace(-9, 11, 1201, retstep=True)
    gain = rate * np.expm1(z / sigma - 0.5 / sigma**2)
    weight = step * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    found = np.zeros(offsets.size)
    first, last = np.searchsorted(offsets, [math.log1p(-rate) - 9 * width, 3.5])
    for begin in range(first, last, 64):
        x = offsets[begin : begin + 64, None]
        # H is convex: its chord's excess over H does not cancel against the mean of linear functions.
        moved = (1 + gain) * hockey_stick(width, x - np.log1p(gain))
        slope = -np.exp(x) * ndtr(-x / width - width / 2)
        tangent = hockey_stick(width, x) + gain * (hockey_stick(width, x) - slope)
        found[begin : begin + 64] = ((moved - tangent) @ weight) * np.exp(-0.5 * x[:, 0])
    return found


def margins(family, sigma, rate, pairs, shift):
    """For each pair (budget before, budget after): the least margin of the inequality over what slack is in it."""
    grid, n = family.grid, family.grid.size
    losses = grid.losses + shift * grid.spacing
    offsets = (np.arange(-(n - 1), n) + shift) * grid.spacing
    adds = kernel_by_quadrature(sigma, rate, family.width, offsets)
    alone = kernels.gaussian_excess(family.width, offsets)
    # min(1, gamma) next to the small Gaussian is one less the other's excess.
    least = np.exp(-0.5 * np.abs(losses)) - np.exp(-0.5 * losses) * (
        hockey_stick(family.width, losses) - np.maximum(-np.expm1(losses), 0)
    )
    steady = 0.5 * least + family.far * np.cosh(0.5 * losses)
    found = []
    for before, after in pairs:
        rows = [np.array([np.interp(b, family.nodes, column) for column in family.excess.T]) for b in (before, after)]
        kinks = [families.kinks_of(row, grid) for row in rows]
        # U between lattice points is linear in gamma.
        gamma = np.exp(shift * grid.spacing)
        share = (gamma - 1) / np.expm1(grid.spacing)
        rise = rows[0] - rows[1]
        beyond = np.append(rise[1:], rise[-1] * np.exp(-0.5 * grid.spacing)) * np.exp(0.5 * grid.spacing)
        between = ((1 - share) * rise + share * beyond) / np.sqrt(gamma)
        smooth = between + np.convolve(kinks[0] - kinks[1], alone, mode="valid")
        slack = family.slack * (before - after) * steady
        margin = smooth + slack - np.convolve(kinks[1], adds, mode="valid")
        found.append(float((margin / slack).min()))
    return found


def test_no_price_between_the_grids_points_is_too_low_and_one_percent_less_is(ledger):
    rng = np.random.default_rng(1)
    tried, caught = 0, 0
    for _ in range(8):
        sigma, rate = (math.exp(rng.uniform(*np.log(ends))) for ends in (SIGMA, RATE))
        pairs, lower = [], []
        for left in (UNITS * np.exp(rng.uniform(np.log(0.03), 0, 5))).astype(int):
            price = int(ledger.price(query(sigma, rate), at(left)))
            if price < left:
                pairs.append((left / UNITS, (left - price) / UNITS))
                lower.append((left / UNITS, (left - 0.99 * price) / UNITS))
        found = margins(ledger.family, sigma, rate, pairs + lower, rng.uniform())
        assert min(found[: len(pairs)]) > -1e-6, (sigma, rate, pairs)
        tried += len(lower)
        caught += sum(m < -1e-6 for m in found[len(pairs) :])
    assert tried > 30
    assert caught > 0.5 * tried  # between the grid's points a price is a little above the least one


def test_it_dominates_the_exact_worst_case_of_coins_in_rational_numbers():
    """Prices of coins against curves that have nothing to do with them; every play, every budget it comes to."""
    step, size = 48, 9  # lattice points to log 2; losses up to 9 log 2
    grid = LossGrid(math.log(2) / step, -step * size, 2 * step * size + 1)
    nodes = np.rint(UNITS * np.linspace(0, 1.1, 67)) / UNITS
    nodes[60] = 1.0
    excess = np.stack([kernels.gaussian_excess(2.0 * math.sqrt(max(b, 1e-9)), grid.losses) for b in nodes])
    excess[0] = 0.0
    family = families.prepared(grid, nodes, excess, 5 * grid.spacing, 1e-3, 0.2)
    coins = [coin(k, size) for k in (1, 2)]
    half = {k: p / 2 for k, p in coins[1][0].items()} | {0: F(1, 2)}
    coins.append((half, [e / 2 for e in coins[1][1]]))
    tables = []
    for law, _ in coins:
        losses = sorted(law)
        gains = np.array([2.0**k - 1 for k in losses])
        masses = np.array([float(law[k]) / 2.0**k for k in losses])
        kernel = kernels.kernel_of(kernels.Atoms(gains, masses, 0.0), family.half_width, grid.spacing, grid.size)
        found = np.stack(lines.price_lines(kernel, family))[:, :60]
        tables.append(np.where(found <= 1, np.ceil(found * UNITS), NEVER).astype(np.int32))
    whole = np.rint(nodes[:61] * UNITS).astype(np.int32)

    def value(curve, k):
        return curve[k + size] if -size <= k <= size else F(0)

    @functools.cache
    def worst(left):
        """The exact worst case with so many units left, as excesses at powers of 2."""
        best = [F(0)] * (2 * size + 1)
        for (law, excess), table in zip(coins, tables, strict=True):
            after = int(left_by_lines(table, whole, np.int64(left)))
            assert after < left
            if after >= 0:
                known = worst(after)
                for k in range(-size, size + 1):
                    best[k + size] = max(
                        best[k + size], excess[k + size] + sum(p * value(known, k - loss) for loss, p in law.items())
                    )
        # The promise, at this budget.
        promised = family.curve(left / UNITS, family.width)[::step] * np.exp(0.5 * grid.losses[::step])
        assert (promised * (1 + 1e-12) >= np.array([float(x) for x in best])).all()
        return best

    found = worst(UNITS)
    assert worst.cache_info().currsize > 60
    promised = family.curve(1.0, family.width)[::step] * np.exp(0.5 * grid.losses[::step])
    assert float(found[size + 2]) > 0.5 * promised[size + 2]


@pytest.mark.parametrize(
    ("sigma", "rate", "few"),
    [
        ((0.8, 1.0), 0.15, ((0.83, 0.14), (0.89, 0.15), (0.97, 0.15))),
        # A table of half a minute.
        pytest.param(*((0.8, 1.5), (0.15, 0.2), ((0.83, 0.19), (1.07, 0.2), (1.31, 0.177))), marks=pytest.mark.slow),
    ],
)
def test_no_adaptive_play_of_queries_between_the_grids_points_exceeds_the_promise(sigma, rate, few):
    """The least curve above every adaptive play of three queries at their own prices, from below, on a lattice."""
    box = filters.priced_box(sigma=sigma, rate=rate, epsilon=2.0, delta=3e-3)
    few = [query(*x) for x in few]
    grid = LossGrid(0.02, -400, 801)
    laws = [jaxacct.PLD.from_mechanism(one, "lower", relation="remove", grid=LossGrid(0.02, -150, 301)) for one in few]

    @functools.cache
    def worst(left):
        best = np.zeros(grid.size)
        for law, one in zip(laws, few, strict=True):
            price = int(box.price(one, at(left)))
            if price <= left:
                known = np.concatenate([np.zeros(150), worst(left - price), np.zeros(150)])
                alone = np.asarray(jaxacct.PrivacyProfile.from_pld(law).on(grid).excess)
                best = np.maximum(best, alone + np.convolve(known, np.asarray(law.masses), mode="valid"))
        return best

    found = worst(UNITS)
    assert worst.cache_info().currsize > 100
    at_epsilon = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    claimed = np.asarray(box.guarantee.delta(at_epsilon))
    lower = np.interp(at_epsilon, grid.losses, found)
    assert (claimed >= 0.995 * lower).all()  # read between lattice points
    assert claimed[-1] < 2.5 * lower[-1]  # of some ten runs only whole ones count


@pytest.mark.parametrize(("sigma", "rate"), [(1.2, 0.03), (1.7, 0.0173), (2.4, 0.01)])
def test_a_constant_schedule_spends_nearly_all_of_epsilon_and_never_more(ledger, sigma, rate):
    steps = int(ledger.steps_left(query(sigma, rate)))
    fixed = jaxacct.epsilon(query(sigma, rate), DELTA, steps=steps)
    assert fixed.upper <= float(ledger.guarantee.epsilon(DELTA)) <= EPSILON
    assert fixed.upper > 0.87 * EPSILON  # the loudest corner, of which the curves make a dearer one, spends least
    assert ledger.guarantee.is_bound


def test_the_ledger_is_the_same_in_every_kind_of_program(ledger):
    sigma = jnp.asarray(np.random.default_rng(2).uniform(1.1, 2.6, 60), jnp.float32)
    rate = jnp.asarray(np.random.default_rng(3).uniform(0.009, 0.0303, 60), jnp.float32)

    def run(box, sigma, rate):
        def body(state, one):
            admitted, state = box.update(PoissonSampled(Gaussian(one[0]), one[1]), state)
            return state, (admitted, state.spent)

        return jax.lax.scan(body, box.init(), (sigma, rate))[1]

    admitted, spent = jax.jit(run)(ledger, sigma, rate)
    inside = (sigma >= np.float32(1.2)) & (rate <= np.float32(0.03))
    assert admitted[:10].tolist() == inside[:10].tolist()
    assert not (admitted & ~inside).any()
    with jax.enable_x64(True):
        wide = jax.jit(run)(ledger, jnp.asarray(sigma, jnp.float64), jnp.asarray(rate, jnp.float64))
    assert np.abs(np.asarray(wide[1]) - np.asarray(spent)).max() <= 60
    both = jax.vmap(run, (None, 0, 0))(ledger, jnp.stack([sigma, sigma[::-1]]), jnp.stack([rate, rate[::-1]]))
    assert (both[1][0] == spent).all()
    state = ledger.init()
    for s, q, expected in zip(sigma[:8], rate[:8], spent[:8], strict=True):
        if float(s) >= 1.2 and float(q) <= 0.03:
            state = ledger.update(query(s, q), state)[1]
            assert abs(int(state.spent) - int(expected)) <= 8
    assert (ledger.remaining(state) == UNITS - state.spent).all()


def test_what_is_outside_is_refused_in_a_program_and_priced_online_elsewhere(ledger):
    louder = query(1.1, 0.03)
    update = jax.jit(lambda s, q: ledger.update(PoissonSampled(Gaussian(s), q), ledger.init()))
    refused, state = update(1.1, 0.03)
    assert not refused
    assert int(state.spent) == 0
    assert int(ledger.price(query(1.2, 0.03))) < int(ledger.price(louder)) < UNITS
    assert int(ledger.price(Laplace(20.0))) == int(ledger.price(0)) < int(ledger.price(Laplace(10.0)))
    assert int(ledger.price(Gaussian(25.0))) == int(ledger.price(1))
    assert abs(int(ledger.price(query(5.0, 0.03))) - int(ledger.price(query(2.4, 0.03)))) <= 2  # the next float32
    assert int(ledger.price(query(0.2, 0.03))) == NEVER
    for wrong in (float("nan"), 0.0, -1.0, float("inf")):
        assert not update(wrong, 0.03)[0]
        assert not update(1.5, wrong - 1.5)[0]
    for place in (-1, 2, 2**31 - 1):
        assert int(ledger.price(place)) == NEVER
    assert not ledger.update(query(2.4, 0.01), at(1))[0]
    assert not ledger.update(query(2.4, 0.01), MenuState(jnp.int32(-5)))[0]
    with pytest.raises(ValueError, match="priced outside"):
        jax.jit(lambda x: ledger.update(Laplace(x), ledger.init()))(1.0)


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
    box = filters.individual_priced_box(examples=count, sigma=sigma, rate=rate, epsilon=EPSILON, delta=DELTA)
    rng = np.random.default_rng(4)
    norms = np.exp(rng.uniform(np.log(norm), np.log(2.0), count)).astype(np.float32)
    norms[:4] = 0.0, np.nan, -1.0, np.inf
    spent = UNITS - (UNITS * np.exp(rng.uniform(np.log(1e-3), 0, count))).astype(np.int32)
    state = box.init()._replace(words=jnp.asarray(spent))
    one = PoissonSampled(Gaussian(1.2, sensitivity=1.0), rate)
    takes_part, after = box.update(one, norms, state)
    charged = np.asarray(box.spent(after)) - spent
    assert (charged[~np.asarray(takes_part)] == 0).all()
    assert not takes_part[:4].any()
    own = jax.jit(jax.vmap(lambda n, s: box.common.price(PoissonSampled(Gaussian(1.2, n), rate), MenuState(s))))
    prices = np.asarray(own(np.clip(norms[4:], 1e-3, 1.0), spent[4:]))
    runs = np.asarray(takes_part[4:])
    assert (charged[4:][runs] >= prices[runs]).all()
    assert runs.sum() > 200
    assert np.median(charged[4:][runs] / prices[runs]) < 1.06
    assert (np.asarray(box.bounds(one, norms, after)) <= 1.0).all()
    assert box.guarantee.is_bound


def test_steps_are_counted_after_a_step_was_compiled_in_float32():
    box = filters.priced_box(sigma=2.0, rate=0.05, epsilon=1.0, delta=1e-5)
    asked = lambda sigma, rate: PoissonSampled(Gaussian(sigma), rate)  # noqa: E731
    step = jax.jit(lambda sigma, rate, spent: box.update(asked(sigma, rate), filters.MenuState(spent)))
    assert step(jnp.float32(2.0), jnp.float32(0.05), jnp.int32(0))[0]
    assert 0 < int(box.steps_left(query(2.0, 0.05))) < 200


def test_several_runs_cost_what_they_cost_one_by_one(ledger):
    one = query(1.9, 0.02)
    state = ledger.init()
    for _ in range(3):
        state = ledger.update(one, state)[1]
    together = ledger.update(Composed([one], 3), ledger.init())[1]
    assert int(together.spent) == int(state.spent)
    steps = int(ledger.steps_left(one))
    assert ledger.update(Composed([one], steps), ledger.init())[0]
    assert not ledger.update(Composed([one], steps + 1), ledger.init())[0]
    assert not ledger.update(Composed([one], 2_000_000_000), ledger.init())[0]  # ends when nothing fits


def test_it_says_what_it_is_and_is_kept_on_disk(ledger, tmp_path, monkeypatch):
    assert repr(ledger).startswith(
        "PricedBoxFilter(sigma 1.2 to 2.4, rate 0.01 to 0.03, 2 further entries; epsilon 1.5"
    )
    seen = []
    box = functools.partial(filters.priced_box, sigma=4.0, rate=0.02, epsilon=0.5, delta=1e-3)
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    made = box(progress=lambda *x: seen.append(x))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    again = box(progress=lambda *x: pytest.fail("computed anew"))
    assert (np.asarray(made.prices) == np.asarray(again.prices)).all()
    assert (made.family.excess == again.family.excess).all()


def test_bad_arguments_are_named():
    def make(**given):
        return filters.priced_box(**{"sigma": (1.0, 2.0), "rate": 0.1, "epsilon": 1.0, "delta": 1e-5, **given})

    for bad in ({"epsilon": 0.0}, {"delta": 1.0}, {"sigma": 0.0}, {"rate": 1.5}, {"extra": [3]}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))} must"):
            make(**bad)
    with pytest.raises(ValueError, match="sigma and rate must rise"):
        make(sigma=(2.0, 1.0))
    with pytest.raises(ValueError, match="one or two numbers"):
        make(sigma=(1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda e: make(epsilon=e))(1.0)
