"""Ledgers spread over devices and over processes hold the same words to the bit."""

import os
import socket
import subprocess
import sys

import pytest

# One program for every layout: what it prints depends on the words and on who took part, and on nothing else.
PROGRAM = """
import sys, hashlib, numpy as np, jax, jax.numpy as jnp
if len(sys.argv) > 2:
    jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[3]))
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxacct.filters.accounts.table import of_table
from jaxacct import Gaussian, LossGrid, PoissonSampled, PrivacyProfile, filters
from jaxacct.filters import amounts
from jaxacct.filters.prices.menu import fixed_prices

n, count = 1 << 12, int(sys.argv[1])
assert jax.device_count() == count
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("examples",)), PartitionSpec("examples"))
sigma = np.geomspace(1.0, 4.0, 7).astype(np.float32)
noise, rate = (np.asarray(amounts.split(np.float64(x))) for x in (sigma, np.full(7, 0.125)))
prices = np.rint(160 * sigma**-2.0).astype(np.int32)
common = fixed_prices(prices, 1000, noise, rate, PrivacyProfile(np.zeros(3), LossGrid(0.1, -1, 3)), (1.0, 1e-5))
all_norms = np.random.default_rng(0).lognormal(-1, 1, (12, n)).astype(np.float32)
found = hashlib.sha256()
for ledger in (
    of_table(common, n),
    filters.per_example(filters.approximate_gdp(0.05), examples=n),
):
    state = ledger.init(sharding)
    for norms in all_norms:
        here = jax.make_array_from_callback((n,), sharding, lambda index: norms[index])
        took, state = ledger.update(PoissonSampled(Gaussian(1.0), 0.125), here, state, donate=True)
        assert state.words.sharding.is_equivalent_to(sharding, 1), state.words.sharding
        assert took.sharding.is_equivalent_to(sharding, 1)
    for part in (state.words, took, ledger.bounds(PoissonSampled(Gaussian(1.0), 0.125), here, state)):
        if count > 1 and jax.process_count() > 1:
            from jax.experimental import multihost_utils
            part = multihost_utils.process_allgather(part, tiled=True)
        found.update(np.asarray(part).tobytes())
print("words", found.hexdigest())
"""


def run(*arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=kept | {"JAX_PLATFORMS": "cpu"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def words(*processes):
    found = []
    for out, err in [process.communicate(timeout=400) for process in processes]:
        lines = [line for line in out.splitlines() if line.startswith("words ")]  # gloo talks as well
        assert len(lines) == 1, err[-2000:]
        found += lines
    return found


@pytest.mark.slow
def test_eight_devices_and_two_processes_keep_the_words_of_one():
    one = words(run(1))
    assert words(run(8, XLA_FLAGS="--xla_force_host_platform_device_count=8")) == one
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    assert words(*[run(2, address, i) for i in range(2)]) == 2 * one
