"""A box with two tables: what each leaves, and which one a ledger is held by."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct.filters.marks import marked
from jaxacct.filters.prices import grid_table as table
from jaxacct.filters.prices.look_up import either

UNITS = 2_000_000_000


def test_a_ledger_stays_in_its_table_and_no_table_leaves_more_than_it_says():
    rng = np.random.default_rng(0)
    left = np.append(rng.integers(0, UNITS, 2000), [0, 1, 2, UNITS])
    first, second = (np.where(rng.uniform(size=left.size) < 0.2, -1, rng.integers(0, 9, left.size)) for _ in range(2))
    cheaper = rng.uniform(size=left.size) < 0.5
    found = np.asarray(either(*(jnp.asarray(x, jnp.int32) for x in (left, cheaper, first, second))))
    in_second = np.where(left == UNITS, cheaper, left % 2)
    its_own = np.where(in_second, second, first)
    assert (found <= its_own).all()
    assert (found[found >= 0] % 2 == in_second[found >= 0]).all()
    assert (found[its_own < 0] < 0).all()


@pytest.fixture(scope="module")
def tables():
    """Two tables of one box: in the second one more of the budget goes to the Gaussian that comes first."""
    given = {"sigma": (1.2, 1.5), "rate": 0.03, "epsilon": 1.5, "delta": 1e-3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_SMALL", table._SMALL._replace(small=18.0))
        other = filters.sampled_gaussian(**given, cache=False)
    return filters.sampled_gaussian(**given), other


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("one", [(1.2, 0.03), (1.45, 0.03)])
def test_the_first_query_goes_to_the_table_in_which_it_is_cheaper_and_the_next_ones_follow(tables, one, turned):
    each = tables[::-1] if turned else tables
    box = dataclasses.replace(each[0], other=each[1])
    query = PoissonSampled(Gaussian(one[0]), one[1])
    halfway = box.init()._replace(spent=jnp.int32(UNITS // 2))
    costs = [int(table.price(query, marked(table, halfway))) for table in each]
    admitted, state = box.update(query, box.init())
    assert admitted
    at = int(state.spent) % 2
    assert costs[at] <= 1.002 * min(costs)
    assert at == turned or one[0] > 1.2  # the loudest query is cheaper in the first table by more than that
    held = each[at]
    assert 0 <= int(state.spent) - int(held.update(query, held.init())[1].spent) <= 1
    again = int(box.update(query, state)[1].spent)
    assert again % 2 == at
    assert 0 <= again - int(held.update(query, marked(held, state))[1].spent) <= 1
    traced = jax.jit(lambda query: box.update(query, box.update(query, box.init())[1])[1].spent)(query)
    assert abs(int(traced) - again) < 1e-5 * again  # its noise is a float32 number
