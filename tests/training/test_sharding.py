"""Data-parallel steps: the answer of one device, to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.training import clipped_gradient_sum, fresh_keys, replicate, shard_examples
from tests.processes import printed

EIGHT = """
import jax, jax.numpy as jnp, numpy as np, optax
from jaxacct import filters
from jax.sharding import NamedSharding, PartitionSpec
from jaxacct.training import init_state, make_step, secure_keys, seeded_keys, shard_examples
from jaxacct.training.schedules import constant

def loss(params, example):
    x, y = example
    hidden = jnp.tanh(x @ params["a"])
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ params["b"], y)

assert jax.device_count() == 8
draw = np.random.default_rng(0)
data = draw.normal(size=(403, 6)).astype(np.float32), draw.integers(0, 3, 403).astype(np.int32)
params = {"a": jnp.asarray(draw.normal(size=(6, 8)), jnp.float32), "b": jnp.zeros((8, 3))}
filter, schedule, optimizer = filters.approximate_gdp(0.2), constant(1.5, 0.15, 99), optax.adam(0.05)
step = make_step(loss, optimizer, filter, schedule, clip_norm=0.5, physical_batch=8)
examples = shard_examples(data)
everywhere = NamedSharding(examples.mesh, PartitionSpec())
for roots in (seeded_keys(0), secure_keys()):
    state = init_state(params, optimizer, filter, schedule, roots)
    ends = []
    for rows, state in ((jax.tree.map(jnp.asarray, data), state), (examples, jax.device_put(state, everywhere))):
        for number in range(12):
            state, report = step(state, rows)
        assert bool(report.admitted) and int(state.step) == 12
        ends.append([np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((state._replace(keys=()), report))])
    assert ends[0] == ends[1]
    assert len(state.params["a"].sharding.device_set) == 8
print("same")
"""


@pytest.mark.slow
def test_eight_devices_end_where_one_does_to_the_bit():
    assert printed(EIGHT, devices=8).strip() == "same"


def test_the_sum_over_a_mesh_is_the_sum_and_keeps_its_limbs_in_range():
    rows = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    mask = jnp.arange(30) % 3 > 0

    def loss(params, row):
        return jnp.dot(params, row)

    def total(data):
        return clipped_gradient_sum(loss, jnp.zeros(3), data, mask, 1.0, physical_batch=8)

    plain, spread = jax.jit(total)(jnp.asarray(rows)), jax.jit(total)(shard_examples(rows))
    for limb in ("high", "low"):
        np.testing.assert_array_equal(getattr(plain, limb), getattr(spread, limb))
    assert np.all((np.asarray(spread.low) >= 0) & (np.asarray(spread.low) < 2**12))


def test_in_one_process_its_own_rows_are_all_and_its_state_is_everybodys():
    rows, keys = np.arange(15.0, dtype=np.float32).reshape(5, 3), fresh_keys()
    own = shard_examples(rows, own=True)
    assert own.size == 5
    np.testing.assert_array_equal(np.asarray(own.rows)[:5], rows)
    found = replicate({"zero": jnp.float32(-0.0), "keys": keys}, own)
    assert found["zero"].sharding.device_set == set(jax.devices())
    np.testing.assert_array_equal(jax.random.key_data(found["keys"].noise), jax.random.key_data(keys.noise))
    with pytest.raises(ValueError, match="examples must be"):
        replicate(found, rows)
