"""Closed-form prices are certified between the grid's points, and one that is a few per cent lower is not."""

import numpy as np

from jaxacct.filters.prices.closed_form import certified_closed_form, certified_queries, price_of
from jaxacct.filters.prices.kernels import gaussian_atoms, sampled
from jaxacct.filters.prices.lines import kernel_next_to, price_lines


def lines(noise, rate, family):
    kernel = kernel_next_to(sampled(gaussian_atoms(1.0 / noise), rate), family)
    return np.maximum(*price_lines(kernel, family)[:2])


def test_a_query_between_the_grids_points_needs_no_more_than_its_closed_form():
    found = certified_closed_form((2.0, 2.1), (0.08, 0.1), 1.0, 1e-3)
    rng = np.random.default_rng(5)
    near = []
    for _ in range(6):
        noise, rate = rng.uniform(2.0, 2.1), rng.uniform(0.08, 0.1)
        own = lines(noise, rate, found.family)[: found.factors.size]
        ratio = own / (found.factors * price_of(noise, rate))
        assert (ratio <= 1.0).all()
        near.append(ratio.max())
    assert max(near) > 0.97
    assert 0 < found.budget() < 1.0 / found.factors[-1]


def test_a_list_of_queries_has_the_curve_of_its_dearest_one():
    queries, costs = [(2.0, 0.1), (4.0, 0.1)], np.array([0.02, 0.004])
    small, _ = certified_queries(queries, costs, 1.0, 1.5, 1e-3)
    large, _ = certified_queries(queries, costs, 1.2, 1.5, 1e-3)
    assert small.shape == large.shape
    assert (small <= large + 1e-15).all()
