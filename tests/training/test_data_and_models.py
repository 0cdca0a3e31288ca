"""Data prepared with public constants, and networks as pure functions."""

import gzip
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxacct.training import from_flax, per_example_gradients
from jaxacct.training.demo import build_network, load_data

ROW = [
    "39", "State-gov", "77516", "Bachelors", "13", "Never-married", "Adm-clerical", "Not-in-family", "White", "Male",
    "2174", "0", "40", "United-States", "<=50K",
]  # fmt: skip


def test_digits_are_split_for_good_and_scaled_one_by_one():
    data = load_data("digits")
    assert data.train_x.shape == (1437, 8, 8, 1)
    assert data.test_x.shape == (360, 8, 8, 1)
    assert data.train_x.dtype == np.float32
    np.testing.assert_allclose(data.train_x.mean(axis=(1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose((data.train_x**2).mean(axis=(1, 2, 3)), 1, rtol=1e-4)
    assert np.array_equal(data.train_x, load_data("digits").train_x)
    assert sorted(np.unique(data.train_y)) == list(range(10))


def test_adult_reads_both_files_and_encodes_a_row_without_looking_at_others(tmp_path):
    held_out, other = [*ROW[:-1], ">50K."], ["90", "?", *ROW[2:10], "99999", *ROW[11:]]
    train = [ROW, other, *[ROW] * 3]
    for name, rows, head in (("adult.data.gz", train, ""), ("adult.test.gz", [held_out] * 3, "|1x3 validator\n")):
        with gzip.open(tmp_path / name, "wt") as stream:
            stream.write(head + "\n".join(", ".join(row) for row in rows) + "\n\n")
    data = load_data("adult", tmp_path)
    assert (len(data.train_y), data.test_y.tolist(), data.classes) == (5, [1, 1, 1], 2)
    np.testing.assert_array_equal(data.train_x[0], data.test_x[0])
    assert data.train_x.sum(axis=1).tolist() == [11, 10, 11, 11, 11]  # one-hot: every row has the same small length


def test_files_that_are_not_what_they_should_be_raise(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_data("mnist", tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(ValueError, match="gzipped IDX"):
        load_data("mnist", tmp_path)
    with gzip.open(tmp_path / "t10k-images-idx3-ubyte.gz", "wb") as stream:
        stream.write(struct.pack(">iiii", 0x803, 5, 28, 28) + b"short")
    with pytest.raises(ValueError, match="complete IDX"):
        load_data("mnist", tmp_path)
    with pytest.raises(ValueError, match="data must be one of"):
        load_data("cifar")


@pytest.mark.parametrize("name", ["linear", "mlp", "conv"])
def test_networks_are_pure_float32_and_see_one_example_at_a_time(name):
    network = build_network(name, (8, 8, 1), 10, seed=0)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(network.params))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 8, 8, 1)), jnp.float32)
    logits = jax.jit(network.logits)
    together = logits(network.params, x)
    assert together.shape == (5, 10)
    alone = jnp.concatenate([logits(network.params, row[None]) for row in x])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert jax.eval_shape(network.loss, network.params, (x[0], jnp.int32(3))).shape == ()


@pytest.mark.parametrize("layer", ["statistics", "parameters"])
def test_a_loss_that_changes_a_model_outside_of_it_is_told_what_to_do(layer):
    model = nnx.BatchNorm(3, rngs=nnx.Rngs(0)) if layer == "statistics" else nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params, row):
        if layer == "parameters":
            nnx.update(model, params)
            return model(row).sum()
        return nnx.merge(graph, params, rest)(row[None]).sum()

    with pytest.raises(ValueError, match="loss must change nothing that was made outside of it, and Flax says: Cannot"):
        per_example_gradients(loss, params, jnp.ones((4, 3)))
    if layer == "statistics":
        for one in (model, nnx.Dropout(0.5, rngs=nnx.Rngs(0))):
            with pytest.raises(ValueError, match="model must hold parameters only"):
                from_flax(one)
        # Public averages that stand still.
        model.eval()
        graph, params, rest = nnx.split(model, nnx.Param, ...)
        assert jax.tree.leaves(per_example_gradients(loss, params, jnp.ones((4, 3))))[0].shape == (4, 3)


def test_a_linen_network_is_a_pure_function_too_and_one_with_running_averages_is_refused():
    from flax import linen

    class Normed(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(3)(linen.BatchNorm(use_running_average=True)(x))

    x = jnp.ones((2, 4))
    dense = linen.Dense(3)
    variables = dense.init(jax.random.key(0), x)
    model = from_flax(dense, variables)
    assert model.logits(model.params, x).shape == (2, 3)
    scores = np.asarray(dense.apply(variables, x))[0]
    expected = np.log(np.exp(scores).sum()) - scores[1]
    assert float(model.loss(model.params, (x[0], 1))) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="parameters only, got batch_stats"):
        from_flax(Normed(), Normed().init(jax.random.key(0), x))
    with pytest.raises(ValueError, match="variables must hold"):
        from_flax(dense)
    with pytest.raises(ValueError, match="model must be an nnx"):
        from_flax("dense")
