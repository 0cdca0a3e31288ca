"""Cut and fixed-size samples: whatever the data are, what every sample gives comes to no more than the bounds."""

import itertools
import math

import jax
import numpy as np
import pytest

import jaxacct
from jaxacct import (
    GDP,
    Gaussian,
    Laplace,
    PoissonSampled,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedPoisson,
)
from tests.refusals import all_refused

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of .* are wide:RuntimeWarning")
EPSILONS = np.array([-0.4, 0.0, 0.05, 0.4, 1.2])
SIGMA, RATE = 1.3, 0.4
X = np.linspace(-22.0, 22.0, 8001)
GRID = 1e-6  # what a sum over X may be off by


def output(samples, sigma=SIGMA):
    """The law of the sum plus noise on a grid, for weighted samples of one-dimensional records."""
    law = sum(weight * np.exp(-0.5 * ((X - sum(sample)) / sigma) ** 2) for sample, weight in samples)
    return law / law.sum()


def truncated(records, largest, rate=RATE):
    for heads in itertools.product((0, 1), repeat=len(records)):
        drawn = [x for x, head in zip(records, heads, strict=True) if head and x is not None]
        weight = math.prod(rate if head else 1 - rate for x, head in zip(records, heads, strict=True) if x is not None)
        if any(head for x, head in zip(records, heads, strict=True) if x is None):
            continue
        subsets = list(itertools.combinations(drawn, min(largest, len(drawn))))
        yield from ((subset, weight / len(subsets)) for subset in subsets)


def without(records, size):
    subsets = list(itertools.combinations([x for x in records if x is not None], size))
    return [(subset, 1 / len(subsets)) for subset in subsets]


def drawn_anew(records, size):
    present = [x for x in records if x is not None]
    return [(batch, len(present) ** -size) for batch in itertools.product(present, repeat=size)]


SAMPLERS = {
    "truncated": (truncated, TruncatedPoisson(Gaussian(SIGMA), RATE, 2, 4)),
    "without replacement": (without, SampledWithoutReplacement(Gaussian(SIGMA, 2.0), 2, 4)),
    "with replacement": (drawn_anew, SampledWithReplacement(Gaussian(SIGMA, 2.0), 2, 4)),
}
# The record on either side: None is absent, 0 the special one.
SIDES = {
    "remove": lambda one, other: (one, None),
    "add": lambda one, other: (None, one),
    "replace": lambda one, other: (one, other),
    "zero_out": lambda one, other: (one, 0.0),
    "fill_in": lambda one, other: (0.0, one),
}


def attacks(draw, relation, sigma=SIGMA):
    """Hockey sticks of data sets of four records, extreme ones first; ``draw`` lists the samples."""
    rng = np.random.default_rng(1)
    extreme = [np.array(v, float) for v in ((1, -1, -1, -1, -1), (1, 0, 0, 0, -1), (1, 1, 1, 1, -1), (1, -1, 1, 0, 0))]
    for values in (*extreme, *rng.uniform(-1, 1, (8, 5)), *rng.choice([-1.0, 1.0], (8, 5))):
        one, *others, other = values
        p, q = (output(draw([record, *others]), sigma) for record in SIDES[relation](one, other))
        yield np.maximum(p - np.exp(EPSILONS)[:, None] * q, 0.0).sum(-1)


@pytest.mark.parametrize(
    ("name", "relation"),
    [(name, relation) for name in SAMPLERS for relation in SIDES if name == "truncated" or relation in list(SIDES)[:3]],
)
def test_no_data_exceed_the_bound_and_some_reach_the_lower_one(name, relation):
    draw, mechanism = SAMPLERS[name]
    bounds = jaxacct.delta(mechanism, EPSILONS, relation=relation)
    found = np.array(list(attacks(lambda records: draw(records, 2), relation)))
    assert np.all(found <= bounds.upper + GRID)
    here = EPSILONS >= 0  # a lower bound under `replace` is that of one direction
    assert np.all(bounds.lower[here] <= found.max(0)[here] + GRID)
    if name != "truncated":  # and the upper one is attained by one step
        np.testing.assert_allclose(
            found.max(0)[here],
            bounds.upper[here],
            atol=6e-3 if (name, relation) == ("with replacement", "replace") else GRID,
        )


# Of the cut samples a share of 0.84, 1 and 0.1 is counted to those next to them.
@pytest.mark.parametrize(("sigma", "rate", "largest"), [(1.3, 0.1, 2), (0.4, 0.2, 3), (3.0, 0.4, 1)])
@pytest.mark.parametrize("relation", SIDES)
def test_no_data_exceed_the_bound_of_cut_samples_however_many_are_cut(sigma, rate, largest, relation):
    bounds = jaxacct.delta(TruncatedPoisson(Gaussian(sigma), rate, largest, 4), EPSILONS, relation=relation)
    found = np.array(list(attacks(lambda records: truncated(records, largest, rate), relation, sigma)))
    grid = 4 * GRID  # less noise on the same grid
    assert np.all(found <= bounds.upper + grid)
    assert np.all(bounds.lower[EPSILONS >= 0] <= found.max(0)[EPSILONS >= 0] + grid)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "largest", "epsilon"), [(2.0, 15, 2.0), (1.5, 9, 2.5)])
def test_compositions_of_cut_samples_agree_with_their_certificate(sigma, largest, epsilon, direction):
    pytest.importorskip("flint", reason="certificates need python-flint")
    mechanism, asked = TruncatedPoisson(Gaussian(sigma), 0.1, largest, 100), {"steps": 30, "relation": direction}
    truth, bounds = jaxacct.certify(mechanism, epsilon=epsilon, **asked), jaxacct.delta(mechanism, epsilon, **asked)
    assert truth.encloses(float(bounds.lower), float(bounds.upper))
    assert bounds.upper <= float(truth.upper) * 1.001


def test_special_records_cost_no_more_than_removed_ones_and_cuts_no_less_than_none():
    mechanism = TruncatedPoisson(Gaussian(1.0), 0.01, 120, 10_000)
    special, removed, replaced = (
        jaxacct.epsilon(mechanism, 1e-5, steps=1000, relation=relation)
        for relation in ("replace_special", "add_or_remove", "replace")
    )
    assert 1.8262 < special.lower < special.upper < removed.upper < replaced.upper
    assert special.upper < 2.122  # dp_accounting 0.6.0: 5.297
    assert removed.upper < 2.218
    rare = jaxacct.epsilon(TruncatedPoisson(Gaussian(1.0), 0.01, 160, 10_000), 1e-5, steps=1000)
    plain = jaxacct.epsilon(PoissonSampled(Gaussian(1.0), 0.01), 1e-5, steps=1000)
    assert rare.lower <= plain.upper <= rare.upper <= plain.upper * (1 + 1e-5)
    never = TruncatedPoisson(GDP(0.5), 0.3, 7, 7)
    np.testing.assert_allclose(
        jaxacct.delta(never, EPSILONS, steps=3),
        jaxacct.delta(PoissonSampled(GDP(0.5), 0.3), EPSILONS, steps=3),
        rtol=1e-3,
    )


def test_fixed_sizes_enclose_the_values_of_their_pairs():
    ask = lambda kind, sensitivity, relation: jaxacct.epsilon(  # noqa: E731
        kind(Gaussian(2.0, sensitivity), 100, 10_000), 1e-5, steps=1000, relation=relation
    )
    for sensitivity, low, high in ((1.0, 0.7185, 0.71864), (2.0, 2.1987, 2.1995)):
        without, with_ = (
            ask(kind, sensitivity, "replace") for kind in (SampledWithoutReplacement, SampledWithReplacement)
        )
        assert low <= without.upper <= high
        assert without.upper <= with_.upper <= without.upper * 1.05
        poisson = jaxacct.epsilon(PoissonSampled(Gaussian(2.0, sensitivity), 0.01), 1e-5, steps=1000)
        exact = ask(SampledWithoutReplacement, sensitivity, "add_or_remove")
        assert exact == poisson
        assert poisson.lower <= without.lower <= poisson.upper


def test_sizes_may_be_traced_and_bad_ones_fail_closed():
    sizes = jax.jit(lambda b: jaxacct.delta(TruncatedPoisson(Gaussian(2.0), 0.05, b, 1000), 0.5))(np.float32(70.0))
    assert jaxacct.delta(TruncatedPoisson(Gaussian(2.0), 0.05, 70, 1000), 0.5).upper <= float(sizes.upper) * (1 + 1e-6)
    bad = jax.jit(lambda n: jaxacct.delta(SampledWithReplacement(Gaussian(2.0), 10, n), 0.5, relation="replace"))
    assert float(bad(5).upper) == 1.0


@pytest.mark.parametrize("relation", ["remove", "add", "replace"])
@pytest.mark.parametrize(
    "make", [lambda g: g, lambda g: TruncatedPoisson(g, 0.01, 120, 10_000), lambda g: SampledWithReplacement(g, 9, 100)]
)
def test_noise_that_hides_everything_is_no_trouble(make, relation):
    noise = np.array([1.0, 1e100, 1e200, 8e307])
    bounds = jaxacct.epsilon(make(Gaussian(noise)), 1e-5, steps=10, relation=relation)
    assert np.all(bounds.upper[1:] == 0)
    for steps in (1, 10):
        delta = jaxacct.delta(make(Gaussian(noise)), 0.5, steps=steps, relation=relation)
        assert np.all(delta.upper[1:] < 1e-20)
        assert np.all(delta.lower <= delta.upper)


def test_what_makes_no_sense_is_named_with_what_would_work():
    cut, drawn, fixed = TruncatedPoisson, SampledWithReplacement, SampledWithoutReplacement
    gaussian, laplace = Gaussian(1.0), Laplace(1.0)
    ask = lambda mechanism, relation="add_or_remove": lambda: jaxacct.delta(mechanism, 1.0, relation=relation)  # noqa: E731
    all_refused(
        ("largest must be at most records, got 11 of 10", lambda: cut(gaussian, 0.1, 11, 10)),
        ("rate must be between 0 and 1, got 1.1", lambda: cut(gaussian, 1.1, 5, 10)),
        (r"largest must be a whole number from 1 to 2\*\*53 = 9007199254740992", lambda: cut(gaussian, 0.1, 0, 10)),
        ("batch must be at most records, got 11 of 10", lambda: drawn(gaussian, 11, 10)),
        ("records must be a whole number from 2 to", lambda: drawn(gaussian, 1, 1)),
        ("no analysis for Laplace; .* Gaussian", ask(cut(laplace, 0.1, 5, 10))),
        ("no analysis for Laplace; .* Gaussian", ask(drawn(laplace, 5, 10))),
        ("'replace_special' has .*; 'replace' is an upper bound", ask(fixed(gaussian, 1, 4), "replace_special")),
        ("TruncatedPoisson, .* product of the rates", ask(PoissonSampled(cut(gaussian, 0.1, 5, 10), 0.5))),
    )
