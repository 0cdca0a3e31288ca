"""A box with two tables: what each leaves, and which one a ledger is held by."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct.filters.boxes.look_up import either

UNITS = 2_000_000_000


def test_a_ledger_stays_in_its_table_and_no_table_leaves_more_than_it_says():
    rng = np.random.default_rng(0)
    left = np.append(rng.integers(0, UNITS, 2000), [0, 1, 2, UNITS])
    first, second = (np.where(rng.uniform(size=left.size) < 0.2, -1, rng.integers(0, 9, left.size)) for _ in range(2))
    cheaper = rng.uniform(size=left.size) < 0.5
    found = np.asarray(either(*(jnp.asarray(x, jnp.int32) for x in (left, cheaper, first, second))))
    in_second = np.where(left == UNITS, cheaper, left % 2)
    table = np.where(in_second, second, first)
    assert (found <= table).all()
    assert (found[found >= 0] % 2 == in_second[found >= 0]).all()
    assert (found[table < 0] < 0).all()


@pytest.mark.parametrize("one", [(1.2, 0.03), (1.45, 0.03)])
def test_the_first_query_goes_to_the_table_in_which_it_is_cheaper_and_the_next_ones_follow(one):
    loud, wide = (
        filters.priced_box(sigma=sigma, rate=0.03, epsilon=1.5, delta=1e-3) for sigma in ((1.2, 1.5), (1.17, 1.5))
    )
    box = dataclasses.replace(loud, other=wide)
    query, each = PoissonSampled(Gaussian(one[0]), one[1]), (loud, wide)
    halfway = box.init()._replace(spent=jnp.int32(UNITS // 2))
    costs = [int(table.price(query, halfway)) for table in each]
    admitted, state = box.update(query, box.init())
    table = each[int(state.spent) % 2]
    assert admitted
    assert costs[int(state.spent) % 2] <= 1.002 * min(costs)
    assert 0 <= int(state.spent) - int(table.update(query, table.init())[1].spent) <= 1
    again = int(box.update(query, state)[1].spent)
    assert 0 <= again - int(table.update(query, state)[1].spent) <= 1
    traced = jax.jit(lambda query: box.update(query, box.update(query, box.init())[1])[1].spent)(query)
    assert abs(int(traced) - again) < 1e-5 * again  # its noise is a float32 number
