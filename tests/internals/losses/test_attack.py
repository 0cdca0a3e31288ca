"""What attackers get from finite experiments, in exact arithmetic; batches over devices."""

import jax
import numpy as np
import pytest

from jaxacct.losses.engines.devices import Spread


def test_batches_over_devices_come_back_as_they_went():
    with pytest.raises(ValueError, match="devices must hold at least one device, got none"):
        Spread([])
    alone, single = Spread(), Spread(jax.local_devices()[:1])
    assert (alone.shares, single.shares) == (1, 1)
    np.testing.assert_array_equal(single.padded(np.array([4, 5, 6]), 5), [4, 5, 6, 4, 5])
    single.shares = 4
    np.testing.assert_array_equal(single.padded(np.array([4, 5, 6]), 5), [4, 5, 6, 4, 5, 6, 4, 5])
    np.testing.assert_array_equal(single.padded(np.array([1, 2]), 4), [1, 2, 1, 2])
    tree = {"x": np.arange(6.0).reshape(3, 2), "y": [1, 2, 3]}
    assert alone.place(tree) is tree
    with jax.enable_x64(True):
        placed = single.place(tree)
    assert isinstance(placed["x"], jax.Array)
    assert placed["x"].sharding == single._sharding
    for spread, given in ((single, placed), (alone, tree)):
        back = spread.gather(given["x"])
        assert isinstance(back, np.ndarray)
        np.testing.assert_array_equal(back, tree["x"])
