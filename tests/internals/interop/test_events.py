"""Each event is read as the right mechanism, and written back as an equal one."""

import jax
import numpy as np
import pytest

from jaxacct import interop
from jaxacct import mechanisms as m
from jaxacct.mechanisms.directions import directions

WRITTEN = [
    (m.Gaussian(3.0), "add_or_remove"),
    (m.Gaussian(3.0, 0.7), "replace"),
    (m.GDP(0.3), "add_or_remove"),
    (m.Laplace(2.0, 0.3), "add_or_remove"),
    (m.DiscreteLaplace(3.0, 4), "replace"),
    (m.RandomizedResponse(1.7, 5), "replace"),
    (m.RandomSensitivityGaussian(2.0, [0.0, 1.0], [0.25, 0.75]), "add_or_remove"),
    (m.ZeroConcentratedDP(0.3), "add_or_remove"),
    (m.PureDP(0.3), "replace"),
    (m.PermuteAndFlip(0.3), "add_or_remove"),
    (m.PoissonSampled(m.Laplace(2.0), 0.1), "add_or_remove"),
    (m.SampledWithoutReplacement(m.Gaussian(2.0, 2.0), 5, 50), "replace"),
    (m.SampledWithoutReplacement(m.Gaussian(2.0, 2.0), 5, 50), "add_or_remove"),
    (m.SampledWithReplacement(m.Gaussian(2.0, 2.0), 5, 50), "replace"),
    (m.TruncatedPoisson(m.Gaussian(2.0), 0.1, 9, 50), "replace_special"),
    (m.PoissonSampled(m.Gaussian(1.0), 0.5), "replace"),
    (m.Composed([m.Gaussian(3.0), m.PoissonSampled(m.Gaussian(1.0), 0.5)], [3, 1]), "add_or_remove"),
]


@pytest.mark.parametrize(
    ("mechanism", "relation"), WRITTEN, ids=lambda x: x if isinstance(x, str) else type(x).__name__
)
def test_writing_and_reading_come_back_to_the_same_pair(mechanism, relation):
    event = interop.to_dp_event(mechanism, 7, relation)
    back = interop.from_dp_event(event, relation)

    def leaves(mechanism, steps):
        sides = directions(mechanism, relation, steps)
        counts = [[float(count) for _, count in side] for side in sides]
        found = jax.tree.leaves([[pair for pair, _ in side] for side in sides])
        return np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in found]), counts

    # A pair may be reached by other roundings; noise only goes down, by units.
    assert np.allclose(leaves(back, 1)[0], leaves(mechanism, 7)[0], rtol=1e-13, atol=0)
    assert leaves(back, 1)[1] == leaves(mechanism, 7)[1]


ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512]
