"""Guesses of one run: published numbers, exact tails, linear programs, and honest mechanisms that are not refuted."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

import jaxacct
from jaxacct import GDP, ApproximateDP, Composed, Gaussian, PoissonSampled, PureDP, audit

# (canaries, guesses, correct, delta, confidence), and what jax_privacy's CanaryScoreAuditor (at commit 8967688c, with
# an explicit threshold) has as epsilon_one_run and epsilon_one_run_fdp; it searches to 1e-6.
RECORDED = [
    (1000, 100, 90, 1e-5, 0.95, 1.626143679, 2.456405067),
    (1000, 1000, 650, 1e-5, 0.95, 0.507950266, 0.967526625),
    (200, 50, 50, 1e-6, 0.95, 2.784160043, 5.701468955),
    (5000, 400, 390, 1e-8, 0.99, 2.950192274, 5.147126931),
    (300, 120, 80, 1e-3, 0.9, 0.384780317, 0.500485009),
    (64, 64, 40, 1e-5, 0.95, 0.058938408, 0.090980378),
    (2000, 300, 299, 1e-2, 0.95, 0.0, 3.799165808),
    (1000, 100, 50, 1e-5, 0.95, 0.0, 0.0),
]


def run(canaries, guesses, correct, delta=1e-5, confidence=0.95, **options):
    return audit.one_run(correct, guesses, canaries, delta=delta, confidence=confidence, **options)


@pytest.mark.parametrize(("setting", "epsilon", "gaussian"), [(row[:5], *row[5:]) for row in RECORDED], ids=str)
def test_the_numbers_are_those_of_jax_privacy(setting, epsilon, gaussian):
    found = run(*setting)
    assert found.epsilon == pytest.approx(epsilon, abs=1e-6)
    assert found.gaussian_epsilon == pytest.approx(gaussian, abs=1e-6)


def p_value(canaries, guesses, correct, epsilon, delta):
    """Of the theorem of Steinke, Nasr and Jagielski, to 60 digits."""
    with mpmath.workdps(60):
        q = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        masses = [mpmath.binomial(guesses, k) * q**k * (1 - q) ** (guesses - k) for k in range(guesses + 1)]
        sums, total = [], mpmath.mpf(0)
        for i in range(1, correct + 1):
            total += masses[correct - i]
            sums.append(total / i)
        return mpmath.fsum(masses[correct:]) + 2 * canaries * mpmath.mpf(delta) * max(sums)


@pytest.mark.parametrize("setting", [row[:5] for row in RECORDED if row[5] > 0 and row[1] < 500], ids=str)
def test_the_epsilon_is_refuted_to_60_digits_and_the_next_is_not(setting):
    canaries, guesses, correct, delta, confidence = setting
    found = run(*setting).epsilon
    significance = 1 - mpmath.mpf(confidence)
    assert p_value(canaries, guesses, correct, found, delta) <= significance
    assert p_value(canaries, guesses, correct, found * (1 + 1e-9), delta) > significance


def least_refuted(refuted, guesses):
    """The smallest number of right guesses that is refuted."""
    low, high = -1, guesses + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high


@pytest.mark.parametrize(("canaries", "epsilon", "confidence"), [(100, 1.0, 0.95), (400, 0.3, 0.9), (50, 3.0, 0.99)])
def test_randomized_response_exceeds_its_epsilon_as_seldom_as_stated(canaries, epsilon, confidence):
    # Every canary's own answer is right with probability q: the worst case of pure privacy, so this is exact and tight.
    q = 1 / (1 + np.exp(-epsilon))
    first = least_refuted(lambda n: run(canaries, canaries, n, 1e-300, confidence).epsilon > epsilon, canaries)
    assert binom.sf(first - 1, canaries, q) <= 1 - confidence < binom.sf(first - 2, canaries, q)


@pytest.mark.parametrize("delta", [1e-4, 1e-2])
@pytest.mark.parametrize("kind", ["each record", "all records"])
def test_randomized_response_that_fails_with_delta_exceeds_its_epsilon_as_seldom(kind, delta):
    canaries, epsilon = 60, 1.0
    q = 1 / (1 + np.exp(-epsilon))
    for confidence in (0.8, 0.95, 0.985):
        first = least_refuted(lambda n, c=confidence: run(canaries, canaries, n, delta, c).epsilon > epsilon, canaries)
        if kind == "each record":
            probability = binom.sf(first - 1, canaries, delta + (1 - delta) * q)
        else:
            probability = delta * (first <= canaries) + (1 - delta) * binom.sf(first - 1, canaries, q)
        assert probability <= 1 - confidence


def feasible(pairs, canaries, guesses, correct, significance):
    """Whether a law of the number of right guesses satisfies the theorem's inequalities and is so often so large."""
    numbers = np.arange(guesses + 1)
    rows, limits = [], []
    for i in range(guesses):
        above = numbers >= i + 1
        right, wrong = np.where(above, numbers, 0) / canaries, np.where(numbers >= i, guesses - numbers, 0) / canaries
        for g, d in pairs:
            rows += [right / g - wrong, g * right - wrong]
            limits += [d / g, g - 1 + d]
    rows.append(-(numbers >= correct).astype(float))
    limits.append(-significance)
    found = linprog(np.zeros(guesses + 1), rows, limits, np.ones((1, guesses + 1)), [1.0], method="highs")
    return found.status == 0


@pytest.mark.parametrize(
    ("mechanism", "pairs", "setting"),
    [
        (PureDP(0.5), [(np.exp(0.5), 0.0)], (30, 12, 12)),
        (ApproximateDP(0.4, 0.02), [(np.exp(0.4), 0.02)], (20, 20, 18)),
        (
            Gaussian(2.0),
            [(np.exp(e), float(jaxacct.delta(Gaussian(2.0), e).upper)) for e in np.linspace(0, 4, 161)],
            (40, 16, 15),
        ),
    ],
    ids=["pure", "approximate", "Gaussian"],
)
def test_the_recursion_finds_what_a_linear_program_finds(mechanism, pairs, setting):
    found = run(*setting, mechanism=mechanism).p_value
    assert 1e-4 < found < 1
    assert not feasible(pairs, *setting, found * 1.02)
    assert feasible(pairs, *setting, found * 0.98)


def test_the_certified_curve_refutes_what_the_gaussian_curve_refutes():
    # At the confidence at which GDP(mu) is refuted, the largest mu that is refuted is this one.
    for mu, setting in ((0.5, (500, 100, 85)), (1.0, (1000, 300, 296)), (0.2, (1000, 1000, 600))):
        value = run(*setting, mechanism=GDP(mu)).p_value
        assert value < 0.9
        certified = jaxacct.epsilon(GDP(mu), 1e-5).upper
        assert run(*setting, confidence=1 - value).gaussian_epsilon == pytest.approx(certified, rel=1e-3)
        assert run(*setting, confidence=1 - value).gaussian_epsilon >= certified * (1 - 1e-9)


def guessed(scores, included, guesses):
    """Right guesses about the canaries of each run, by its scores."""
    order, canaries = np.argsort(scores, axis=1), scores.shape[1]
    low, high = order[:, : guesses // 2], order[:, canaries - (guesses - guesses // 2) :]
    return np.take_along_axis(included, high, 1).sum(1) + (~np.take_along_axis(included, low, 1)).sum(1)


@pytest.mark.parametrize(
    ("mechanism", "steps", "mu", "guesses"),
    [
        (Gaussian(2.0), 1, 0.5, 60),
        pytest.param(Gaussian(4.0), 16, 1.0, 300, marks=pytest.mark.slow),
        pytest.param(Gaussian(1.0), 4, 2.0, 150, marks=pytest.mark.slow),
        pytest.param(Composed([Gaussian(3.0)], 4), 1, 2 / 3, 100, marks=pytest.mark.slow),
    ],
)
def test_honest_runs_are_refuted_no_more_often_than_stated_and_leaks_are(mechanism, steps, mu, guesses):
    rng, canaries, runs = np.random.default_rng(0), 300, 1000

    def refuted(right):
        return run(canaries, guesses, right, mechanism=mechanism, steps=steps).refuted

    first = least_refuted(refuted, guesses)
    # 1,000 honest runs: more than 7.2 % would be three standard deviations above 5 %.
    included, noise = rng.random((runs, canaries)) < 0.5, rng.normal(size=(runs, canaries))
    assert np.mean(guessed(mu * included + noise, included, guesses) >= first) <= 0.072
    if guesses < 150:
        assert np.mean(guessed(6 * mu * included + noise, included, guesses) >= first) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "rate", "steps"), [(2.0, 0.25, 16), (1.0, 0.05, 40)])
def test_honest_sampled_runs_are_refuted_no_more_often_than_stated(sigma, rate, steps):
    rng, canaries, guesses, runs = np.random.default_rng(1), 200, 60, 1000
    mechanism = PoissonSampled(Gaussian(sigma), rate)
    first = least_refuted(
        lambda right: run(canaries, guesses, right, mechanism=mechanism, steps=steps).refuted, guesses
    )
    included = rng.random((runs, canaries)) < 0.5
    scores = included * rng.binomial(steps, rate, included.shape) + sigma * steps**0.5 * rng.normal(size=included.shape)
    assert np.mean(guessed(scores, included, guesses) >= first) <= 0.072


def test_several_scores_share_the_error():
    alone, both = run(1000, 200, 150, confidence=0.975), run(1000, 200, (90, 150))
    assert (both.epsilon, both.gaussian_epsilon, both.correct) == (alone.epsilon, alone.gaussian_epsilon, 150)
    one, two = (run(300, 60, right, mechanism=Gaussian(2.0)) for right in (58, (58, 20)))
    assert two.p_value == pytest.approx(2 * one.p_value, rel=1e-9)


def test_a_finding_says_what_was_refuted_and_that_it_is_no_guarantee():
    refuted = str(run(1000, 200, 190, mechanism=Gaussian(4.0)))
    open_ = str(run(1000, 200, 100, mechanism=Gaussian(4.0)))
    alone = str(run(1000, 100, 90))
    assert "At confidence 95 % this implementation is refuted: it is not the mechanism" in refuted
    assert "is not refuted: nothing here contradicts the mechanism" in open_
    assert "no epsilon at delta 1e-05 is refuted: 100 of 200 guesses about 1000 canaries were right." in open_
    assert (
        "not differentially private with delta 1e-05 and any epsilon below 1.6261, nor GDP with an epsilon below 2.4564"
        in alone
    )
    printed, found = 1.6261, run(1000, 100, 90).epsilon
    assert found - 1e-4 < printed <= found  # rounded down
    for text in (refuted, open_, alone):
        assert text.endswith("A lower bound at a confidence is no guarantee of privacy: a better attack may find more.")
