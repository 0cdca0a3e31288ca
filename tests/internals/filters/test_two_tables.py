"""A box with two tables: what each leaves, and which one a ledger is held by."""

from __future__ import annotations

import dataclasses

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
    found = np.asarray(either(jnp.asarray(left, jnp.int32), *(jnp.asarray(x, jnp.int32) for x in (first, second))))
    held = left < UNITS
    table = np.where(left % 2, second, first)
    assert (found[held] <= table[held]).all()
    fits = held & (found >= 0)
    assert (found[fits] % 2 == left[fits] % 2).all()
    assert (found[held & (table < 0)] < 0).all()


@pytest.mark.parametrize("one", [(1.2, 0.03), (1.45, 0.03)])
def test_the_first_query_goes_to_the_table_in_which_it_is_cheaper_and_the_next_ones_follow(one):
    loud, wide = (
        filters.priced_box(sigma=sigma, rate=0.03, epsilon=1.5, delta=1e-3) for sigma in ((1.2, 1.5), (1.17, 1.5))
    )
    box = dataclasses.replace(loud, other=wide)
    query, each = PoissonSampled(Gaussian(one[0]), one[1]), (loud, wide)
    admitted, state = box.update(query, box.init())
    alone = [int(table.update(query, table.init())[1].spent) for table in each]
    best = int(np.argmin(alone))
    assert admitted
    assert 0 <= int(state.spent) - alone[best] <= 1
    assert int(state.spent) % 2 == best
    again = int(box.update(query, state)[1].spent)
    assert 0 <= again - int(each[best].update(query, state)[1].spent) <= 1
