"""What individual ledgers charge, bound and mark, by themselves: units, norms, last steps."""

from __future__ import annotations

import jax
import numpy as np

from jaxacct import Gaussian, PoissonSampled, filters


def test_noise_and_clip_norms_out_of_the_range_of_float32_are_nobodys_step():
    # A norm and a sigma of 1e-40 are a mu of 1, whose float32 is lost.
    norms = np.array([1e-40, 1e-30, 1.0, 3e38])
    ledger = filters.per_example(filters.approximate_gdp(0.7), examples=norms.size)

    @jax.jit
    def asked(sigma, clip):
        query = PoissonSampled(Gaussian(sigma, sensitivity=clip), 0.1)
        part, state = ledger.update(query, norms, ledger.init())
        return part, ledger.fraction(state), ledger.bounds(query, norms, state)

    with jax.enable_x64(True):
        for sigma, clip in ((1e-40, 1.0), (9e-21, 1.0), (1.1e20, 1.0), (1e39, 1e39), (1.0, 1e-21), (1.0, np.inf)):
            part, fraction, bounds = asked(sigma, clip)
            assert not part.any()
            assert not fraction.any()
            assert not bounds.any()
        for sigma, clip in ((1.1e-20, 1.0), (9e19, 1e39), (1.0, 1.1e-20)):
            part, fraction, _ = asked(sigma, clip)
            assert part.all()
            square = (np.minimum(norms, clip) / sigma) ** 2
            cost = np.where(square < 500, 0.01 * np.expm1(np.minimum(square, 500)) / 2 / 0.7, np.inf)
            assert np.all(np.asarray(fraction) >= np.minimum(cost, 1))
