"""ChaCha20's blocks are those of RFC 8439, and no block of a key serves two purposes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.training import chacha20

ZERO = bytes(32)
# Section 2.3.2, and appendix A.1.
VECTORS = [
    (
        bytes(range(32)), "000000090000004a00000000", 1,
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        b"\x00\xff" + bytes(30), "00" * 12, 2,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    (
        ZERO, "00" * 11 + "02", 0,
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
]  # fmt: skip


def words(octets):
    return np.frombuffer(octets, "<u4")


@pytest.mark.parametrize(("key", "nonce", "counter", "block"), VECTORS)
def test_blocks_are_those_of_the_standard(key, nonce, counter, block):
    nonce = tuple(int(word) for word in words(bytes.fromhex(nonce)))
    for blocks in (chacha20.blocks, jax.jit(chacha20.blocks, static_argnums=2)):
        found = blocks(jnp.asarray(words(key)), jnp.full((2, 3), counter, jnp.uint32), nonce)
        for at in np.ndindex(2, 3):
            assert np.asarray(found[(slice(None), *at)]).astype("<u4").tobytes().hex() == block


def test_streams_split_keys_and_folded_keys_share_no_word():
    key = jax.random.wrap_key_data(jnp.arange(8, dtype=jnp.uint32), impl=chacha20.GENERATOR)
    drawn = [
        jax.random.bits(key, (400,)),
        jax.random.key_data(jax.random.split(key, (5, 4))),
        jax.random.key_data(jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(20))),
        jnp.arange(8),
    ]
    seen = np.concatenate([np.asarray(part).ravel() for part in drawn])
    assert np.unique(seen).size == 400 + 160 + 160 + 8
