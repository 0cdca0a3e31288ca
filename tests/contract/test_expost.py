"""What every source, check and definition of an ex-post release promises."""

from __future__ import annotations

import inspect
import itertools

import jax
import numpy as np
import pytest

from jaxacct import expost

BUDGETS, ORDER = np.array([0.05, 0.1, 0.4]), 8.0
SOURCES = {
    "Brownian": expost.Brownian(0.5, sensitivity=0.01, order=ORDER),
    "Doubling": expost.Doubling(0.5, sensitivity=0.01, order=ORDER),
    "GumbelReduction": expost.GumbelReduction(np.array([0.5, 0.2, 0.1]), sensitivity=0.01),
    "LaplaceReduction": expost.LaplaceReduction(0.5, sensitivity=0.01),
    "PrecisionWeighted": expost.PrecisionWeighted(0.5, sensitivity=0.01, order=ORDER),
}
CHECKS = {
    "AboveThreshold": expost.AboveThreshold(0.9, epsilon=0.05, sensitivity=1e-4),
    "PlainGaussian": expost.PlainGaussian(0.9, epsilon=0.05, sensitivity=1e-4, order=ORDER, checks=3),
    "PublicScore": expost.PublicScore(0.9),
    "SparseVector": expost.SparseVector(0.9, epsilon=0.05, sensitivity=1e-4, order=ORDER),
}
DEFINITIONS = {
    "ApproximateExPost": expost.ApproximateExPost(0.05),
    "ProbabilisticExPost": expost.ProbabilisticExPost(0.05),
    "PureExPost": expost.PureExPost(),
    "RenyiExPost": expost.RenyiExPost(ORDER),
    "ZCDPExPost": expost.ZCDPExPost(),
}
UNDECIDED = {"GDPExPost"}  # of all stopping rules at once: no finite table decides it


def test_every_public_one_has_a_case() -> None:
    kinds = {name: kind for name in expost.__all__ if inspect.isclass(kind := getattr(expost, name))}
    for cases, belongs in (
        (SOURCES, lambda kind: hasattr(kind, "path")),
        (CHECKS, lambda kind: hasattr(kind, "ask")),
        (DEFINITIONS, lambda kind: issubclass(kind, expost.definitions.Definition)),
    ):
        assert {name for name, kind in kinds.items() if belongs(kind)} - UNDECIDED == set(cases)


@pytest.mark.parametrize("name", SOURCES)
def test_a_longer_release_never_costs_less_and_a_source_goes_through_its_tree(name: str) -> None:
    source = SOURCES[name]
    path = source.path(jax.random.key(0), BUDGETS)
    spent = np.asarray(source.spent(BUDGETS, path))
    assert spent.shape == BUDGETS.shape
    assert np.all(spent >= BUDGETS)
    assert np.all(np.diff(spent) >= 0)
    assert jax.eval_shape(source.path, jax.random.key(0), BUDGETS).shape == BUDGETS.shape
    again = jax.tree.unflatten(*jax.tree.flatten(source)[::-1])
    assert again.definition == source.definition
    assert np.array_equal(again.spent(BUDGETS, path), spent)


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_passes_what_is_far_above_and_nothing_far_below(name: str) -> None:
    check = jax.tree.unflatten(*jax.tree.flatten(CHECKS[name])[::-1])
    assert check.definition == CHECKS[name].definition
    assert (float(check.epsilon) == 0) == (name == "PublicScore")
    start, ask = jax.random.split(jax.random.key(0))
    state = check.start(start)
    for score, passes in ((1e3, True), (-1e3, False), (np.nan, False)):
        assert bool(check.ask(ask, state, score, 0)[0]) == passes


@pytest.mark.parametrize("name", DEFINITIONS)
def test_more_epsilon_leaves_less_excess_and_equal_laws_none(name: str) -> None:
    definition, laws = DEFINITIONS[name], np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    found = [expost.exact.excess(definition, laws, np.full(3, epsilon)) for epsilon in (0.0, 0.2, 1.0)]
    assert all(one.lower <= one.upper for one in found)
    assert all(less.upper <= more.upper for more, less in itertools.pairwise(found))
    assert found[0].lower > 0
    assert found[-1].upper <= 1e-12
    assert expost.exact.excess(definition, laws[[0, 0]], np.zeros(3)).upper <= 1e-12
    weaker = definition.after_post_processing
    assert weaker.after_post_processing == weaker
