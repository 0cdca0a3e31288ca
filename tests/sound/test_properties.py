"""Laws that every mechanism obeys, on settings drawn at random: bounds may never contradict them.

A law that orders two truths, H <= H', is contradicted by ``lower > upper'``; one that equates them by two brackets
that do not meet.
"""

import numpy as np
import pytest

import jaxacct
from jaxacct import PLD, Composed, Gaussian, Laplace, LossGrid, PoissonSampled
from tests.sound.exact import spread

SLACK = 1e-11  # of the arithmetic in a test that combines bounds
FAMILIES = {
    "gaussian": lambda noise, rate: Gaussian(noise),
    "sampled gaussian": lambda noise, rate: PoissonSampled(Gaussian(noise), rate),
    "sampled laplace": lambda noise, rate: PoissonSampled(Laplace(noise), rate),
}
CASES = [(name, relation) for name in FAMILIES for relation in ("remove", "add")]
# Soundness is the law here, for wide bounds too.
pytestmark = [
    pytest.mark.slow,  # compositions of many settings
    pytest.mark.filterwarnings("ignore:.*are wide:RuntimeWarning"),
    pytest.mark.parametrize(("name", "relation"), CASES),
]


def drawn(low, high, seed):
    """Four numbers, spread evenly in logarithm."""
    rng = np.random.default_rng(seed)
    return np.array([spread(rng, low, high) for _ in range(4)])


NOISE, RATE, STEPS = drawn(0.8, 6.0, 1), drawn(1e-2, 0.5, 2), np.rint(drawn(2.0, 200.0, 3))
EPSILON, DELTA, GROWTH = drawn(0.05, 4.0, 4), drawn(1e-12, 1e-2, 5), drawn(1.0, 2.0, 6)


def no_larger(first, second):
    """Nothing says that the truth behind ``first`` exceeds the one behind ``second``."""
    for bounds in (first, second):
        assert np.all(bounds.lower <= bounds.upper)
    assert np.all(first.lower <= second.upper * (1 + SLACK))


def meet(first, second):
    no_larger(first, second)
    no_larger(second, first)


def test_more_noise_less_sampling_and_fewer_steps_never_cost_more(name, relation):
    make, fewer = FAMILIES[name], np.ceil(STEPS / GROWTH)
    for query, goal in ((jaxacct.delta, EPSILON), (jaxacct.epsilon, DELTA)):
        ask = lambda noise, rate, steps: query(make(noise, rate), goal, steps=steps, relation=relation)  # noqa: B023, E731
        itself = ask(NOISE, RATE, STEPS)
        for private in ((NOISE * GROWTH, RATE, STEPS), (NOISE, RATE / GROWTH, STEPS), (NOISE, RATE, fewer)):
            no_larger(ask(*private), itself)


def test_add_is_the_reflection_of_remove(name, relation):
    """H_add(gamma) = 1 - gamma + gamma H_remove(1 / gamma), at both signs of epsilon."""
    made, other = FAMILIES[name](NOISE, RATE), {"add": "remove", "remove": "add"}[relation]
    epsilon = EPSILON * np.resize([1.0, -1.0], EPSILON.size)
    found = jaxacct.delta(made, epsilon, steps=STEPS, relation=relation)
    sides = jaxacct.delta(made, -epsilon, steps=STEPS, relation=other)
    lower, upper = (1 - np.exp(epsilon) + np.exp(epsilon) * side for side in sides)
    # Absolute: 1 - gamma cancels all but the last digits of a small delta.
    rounding = 1e-13 * np.exp(np.abs(epsilon))
    assert np.all((found.lower <= upper + rounding) & (lower <= found.upper + rounding))


def test_steps_in_two_groups_are_steps_in_one(name, relation):
    step, first = FAMILIES[name](NOISE, RATE), np.ceil(STEPS / 3)
    together = jaxacct.epsilon(step, DELTA, steps=STEPS, relation=relation)
    for counts in ([first, STEPS - first], [STEPS - first, first]):
        meet(together, jaxacct.epsilon(Composed([step, step], counts), DELTA, relation=relation))


def test_the_order_and_the_nesting_of_a_composition_do_not_matter(name, relation):
    a, b, c = FAMILIES[name](NOISE, RATE), FAMILIES[name](1.5 * NOISE, RATE), Gaussian(4.0 * NOISE)
    ask = lambda *composed: jaxacct.delta(Composed(*composed), EPSILON, relation=relation)  # noqa: E731
    flat = ask([a, b, c], [3, 5, 2])
    meet(flat, ask([c, b, a], [2, 5, 3]))
    meet(flat, ask([Composed([a, b], [3, 5]), c], [1, 2]))


def test_plds_compose_in_any_order_to_what_delta_says(name, relation):
    parts = [FAMILIES[name](float(s), float(q)) for s, q in zip(NOISE[:3], RATE[:3], strict=True)]
    grid, truth = LossGrid(2.0**-6, -1024, 2048), jaxacct.delta(Composed(parts), EPSILON, relation=relation)
    for bound in ("upper", "lower"):
        a, b, c = (PLD.from_mechanism(part, bound, relation=relation, grid=grid) for part in parts)
        orders = (a.compose(b).compose(c), c.compose(a).compose(b), a.compose(b.compose(c)))
        curves = np.array([law.hockey_stick(EPSILON) for law in orders])
        # The same sums on the same grid, but for the FFT's rounding: some 1e-15 on each of 8,192 entries.
        np.testing.assert_allclose(curves[1:], curves[[0, 0]], rtol=1e-9, atol=1e-10)
        assert np.all(truth.lower <= curves if bound == "upper" else curves <= truth.upper)
