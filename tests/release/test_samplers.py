"""Draws of the exact samplers follow their laws, also those too large for a float."""

import math
from collections import Counter
from fractions import Fraction

import pytest
from scipy.stats import chi2

from jaxacct import release

LAWS = {
    "laplace": (release.discrete_laplace, lambda x, s: math.exp(-abs(x) / s)),
    "gaussian": (release.discrete_gaussian, lambda x, s: math.exp(-(x**2) / (2 * s**2))),
}


@pytest.mark.parametrize("parameter", [Fraction(1, 2), 2.7])
@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_their_law(name, parameter):
    draw, weight = LAWS[name]
    found = Counter(draw(parameter, 8000))
    total = math.fsum(weight(x, float(parameter)) for x in range(-200, 201))
    expected = {x: 8000 * weight(x, float(parameter)) / total for x in range(-200, 201)}
    cells = [(found[x], many) for x, many in expected.items() if many >= 8]
    cells.append((8000 - sum(a for a, _ in cells), 8000 - sum(b for _, b in cells)))
    statistic = sum((a - b) ** 2 / b for a, b in cells)
    assert chi2.sf(statistic, len(cells) - 1) > 1e-8


@pytest.mark.parametrize("draw", [release.discrete_laplace, release.discrete_gaussian])
def test_draws_are_whole_numbers_of_any_size(draw):
    assert isinstance(draw(1), int)
    assert draw(1, 0) == []
    assert all(isinstance(x, int) for x in draw(0.1, 20))
    assert max(abs(x) for x in draw(2.0**200, 20)) > 2**190
    for wrong in (0, -1.0, math.nan, math.inf, "1", None, True, [1.0, 2.0]):
        with pytest.raises(ValueError, match=r"(scale|sigma) must be"):
            draw(wrong)
    for size in (-1, 1.5, True):
        with pytest.raises(ValueError, match="size must be a whole number"):
            draw(1, size)
