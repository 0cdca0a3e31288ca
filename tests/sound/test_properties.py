"""Laws that every mechanism obeys, on settings drawn at random: bounds may never contradict them.

A law that orders two truths, H <= H', is contradicted by ``lower > upper'``; one that equates them by two brackets
that do not meet. Settings are drawn a batch at a time, because a call costs more than its numbers do. A new mechanism
is a new row of ``FAMILIES``.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import jaxacct
from jaxacct import PLD, Composed, Gaussian, LossGrid, PoissonSampled
from jaxacct.losses.renyi import renyi

BATCH = 4
SLACK = 1e-11  # of the arithmetic in a test that combines bounds


@dataclasses.dataclass(frozen=True)
class Family:
    """A mechanism as a function of arrays ``(noise, rate)``, and the ranges to draw them from.

    Attributes:
        make: from (noise, rate) to the mechanism; a family without sampling ignores the rate.
        noise: range of the noise parameter; more of it is more private.
        rate: range of the sampling rate; less of it is more private. None where there is no sampling.
        relations: directions to try.
    """

    make: Callable[[Any, Any], Any]
    noise: tuple[float, float]
    rate: tuple[float, float] | None
    relations: tuple[str, ...]


FAMILIES = {
    "gaussian": Family(lambda noise, rate: Gaussian(noise), (0.4, 20.0), None, ("add_or_remove",)),
    "sampled gaussian": Family(
        lambda noise, rate: PoissonSampled(Gaussian(noise), rate), (0.8, 6.0), (1e-2, 0.5), ("remove", "add")
    ),
}
CASES = [(name, relation) for name, family in FAMILIES.items() for relation in family.relations]

# Shrinking costs far more than it tells here: a failing row can be read off the batch.
few = settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
# Soundness is the law here, for wide bounds too.
pytestmark = [  # every law meets new shapes, hence compilations
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*are wide:RuntimeWarning"),
]


def _logarithmic(low, high):
    return st.floats(np.log(low), np.log(high)).map(lambda x: float(np.exp(x)))


def _batch(element):
    return st.lists(element, min_size=BATCH, max_size=BATCH).map(np.array)


EPSILONS = _batch(st.floats(0.05, 4.0))
DELTAS = _batch(_logarithmic(1e-12, 1e-2))
STEPS = _batch(st.integers(2, 200))
GROWTH = _batch(_logarithmic(1.0, 2.0))


def _drawn(data, name):
    family = FAMILIES[name]
    noise = data.draw(_batch(_logarithmic(*family.noise)), "noise")
    rate = data.draw(_batch(_logarithmic(*family.rate)), "rate") if family.rate else np.ones(BATCH)
    return family.make, noise, rate


def _no_larger(first, second):
    """Nothing says that the truth behind ``first`` exceeds the one behind ``second``."""
    for bounds in (first, second):
        assert np.all(bounds.lower <= bounds.upper)
    assert np.all(first.lower <= second.upper * (1 + SLACK))


def _meet(first, second):
    _no_larger(first, second)
    _no_larger(second, first)


def _delta(relation):
    return functools.partial(jaxacct.delta, relation=relation)


@pytest.mark.parametrize(("name", "relation"), CASES)
@few
@given(data=st.data(), epsilon=EPSILONS, delta=DELTAS, steps=STEPS, growth=GROWTH)
def test_more_noise_less_sampling_and_fewer_steps_never_cost_more(name, relation, data, epsilon, delta, steps, growth):
    make, noise, rate = _drawn(data, name)
    fewer = np.ceil(steps / growth)
    # Row 0 is the setting itself, the others are more private in one respect each.
    noises = np.stack([noise, noise * growth, noise, noise])
    rates = np.stack([rate, rate, rate / growth if FAMILIES[name].rate else rate, rate])
    runs = np.stack([steps, steps, steps, fewer])
    for query, goal in ((jaxacct.delta, epsilon), (jaxacct.epsilon, delta)):
        bounds = query(make(noises, rates), goal, steps=runs, relation=relation)
        for row in (1, 2, 3):
            better = jaxacct.Bounds(bounds.lower[row], bounds.upper[row])
            _no_larger(better, jaxacct.Bounds(bounds.lower[0], bounds.upper[0]))


@pytest.mark.parametrize("name", list(FAMILIES))
@few
@given(data=st.data(), epsilon=EPSILONS, steps=STEPS)
def test_add_is_the_reflection_of_remove(name, data, epsilon, steps):
    # H_add(gamma) = 1 - gamma + gamma H_remove(1 / gamma); both signs of epsilon.
    make, noise, rate = _drawn(data, name)
    epsilon = epsilon * np.resize([1.0, -1.0], BATCH)
    add = jaxacct.delta(make(noise, rate), epsilon, steps=steps, relation="add")
    remove = jaxacct.delta(make(noise, rate), -epsilon, steps=steps, relation="remove")
    reflected = [1 - np.exp(epsilon) + np.exp(epsilon) * side for side in remove]
    # Absolute: 1 - gamma cancels all but the last digits of a small delta.
    rounding = 1e-13 * np.exp(np.abs(epsilon))
    assert np.all(add.lower <= reflected[1] + rounding)
    assert np.all(reflected[0] <= add.upper + rounding)


@pytest.mark.parametrize(("name", "relation"), CASES)
@few
@given(data=st.data(), delta=DELTAS, steps=STEPS)
def test_steps_in_two_groups_are_steps_in_one(name, relation, data, delta, steps):
    make, noise, rate = _drawn(data, name)
    step, first = make(noise, rate), np.ceil(steps / 3)
    together = jaxacct.epsilon(step, delta, steps=steps, relation=relation)
    for counts in ([first, steps - first], [steps - first, first]):
        _meet(together, jaxacct.epsilon(Composed([step, step], counts), delta, relation=relation))


@pytest.mark.parametrize(("name", "relation"), CASES)
@few
@given(data=st.data(), epsilon=EPSILONS)
def test_the_order_and_the_nesting_of_a_composition_do_not_matter(name, relation, data, epsilon):
    make, noise, rate = _drawn(data, name)
    a, b, c = make(noise, rate), make(1.5 * noise, rate), Gaussian(4.0 * noise)
    delta = _delta(relation)
    flat = delta(Composed([a, b, c], [3, 5, 2]), epsilon)
    _meet(flat, delta(Composed([c, b, a], [2, 5, 3]), epsilon))
    _meet(flat, delta(Composed([Composed([a, b], [3, 5]), c], [1, 2]), epsilon))


GRID = LossGrid(2.0**-6, -1024, 2048)


@pytest.mark.parametrize(("name", "relation"), CASES)
@few
@given(data=st.data(), epsilon=EPSILONS)
def test_plds_compose_in_any_order_to_what_delta_says(name, relation, data, epsilon):
    relation = "remove" if relation == "add_or_remove" else relation
    make, noise, rate = _drawn(data, name)
    parts = [make(max(float(s), 0.8), float(q)) for s, q in zip(noise[:3], rate[:3], strict=True)]
    curves = {}
    for bound in ("upper", "lower"):
        a, b, c = (PLD.from_mechanism(part, bound, relation=relation, grid=GRID) for part in parts)
        orders = (a.compose(b).compose(c), c.compose(a).compose(b), a.compose(b.compose(c)))
        curves[bound] = [law.hockey_stick(epsilon) for law in orders]
        # The same sums on the same grid, but for the FFT's rounding: some 1e-15 on each of 8,192 entries.
        for curve in curves[bound][1:]:
            np.testing.assert_allclose(curve, curves[bound][0], rtol=1e-9, atol=1e-10)
    truth = jaxacct.delta(Composed(parts), epsilon, relation=relation)
    assert all(np.all(truth.lower <= curve) for curve in curves["upper"])
    assert all(np.all(curve <= truth.upper) for curve in curves["lower"])


def _renyi_of(law, order):
    """Rényi divergence of a lattice law: log E[exp((order - 1) L)] / (order - 1), infinite losses left out."""
    exponent = (order - 1) * law.grid.losses
    top = exponent.max()
    return (np.log((law.masses * np.exp(exponent - top)).sum()) + top) / (order - 1)


@pytest.mark.parametrize(("name", "relation"), CASES)
@few
@given(data=st.data(), order=st.floats(1.2, 6.0))
def test_lattice_laws_bracket_the_renyi_curve(name, relation, data, order):
    # A law that dominates has the larger Rényi divergence of every order, and a dominated one the smaller.
    relation = "remove" if relation == "add_or_remove" else relation
    make, noise, rate = _drawn(data, name)
    noise, rate = np.maximum(noise[:2], 1.0), rate[:2]
    # A grid that holds all that matters: what lies beyond it counts as an infinite loss, of infinite divergence.
    fine = LossGrid(2.0**-8, -4096, 8192)  # a rare record's spike is 0.01 wide
    curve = np.asarray(renyi(make(noise, rate), order, relation=relation))
    for s, q, truth in zip(noise, rate, curve, strict=True):
        upper, lower = (
            PLD.from_mechanism(make(float(s), float(q)), bound, relation=relation, grid=fine)
            for bound in ("upper", "lower")
        )
        assert upper.infinity_mass < 1e-15
        assert _renyi_of(lower, order) <= truth * (1 + 1e-6) + 1e-12
        assert truth * (1 - 1e-9) - 1e-9 <= _renyi_of(upper, order)
        # A spike inside a cell costs a lower law up to that cell (and one more for the rounding of an end at 0).
        assert _renyi_of(upper, order) - _renyi_of(lower, order) < 1e-3 + 2 * fine.spacing
