"""Where a row lies in its piece: a record more or less leaves all others where they are."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import chi2

from jaxacct import training
from jaxacct.training import clipped_gradient_sum, per_example_gradients, sample_pieces, shard_examples
from tests.contract.test_samplers import CASES as MECHANISMS
from tests.contract.test_samplers import N
from tests.processes import printed


def highway(x):
    return jax.nn.sigmoid(x) * jnp.tanh(2 * x) + (1 - jax.nn.sigmoid(x)) * x


ACTIVATIONS = {
    "arctan": lambda x: jnp.arctan(x) + x * jnp.cos(x), "celu": jax.nn.celu, "elu": jax.nn.elu,
    "erf": lambda x: jax.scipy.special.erf(x) * x, "gelu": jax.nn.gelu,
    "gate": lambda x: x * jax.nn.sigmoid(1.7 * x + 0.3),
    "hard": jax.nn.hard_swish, "highway": highway, "log sigmoid": jax.nn.log_sigmoid, "mish": jax.nn.mish,
    "norm": lambda x: x * jax.lax.rsqrt(1 + jnp.sum(x * x)), "power": lambda x: (jnp.abs(x) + 0.5) ** 1.3,
    "relu": jax.nn.relu, "selu": jax.nn.selu, "sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu,
    "sine": lambda x: jnp.sin(x) * x, "softplus": jax.nn.softplus, "soft sign": jax.nn.soft_sign,
    "softmax": jax.nn.softmax, "tanh": jnp.tanh,
}  # fmt: skip
LOUD = 1e9
FOUR = """
import jax
from tests.training.test_places import replayed

assert jax.device_count() == 4
print(*replayed("highway", 5, 7, 19, 100, size=301, spread=True))
"""


def cross_entropy(act, params, x):
    hidden = act(act(x @ params["a"] + params["c"]) @ params["a"].T @ params["a"])
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ params["b"], 1)


def problem(act, width, hidden, size, seed):
    """A loss and records whose gradients are differences that cancel, times 1e9: what rounds otherwise is clipped.

    Each record brings a stored gradient that is taken off its own, as SVRG and SAGA do. All are of one point, so that
    wherever a compiler gives every row the same bits, all gradients are exactly 0 or all of one length.
    """
    rng = np.random.default_rng(seed)
    shapes = {"a": (width, hidden), "c": (hidden,), "b": (hidden, 4)}
    params = {name: jnp.asarray(rng.standard_normal(shape), jnp.float32) for name, shape in shapes.items()}
    x = np.tile(rng.standard_normal(width).astype(np.float32), (size, 1))

    def loss(params, example):
        x, loud, stored = example
        return loud * (cross_entropy(act, params, x) - sum(jnp.vdot(stored[name], params[name]) for name in params))

    alone = jax.jit(lambda p, x: per_example_gradients(lambda p, x: cross_entropy(act, p, x), p, x))(params, x[:19])
    stored = jax.tree.map(lambda leaf: np.tile(np.asarray(leaf)[:1], (size,) + (1,) * (leaf.ndim - 1)), alone)
    return loss, params, (x, rng.choice(np.float32([LOUD, -LOUD, 0.0]), size), stored)


def moved(one, other):
    """The distance of two exact sums, in clip norms."""
    units = [
        (np.asarray(a, np.int64) - np.asarray(b)) * 2**12 + (np.asarray(c, np.int64) - np.asarray(d))
        for a, b, c, d in zip(*map(jax.tree.leaves, (one.high, other.high, one.low, other.low)), strict=True)
    ]
    return np.sqrt(sum(np.sum(unit.astype(float) ** 2) for unit in units)) / 2.0**24


def replayed(name, width, hidden, physical_batch, neighbours, seed=0, size=190, spread=False):
    """How far sums of ``size`` records move when one is not sampled: the most over records of gradient 0, and all."""
    loss, params, data = problem(ACTIVATIONS[name], width, hidden, size, seed)
    rng, loud = np.random.default_rng(seed), data[1] != 0
    data = shard_examples(data) if spread else data

    @jax.jit
    def total(mask, key):
        return [
            clipped_gradient_sum(loss, params, data, mask, 1.0, physical_batch=physical_batch, key=key)
            for key in (None, key)
        ]

    silent, every = [0.0], [0.0]
    for number in range(neighbours):
        key, whole = jax.random.key(number), rng.random(size) < (1.0 if number % 2 else 0.4)
        at = rng.choice(np.flatnonzero(whole))
        with_it, without = total(whole, key), total(whole & (np.arange(size) != at), key)
        (every if loud[at] else silent).append(max(map(moved, with_it, without)))
    return max(silent), max(every)


SHAPES = ((5, 7, 5), (7, 3, 19), (3, 1, 50), (13, 10, 256))  # width, hidden, physical batch


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("highway", [(5, 7, 19)]), ("silu", [(5, 7, 19)]), ("mish", [(3, 1, 5)]), ("arctan", [(13, 10, 256)]),
        *(pytest.param(name, SHAPES, marks=pytest.mark.slow) for name in ACTIVATIONS),  # some eighty programs
    ],
)  # fmt: skip
def test_a_record_that_is_not_sampled_leaves_the_gradients_of_others_as_they_are(name, shapes):
    for seed, shape in enumerate(shapes):
        silent, every = replayed(name, *shape, 300 if shapes is SHAPES else 60, seed=seed)
        assert silent == 0.0
        assert every <= 1.0


def test_releases_of_an_array_with_a_record_less_differ_by_a_clip_norm():
    size = 190
    loss, params, data = problem(highway, 5, 7, size, 2)
    data[1][:] = np.where(np.arange(size) % 19 == 16, LOUD, np.where(np.arange(size) % 19 == 0, -LOUD, 0.0))
    data[1][0] = 0.0

    @jax.jit
    def release(data):
        keys = training.step_keys(training.seeded_keys(0), 0)
        options = {"sigma": 10.0, "rate": 1.0, "clip_norm": 1.0, "physical_batch": 19, "full_batch": True, "size": size}
        return training.noisy_gradient(loss, params, data, keys, **options)

    one, other = release(data), release(jax.tree.map(lambda leaf: leaf[1:], data))
    apart = sum(((np.asarray(one[name], float) - np.asarray(other[name])) ** 2).sum() for name in one)
    assert size * np.sqrt(apart) <= 1.001


@pytest.mark.parametrize("piece", [1, 3, 8, 16, 100])
@pytest.mark.parametrize("key", [None, 5])
def test_a_lane_does_not_depend_on_who_else_is_sampled(piece, key):
    key = None if key is None else jax.random.key(key)

    def lanes(mask):
        return np.asarray(lanes_of(sample_pieces(mask, piece, key), 60))

    whole = lanes(np.ones(60, bool))
    assert sorted(set(whole)) == list(range(piece)) or piece > 8
    for seed in range(5):
        mask = np.random.default_rng(seed).random(60) < 0.5
        np.testing.assert_array_equal(lanes(mask), np.where(mask, whole, -1))


def test_four_devices_leave_the_gradients_of_others_as_they_are():
    silent, every = map(float, printed(FOUR, devices=4).split())
    assert silent == 0.0
    assert every <= 1.0


def convolution(params, example):
    x, y = example
    image = jax.lax.conv_general_dilated(x[None], params[0], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return -jax.nn.log_softmax(jax.nn.relu(image).reshape(-1) @ params[1])[y]


def test_a_gradient_has_the_same_bits_wherever_it_stands_in_a_piece():
    rng, rows = np.random.default_rng(4), 64
    params = [jnp.asarray(rng.normal(size=shape) / 8, jnp.float32) for shape in ((3, 3, 3, 8), (128, 5))]
    data = jnp.asarray(rng.normal(size=(rows, 7, 7, 3)), jnp.float32), jnp.asarray(rng.integers(0, 5, rows))
    gradients = jax.jit(lambda rows: per_example_gradients(convolution, params, rows))
    order = rng.permutation(rows)
    found, moved = gradients(data), gradients(jax.tree.map(lambda x: x[order], data))
    alone = gradients((data[0].at[1:].set(9.0), data[1].at[1:].set(0)))
    for one, two, three in zip(*map(jax.tree.leaves, (found, moved, alone)), strict=True):
        np.testing.assert_array_equal(one[order], two)
        np.testing.assert_array_equal(one[0], three[0])


def lanes_of(sample, size):
    """The lane of each record, -1 for those that are not in the sample."""
    places = jnp.arange(sample.indices.size)
    found = jnp.where(places < sample.count, jnp.searchsorted(sample.starts, places, side="right") - 1, -1)
    return jnp.full(size, -1).at[sample.indices].max(found)


def assert_even(draws, piece):
    """A chi-square test, of size 1e-6, of even and independent lanes below ``piece`` in the columns of ``draws``."""
    cells = np.bincount(np.ravel_multi_index(draws.T, (piece,) * draws.shape[1]), minlength=piece ** draws.shape[1])
    wanted = len(draws) / cells.size
    assert np.sum((cells - wanted) ** 2) / wanted < chi2.isf(1e-6, cells.size - 1)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "with"])  # there a record has several places
def test_in_the_batches_of_every_sampler_lanes_are_even_and_independent_of_who_else_is_in(name):
    made = training.sampler(MECHANISMS[name], N, piece=4)
    drawn = jax.jit(jax.vmap(lambda key: lanes_of(made.draw(key, jnp.uint32(1)), N)))
    found = np.asarray(drawn(jax.random.split(jax.random.key(0), 16_000)))
    for record in (0, N - 1):
        here, other = found[:, record] >= 0, found[:, N // 2]
        assert_even(found[here][:, [record]], 4)
        assert_even(found[here & (other >= 0)][:, [record, N // 2]], 4)
        small = found[here][(found[here] >= 0).sum(1) <= 5]
        if len(small):
            assert_even(small[:, [record]], 4)


def test_two_batches_of_an_epoch_have_lanes_of_their_own():
    made = training.sampler(MECHANISMS["allocated twice"], N, piece=4)
    drawn = jax.jit(jax.vmap(jax.vmap(lambda key, step: lanes_of(made.draw(key, step), N), (None, 0)), (0, None)))
    found = np.asarray(drawn(jax.random.split(jax.random.key(0), 20_000), jnp.arange(2, dtype=jnp.uint32)))
    both = found[(found[:, :, 7] >= 0).all(1)]
    assert_even(both[:, :, 7], 4)


def test_the_order_of_validation_records_does_not_move_a_private_accuracy():
    """Logits of most records are equal up to roundings: which is larger depends on the lane, if on anything."""
    size = 19  # of which a vector loop leaves a remainder
    rng = np.random.default_rng(1)
    params = {"a": jnp.asarray(rng.standard_normal((5, 7)), jnp.float32), "b": jnp.zeros(2)}
    x0 = rng.standard_normal(5).astype(np.float32)

    def score(a, x):
        act = ACTIVATIONS["arctan"]
        return act(act(x @ a) @ a.T @ a).sum(-1)

    level = np.asarray(jax.jit(lambda x: score(params["a"], x))(np.tile(x0, (size, 1))))[0]

    def logits(params, x):
        apart = jnp.abs(score(params["a"], x[..., :5]) - x[..., 5])
        return jnp.stack([jnp.zeros_like(apart), apart], -1) + params["b"]

    def loss(params, example):
        return optax.softmax_cross_entropy_with_integer_labels(logits(params, example[0]), example[1])

    model = SimpleNamespace(params=params, logits=logits, loss=loss)
    x = np.concatenate([np.tile(x0, (size, 1)), np.full((size, 1), level)], 1)
    x[16:, 5] -= 1.0
    rounds = training.plan_rounds([0.1], order=8, rate=1.0, steps=1)

    def scores(order):
        train, validation = (x[:4], np.zeros(4, np.int32)), (x[order], np.zeros(size, np.int32))
        options = {"threshold": 0.5, "check_epsilon": 1e6, "keys": training.seeded_keys(0)}
        return training.fit_until_accurate(model, optax.sgd(0.0), rounds, train, validation, **options).scores

    found = [scores(np.roll(np.arange(size), shift)) for shift in (0, 3, 9)]
    assert np.ptp(found) < 0.5 / size
