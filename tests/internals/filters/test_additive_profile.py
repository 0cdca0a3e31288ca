"""The additive filter and the natural (epsilon, delta) filter: the note's ladder, Theorem 9, and attacks."""

import pytest

from jaxacct.adversary.filters.ladder import closed_form, guarantee_of


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
