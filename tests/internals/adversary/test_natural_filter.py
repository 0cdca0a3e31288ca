"""The natural filter's exact cost, freeness and counterexamples: certificates of the two filter papers."""

import math

import numpy as np
import pytest

import jaxacct
from jaxacct import GDP
from jaxacct.adversary import (
    is_free,
)
from jaxacct.games.compositions import Compositions
from jaxacct.games.within_budget import mu_needed
from tests.adversary.test_natural_filter import response, zero


def test_a_gaussian_budget_is_broken_by_randomized_response():
    family = [response(1.5), response(2), response(2.4)]
    free = is_free(GDP(1.1132672423), family, 3)
    assert free.word == "no"
    assert free.excess == pytest.approx(0.0165, abs=1e-4)
    assert math.exp(free.epsilon) == pytest.approx(1.464, abs=2e-3)
    # Without the three-round plan in the budget it is refused, and with more than the cost it is free.
    assert is_free(GDP(1.16), family, 3).word == "yes"
    of = Compositions(family, 3, "replace")
    for counts, mu in (((1, 2, 0), 1.113267242), ((1, 0, 1), 1.082790170)):
        low, high = mu_needed(of.exact(counts, 0))
        assert low <= high <= low + 1e-11
        assert low == pytest.approx(mu, abs=1e-9)


@pytest.mark.slow
def test_an_approximate_gaussian_budget_is_broken_with_the_certified_mu():
    family = [response(1.5), zero(0.05)]
    of = Compositions(family, 3, "replace")
    for counts, mu in (((2, 0), 0.510314148), ((1, 1), 0.506694206)):
        low, high = mu_needed(of.exact(counts, 0), 0.05, 1e-12)
        assert low <= high <= low + 1e-10
        assert low == pytest.approx(mu, abs=1e-9)
    budget = jaxacct.Composed([GDP(0.5103141485), zero(0.05)])
    found = is_free(budget, family, 2, tolerance=1e-9)
    assert found.word == "no"
    assert found.excess == pytest.approx(0.0200, abs=1e-4)
    assert mu_needed(of.exact((0, 1), 0)) == (np.inf, np.inf)
