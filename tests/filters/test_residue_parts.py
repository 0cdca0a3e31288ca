"""Parts of the residue filters by themselves: what an atom and a Gaussian leave, what was given."""

from __future__ import annotations

import numpy as np

from jaxacct import filters


def test_what_a_residue_filter_was_given_can_be_read():
    made = filters.gdp_residue(np.array([1.0, 2.0]), 1e-6, steps=4)
    assert np.asarray(made.mu).tolist() == [1.0, 2.0]
    assert np.asarray(made.slack).tolist() == [1e-6, 1e-6]
    assert float(made.share) == 0.25
    left = np.asarray(made.remaining_slack(made.init()))
    assert left.dtype == np.float32
    assert np.all((left <= 1e-6) & (left > 1e-6 * (1 - 2.0**-22)))
