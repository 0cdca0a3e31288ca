"""What PLDs cost: against the mechanisms they are the laws of, and against sums over the law by hand."""

import jax
import numpy as np

from jaxacct import PLD, filters
from tests.contract.filter_cases import GRID, STEP, law

EPSILON = 4 * STEP


def test_a_program_that_rounds_a_law_to_float32_is_told_so():
    budget, query = filters.pure_dp(1.0), law(EPSILON)
    closed = jax.jit(lambda s: budget.update(query, s))(budget.init())
    assert closed[0]
    # As an argument it has lost what float32 flushes to 0, at any loss.
    passed = jax.jit(lambda q, s: budget.update(PLD(q, np.zeros((), np.float32), GRID), s))
    assert not passed(query.masses, budget.init())[0]
    approximate = filters.approximate_zcdp(0.5, 1e-6)
    passed = jax.jit(lambda q, s: approximate.update(PLD(q, np.zeros((), np.float32), GRID), s))
    assert passed(query.masses, approximate.init())[0]
