"""What mechanisms cost in pure and in concentrated privacy, against high precision and other rooms' curves."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxacct import Gaussian, Laplace, PoissonSampled, PureDP, filters


def test_a_sample_at_rate_one_is_none_and_a_traced_rate_is_not_known_to_be_one():
    ledger = filters.zcdp(1.0)
    assert ledger.update(PoissonSampled(Gaussian(2.0), 1.0), ledger.init())[0]
    with pytest.raises(ValueError, match="cannot account for a Poisson-sampled"):
        jax.jit(lambda rate: ledger.update(PoissonSampled(Gaussian(2.0), rate), ledger.init()))(1.0)
    admitted, _ = jax.jit(lambda rate: ledger.update(PoissonSampled(Laplace(2.0), rate), ledger.init()))(0.5)
    assert admitted


@pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan])
def test_a_traced_rate_that_makes_no_sense_is_refused(rate):
    ledger = filters.pure_dp(5.0)
    admitted, _ = jax.jit(lambda rate: ledger.update(PoissonSampled(PureDP(1.0), rate), ledger.init()))(rate)
    assert not admitted
