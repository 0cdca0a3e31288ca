"""Hostile trees, functions, keys and counts for `training`."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxacct import Gaussian, filters, testing, training
from tests.fuzz import common
from tests.fuzz.common import VALUES, Later

KEY, KEYS = jax.random.key(0), training.seeded_keys(1)
PARAMS = {"w": np.array([1.0, 2.0], np.float32)}
X, Y = np.ones((3, 2), np.float32), np.zeros(3, np.int32)
ROWS = {"w": np.ones((3, 2), np.float32)}
SGD, BUDGET, PLAN = optax.sgd(0.1), filters.renyi(9.0, 1e-5, order=8.0), training.schedules.constant(1.0, 0.5, 3)
EACH = filters.per_example(filters.gdp(1.0), examples=3)
RECORDS = [training.StepRecord(1, 1.0, 0.5, 1.0, 0.1, 0.9)]
TREES = [
    {"w": PARAMS["w"] * np.nan}, {"w": np.array([1, 2])}, {"w": np.zeros((0,), np.float32)},
    {"w": np.ones((7, 3), np.float32)}, {"w": np.ones((3, 1), np.float32)}, {"w": "x"}, {"w": KEY},
    {"v": np.ones((3, 2), np.float32)}, (X, Y[:1]), (KEY, KEY), KEYS, jax.random.PRNGKey(0),
    training.RootKeys(*[np.zeros(2, np.uint32)] * 2), training.StepKeys(*[np.zeros(2, np.uint32)] * 3, 0),  # raw keys
]  # fmt: skip


def loss(params, example):
    return sum((jnp.sum(leaf * 1.0) for leaf in jax.tree.leaves((params, example))), jnp.float32(0.0))


def logits(params, x):
    return jnp.stack([x.sum(-1), -x.sum(-1)], -1)


MODEL = training.Network(PARAMS, logits, loss)
STEP = {
    "loss": loss, "optimizer": SGD, "filter": BUDGET, "schedule": PLAN, "clip_norm": 1.0, "physical_batch": 2,
    "donate": False, "size": None,
}  # fmt: skip
OF_LOSS = {"loss": loss, "params": PARAMS, "data": (X, Y)}
OWN = training.Budget(BUDGET, PLAN)
TOTAL, WHOLE = training.empty_sum(PARAMS, 3), np.ones(3, bool)
case = functools.partial(common.case, tried=[*VALUES, *TREES])


def noised(found, arguments):
    """Without noise that is one nothing is released."""
    sigma = np.float64(np.asarray(arguments["sigma"]))
    if not 0 < sigma <= training.largest_sigma(3):
        assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(found))


def sums(found, arguments):
    """A sum of three clipped vectors is no longer than three clip norms."""
    parts = zip(jax.tree.leaves(found.high), jax.tree.leaves(found.low), strict=True)
    values = [np.asarray(high, np.float64) / 2**12 + np.asarray(low, np.float64) / 2**24 for high, low in parts]
    assert np.sqrt(sum(np.sum(value**2) for value in values)) <= 3.0


@functools.cache
def step():
    return training.make_step(loss, SGD, BUDGET, PLAN, clip_norm=1.0)


@functools.cache
def state():
    return training.init_state(PARAMS, SGD, BUDGET, PLAN, KEYS)


@functools.cache
def aggregate():
    return training.filtered_aggregate(BUDGET, PLAN, KEYS, clip_norm=1.0, size=3)


def aggregated(updates, state, params, valid, accuracy):
    return aggregate().update(updates, state, params, valid=valid, accuracy=accuracy)


def outcome():
    return training.FitResult(state(), RECORDS, [(1, 0.5)], "plan finished")


def measured(**arguments):
    """What `accuracy` makes is asked."""
    return training.accuracy(**arguments)(PARAMS)


CASES = {
    "accuracy": case(measured, functions=("logits",), logits=logits, x=X, y=Y),
    "adaptive_clip": case(quantile=0.5, start=1.0, learning_rate=0.2, weight=0.1),
    "add_clipped": case(sound=sums, total=TOTAL, gradients=ROWS, valid=WHOLE, clip_norm=1.0, clip_scale=1.0),
    "add_gaussian_noise": case(sound=noised, key=KEY, total=TOTAL, sigma=1.0, clip_norm=1.0),
    "attempt_keys": case(keys=KEYS, attempt=0),
    "clipped_gradient_sum": case(
        sound=sums, functions=("loss",), mask=WHOLE, clip_norm=1.0, clip_scale=1.0, physical_batch=2, **OF_LOSS,
    ),
    "demo.build_network": case(words=("model",), name="linear", shape=(3,), classes=2, seed=0),
    "divided": case(words=("rate",), key=KEY, examples=(X, Y), share=0.5),
    "empty_sum": case(shapes=PARAMS, size=3),
    "filtered_aggregate": case(
        lambda **arguments: training.filtered_aggregate(**arguments).init(PARAMS), filter=BUDGET, schedule=PLAN,
        keys=KEYS, clip_norm=1.0, size=3, then=None,
    ),
    "filtered_aggregate.update": case(
        aggregated, updates=ROWS, state=Later(lambda: aggregate().init(PARAMS)), params=PARAMS, valid=WHOLE,
        accuracy=0.5,
    ),
    "fit": case(
        step=Later(step), state=Later(state), data=(X, Y), steps=1, evaluate=lambda params: 0.5, evaluate_every=1,
        interrupted=lambda: False, on_step=lambda record, accuracy: None, before=None, functions=("step", "evaluate",
        "interrupted", "on_step"),
    ),
    "fit_until_accurate": case(
        training.fit_until_accurate, model=MODEL, optimizer=SGD, train=(X, Y), validation=(X, Y), threshold=0.5,
        rounds=Later(lambda: training.plan_rounds([0.5, 1.0], order=8.0, rate=0.5, steps=1)), check_epsilon=1.0,
        sparse=False, clip_norm=1.0, keys=KEYS, physical_batch=2, progress=print, functions=("progress",),
        words=("logits",),  # of data that do not fit the model
    ),
    "from_flax": case(model=Later(lambda: nnx.Linear(2, 2, rngs=nnx.Rngs(0))), variables=None),
    "gaussian_tree": case(key=KEY, shapes=PARAMS),
    "global_norm": case(tree=PARAMS),
    "gradient_norms": case(functions=("loss",), physical_batch=2, **OF_LOSS),
    "init_state": case(params=PARAMS, optimizer=SGD, filter=BUDGET, schedule=PLAN, keys=KEYS),
    "make_report": case(
        outcome=Later(outcome), budget=OWN, delta=1e-5, data={"name": "d"}, settings={"filter": "f"}, seeded=True,
    ),
    "make_step": case(functions=("loss",), **STEP),
    "make_step, an account each": case(
        training.make_step, functions=("loss", "accounts"), **STEP | {"filter": EACH, "accounts": None}
    ),
    "noisy_gradient": case(
        functions=("loss",), keys=training.step_keys(KEYS, 0), sigma=1.0, rate=0.5, clip_norm=1.0, clip_scale=1.0,
        physical_batch=2, full_batch=False, size=None, has_aux=False, **OF_LOSS,
    ),
    "on_levels": case(words=("mechanism",), filter=filters.pure_dp(1.0), menu=[Gaussian(5.0)], atoms=8),
    "per_example_gradients": case(functions=("loss",), loss=loss, params=PARAMS, examples=(X, Y), has_aux=False),
    "planned_mechanism": case(schedule=PLAN),
    "realised_mechanism": case(records=RECORDS, most=3),
    "replicate": case(tree=PARAMS, examples=Later(lambda: training.shard_examples((X, Y)))),
    "sample_pieces": case(mask=WHOLE, piece=2),
    "select": case(admitted=True, new=PARAMS, old=PARAMS),
    "shard_examples": case(data=(X, Y)),
    "step_keys": case(keys=KEYS, step=0),
    "take_piece": case(sample=Later(lambda: training.sample_pieces(WHOLE, 2)), number=0),
    "with_accuracy": case(lambda accuracy: state().with_accuracy(accuracy), accuracy=0.5),
}  # fmt: skip
CASES = {f"training.{name}": make for name, make in CASES.items()}
CASES["testing.neighbours"] = case(testing.neighbours, words=("relation",), data=(X, Y), relation="add_or_remove")
DEAR = {
    f"training.{name}"
    for name in (
        "add_clipped", "clipped_gradient_sum", "filtered_aggregate.update", "fit_until_accurate", "noisy_gradient"
    )
}  # fmt: skip
# No program is compiled, or one.
QUICK = {"testing.neighbours"} | {
    f"training.{name}"
    for name in (
        "attempt_keys", "empty_sum", "init_state", "make_step, an account each", "make_step", "planned_mechanism",
        "realised_mechanism", "select", "shard_examples", "step_keys", "from_flax", "with_accuracy", "replicate",
        "filtered_aggregate",
    )
}  # fmt: skip
