"""Shuffled batches: both bounds, and the attack against a simulation of it."""

import numpy as np
import pytest

from jaxacct import Gaussian, Laplace, PoissonSampled, RandomAllocation, Shuffled, delta, epsilon


def test_the_published_example_is_reproduced() -> None:
    found = delta(Shuffled(Gaussian(0.5), 1000), 4.0)
    assert found.lower >= 0.07379
    assert found.upper == pytest.approx(0.0849533, rel=1e-5)
    poisson = delta(PoissonSampled(Gaussian(0.5), 1e-3), 4.0, steps=1000)
    bins = delta(RandomAllocation(Gaussian(0.5), 1000), 4.0)
    assert poisson.upper == pytest.approx(1.746e-6, rel=5e-3)
    assert bins.upper == pytest.approx(1.297e-6, rel=3e-3)


@pytest.mark.parametrize("relation", ["remove", "add", "zero_out", "fill_in"])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_the_attack_never_exceeds_what_is_proven(sigma: float, relation: str) -> None:
    for batches in (1, 3, 300):
        for level in (1e-10, 1e-4):
            found = epsilon(Shuffled(Gaussian(sigma), batches), level, relation=relation)
            once = epsilon(Gaussian(sigma), level)
            assert found.upper == pytest.approx(once.upper, rel=1e-9)
            # An attack that finds nothing more than there is with all batches known.
            assert found.lower <= once.lower
    one = epsilon(Shuffled(Gaussian(sigma), 1), 1e-4, relation=relation)
    assert one.lower > 0.99 * one.upper


def test_the_attack_is_what_it_says() -> None:
    sigma, batches, eps, runs = 0.5, 20, 2.0, 400_000
    rng = np.random.default_rng(0)
    noise = rng.normal(0.0, sigma, (2, runs, batches))
    noise[0, :, 0] += 2.0  # the record is there; which batch is first does not matter to the largest
    noise[1, :, 0] += 1.0
    largest = noise.max(-1)
    levels = np.linspace(0.0, 4.0, 161)
    seen = max((largest[0] > c).mean() - np.exp(eps) * (largest[1] > c).mean() for c in levels)
    found = delta(Shuffled(Gaussian(sigma), batches), eps, relation="remove")
    assert found.lower == pytest.approx(seen, abs=0.012)
    assert found.lower <= found.upper


def test_other_mechanisms_are_attacked_as_random_allocation() -> None:
    mechanism = Laplace(1.0)
    shuffled = epsilon(Shuffled(mechanism, 50), 1e-6, steps=3)
    bins = epsilon(RandomAllocation(mechanism, 50), 1e-6, steps=3)
    assert shuffled.lower == pytest.approx(bins.lower, rel=1e-6)
    assert shuffled.upper >= epsilon(mechanism, 1e-6, steps=3).lower


def test_replaced_records_turn_round() -> None:
    found = epsilon(Shuffled(Gaussian(1.0), 10), 1e-6, relation="replace")
    assert found.upper == pytest.approx(epsilon(Gaussian(0.5), 1e-6).upper, rel=1e-9)
    assert epsilon(Shuffled(Gaussian(1.0), 10), 1e-6).lower < found.lower < found.upper
