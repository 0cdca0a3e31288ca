"""Rényi curves of every family: sound and tight against high precision, and against what a PLD says."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

from jaxacct import (
    Composed,
    Exponential,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    PoissonSampled,
    RandomSensitivityGaussian,
    SampledWithoutReplacement,
)
from jaxacct.losses.renyi import renyi

ORDERS = np.array([1.01, 1.7, 2.0, 8.5, 64.0])


def laplace(eps, a):
    return mp.log(a * mp.e ** ((a - 1) * eps) / (2 * a - 1) + (a - 1) * mp.e ** (-a * eps) / (2 * a - 1)) / (a - 1)


def pure(eps, a):
    return mp.log((mp.e ** (a * eps) + mp.e ** ((1 - a) * eps)) / (1 + mp.e**eps)) / (a - 1)


def bounded_range(eps, a):
    """The divergence at a shift t, maximised by ternary search: its excess is unimodal in t."""

    def at(t):
        p = (1 - mp.e ** (t - eps)) / (1 - mp.e**-eps)
        return p * mp.e ** ((a - 1) * t) + (1 - p) * mp.e ** ((a - 1) * (t - eps))

    low, high = mp.mpf(0), eps
    for _ in range(110):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (left, high) if at(left) < at(right) else (low, right)
    return mp.log(at(low)) / (a - 1)


@pytest.mark.parametrize(
    ("make", "formula"),
    [(lambda eps: Laplace(1.0, eps), laplace), (PermuteAndFlip, pure), (Exponential, bounded_range)],
    ids=["laplace", "permute and flip", "exponential"],
)
def test_closed_curves_are_sound_and_tight(make, formula):
    epsilon = np.array([1e-7, 1e-3, 0.3, 3.0, 40.0])
    orders = np.append(ORDERS, [1.0001, 3000.0])
    values = np.asarray(renyi(make(epsilon[:, None]), orders))
    with mp.workdps(60):
        for row, eps in zip(values, epsilon, strict=True):
            for value, order in zip(row, orders, strict=True):
                excess = float(mp.mpf(float(value)) / formula(mp.mpf(float(eps)), mp.mpf(float(order))) - 1)
                assert -1e-16 <= excess < max(2e-10, 3e-12 / (order - 1))


def _log_excess_of_sampled_laplace(eps, q, b):
    """log(1 + E_Q[(1 + w)^b - 1 - b w]), w = q (P/Q - 1): two atoms and an integral."""
    eps, q, b = mp.mpf(eps), mp.mpf(q), mp.mpf(b)

    def rest(loss):
        w = q * mp.expm1(loss)
        return (1 + w) ** b - 1 - b * w

    inside = mp.quad(lambda loss: mp.e ** (-(eps + loss) / 2) / 4 * rest(loss), np.linspace(-float(eps), float(eps), 7))
    return mp.log1p(mp.e**-eps / 2 * rest(eps) + rest(-eps) / 2 + inside)


def test_sampled_laplace_is_sound_and_tight_in_both_directions():
    settings = [(1e-3, 0.01), (1.0, 1e-6), (8.0, 0.1)]
    orders = np.array([1.1, 8.5, 64.0])
    eps, q = np.array(settings).T
    mechanism = PoissonSampled(Laplace(1.0, eps[:, None]), q[:, None])
    both = np.asarray(renyi(mechanism, orders))
    for relation in ("remove", "add"):
        values = np.asarray(renyi(mechanism, orders, relation=relation))
        assert np.all(values <= both)
        with mp.workdps(30):
            for i, (eps0, rate) in enumerate(settings):
                for value, a in zip(values[i], orders, strict=True):
                    truth = _log_excess_of_sampled_laplace(eps0, rate, a if relation == "remove" else 1 - a) / (a - 1)
                    assert 0 <= float(value / truth - 1) < 3e-5


@pytest.mark.parametrize("relation", ["remove", "add"])
@pytest.mark.parametrize(
    ("sigma", "shifts", "weights"),
    [(1.0, (0.0, 1.0, 2.0), (0.875, 0.0625, 0.0625)), (0.5, (0.0, 1.0, 4.0), (1 - 2**-13, 2**-14, 2**-14))],
)
def test_mixtures_are_sound_and_tight(sigma, shifts, weights, relation):
    orders = np.array([1.1, 2.0, 8.5])
    values = np.asarray(renyi(RandomSensitivityGaussian(sigma, shifts, weights), orders, relation=relation))
    for value, a in zip(values, orders, strict=True):
        with mp.workdps(30):
            b = mp.mpf(a if relation == "remove" else 1 - a)

            def density(t, b=b):
                terms = zip(shifts, weights, strict=True)
                w = mp.fsum(mp.mpf(v) * mp.expm1(t * s / sigma - mp.mpf(s / sigma) ** 2 / 2) for s, v in terms)
                return mp.npdf(t) * ((1 + w) ** b - 1 - b * w)

            steepest = max(shifts) / sigma
            ends = np.linspace(min(0, float(b)) * steepest - 15, max(2, float(b)) * steepest + 15, 24)
            truth = mp.log1p(mp.quad(density, list(ends), maxdegree=5)) / (mp.mpf(a) - 1)
        assert 0 <= float(value / truth - 1) < 2e-9


def test_the_left_tail_of_a_mixture_counts_where_the_smallest_shift_is_rare():
    # Under `add` the likelihood ratio is bounded from below by a weight of 1e-12 alone: the integral reaches far left.
    for sigma, weights, order in (
        (1.0, (1e-6, 1 - 1e-6), 40.0),
        (1.0, (1e-12, 1 - 1e-12), 30.0),
        (2.0, (1e-3, 0.999), 60.0),
    ):
        value = float(renyi(RandomSensitivityGaussian(sigma, (0.0, 1.0), weights), order, relation="add"))
        with mp.workdps(30):
            low, high = map(mp.mpf, weights)
            shift = 1 / mp.mpf(sigma)

            def density(x, order=order, low=low, high=high, shift=shift):
                return mp.npdf(x) * (low + high * mp.exp(shift * x - shift**2 / 2)) ** (1 - order)

            ends = np.linspace((1 - order) / sigma - 12, 12, 24)
            truth = mp.log(mp.quad(density, ends.tolist(), maxdegree=5)) / (order - 1)
        assert 0 <= float(value / truth - 1) < 1e-12


@pytest.mark.parametrize(("noise", "order"), [(0.02, 1.01), (1 / 30, 1.9), (1e-3, 1.1)])
def test_where_the_trapezoid_rule_is_too_coarse_mixtures_fall_back_to_convexity(noise, order):
    shifts, weights = (0.0, 0.5, 1.0), (0.5, 0.25, 0.25)
    mechanism = RandomSensitivityGaussian(noise, shifts, weights)
    remove, add = (float(renyi(mechanism, order, relation=relation)) for relation in ("remove", "add"))
    with mp.workdps(30):
        c = [mp.mpf(order) * (order - 1) * (mp.mpf(s) / noise) ** 2 / 2 for s in shifts]
        convex = mp.log(mp.fsum(w * mp.exp(x) for w, x in zip(weights, c, strict=True))) / (mp.mpf(order) - 1)
        # One component alone is less.
        alone = max(order * mp.log(w) + x for w, x in zip(weights, c, strict=True)) / (mp.mpf(order) - 1)
    assert alone <= remove <= convex * (1 + 1e-9)
    assert 0 < add <= convex * (1 + 1e-9)
    if order != 1.9:
        assert remove >= convex * (1 - 1e-12)


def test_one_component_is_the_gaussian_sampled_or_not():
    mixture = RandomSensitivityGaussian(1.5, (2.0,), (1.0,))
    np.testing.assert_allclose(renyi(mixture, ORDERS), renyi(Gaussian(1.5, 2.0), ORDERS), rtol=1e-11)
    for relation in ("remove", "add"):
        known = renyi(PoissonSampled(Gaussian(1.5, 2.0), 0.02), ORDERS, relation=relation)
        for other in (
            PoissonSampled(mixture, 0.02),
            PoissonSampled(PoissonSampled(Gaussian(1.5, 2.0), 0.2), 0.1),
            PoissonSampled(Composed([Gaussian(3.0, 2.0)], 4), 0.02),
        ):
            np.testing.assert_allclose(renyi(other, ORDERS, relation=relation), known, rtol=1e-9)


def test_without_replacement_matches_quadrature_of_its_pair():
    sigma, q = 2.0, 0.1
    base, shifted = stats.norm(0, sigma).pdf, stats.norm(1, sigma).pdf
    for a in (1.5, 4.0, 20.0):

        def rest(ratio, a=a):
            return ratio**a - 1 - a * (ratio - 1)

        def above(x):
            return base(x) * rest(1 - q + q * np.exp((x - 0.5) / sigma**2))

        def below(x):
            mixed = (1 - q) * shifted(x) + q * base(x)
            return mixed * rest(shifted(x) / mixed)

        ends = np.linspace(0.5, 0.5 + (a + 16) * sigma, 12)
        total = sum(integrate.quad(above, *piece)[0] for piece in itertools.pairwise(ends))
        total += integrate.quad(below, 0.5 - 10 * sigma, 0.5)[0]
        value = float(renyi(SampledWithoutReplacement(Gaussian(sigma), 10, 100), a, relation="replace"))
        truth = math.log1p(total) / (a - 1)
        assert truth * (1 - 1e-9) <= value <= truth * 1.001
