"""The best of a random number of runs: sound against every order of a few outputs, and tight for DP-SGD."""

import itertools
import math

import jax
import mpmath
import numpy as np
import pytest

import jaxacct
from jaxacct import Composed, FromTables, Gaussian, PoissonSampled, PrivateSelection, filters

DP_SGD = Composed([PoissonSampled(Gaussian(1.0), 0.01)], [1000])


def worst_order(count, p, q, epsilon):
    """The most delta over all orders of the outputs, both directions."""
    worst = 0.0
    for order in map(list, itertools.permutations(range(len(p)))):
        best = [np.diff(count.generating(np.minimum(np.append(0.0, np.cumsum(x[order])), 1.0))) for x in (p, q)]
        for a, b in (best, best[::-1]):
            worst = max(worst, float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()))
    return worst


def worst_merge(count, p, q, epsilon, pieces=40):
    """The most delta, both directions, if high losses are an event and low ones stand between them, all in pieces."""
    worst = 0.0
    for with_record, without in ((p, q), (q, p)):
        order = np.argsort(np.where(without > 0, -with_record / np.maximum(without, 1e-300), -np.inf))
        a, b = (np.repeat(x[order] / pieces, pieces) for x in (with_record, without))
        left = [np.cumsum(np.append(1.0, -x[::-1])) for x in (a, b)]  # below the lowest losses
        value = np.zeros(a.size + 1)  # by how many of the lowest losses stand above
        for i in range(a.size):
            value = np.maximum.accumulate(value[: a.size - i])
            gained = [
                count.generating(np.clip(one[: value.size] - x[:i].sum(), 0.0, 1.0))
                - count.generating(np.clip(one[: value.size] - x[: i + 1].sum(), 0.0, 1.0))
                for one, x in zip(left, (a, b), strict=True)
            ]
            value = value + gained[0] - math.exp(epsilon) * gained[1]
            worst = max(worst, float(value.max()))
    return worst


COUNTS = [
    {"mean": 3.0, "shape": math.inf},
    {"mean": 30.0, "shape": math.inf},
    {"mean": 5.0, "shape": 0.0},
    {"mean": 4.0, "shape": 2.5},
    {"mean": 2.0, "shape": 1.0},
    {"mean": 6.0, "shape": 40.0},
    {"probabilities": [0.1, 0.2, 0.0, 0.7]},
    {"probabilities": [0.1296, 0.3456, 0.3456, 0.1536, 0.0256]},  # binomial
    {"probabilities": [0.0, 0.0, 0.0, 1.0]},
    {"probabilities": [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5]},
]


def pairs(seed):
    """Pairs of tables of six outputs: as they are, with infinite losses, with outputs that need the record gone."""
    random = np.random.default_rng(seed)
    yield random.dirichlet(np.full(6, 0.7)), random.dirichlet(np.full(6, 0.7))
    for turn in (1, -1):
        p, q = random.dirichlet(np.full(5, 0.7)), random.dirichlet(np.full(5, 0.7))
        yield (np.append(0.1, 0.9 * p), np.append(0.0, q))[::turn]


@pytest.mark.parametrize("runs", COUNTS, ids=str)
def test_no_order_of_six_outputs_is_above_the_bound(runs):
    epsilons = np.array([0.0, 0.7, 2.0])
    for p, q in pairs(7):
        selection = PrivateSelection(FromTables(p, q), **runs)
        worst = [worst_order(selection.counts()[()], p, q, epsilon) for epsilon in epsilons]
        assert np.all(worst <= jaxacct.delta(selection, epsilons).upper)


@pytest.mark.parametrize("runs", COUNTS, ids=str)
def test_the_worst_merge_of_high_and_low_losses_is_between_the_bounds_and_close_to_the_upper_one(runs):
    epsilons = np.array([0.1, 1.0])
    for i, (p, q) in enumerate(pairs(8)):
        selection = PrivateSelection(FromTables(p, q), **runs, at_delta=0.1)
        worst = np.array([worst_merge(selection.counts()[()], p, q, epsilon) for epsilon in epsilons])
        found = jaxacct.delta(selection, epsilons)
        assert np.all(found.lower <= worst * 1.003)  # pieces may be smaller
        assert np.all(worst <= found.upper)
        assert i or np.all(found.upper <= 1.01 * worst + 0.002)  # one run's curve has few points by infinite losses


def test_bounds_of_dp_sgd_are_close_and_far_below_those_of_renyi_divergences():
    shapes, renyi = np.array([0.0, 1.0, math.inf]), np.array([3.52263, 4.10327, 4.32950])  # of dp_accounting 0.6.0
    found = jaxacct.epsilon(PrivateSelection(DP_SGD, 10.0, shapes), 1e-5)
    assert np.all(found.upper <= 1.001 * found.lower)
    assert np.all(found.upper < 0.78 * renyi)


@pytest.mark.parametrize("shape", [0.0, 1.0, math.inf])
def test_bounds_of_a_hundred_runs_in_the_mean_meet(shape):
    run = Composed([PoissonSampled(Gaussian(2.26), 0.0236)], [577])
    found = jaxacct.epsilon(PrivateSelection(run, 100.0, shape, at_delta=7.2e-6), 7.2e-6)
    assert found.upper <= 1.01 * found.lower


def test_losses_of_one_size_cost_less_than_the_pure_guarantee_says():
    found = jaxacct.epsilon(PrivateSelection(jaxacct.PureDP(0.1), 10.0, np.array([0.0, 1.0]), at_delta=1e-8), 1e-8)
    assert np.all(found.upper <= 1.001 * found.lower)
    assert np.all(found.upper <= [0.2, 0.3])  # 2 + shape times (Papernot, Steinke 2022)
    found = jaxacct.epsilon(PrivateSelection(jaxacct.PureDP(0.1), 10.0, np.array([0.0, 1.0, math.inf])), 1e-5)
    assert np.all(found.lower > 0.95 * found.upper)


def test_infinite_losses_cost_as_often_as_they_occur_in_all_runs():
    shapes = np.array([0.0, 1.0, math.inf])
    found = jaxacct.delta(PrivateSelection(jaxacct.ApproximateDP(0.1, 1e-3), 10.0, shapes), 1.0)
    some = [1.0 - float(one.generating(0.999)) for one in PrivateSelection(Gaussian(1.0), 10.0, shapes).counts()]
    assert np.all((found.upper >= some) & (found.upper <= 1.01 * np.array(some)))  # that some run has one


@pytest.mark.parametrize("delta", [1e-3, 1e-8])
def test_lower_bounds_are_close_at_the_delta_they_are_made_for(delta):
    found = jaxacct.epsilon(PrivateSelection(DP_SGD, np.array([3.0, 10.0]), 1.0, at_delta=delta), delta)
    assert np.all(found.upper <= 1.01 * found.lower)


def test_one_sure_run_costs_what_the_mechanism_costs():
    once = PrivateSelection(Gaussian(2.0), probabilities=[0.0, 1.0])
    alone, found = jaxacct.epsilon(Gaussian(2.0), 1e-5).upper, jaxacct.epsilon(once, 1e-5)
    assert 0.999 * alone <= found.lower <= alone <= found.upper <= 1.001 * alone


def test_more_runs_cost_more_and_the_mean_may_be_an_array():
    found = jaxacct.epsilon(PrivateSelection(Gaussian(2.0), np.array([2.0, 10.0, 50.0]), math.inf), 1e-5).upper
    assert found.shape == (3,)
    assert np.all(np.diff(found) > 0)


def test_the_guarantee_of_a_filter_is_a_run_and_the_result_is_a_query_of_another_filter():
    guarantee = filters.gdp(0.42).guarantee
    adaptive = PrivateSelection(guarantee, 10.0, 1.0)
    fixed = PrivateSelection(jaxacct.GDP(0.42), 10.0, 1.0)
    upper = float(jaxacct.epsilon(adaptive, 1e-5).upper)
    assert upper == pytest.approx(float(jaxacct.epsilon(fixed, 1e-5).upper), rel=1e-3)
    outer = filters.menu([adaptive], epsilon=2.1 * upper, delta=2.1e-5)
    admitted, _ = outer.update(0, outer.init())
    assert bool(admitted)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("mean", [1.0, 1.001, 2.0, 1e6])
def test_the_number_of_runs_has_the_mean_that_was_asked_for(shape, mean):
    count = PrivateSelection(Gaussian(1.0), mean, shape).counts()[()]
    assert count.derivative(np.ones(())) == pytest.approx(mean, rel=1e-7)
    assert count.generating(np.ones(())) == pytest.approx(1.0)


def test_concrete_numbers_serve_inside_a_program():
    selection = PrivateSelection(Gaussian(2.0), 5.0, 1.0)
    inside = jax.jit(lambda delta: jaxacct.epsilon(selection, delta).upper)(1e-5)
    assert float(inside) >= float(jaxacct.epsilon(selection, 1e-5).lower)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"mean": 10.0}, "probabilities"),
        ({"mean": 0.5, "shape": 1.0}, "mean"),
        ({"mean": 5.0, "shape": -1.0}, "shape"),
        ({"probabilities": [0.5, 0.6]}, "probabilities"),
        ({"mean": 5.0, "shape": 1.0, "probabilities": [1.0]}, "leave mean and shape out"),
    ],
)
def test_a_wrong_number_of_runs_is_named(given, names):
    with pytest.raises(ValueError, match=names):
        PrivateSelection(Gaussian(1.0), **given)


@pytest.mark.filterwarnings("ignore:.* wide:RuntimeWarning")
def test_lower_bounds_of_one_run_are_below_the_run_however_small_its_losses():
    for epsilon in (1e-9, 1e-6, 1e-3, 1.0):
        run = jaxacct.PureDP(epsilon)
        once = jaxacct.delta(PrivateSelection(run, probabilities=[0.0, 1.0]), 0.0)
        assert once.lower <= jaxacct.delta(run, 0.0).upper <= once.upper


@pytest.mark.parametrize("relation", ["replace", "replace_special"])
def test_other_relations_have_both_bounds(relation):
    found = jaxacct.delta(PrivateSelection(Gaussian(2.0), 3.0, 1.0), 1.0, relation=relation)
    assert 0.0 < found.lower <= found.upper < 1.0


def test_runs_that_hide_nothing_have_bounds():
    found = jaxacct.delta(PrivateSelection(Gaussian(0.02), probabilities=[0.0, 0.0, 1.0]), 1.0)
    assert 0.0 <= found.lower <= found.upper <= 1.0
    assert jaxacct.attacks.power(Gaussian(0.02), 0.1).upper == 1.0
    many = PrivateSelection(Gaussian(0.3), probabilities=[*[0.0] * 100, 1.0], at_delta=0.1)
    assert 0.7 < jaxacct.delta(many, 1.0).lower <= jaxacct.delta(many, 1.0).upper <= 1.0


@pytest.mark.parametrize(("mean", "shape"), [(1e6, 0.0), (1e6, 1e3), (700.0, 1e4), (1.00001, 50.0)])
def test_derivatives_of_large_counts_are_as_precise_as_is_said(mean, shape):
    count = PrivateSelection(Gaussian(1.0), mean, shape).counts()[()]
    with mpmath.workdps(60):
        gamma, shape = mpmath.mpf(count.gamma), mpmath.mpf(shape)
        scale = shape / (gamma**-shape - 1) if shape else -1 / mpmath.log(gamma)
        for x in (0.5, 0.999999, 1.0):
            exact = (1 - gamma) * scale * (1 - (1 - gamma) * mpmath.mpf(x)) ** (-shape - 1)
            assert abs(count.derivative(np.asarray(x)) - exact) <= 1e-10 * exact + 1e-300
