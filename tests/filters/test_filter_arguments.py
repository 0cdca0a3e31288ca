"""What filters refuse, and how they name it; what plans and Gaussians cost."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxacct import filters


def test_a_traced_delta_of_one_is_no_budget_and_orders_say_how_much_epsilon_they_need():
    made = jax.jit(lambda delta: filters.approximate_zcdp(0.5, delta))(1.0)
    assert any(np.isnan(leaf).any() for leaf in jax.tree.leaves(made))
    with pytest.raises(ValueError, match="epsilon must be above") as raised:
        filters.renyi_any(0.5, 1e-5, (8, 16))
    needed = float(str(raised.value).split("above ")[1].split()[0])
    filters.renyi_any(needed * 1.0001, 1e-5, (8, 16))
    with pytest.raises(ValueError, match="epsilon must be above"):
        filters.renyi_any(needed * 0.9999, 1e-5, (8, 16))
