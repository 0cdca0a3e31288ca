"""A box with two tables: what each leaves, and which one a ledger is held by."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxacct.filters.boxes.look_up import either

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
