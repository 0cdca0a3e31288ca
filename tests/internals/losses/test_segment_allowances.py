"""What piecewise linear curves add for rounding is what they say, line by line; merged segments cost what they did."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses.compare.enclose import excess_of_segments
from tests.allowances import Long, allowed, needs_long_double
from tests.losses.test_segment_allowances import UNIT, curve, excess

pytestmark = [needs_long_double, pytest.mark.usefixtures("in_float64")]


def test_excess_of_segments():
    rng = np.random.default_rng(0)
    for seed in range(3):
        p, q = curve(seed)
        losses = np.concatenate([rng.uniform(-6, 6, 40), [-80.0, 80.0, 1e-9]])
        low, high = (np.asarray(x) for x in excess_of_segments(*map(jnp.asarray, (p, q, losses))))
        gamma, truth = np.exp(Long(losses))[:, None], excess(p, q, losses)
        counted = (np.where(gamma >= 1, p - gamma * q, gamma * q - p) > 0) * (p + gamma * q)
        room = UNIT * (4 + 2 * np.abs(losses)) * counted.sum(-1) + 7 * UNIT * truth
        allowed((high - truth), room, 0.7, 1.3)
        allowed((truth - low)[low > 0], room[low > 0], 0.7, 1.3)
        # At its own slope a segment may be on either side.
        own = np.log(p[1:-1]) - np.log(q[1:-1])
        low, high = (np.asarray(x) for x in excess_of_segments(*map(jnp.asarray, (p, q, np.resize(own, 43)))))
        assert np.all((low[:5] <= excess(p, q, own)) & (excess(p, q, own) <= high[:5]))
        assert np.all(
            high[:5] - low[:5] >= 2 * UNIT * 4 * (p + np.exp(own.repeat(7).reshape(5, 7)) * q)[range(5), range(1, 6)]
        )
