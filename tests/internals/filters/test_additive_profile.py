"""The additive filter and the natural (epsilon, delta) filter: the note's ladder, Theorem 9, and attacks."""

import numpy as np
import pytest

from jaxacct.adversary.filters.ladder import closed_form, guarantee_of, ladder


def test_the_ladder_is_that_of_the_note():
    found = ladder(1.0, 1e-6, 100)
    np.testing.assert_array_equal(found.budgets[:-1], [100, 100, 100, 65, 19, 9, 5, 3, 2])
    assert found.budgets[-1] == pytest.approx(1.796e-6, rel=1e-3)
    np.testing.assert_array_equal(found.answers, [100, 100, 100, 100, 48, 30, 22, 17, 14])


@pytest.mark.parametrize(
    ("epsilon", "rounds", "closed"),
    [
        (1, 16, (821, 1.64e-3)),
        (1, 100, (1337, 2.68e-3)),
        (1, 1000, (1860, 3.72e-3)),
        (1, 10000, (2566, 5.13e-3)),
        (0.1, 1000, (186, 3.74e-3)),
        (4, 1000, (7440, 3.72e-3)),
    ],
)
def test_the_closed_form_is_theorem_9s(epsilon, rounds, closed):
    found = closed_form(epsilon, 1e-6, rounds)
    assert found[0] == pytest.approx(closed[0], rel=1e-9)
    assert found[1] == pytest.approx(closed[1], rel=5e-3)


@pytest.mark.parametrize(
    ("epsilon", "rounds", "point"), [(1, 16, (50.72, 2.98e-6)), (1, 100, (57.26, 3.05e-6)), (1, 1000, (57.93, 3.17e-6))]
)
def test_the_lattice_certificate_is_that_of_the_note(epsilon, rounds, point):
    guarantee = guarantee_of(epsilon, 1e-6, rounds, "", natural=False)
    assert float(guarantee.delta(point[0])) == pytest.approx(point[1], rel=0.01)
    assert guarantee.masses.sum() == pytest.approx(1, abs=1e-12)
    assert float(guarantee.delta(float(guarantee.epsilon(1e-5)))) <= 1e-5
    natural = guarantee_of(epsilon, 1e-6, rounds, "", natural=True)
    assert float(natural.epsilon(1e-3)) <= min(float(guarantee.epsilon(1e-3)), rounds * epsilon * (1 + 1e-9))


def test_sums_of_responses_agree_with_the_lattice_law():
    """Small enough for exact products: three bands."""
    guarantee = guarantee_of(1.0, 0.01, 2, "", natural=False)
    bands = ladder(1.0, 0.01, 2)
    law = {0.0: 1.0}
    for end, count in zip(bands.epsilons, bands.answers, strict=False):
        p = 1 / (1 + np.exp(-end))
        for _ in range(count):
            new = {}
            for loss, mass in law.items():
                for step, share in ((end, p), (-end, 1 - p)):
                    new[round(loss + step, 9)] = new.get(round(loss + step, 9), 0.0) + mass * share
            law = new
    for order in (0.5, 2.0, 4.0):
        exact = sum(m * max(1 - np.exp(order - x), 0) for x, m in law.items())
        found = float(guarantee.delta(order)) - guarantee.failure
        if float(guarantee.delta(order)) < 1:
            assert exact <= found <= exact * (1 + 1e-8) + 1e-12
