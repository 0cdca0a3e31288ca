"""The sampler: independent coins of the right probability, and nobody is left out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.training import poisson_sample, sample_pieces, seeded_keys, take_piece


def masks(size, rate, draws, seed=0):
    keys = jax.random.split(jax.random.key(seed), draws)
    return np.asarray(jax.vmap(lambda key: poisson_sample(key, size, rate))(keys))


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5, 0.97])
def test_every_example_is_included_at_the_rate(rate):
    drawn = masks(40, rate, 20_000)
    error = (drawn.mean(axis=0) - rate) / np.sqrt(rate * (1 - rate) / 20_000)
    assert np.abs(error).max() < 4.5  # 40 standard normals
    assert abs((drawn.mean() - rate) / np.sqrt(rate * (1 - rate) / drawn.size)) < 4.5


def test_coins_of_different_examples_are_independent():
    rate = 0.2
    drawn = masks(30, rate, 20_000) - rate
    correlation = drawn.T @ drawn / 20_000 / (rate * (1 - rate))
    assert np.abs(correlation - np.eye(30))[~np.eye(30, dtype=bool)].max() < 5 / np.sqrt(20_000)
    sizes = (drawn + rate).sum(axis=1)  # a binomial: no fixed batch size hides here
    assert sizes.var() == pytest.approx(30 * rate * (1 - rate), rel=0.06)


@pytest.mark.parametrize("key", [None, 0])
@pytest.mark.parametrize(
    ("size", "rate", "piece"),
    [*((100, 0.6, piece) for piece in (1, 7, 16, 100, 300)), (40_000, 0.1, 2**17)],  # index and lane fill two words
)
def test_a_sample_larger_than_a_piece_is_never_truncated(size, rate, piece, key):
    mask = np.random.default_rng(piece).random(size) < rate
    sample = sample_pieces(jnp.asarray(mask), piece, None if key is None else jax.random.key(key))
    assert int(sample.count) == mask.sum()
    seen = []
    for number in range(int(sample.pieces)):
        indices, valid = take_piece(sample, number)
        assert indices.shape == valid.shape == (piece,)
        seen += np.asarray(indices)[np.asarray(valid)].tolist()
    assert sorted(seen) == np.flatnonzero(mask).tolist()


def test_seeds_give_the_same_keys_again_and_use_all_their_bits():
    same, other = seeded_keys(5), seeded_keys(5 + 2**32)
    assert jax.random.key_data(seeded_keys(5).noise).tolist() == jax.random.key_data(same.noise).tolist()
    assert jax.random.key_data(other.noise).tolist() != jax.random.key_data(same.noise).tolist()
    with pytest.raises(ValueError, match="seed must be"):
        seeded_keys(-1)


@pytest.mark.parametrize("mask", [[2, 0, 0, 1], np.array([2**40, 0, 0, -1]), jnp.array([0.5, 0.0, 0.0, 3.0])])
def test_a_mask_of_numbers_says_who_is_in_and_not_how_often(mask):
    for sample in (
        sample_pieces(mask, 2),
        jax.jit(lambda m: sample_pieces(m, 2))(jnp.asarray(np.asarray(mask, float))),
    ):
        taken = [take_piece(sample, number) for number in range(4)]
        assert [int(i) for indices, valid in taken for i, good in zip(indices, valid, strict=True) if good] == [0, 3]
