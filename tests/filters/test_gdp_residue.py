"""The GDP residue filter: the note's residues, the residue condition by brute force, and what it must refuse."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

from jaxacct import PLD, LossGrid, TradeOff
from jaxacct.filters import gdp_residue, prepare
from jaxacct.mechanisms import Composed, Gaussian, PoissonSampled, RandomizedResponse


def exact(pieces) -> np.ndarray:
    """The float64 number of a state, whatever the program's precision."""
    return np.asarray(pieces, np.float64).sum(-1)


def lazy(share: float, epsilon: float) -> TradeOff:
    """Randomized response with probability ``share``, nothing otherwise."""
    p = 1 / (1 + np.exp(-epsilon))
    return TradeOff(
        np.array([share * (1 - p), 1 - share, share * p]), np.array([share * p, 1 - share, share * (1 - p)]), "lower"
    )


def hockey_stick(mu, epsilon):
    return norm.sf(epsilon / mu - mu / 2) - np.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)


# Certified to 1e-7 by two other methods (bisection on hockey sticks, trade-off curves with branch and bound).
TABLE = [
    (1.0, RandomizedResponse(0.25), 0.967976878),
    (0.3, RandomizedResponse(0.2), 0.212328017),
    (4.0, RandomizedResponse(3.0), 2.871389741),
    (3.0, lazy(0.1, 3.0), 2.784155238),  # binds far in the tail, at log gamma = 20.3, where hockey sticks are 1e-11
]


@pytest.mark.parametrize(("mu", "query", "expected"), TABLE)
def test_residues_are_those_of_the_note(mu, query, expected):
    admitted, state = gdp_residue(mu).update(query, gdp_residue(mu).init())
    assert bool(admitted)
    assert expected - 1e-5 < exact(state.mu) < expected + 1e-9


@pytest.mark.parametrize(
    ("mu", "epsilon", "count"), [(1, 0.1, 98), (1, 0.25, 15), (0.5, 0.1, 23), (2, 0.5, 15), (3, 1, 8)]
)
def test_the_number_of_answers_is_that_of_the_note(mu, epsilon, count):
    query, budget = prepare(RandomizedResponse(epsilon)), gdp_residue(float(mu))

    def step(state, _):
        admitted, state = budget.update(query, state)
        return state, admitted

    _, admitted = jax.lax.scan(step, budget.init(), None, length=110)
    assert int(admitted.sum()) == count


@pytest.mark.slow
def test_the_residue_condition_holds_and_nearly_is_an_equality():
    """Both directions, by sums over the query's own 4,000 atoms, for a sampled Gaussian with slack."""
    budget = gdp_residue(0.35, 1e-6, steps=700)
    query = PoissonSampled(Gaussian(1.5), 0.01)
    admitted, state = budget.update(query, budget.init())
    m, d, mu = exact(state.mu), exact(state.delta), exact(budget.init().mu)
    assert bool(admitted)
    assert 0 < 1e-6 - d < 1.01e-6 / 700
    grid = LossGrid(5 / 4096, -2048, 4097)
    t = np.linspace(0, 2.4, 49)
    least = []
    for relation in ("remove", "add"):
        law = PLD.from_mechanism(query, "lower", relation=relation, grid=grid)
        inner = sum(
            p * hockey_stick(m, t - x)
            for x, p in zip(grid.losses, np.asarray(law.masses, np.float64), strict=True)
            if p > 1e-14
        )
        least.append(np.min((1 - 1e-6) * hockey_stick(mu, t) + 1e-6 - (1 - d) * inner - d))
    # The lower law is truly below, by what the lattice costs.
    assert min(least) > -1e-13
    assert min(least) < 1e-6
    # The charge is near that of the central limit, as measured with a prototype.
    cost = 1e-4 * np.expm1(1 / 2.25)
    assert 1.03 < (mu**2 - m**2) / cost < 1.08


def test_gaussians_are_exact_and_small_ones_are_never_lost():
    budget = gdp_residue(1.0)
    state = budget.init()
    for _ in range(100):
        admitted, state = budget.update(0.1, state)
        assert bool(admitted)
    assert not bool(budget.update(0.01, state)[0])
    state = budget.init()
    admitted, state = budget.update(Composed((Gaussian(2.0), Gaussian(4.0)), (1, 4)), state)
    assert exact(state.mu) == pytest.approx(np.sqrt(0.5), abs=1e-11)
    before = exact(budget.init().mu)
    state = jax.lax.fori_loop(0, 1000, lambda _, s: budget.update(1e-12, s)[1], budget.init())
    assert exact(state.mu) < before


def test_queries_with_an_atom_at_infinity_need_slack():
    atom = TradeOff(np.array([0.0, 1 - 1e-7, 1e-7]), np.array([1e-7, 1 - 1e-7, 0.0]), "lower")
    assert not bool(gdp_residue(1.0).update(atom, gdp_residue(1.0).init())[0])
    budget = gdp_residue(1.0, 2.5e-7)
    query, state = prepare(atom), budget.init()
    answers = []
    for _ in range(4):
        admitted, state = budget.update(query, state)
        answers.append(bool(admitted))
    assert answers == [True, True, False, False]
    assert exact(state.delta) <= 2.5e-7 - (1 - (1 - 1e-7) ** 2) + 1e-20
    assert exact(state.mu) > 0.999


def test_a_bad_prepared_query_is_refused():
    budget, query = gdp_residue(1.0, 1e-6), prepare(RandomizedResponse(0.1))
    for name in ("losses", "masses", "infinity", "epsilon"):
        broken = {k: getattr(query, k) for k in ("losses", "masses", "infinity", "epsilon", "mu")}
        broken[name] = np.full_like(broken[name], np.nan)
        if name == "epsilon":
            broken["masses"], broken["mu"] = -broken["masses"], np.full_like(broken["mu"], np.nan)
        broken["mu"] = np.full_like(broken["mu"], np.nan)
        broken["epsilon"] = np.full_like(broken["epsilon"], np.nan)
        admitted, state = budget.update(type(query)(**broken), budget.init())
        assert not bool(admitted)
        assert exact(state.mu) == exact(budget.init().mu)


def test_the_guarantee_is_the_budget_and_bad_budgets_are_named():
    guarantee = gdp_residue(0.35, 1e-6).guarantee
    assert guarantee.is_bound
    assert "Theorem 1" in guarantee.statement
    assert float(guarantee.delta(1.0)) == pytest.approx(1e-6 + hockey_stick(0.35, 1.0), rel=1e-6)
    epsilon = float(guarantee.epsilon(1e-5))
    assert 1e-6 + (1 - 1e-6) * hockey_stick(0.35, epsilon) <= 1e-5
    assert float(guarantee.epsilon(5e-7)) == np.inf
    with pytest.raises(ValueError, match="mu must be"):
        gdp_residue(-1.0)
    with pytest.raises(ValueError, match="delta must be"):
        gdp_residue(1.0, 1.0)
    with pytest.raises(ValueError, match="query must be a lower"):
        prepare(TradeOff(np.ones(1), np.ones(1), "upper"))


def worst(budget, state, queries, gamma, rounds):
    """Lemma 1: the hockey stick at ``gamma`` of the analyst who does most under the filter."""
    best = np.maximum(1 - gamma, 0.0)
    if rounds == 0:
        return best
    for query, (ratios, masses) in queries:
        admitted, after = budget.update(query, state)
        if bool(admitted):
            rest = sum(
                p * worst(budget, after, queries, gamma / g, rounds - 1) for g, p in zip(ratios, masses, strict=True)
            )
            best = np.maximum(best, rest)
    return best


def test_no_analyst_gets_more_than_the_budget_where_the_natural_filter_gives_more():
    """The family and budget on which the natural filter costs 1.155779389 (see the counterexample tests)."""
    mu = 1.113267242
    budget = gdp_residue(mu)
    queries = [
        (prepare(RandomizedResponse(float(np.log(g)))), (np.array([g, 1 / g]), np.array([g, 1]) / (1 + g)))
        for g in (1.5, 2.0, 2.4)
    ]
    gamma = np.exp(np.linspace(-2, 2, 81))
    cost = worst(budget, budget.init(), queries, gamma, 3)
    assert np.all(cost <= hockey_stick(1.082790171, np.log(gamma)) + 1e-9)
    assert np.any(cost > hockey_stick(1.08, np.log(gamma)))


@pytest.mark.slow
def test_a_law_costs_as_much_as_what_prepare_makes_of_it():
    grid = LossGrid(0.01, -128, 256)
    masses = np.exp(-0.5 * np.square(grid.losses / 0.2 - 0.1))
    masses *= (1 - 1e-9) / masses.sum()
    law = PLD(masses, 1e-9, grid)
    budget = gdp_residue(1.0, 1e-6)
    (_, raw), (_, ready) = (budget.update(query, budget.init()) for query in (law, prepare(law)))
    np.testing.assert_array_equal(raw.mu, ready.mu)
    # Rounded to float32 nobody knows Q's mass to 1e-7 any more, and slack has to pay for what may be singular.
    rounded = PLD(np.float32(masses), np.float32(1e-9), grid)
    assert not bool(budget.update(rounded, budget.init())[0])
    budget = gdp_residue(1.0, 1e-2)
    admitted, state = budget.update(rounded, budget.init())
    assert bool(admitted)
    assert exact(state.delta) < 1e-2 - 2e-7
    with pytest.raises(ValueError, match="query must be an upper"):
        budget.update(PLD(masses, 1e-9, grid, bound="lower"), budget.init())


def test_segments_that_are_not_sorted_are_refused():
    """Traced, so that nobody could look: as if sorted they would cost too little in one of the directions."""
    widths, drops = np.array([0.2, 0.4, 0.4]), np.array([0.3, 0.5, 0.2])
    update = jax.jit(lambda w, d, s: gdp_residue(2.0, 1e-3).update(TradeOff(w, d, "lower"), s)[0])
    state = gdp_residue(2.0, 1e-3).init()
    assert bool(update(widths, drops, state))
    order = np.array([1, 0, 2])
    assert not bool(update(widths[order], drops[order], state))


def test_what_a_residue_filter_was_given_can_be_read():
    made = gdp_residue(np.array([1.0, 2.0]), 1e-6, steps=4)
    assert np.asarray(made.mu).tolist() == [1.0, 2.0]
    assert np.asarray(made.slack).tolist() == [1e-6, 1e-6]
    assert float(made.share) == 0.25
    left = np.asarray(made.remaining_slack(made.init()))
    assert left.dtype == np.float32
    assert np.all((left <= 1e-6) & (left > 1e-6 * (1 - 2.0**-22)))
