"""Definitions and theorems, checked exactly on finite mechanisms: Table 1, and what post-processing leaves."""

import warnings
from fractions import Fraction as F

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import Gaussian, PureDP, RenyiDP, expost
from jaxacct.expost import ApproximateExPost, ExPostResult, ProbabilisticExPost, PureExPost, RenyiExPost, ZCDPExPost
from jaxacct.expost.definitions import ImmunityWarning
from tests.refusals import all_refused

ORDER = 4.0
# Three epsilons, each shared by three of nine outcomes; one of them 0.
EPSILONS = np.repeat([0.0, 0.3, 1.1], 3)


def random_tables(seed, count):
    """Pairs of laws over nine outcomes, float64[count, 2, 9], some outcomes impossible on one side."""
    rng = np.random.default_rng(seed)
    tables = rng.dirichlet(np.full(9, 0.8), size=(count, 2)) + 1e-3 * (rng.random((count, 2, 9)) > 0.02)
    tables[:, 1] = np.where(rng.random((count, 9)) < 0.7, tables[:, 0], tables[:, 1])
    return tables / tables.sum(-1, keepdims=True)


def fitted(tables, definition):
    """`EPSILONS` shifted by the least amount that makes the definition true, for each pair of a batch."""
    low, high = np.zeros(len(tables)), np.full(len(tables), 60.0)
    for _ in range(45):
        middle = (low + high) / 2
        fails = expost.exact.excess(definition, tables, EPSILONS + middle[:, None]).upper > 0
        low, high = np.where(fails, middle, low), np.where(fails, high, middle)
    return EPSILONS + high[:, None]


def post_processed(tables, epsilons, seed):
    """Of each pair by a kernel of its own, and the epsilons that are left."""
    rng = np.random.default_rng(seed)
    kernels = rng.dirichlet(np.full(4, 0.3), size=(len(tables), 9))
    kernels[::2] = np.eye(4)[rng.integers(0, 4, (len(tables[::2]), 9))]  # every other one deterministic
    after, kept = map(np.asarray, jax.jit(jax.vmap(expost.exact.post_processed_table))(tables, epsilons, kernels))
    # The kernels went through float32, which moves a probability by 1e-7 of itself.
    return after / after.sum(-1, keepdims=True), kept


IMMUNE = (PureExPost(), RenyiExPost(ORDER), ZCDPExPost(), ApproximateExPost(0.05))


@pytest.mark.parametrize("definition", IMMUNE, ids=repr)
def test_immune_definitions_survive_random_post_processings(definition):
    tables = random_tables(1, 100)
    epsilons = fitted(tables, definition)
    assert np.all(expost.exact.excess(definition, tables, epsilons).upper <= 0)
    after, kept = post_processed(tables, epsilons, 2)
    assert after.shape == (100, 2, 36)
    assert np.all(expost.exact.excess(definition, after, kept).upper <= 1e-4)
    # Less epsilon would often not do, so the test could have failed.
    assert np.mean(expost.exact.excess(definition, tables, np.maximum(epsilons - 0.05, 0)).lower > 0) > 0.4


def meiser():
    """Two data sets, four outputs, one epsilon: 0.2-probabilistic at log 2, until outputs 0 and 1 are merged."""
    p = [F(2, 10), F(4, 10), F(2, 10), F(2, 10)]
    q = [F(0), F(2, 10), F(4, 10), F(4, 10)]
    return np.array([p, q], float), np.full(4, np.log(2.0) + 1e-12)


def test_meisers_counterexample_probabilistic_is_not_immune():
    laws, epsilons = meiser()
    definition = ProbabilisticExPost(0.2 + 1e-9)
    assert expost.exact.excess(definition, laws, epsilons).upper <= 0
    merged, kept = expost.exact.post_processed_table(laws, epsilons, np.eye(3)[[0, 0, 1, 2]])
    assert float(expost.exact.excess(definition, np.asarray(merged), np.asarray(kept)).lower) == pytest.approx(0.4)
    # What is still true afterwards, as post_process says.
    assert expost.exact.excess(definition.after_post_processing, np.asarray(merged), np.asarray(kept)).upper <= 0


def test_probabilistic_tables_stay_approximate_under_post_processing():
    definition = ProbabilisticExPost(0.05)
    tables = random_tables(3, 400)
    epsilons = fitted(tables, definition)
    after, kept = post_processed(tables, epsilons, 4)
    assert np.all(expost.exact.excess(definition.after_post_processing, after, kept).upper <= 1e-6)
    assert np.any(expost.exact.excess(definition, after, kept).lower > 1e-3), "some of them break it"


def test_excess_is_what_exact_arithmetic_says():
    p, q = [F(1, 2), F(1, 4), F(1, 4), F(0)], [F(1, 4), F(1, 4), F(1, 3), F(1, 6)]
    growth = [F(1), F(1), F(3), F(1)]  # e^epsilon
    epsilons = np.log(np.array(growth, float))
    truth = {
        PureExPost(): np.log(2.0),
        ProbabilisticExPost(0.1): 0.5 - 0.1,
        ApproximateExPost(0.1): 0.25 - 0.1,
        RenyiExPost(3): float(np.log(float(sum(a * (a / b / g) ** 2 for a, b, g in zip(p, q, growth, strict=True))))),
    }
    for definition, value in truth.items():
        found = expost.exact.excess_of_pair(definition, np.array(p, float), np.array(q, float), epsilons)
        assert found.lower <= value <= found.upper
        assert found.upper - found.lower < 1e-13
    with pytest.raises(ValueError, match="p must sum to 1"):
        expost.exact.excess_of_pair(PureExPost(), [0.5, 0.4], [0.5, 0.5], [0.0, 0.0])
    with pytest.raises(ValueError, match="same outcomes"):
        expost.exact.excess_of_pair(PureExPost(), [0.5, 0.5], [0.5, 0.5], [0.0])
    traced = jax.jit(lambda p: expost.exact.excess_of_pair(PureExPost(), p, jnp.array([0.5, 0.5]), jnp.zeros(2)))
    assert traced(jnp.array([jnp.nan, 0.5])).upper == np.inf
    assert traced(jnp.array([0.25, 0.75])).upper >= np.log(1.5)


def test_impossible_outcomes_and_infinite_epsilons():
    # The pathological mechanism of Appendix A: reveals its input half of the time, and then says so.
    reveal = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    for definition in (PureExPost(), ProbabilisticExPost(0.0), ApproximateExPost(0.0), RenyiExPost(2)):
        assert expost.exact.excess(definition, reveal, [0.0, np.inf, np.inf]).upper <= 1e-14
        assert expost.exact.excess(definition, reveal, [0.0, 5.0, 5.0]).lower >= 0.49


def test_conversions_hold_on_tables_and_the_pure_definition_implies_all():
    tables = random_tables(5, 300)
    for have in (RenyiExPost(ORDER), ZCDPExPost()):
        result = ExPostResult(None, fitted(tables, have), have)
        for to, tight in ((ProbabilisticExPost, False), (ApproximateExPost, False), (ApproximateExPost, True)):
            shifted = np.asarray(expost.convert(result, to(0.01), tight=tight).epsilon)
            assert np.all(expost.exact.excess(to(0.01), tables, shifted).upper <= 0)
        for order in (1.01, 1.5, 2.5, *([] if have == RenyiExPost(ORDER) else [8.0, 300.0])):
            implied = result.epsilon * (order if have == ZCDPExPost() else 1.0)
            assert np.all(expost.exact.excess(RenyiExPost(order), tables, implied).upper <= 1e-12)
    pure = fitted(tables, PureExPost())
    finite = pure.max(-1) < 50
    assert finite.sum() > 50
    for to in (RenyiExPost(7), ProbabilisticExPost(0.01), ApproximateExPost(0.01)):
        assert np.all(expost.exact.excess(to, tables[finite], pure[finite]).upper <= 1e-9)


def test_adaptive_composition_adds_epsilons_on_tables():
    """Every outcome of the first picks its own second mechanism; epsilons add, deltas add."""
    for definition, both in (
        (RenyiExPost(ORDER), RenyiExPost(ORDER)),
        (PureExPost(), PureExPost()),
        (ZCDPExPost(), ZCDPExPost()),
        (ApproximateExPost(0.05), ApproximateExPost(0.1)),
        (ProbabilisticExPost(0.05), ProbabilisticExPost(0.1)),
    ):
        tables = random_tables(6, 10)
        epsilons = fitted(tables, definition)
        first, seconds = tables[0], tables[1:]
        joint = (first[:, :, None] * np.swapaxes(seconds, 0, 1)).reshape(2, -1)
        total = (epsilons[0][:, None] + epsilons[1:]).reshape(-1) + 1e-9  # both are fitted to equality
        assert expost.exact.excess(both, joint, total).upper <= 1e-12


def test_algorithm_1_on_tables_costs_the_larger_epsilon_and_no_less():
    """Training and validation part each with two versions; neighbours differ in one part."""
    train = random_tables(7, 1)[0]
    check = train[:, ::-1]  # about as revealing as the training part
    definition = RenyiExPost(ORDER)
    spent = fitted(train[None], definition)[0]
    rule = expost.exact.excess(definition, check, np.zeros(9)).upper / (ORDER - 1)  # its Rényi divergence

    def law(i, j):
        return (train[i][:, None] * check[j]).reshape(-1)

    def worst(i, j, epsilons):
        flat = np.broadcast_to(epsilons[:, None], (9, 9)).reshape(-1)
        return expost.exact.excess(definition, np.stack([law(0, 0), law(i, j)]), flat)

    total = np.maximum(spent, rule)
    assert worst(1, 0, total).upper <= 1e-12
    assert worst(0, 1, total).upper <= 1e-12
    assert worst(1, 0, spent - 0.01).lower > 0
    assert worst(0, 1, np.full(9, rule - 0.01)).lower > 0
    # If one record could change both parts, the larger one would not be enough.
    assert worst(1, 1, total).lower > 0


def test_post_process_keeps_epsilon_and_warns_only_where_something_is_lost():
    for definition in (PureExPost(), RenyiExPost(20), ApproximateExPost(1e-5), ProbabilisticExPost(0.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = expost.post_process(ExPostResult(3.0, 0.5, definition), lambda y, e: (2 * y, e + 1))
        assert found.output == (6.0, 1.5)
        assert found.epsilon == 0.5
        assert found.definition == definition.after_post_processing
    mechanism = lambda key, x: ExPostResult(x, 0.5, ProbabilisticExPost(1e-5))  # noqa: E731
    with pytest.warns(ImmunityWarning, match="only delta-approximate"):
        found = expost.post_process(mechanism, lambda y, _: -y)(None, 4.0)
    assert (found.output, found.definition) == (-4.0, ApproximateExPost(1e-5))
    assert (found.delta, found.order) == (1e-5, None)
    with pytest.raises(ValueError, match="released must be"):
        expost.post_process(3, lambda y, _: y)


def test_table_1():
    rows = {PureExPost: (True, False), ProbabilisticExPost: (False, True), ApproximateExPost: (True, True)}
    ours = {expost.ZCDPExPost: (True, True), expost.GDPExPost: (True, True)}
    for kind, row in {**rows, RenyiExPost: (True, True), **ours}.items():
        assert (kind.immune, kind.brownian) == row


def test_results_compose_stop_and_convert():
    renyi, other = ExPostResult("a", 0.1, RenyiExPost(20)), ExPostResult("b", 0.2, RenyiExPost(20))
    both = expost.compose(renyi, other, ExPostResult("c", 0.3, PureExPost()))
    assert both.output == ("a", "b", "c")
    assert 0.6 <= both.epsilon < 0.6 + 1e-14
    assert both.definition == RenyiExPost(20)
    stopped = expost.stopped_by(renyi, other)
    assert stopped.epsilon == 0.2
    assert stopped.definition == RenyiExPost(20)
    leaky = expost.compose(
        ExPostResult(0, 0.1, ProbabilisticExPost(1e-5)), ExPostResult(0, 0.1, ProbabilisticExPost(1e-6))
    )
    assert leaky.delta == pytest.approx(1.1e-5)
    assert leaky.delta >= 1.1e-5
    many = expost.compose(*[ExPostResult(0, 0.0, ApproximateExPost(1e-7))] * 3000)
    assert F(1e-7) * 3000 <= F(many.delta) <= F(1e-7) * 3000 * (1 + F(1, 10**14))
    approximate = expost.convert(renyi, ApproximateExPost(1e-5), tight=False)
    assert approximate.epsilon == pytest.approx(0.705943, abs=5e-7)
    assert expost.convert(renyi, ApproximateExPost(1e-5)).epsilon == pytest.approx(0.49698, abs=1e-5)
    assert expost.ExPostResult.from_odometer(
        "y", lambda a, b: a + b, (0.5, 1.0), delta=1e-6
    ).definition == ProbabilisticExPost(1e-6)
    implied, above = "to must be implied by", (PureExPost(), RenyiExPost(30), ApproximateExPost(0.0))
    all_refused(
        ("share one definition and order", lambda: expost.compose(renyi, ExPostResult(0, 0.1, RenyiExPost(8)))),
        ("must be ex-post Rényi, zCDP, GDP or pure", lambda: expost.stopped_by(renyi, leaky)),
        *((implied, lambda to=to: expost.convert(renyi, to)) for to in above),
        (implied, lambda: expost.convert(leaky, ProbabilisticExPost(1e-6))),
        (implied, lambda: expost.convert(approximate, ProbabilisticExPost(1e-5))),
    )


def test_a_running_odometer_of_the_filters_reads_as_a_probabilistic_result():
    """Appendix A with an odometer whose bound holds at all times at once (Ville), on an interaction of Gaussians."""
    counter = jaxacct.filters.odometer(jaxacct.filters.renyi(3.0, 1e-5, order=20))
    state = counter.init()
    for sigma in (20.0, 15.0):
        _, state = counter.update(Gaussian(sigma), state)
    found = expost.ExPostResult.from_odometer("y", lambda now: counter.loss_bound(now, 1e-6), (state,), delta=1e-6)
    rho = 10 / 400 + 10 / 225
    assert found.definition == ProbabilisticExPost(1e-6)
    assert float(found.epsilon) == pytest.approx(rho + np.log(1e6) / 19, rel=1e-5)
    # The same number as by the ex-post odometer of this room, converted.
    here = expost.RenyiOdometer(20)
    ours = here.init()
    for sigma in (20.0, 15.0):
        ours = here.update(Gaussian(sigma), ours)
    assert float(expost.convert(here.result("y", ours), found.definition).epsilon) == pytest.approx(
        float(found.epsilon), rel=1e-5
    )


def test_a_cap_makes_an_ordinary_mechanism_that_the_filters_take():
    capped = expost.ex_ante(RenyiExPost(20), 1.0)
    assert isinstance(capped, RenyiDP)
    budget = jaxacct.filters.renyi(3.0, 1e-5, order=20)
    admitted, state = budget.update(capped, budget.init())
    assert admitted
    assert float(budget.spent(state)) == pytest.approx(1.0)
    assert isinstance(expost.ex_ante(PureExPost(), 0.5), PureDP)
    assert float(expost.ex_ante(ProbabilisticExPost(1e-6), 0.5).delta) == 1e-6
    with pytest.raises(ValueError, match="cap must be"):
        expost.ex_ante(PureExPost(), np.inf)
    with pytest.raises(ValueError, match="definition must be a Definition, got 'pure'"):
        expost.ex_ante("pure", 1.0)


def test_results_pass_through_jit_and_fail_closed():
    @jax.jit
    def run(x, epsilon):
        one = ExPostResult(x, epsilon, RenyiExPost(20))
        doubled = expost.post_process(expost.compose(one, one), lambda y, e: y[0] + y[1])
        return expost.convert(doubled, ApproximateExPost(1e-5), tight=False)

    found = run(jnp.float32(2.0), 0.05)
    assert found.definition == ApproximateExPost(1e-5)
    assert found.epsilon.dtype == jnp.float32
    assert 0.705943 <= float(found.epsilon) < 0.70595
    assert np.isinf(run(jnp.float32(2.0), jnp.nan).epsilon)
    all_refused(
        ("epsilon must be at least 0, got -1", lambda: ExPostResult(0, -1, PureExPost())),
        ("order must be", lambda: RenyiExPost(1.0)),
        ("delta must be", lambda: ApproximateExPost(1.5)),
        ("concrete", lambda: jax.jit(lambda a: ExPostResult(0, 0.1, RenyiExPost(a)).epsilon)(20.0)),
    )


def test_the_odometer_adds_costs_rounded_up_in_either_precision():
    odometer = expost.RenyiOdometer(20)

    @jax.jit
    def run(costs):
        def step(state, cost):
            state = odometer.update(cost, state)
            return state, odometer.spent(state)

        return jax.lax.scan(step, odometer.init(), costs)

    costs = np.full(1000, 1e-3, np.float32)
    state, path = run(costs)
    assert path.dtype == jnp.float32
    truth = float(np.float32(1e-3)) * 1000
    with jax.enable_x64(True):
        spent = float(odometer.spent(state))
        assert float(odometer.spent(run(costs)[0])) == spent
    assert truth <= spent <= truth * (1 + 1e-12)
    assert truth <= float(path[-1]) <= truth * (1 + 1e-6)
    # A mechanism's own curve, a cost that vanishes beside the sum, and costs that make no sense.
    state = odometer.update(Gaussian(2.0), odometer.init())
    assert float(odometer.spent(state)) == pytest.approx(20 / 8)
    with jax.enable_x64(True):
        assert float(odometer.spent(odometer.update(1e-30, state))) > 20 / 8
        assert float(odometer.spent(odometer.update(1e-30, odometer.init()))) > 0
    assert odometer.result("y", state).output == "y"
    with pytest.raises(ValueError, match="order must be"):
        expost.RenyiOdometer(0.5)


def test_an_odometer_of_another_order_does_not_go_on_with_a_state():
    mine, other = expost.RenyiOdometer(8.0), expost.RenyiOdometer(2.0)
    state = other.update(0.1, other.init())
    with pytest.raises(ValueError, match=r"state must be one of this odometer, of order 8"):
        mine.spent(state)
    assert jax.jit(mine.spent)(state) == np.inf
    assert other.spent(mine.update(0.1, state)) == np.inf
    assert float(other.spent(state)) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="state must be one"):
        mine.spent(expost.odometer.RenyiOdometerState(state.pieces))


def test_an_odometer_reads_damaged_sums_and_hidden_costs_as_infinite_or_says_so():
    """A sum in bfloat16, as a cast of a whole program's floats makes it, has lost some of what was spent."""
    odometer = expost.RenyiOdometer(2.0)
    state = odometer.update(1.003, odometer.init())
    damaged = [state.pieces.astype(kind) for kind in (jnp.bfloat16, jnp.float16, jnp.int32)]
    damaged += [-state.pieces, state.pieces.at[0].set(-jnp.inf), state.pieces.at[1].set(jnp.nan)]
    for pieces in damaged:
        words = state._replace(pieces=pieces)
        for update in (odometer.update, jax.jit(odometer.update)):
            assert np.isinf(np.asarray(update(0.5, words).pieces)).all()
        if pieces.dtype == np.float32:
            assert np.isinf(jax.jit(odometer.spent)(words))
            assert np.isinf(odometer.spent(words))
            continue
        for spent in (odometer.spent, jax.jit(odometer.spent)):
            with pytest.raises(ValueError, match="with float32 pieces"):
                spent(words)
    for hidden in (np.ma.masked, np.ma.array(1.0, mask=True), True):
        with pytest.raises(ValueError, match="query must"):
            odometer.update(hidden, state)
