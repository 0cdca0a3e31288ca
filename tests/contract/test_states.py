"""A state belongs to its filter: no other one goes on with it, whatever it went through, and damage admits nothing."""

from __future__ import annotations

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import ApproximateDP, Gaussian, PoissonSampled, PureDP, adversary, filters
from tests.contract.filter_cases import CASES, GRID, NATURAL, SYMMETRIC, honest, law, menu, play, response
from tests.processes import printed

every_filter = pytest.mark.parametrize("name", CASES)

# The same kind of filter with another budget, or what else a resumed program may have changed.
OTHERS = {
    "renyi": [lambda: filters.renyi(3.0, 1e-5, order=9)],
    "renyi-any": [lambda: filters.renyi_any(3.0, 1e-5, (8, 13.0))],
    "approximate-zcdp": [lambda: filters.approximate_zcdp(0.5, 2e-6)],
    "gdp-residue": [
        lambda: filters.gdp_residue(1.0, 1e-6), lambda: filters.gdp_residue(5.0),
        lambda: filters.gdp_residue(1.0, relation="replace"),
    ],
    "residue": [lambda: filters.residue(response, honest, 40.0, rounds=200, grid=GRID)],
    "natural": [
        lambda: filters.natural(Gaussian(1.0), NATURAL, 110),
        lambda: filters.natural(Gaussian(1.0), (Gaussian(11.0),), 120),
    ],
    "natural-undeclared": [lambda: filters.natural(law(31 * 0.125), grid=GRID, relation="replace")],
    "natural-approximate-dp": [lambda: adversary.natural_approximate_dp(1.0, 2e-4, rounds=300, grid=SYMMETRIC)],
    "additive-profile": [lambda: adversary.additive_profile(1.0, 1e-6, rounds=99)],
    "approximate-gdp-small": [lambda: filters.approximate_gdp(0.05, regime="large")],
}  # fmt: skip


def raised(name):
    """The filter of a case with twice its budget; a little less for a box of curves."""
    return CASES[name].make(0.5 if name in ("residue", "natural-undeclared") else 2.0)


def refused(ledger, query, state):
    """Whether ``update`` refuses a state and leaves it bit for bit."""
    admitted, after = ledger.update(query, state)
    chex.assert_trees_all_equal(after, state)
    return not np.any(admitted)


def one_more(name):
    """A case's filter, a query, and a state in which some is spent."""
    ledger, query = CASES[name].make(), CASES[name].small(1.0)
    return ledger, query, ledger.update(query, ledger.init())[1]


@every_filter
def test_a_state_of_another_budget_or_setting_is_refused_and_named(name):
    ledger, query, state = one_more(name)
    for other in (raised(name), *(make() for make in OTHERS.get(name, []))):
        assert int(ledger.reason(query, other.init())) == filters.Reason.FOREIGN_STATE
        for mine, foreign in ((ledger, other.init()), (other, state)):
            assert refused(mine, query, foreign)
            with pytest.raises(ValueError, match="state must be one of this filter"):
                filters.check_state(mine, foreign)
            for reading in (mine.spent, mine.remaining, mine.fraction):
                with pytest.raises(ValueError, match="state must be one of this filter"):
                    reading(foreign)
    filters.check_state(ledger, state)


@every_filter
def test_a_program_refuses_what_python_refuses_and_reads_it_as_spent(name):
    ledger, query, state = one_more(name)
    foreign = raised(name).init()

    @jax.jit
    def step(state):
        read = ledger.spent(state), ledger.remaining(state), ledger.fraction(state)
        return ledger.update(query, state), read, ledger.reason(query, state)

    assert step(state)[0][0]
    (admitted, after), (spent, left, share), reason = step(foreign)
    assert not admitted
    assert int(reason) == filters.Reason.FOREIGN_STATE
    chex.assert_trees_all_equal(after, foreign)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(left))
    assert np.all(np.asarray(share) >= 1)
    assert all(np.all(np.asarray(leaf) > 1e9) for leaf in jax.tree.leaves(spent))


@every_filter
def test_the_mark_is_the_same_in_python_in_programs_of_either_precision_and_of_a_filter_that_is_an_argument(name):
    ledger, query, state = one_more(name)
    for wide in (False, True):
        with jax.enable_x64(wide):
            found = jax.jit(lambda ledger: ledger.init())(ledger)
            chex.assert_trees_all_equal(found, ledger.init())
            assert jax.jit(lambda ledger, state: ledger.update(query, state)[0])(ledger, state)


@every_filter
def test_every_wrong_type_is_refused_and_floats_for_whole_numbers_raise(name):
    ledger, query, state = one_more(name)
    fields = {field: np.asarray(words) for field, words in state._asdict().items() if isinstance(words, jax.Array)}
    for field, words in fields.items():
        for dtype in {"i2", "i4", "u4", "i8", "f2", "f4", "f8", "?"} - {words.dtype.str[1:]}:
            with np.errstate(all="ignore"):
                damaged = state._replace(**{field: words.astype(dtype)})
            if field != "mark" and (dtype == "?" or (dtype[0] == "f") != (words.dtype.kind == "f")):
                with pytest.raises(ValueError, match=f"state must hold .* in .*{field}"):
                    ledger.update(query, damaged)
            else:
                assert refused(ledger, query, damaged), dtype
                with pytest.raises(ValueError, match="state must"):
                    filters.check_state(ledger, damaged)


@every_filter
def test_a_wrong_shape_raises_and_a_state_without_a_mark_is_refused(name):
    ledger, query, state = one_more(name)
    field = state._fields[0]
    words = getattr(state, field)
    if isinstance(words, jax.Array) and words.ndim:
        with pytest.raises(ValueError, match="state must hold"):
            ledger.update(query, state._replace(**{field: words[..., :-1]}))
    if "mark" in state._fields:
        for none in (None, np.uint32(0)):
            assert refused(ledger, query, state._replace(mark=none))
    for broken in (state._replace(**{field: None}), None, (), 1.0, tuple(state)):
        for use in (functools.partial(ledger.update, query), ledger.spent, ledger.remaining, ledger.fraction):
            with pytest.raises(ValueError, match="state must"):
                use(broken)


@every_filter
def test_damaged_words_admit_no_more_than_a_fresh_account(name):
    """Each word of a state replaced by wild ones, its mark kept."""
    ledger, _, state = one_more(name)
    wild = {"f": [np.nan, np.inf, -np.inf, -1.0, 1e30], "i": [2**31 - 1, -(2**31), -1], "u": [2**32 - 1, 2**31]}
    leaves, structure = jax.tree.flatten(state)
    for i, leaf in enumerate(leaves):
        words = np.asarray(leaf)
        if words.dtype == np.uint32 and not words.ndim:
            continue  # the mark
        for value in wild[words.dtype.kind]:
            damaged = words.copy()
            damaged[(0,) * words.ndim] = value
            hurt = jax.tree.unflatten(structure, [*leaves[:i], damaged, *leaves[i + 1 :]])
            assert not np.any(ledger.update(CASES[name].big, hurt)[0]), (i, value)


@pytest.mark.parametrize("field", ["mu", "delta"])
def test_a_residue_above_the_budget_and_one_that_is_no_number_admit_nothing(field):
    ledger = filters.gdp_residue(1.0, 1e-6)
    for value in (5.0, 1.001, np.inf, np.nan, -1.0):
        state = ledger.init()._replace(**{field: np.array([value, 0.0, 0.0], np.float32)})
        for query in (0.1, 4.9, ApproximateDP(0.1, 1e-9), ApproximateDP(0.1, 0.4)):
            assert refused(ledger, query, state)
            assert not jax.jit(lambda state: ledger.update(query, state)[0])(state)  # noqa: B023


def test_states_of_another_kind_of_filter_in_the_same_clothes_are_refused():
    """Menus and boxes both count units, additive filters units of their budgets."""
    bands = adversary.additive_profile(1.0, 1e-6, rounds=9)
    for other in (filters.pure_dp(1.0), filters.zcdp(1.0), filters.approximate_gdp(1.0), bands):
        assert refused(filters.gdp(1.0), 0.1, other.init())
    box = filters.sampled_gaussian(sigma=(1.2, 1.5), rate=0.05, epsilon=1.0, delta=1e-3)
    query, priced = PoissonSampled(Gaussian(1.3), 0.05), menu()
    for mine, other, asked in ((box, priced, query), (priced, box, 0)):
        exhausted = other.init()._replace(spent=jnp.int32(int(other.budget)))
        assert refused(mine, asked, exhausted)
        assert mine.update(asked, mine.init())[0]
    assert int(box.price(query)) < 2**31 - 1
    assert int(jax.jit(lambda state: box.price(query, state))(priced.init())) == 2**31 - 1
    louder = filters.sampled_gaussian(sigma=(1.2, 1.5), rate=0.05, epsilon=1.1, delta=1e-3)
    assert refused(box, query, louder.init())
    # Units of a menu with online prices do not say what ran, as `lower_budget` takes it.
    plain, online = (
        filters.menu([PureDP(1.0)], epsilon=2.5, delta=1e-5, unit=16, points=256, online=one) for one in (False, True)
    )
    assert int(plain.budget) == int(online.budget)
    for mine, other in ((plain, online), (online, plain)):
        assert mine.update(0, mine.init())[0]
        assert refused(mine, 0, other.init())


class Family:
    """A budget family in an object, by a method and by a call."""

    def __init__(self, scale):
        self.scale = scale

    def curve(self, left):
        return response(left * self.scale)

    __call__ = curve


@pytest.mark.parametrize(
    "made",
    [
        lambda scale: lambda left: response(left * scale),
        lambda scale: lambda left, by=scale: response(left * by),
        lambda scale: functools.partial(lambda by, left: response(left * by), scale),
        lambda scale: jax.jit(lambda left: response(left * scale)),
        lambda scale: Family(scale).curve,
        Family,
        # As a program that was edited in between: another number in the text, or in a constant of its module.
        lambda scale: (lambda left: response(left * 1.0)) if scale == 1 else (lambda left: response(left * 3.0)),
        lambda scale: in_a_module(f"SCALE = {scale}", "lambda left: response(left * SCALE)"),
        lambda scale: in_a_module(f"def by(left): return left * {scale}", "lambda left: response(by(left))"),
    ],
    ids=["closure", "default", "partial", "jit", "method", "object", "text", "constant", "helper"],
)
def test_a_budget_family_is_what_it_computes_and_not_what_it_is_called(made):
    """By its name alone, 4 of 20 steps left of a family thrice as leaky are as many left of another one."""
    high, low, again = (filters.residue(made(by), honest, 20.0, rounds=9, grid=GRID) for by in (3.0, 1.0, 3.0))
    _, state = high.update(law(GRID.spacing), high.init())
    assert refused(low, law(GRID.spacing), state)
    filters.check_state(again, state)


def in_a_module(text, function):
    """A function of a module with this text."""
    names = {"response": response, "__name__": "a_program"}
    exec(text, names)
    return eval(function, names)


def test_of_mapped_budgets_each_account_is_refused_by_itself():
    budgets = np.array([0.5, 1.0, 2.0])
    ledgers, single = filters.gdp(budgets), filters.gdp(1.0)
    mixed = jax.vmap(single.update, (None, 0))(0.1, ledgers.init())[0]
    assert mixed.tolist() == [False, True, False]
    admitted, after = ledgers.update(0.1, ledgers.init()._replace(mark=np.repeat(single.init().mark, 3)))
    assert admitted.tolist() == [False, True, False]
    assert (np.asarray(after.words)[[0, 2]] == 0).all()
    mapped = jax.vmap(lambda mu, state: filters.gdp(mu).update(0.1, state)[0])
    with jax.enable_x64(True):
        assert mapped(jnp.asarray(budgets), ledgers.init()).all()
        assert mapped(jnp.asarray(budgets[::-1].copy()), ledgers.init()).tolist() == [False, True, False]


PROGRAM = """
import numpy as np, jax
from tests.contract.filter_cases import CASES
for name in {names}:
    leaves = jax.tree.leaves(CASES[name].make().init())
    print(name, *(int(leaf) for leaf in leaves if leaf.dtype == np.uint32 and not leaf.ndim))
"""


def test_a_new_process_gives_the_same_marks():
    """Functions count by their code, tables by their numbers: nothing depends on addresses or hash seeds."""
    names = ("gdp", "renyi-any", "approximate-zcdp", "residue", "natural", "natural-undeclared", "menu")
    found = printed(PROGRAM.format(names=names), PYTHONHASHSEED="7").split("\n")
    for name, line in zip(names, found, strict=False):
        leaves = jax.tree.leaves(CASES[name].make().init())
        marks = [int(leaf) for leaf in leaves if leaf.dtype == np.uint32 and not leaf.ndim]
        assert line.split() == [name, *map(str, marks)]
        assert 0 not in marks


def test_a_loop_names_a_foreign_state_and_stops_at_once_on_a_traced_one():
    ledger, foreign = filters.gdp(1.0), filters.gdp(2.0).init()
    run = lambda state: filters.halting_scan(lambda n, _: (0.1, lambda: n + 1), ledger, 0, state=state)  # noqa: E731
    with pytest.raises(ValueError, match="state must be one of this filter"):
        run(foreign)
    halted = jax.jit(run)(foreign)
    assert halted.refused
    assert int(halted.steps) == 0


INDIVIDUAL = {
    "any": lambda mu, n: filters.per_example(filters.gdp(mu), examples=n),
    "approximate": lambda mu, n: filters.per_example(filters.approximate_gdp(0.02 * mu), examples=n),
    "menu": lambda mu, n: filters.per_example(menu(mu), examples=n),
}


@pytest.mark.parametrize("name", INDIVIDUAL)
def test_per_example_accounts_have_one_mark_and_nobody_takes_part_in_foreign_ones(name):
    make, step = INDIVIDUAL[name], PoissonSampled(Gaussian(5.0), 0.1) if name != "any" else Gaussian(5.0)
    ledger, norms = make(1.0, 4), np.full(4, 0.5, np.float32)
    state, foreign = ledger.init(), make(2.0, 4).init()
    sizes = [leaf.size for leaf in jax.tree.leaves(state)]
    assert sizes.count(1) == 1, "one mark for everybody"
    update = functools.partial(ledger.update, step, norms)
    for run in (update, jax.jit(update)):
        takes_part, after = run(foreign)
        assert not takes_part.any()
        chex.assert_trees_all_equal(after, foreign)
    # Flags that another filter left say nothing.
    _, flagged = make(2.0, 4).update(step, norms, foreign)
    bounds = jax.jit(lambda state: ledger.bounds(step, norms, state))
    assert not np.asarray(bounds(flagged)).any()
    assert np.asarray(bounds(ledger.update(step, norms, state)[1])).all()
    for reading in (ledger.spent, ledger.remaining, ledger.fraction):
        with pytest.raises(ValueError, match="state must be one of this filter"):
            reading(foreign)
    with pytest.raises(ValueError, match="state must hold"):
        ledger.update(step, norms, make(1.0, 3).init())


LOWERED = {"pure_dp": (filters.pure_dp, 0.25), "zcdp": (filters.zcdp, 0.25), "gdp": (filters.gdp, 0.5)}


@pytest.mark.parametrize("name", LOWERED)
def test_a_lowered_budget_has_what_it_would_have_had_left_from_the_beginning(name):
    make, query = LOWERED[name]
    high, low = make(5.0), make(1.0)
    (_, state), (_, wanted) = (play(ledger, query, 3) for ledger in (high, low))
    found = filters.lower_budget(high, state, low)
    assert float(low.remaining(found)) == pytest.approx(float(low.remaining(wanted)), rel=1e-6)
    assert float(low.spent(found)) >= float(low.spent(wanted)) * (1 - 1e-6)
    traced = jax.jit(filters.lower_budget)(high, state, low)
    chex.assert_trees_all_equal(traced, found)
    _, found = low.update(query, found)
    assert not low.update(query, found)[0]
    assert refused(high, query, found)
    # What was spent is too much, or more is asked for: an error, and in a program a state that nobody goes on with.
    for other in (make(0.4), make(6.0)):
        with pytest.raises(ValueError, match="lower must have a budget between"):
            filters.lower_budget(high, state, other)
        dead = jax.jit(filters.lower_budget)(high, state, other)
        assert refused(other, 1e-3, dead)
        assert refused(high, 1e-3, dead)
    with pytest.raises(ValueError, match="state must be one of this filter"):
        filters.lower_budget(high, low.init(), low)


# A menu's prices, a residue and a range's certified budget belong to one budget.
NOT_LOWERED = ("natural", "natural-undeclared", "gdp-residue", "menu", "closed-form")


def test_what_has_no_proof_is_not_lowered():
    for old, new, message in (
        (filters.gdp(2.0), filters.zcdp(1.0), "kind of filter"),
        (filters.renyi(3.0, 1e-5, order=8), filters.renyi(2.0, 1e-5, order=9), "differ from filter in its budget only"),
        (filters.gdp(2.0), filters.gdp([1.0, 0.5]), "as many budgets"),
        *((CASES[name].make(1.0), CASES[name].make(0.5), "no proof") for name in NOT_LOWERED),
        (INDIVIDUAL["any"](2.0, 3), INDIVIDUAL["any"](1.0, 3), "no proof"),
    ):
        with pytest.raises(ValueError, match=message):
            filters.lower_budget(old, old.init(), new)


def test_pairs_and_rows_of_accounts_are_taken_over():
    high, low = filters.approximate_zcdp(1.0, 1e-5), filters.approximate_zcdp(0.5, 1e-6)
    _, state = high.update((0.1, 5e-7), high.init())
    assert np.allclose(low.spent(filters.lower_budget(high, state, low)), (0.1, 5e-7), rtol=1e-6)
    with pytest.raises(ValueError, match="lower must have"):
        filters.lower_budget(high, high.update((0.1, 2e-6), state)[1], low)
    high, low = (filters.renyi_any(epsilon, 1e-5, (8.0, 12.5)) for epsilon in (3.0, 2.5))
    (_, state), (_, wanted) = (play(ledger, Gaussian(12.0), 1) for ledger in (high, low))
    found = low.spent(filters.lower_budget(high, state, low))
    assert np.allclose(found, low.spent(wanted), rtol=1e-6)
    assert (np.asarray(found) >= np.asarray(low.spent(wanted))).all()
