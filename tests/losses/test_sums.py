"""Compositions of few outcomes against every sequence of outcomes, in fifty digits."""

import math

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import jaxacct
from jaxacct import Composed, FromTables, PermuteAndFlip, PoissonSampled, PureDP, RandomizedResponse

P3, Q3 = np.array([0.47681751, 0.43605137, 0.08713112]), np.array([0.59586761, 0.29491099, 0.10922140])
P4, Q4 = np.array([0.5, 0.125, 0.375, 0.0]), np.array([0.25, 0.5, 0.0, 0.25])


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(50):
        yield


def every_sequence(*runs):
    """(p, q) of every sequence of outcomes of tables (p, q)."""
    p, q = [mpf(1)], [mpf(1)]
    for one_p, one_q in runs:
        p = [a * mpf(float(b)) for a in p for b in one_p]
        q = [a * mpf(float(b)) for a in q for b in one_q]
    return p, q


def curve(p, q, epsilon):
    return mpmath.fsum(max(a - mpmath.exp(mpf(epsilon)) * b, mpf(0)) for a, b in zip(p, q, strict=True))


def normal(p):
    return p / p.sum()


CASES = {
    "three outcomes": (FromTables(normal(P3), normal(Q3)), 5, [(normal(P3), normal(Q3))] * 5),
    "infinite losses on either side": (FromTables(P4, Q4), 4, [(P4, Q4)] * 4),
    "two tables": (
        Composed([FromTables(P4, Q4), FromTables(normal(P3), normal(Q3))], [2, 3]),
        1,
        [(P4, Q4)] * 2 + [(normal(P3), normal(Q3))] * 3,
    ),
    "samples": (
        PoissonSampled(FromTables(normal(P3), normal(Q3)), 0.3),
        4,
        [(0.3 * normal(P3) + 0.7 * normal(Q3), normal(Q3))] * 4,
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("relation", ["remove", "add"])
def test_delta_and_epsilon_are_those_of_every_sequence_of_outcomes(name, relation):
    mechanism, steps, runs = CASES[name]
    p, q = every_sequence(*(runs if relation == "remove" else [(q, p) for p, q in runs]))
    losses = sorted({float(mpmath.log(a / b)) for a, b in zip(p, q, strict=True) if a and b})
    epsilons = np.array([-0.7, 0.0, 0.01, *np.linspace(0.05, max(losses) * 1.1, 12), losses[-2]])
    found = jaxacct.delta(mechanism, epsilons, steps=steps, relation=relation)
    for low, high, at in zip(found.lower, found.upper, epsilons, strict=True):
        assert low <= curve(p, q, at) <= high
        assert high - low <= 2e-3 * high
    infinite = float(curve(p, q, 700.0))
    deltas = infinite + (float(curve(p, q, 0.0)) - infinite) * np.array([1e-9, 1e-4, 0.03, 0.3, 0.7, 0.999])
    found = jaxacct.epsilon(mechanism, deltas, steps=steps, relation=relation)
    for low, high, goal in zip(found.lower, found.upper, deltas, strict=True):
        assert curve(p, q, low) >= goal >= curve(p, q, high)
        assert high - low <= (2e-3 * high if np.isfinite(high) else goal < infinite * (1 + 1e-6))


@pytest.mark.parametrize(
    ("pure", "steps", "epsilon"), [(0.02, 5000, 1.5), (0.5, 60, 3.0), (3.0, 7, 12.0), (1e-6, 9, 0.0)]
)
def test_randomized_response_is_a_binomial(pure, steps, epsilon):
    up = mpmath.exp(mpf(pure))
    ways = [
        mpmath.binomial(steps, k) * (up / (1 + up)) ** k / (1 + up) ** (steps - k)
        * max(1 - mpmath.exp(mpf(epsilon) - (2 * k - steps) * mpf(pure)), 0)
        for k in range(steps // 2, steps + 1)
    ]  # fmt: skip
    truth = mpmath.fsum(ways)
    for mechanism in (RandomizedResponse(pure), PureDP(pure), PermuteAndFlip(pure)):
        low, high = jaxacct.delta(mechanism, epsilon, steps=steps)
        assert low <= truth <= high
        assert high - low <= 2e-3 * high


def test_a_delta_of_1e_280_has_an_epsilon_below_the_largest_sum():
    a, b = math.sqrt(2e-280), math.sqrt(2e-280) * math.exp(-2.5)
    p, q = np.array([1 - a, a]), np.array([1 - b, b])
    low, high = jaxacct.epsilon(FromTables(p, q), 1e-280, steps=2, relation="remove")
    laws = every_sequence((p, q), (p, q))
    assert curve(*laws, low) >= mpf(1e-280) >= curve(*laws, high)
    assert 4.0 <= low <= 4.4


def test_a_delta_below_the_normal_numbers_is_not_rounded_up():
    p, q = np.array([1.0, 1.6e-108]), np.array([1.0, 1e-200])
    low, high = jaxacct.delta(FromTables(p, q), 600.0, steps=3, relation="remove")
    assert mpf(low) <= curve(*every_sequence(*[(p, q)] * 3), 600.0) <= mpf(high)


@pytest.mark.parametrize(("pure", "steps"), [(100.0, 10), (690.0, 6), (800.0, 4)])
@pytest.mark.parametrize("delta", [1e-12, 0.3])
def test_epsilons_beyond_the_exponents_of_floats_are_as_tight(pure, steps, delta):
    """Q-masses of e^-700 were once lost in what stood for them, and epsilon was 707 to 8000."""
    low, high = jaxacct.epsilon(PureDP(pure), delta, steps=steps)
    with mpmath.workprec(int(pure * steps * 3) + 200):  # e^pure beside 1
        up = mpmath.exp(mpf(pure))
        table = [up / (1 + up), 1 / (1 + up)]
        losses = [(2 * k - steps) * mpf(pure) for k in range(steps // 2 + 1, steps + 1)]
        masses = [mpmath.binomial(steps, k) * table[0] ** k * table[1] ** (steps - k) for k in range(steps + 1)]
        above = list(zip(masses[steps // 2 + 1 :], losses, strict=True))
        at_low, at_high = (
            mpmath.fsum(m * max(1 - mpmath.exp(mpf(e) - x), 0) for m, x in above) for e in map(float, (low, high))
        )
        assert at_low >= mpf(delta) >= at_high
    assert high - low <= 2e-3 * high


def test_a_huge_loss_blurs_no_small_one():
    """Of rarely sampled responses the likely loss is 1e-9, the other one huge: each is off by its own error."""
    rate, steps = 1e-9, 2
    for pure in (690.0, 1e5, 1e10):
        low, high = jaxacct.delta(PoissonSampled(PureDP(pure), rate), 0.0, steps=steps)
        truth = 1 - (1 - mpf(rate)) ** steps  # but for e^-690
        assert low <= truth <= high
        assert high - low <= 1e-3 * high
    for pure in (1e5, 1e10):
        low, high = jaxacct.delta(PureDP(pure), 1.0, steps=10)
        assert 1.0 - 1e-3 <= low <= high == 1.0
