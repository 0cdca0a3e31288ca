"""DP-SGD as a link of an optax chain: the noise, the refusals, and the rows that are padding."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct import filters, training
from jaxacct.training.schedules import constant
from tests.training.small import bits

PARAMS = {"a": jnp.arange(6.0, dtype=jnp.float32).reshape(2, 3), "nothing": jnp.zeros((0, 2))}
ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(12, 2)), jnp.float32)
VALID = jnp.arange(12) < 7


def loss(params, row):
    return jnp.sum((row @ params["a"]) ** 2)


GRADIENTS = training.per_example_gradients(loss, PARAMS, ROWS)
EVERYONE = constant(2.0, 1.0, 9)
THREE = filters.gdp(np.sqrt(3.5) / 2)  # room for three steps and a half


def link(filter, schedule=EVERYONE, **options):
    return training.filtered_aggregate(filter, schedule, training.seeded_keys(3), clip_norm=0.5, size=40, **options)


CHAIN = optax.chain(link(THREE, then=optax.trace(0.5)), optax.trace(0.5))
STEP = jax.jit(lambda gradients, state: CHAIN.update(gradients, state, PARAMS, valid=VALID))


@jax.jit
def expected():
    """The first release by the low-level pieces, from a sum that comes in three pieces out of order."""
    total = training.empty_sum(PARAMS, 12)
    for start in (8, 0, 4):
        part = slice(start, start + 4)
        total = training.add_clipped(total, jax.tree.map(lambda leaf, p=part: leaf[p], GRADIENTS), VALID[part], 0.5)
    release = training.add_gaussian_noise(training.step_keys(training.seeded_keys(3), 0).noise, total, 2.0, 0.5)
    return total, jax.tree.map(lambda leaf: leaf / 40, release)


def close(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8), one, other)


def test_an_update_is_the_noisy_sum_over_the_expected_size_and_padding_may_hold_anything():
    dirt = jax.tree.map(lambda leaf: leaf.at[7:].set(jnp.nan), GRADIENTS)
    update, state = STEP(dirt, CHAIN.init(PARAMS))
    close(update, expected()[1])
    assert int(optax.tree.get(state, "step")) == 1
    again, _ = STEP(dirt, state)
    assert np.abs(again["a"] - 1.5 * update["a"]).max() > 1e-3  # not the same noise under momentum


def test_a_sum_that_was_clipped_in_microbatches_is_taken_as_it_is():
    micro = jax.jit(lambda mask: training.clipped_gradient_sum(loss, PARAMS, ROWS, mask, 0.5, physical_batch=5))(VALID)
    total, release = expected()
    close(jax.tree.map(np.asarray, micro.high), jax.tree.map(np.asarray, total.high))
    update, _ = STEP(micro, CHAIN.init(PARAMS))
    close(update, release)


def test_a_refusal_is_a_zero_update_and_leaves_everything_but_the_flag():
    state, update = CHAIN.init(PARAMS), None
    for number in range(5):
        before = state
        update, state = STEP(GRADIENTS, state)
        assert int(optax.tree.get(state, "step")) == min(number + 1, 3)
        assert bool(optax.tree.get(state, "halted")) == (number >= 3)
        if number >= 3:
            assert bits(state[0]._replace(halted=before[0].halted)) == bits(before[0])
            # The momentum behind it in the chain rolls on over a zero; the one inside stood still.
            close(update, jax.tree.map(lambda leaf: 0.5 * leaf, before[1].trace))


def test_the_schedule_sees_releases_and_says_the_rate_of_the_next_sample():
    def propose(step, state, released):
        return jnp.where(released.accuracy > 0.5, 4.0, 2.0), jnp.float32(0.1), state

    adaptive = EVERYONE._replace(propose=propose, is_adaptive=True, full_batch=False)
    # The approximate filter's last step is clipped shorter, and refused for a sum that is clipped already.
    whole = 2.3 * 0.1**2 * np.expm1(0.25) / 2
    private = link(filters.approximate_gdp(whole), adaptive)
    step = jax.jit(lambda state, accuracy: private.update(GRADIENTS, state, PARAMS, accuracy=accuracy))
    state = private.init(PARAMS)
    assert (float(state.rate), float(state.sigma)) == (float(np.float32(0.1)), 2.0)
    _, state = step(state, 0.9)
    assert (float(state.sigma), int(state.released.evaluations)) == (4.0, 1)
    _, state = step(step(state, 0.1)[1], 0.1)
    assert (int(state.step), bool(state.halted)) == (3, False)
    total, _ = expected()
    update, refused = jax.jit(lambda state: private.update(total, state, PARAMS))(state)
    assert bool(refused.halted)
    assert not np.any(update["a"])
    update, state = step(state, 0.1)
    assert (int(state.step), bool(state.halted)) == (4, True)
    assert np.any(update["a"])


# What optax users write, and what must not reach the parameters: one gradient where rows belong, a part of the tree.
SAMPLED = constant(1.0, 0.5, 9)
ROOMY = filters.renyi(20.0, 1e-5, order=4.0)


def sampled_link(**options):
    return training.filtered_aggregate(ROOMY, SAMPLED, training.seeded_keys(0), clip_norm=1.0, size=8, **options)


NO_ROWS = {
    "leaves of one length": ({"a": jnp.ones(5), "b": jnp.ones((5, 2))}, {"a": jnp.zeros(5), "b": jnp.zeros((5, 2))}),
    "a square": (jnp.ones((5, 5)), jnp.zeros((5, 5))),
    "a number": (jnp.ones(()), jnp.zeros(())),
    "rows for a part": ({"a": jnp.ones((4, 5)), "b": jnp.ones(5)}, {"a": jnp.zeros(5), "b": jnp.zeros(5)}),
    "rows of two lengths": ({"a": jnp.ones((4, 5)), "b": jnp.ones((3, 5))}, {"a": jnp.zeros(5), "b": jnp.zeros(5)}),
    "a leaf less": ({"a": jnp.ones((4, 5))}, {"a": jnp.zeros(5), "b": jnp.zeros(5)}),
    "two axes of rows": (jnp.ones((2, 4, 5)), jnp.zeros(5)),
    "no rows": (jnp.ones((0, 5)), jnp.zeros(5)),
    "a sum of other shapes": (training.empty_sum(jnp.zeros(4), 8), jnp.zeros(5)),
    "a sum of another tree": (training.empty_sum({"a": jnp.zeros(5)}, 8), jnp.zeros(5)),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", NO_ROWS)
def test_what_is_not_one_row_an_example_for_every_parameter_raises(name, jitted):
    updates, params = NO_ROWS[name]
    private = sampled_link()
    update = jax.jit(private.update) if jitted else private.update
    with pytest.raises(ValueError, match="updates must be per-example gradients"):
        update(updates, private.init(params), params)


def test_rows_need_the_parameters_that_they_are_rows_of():
    private, w, rows = sampled_link(), jnp.zeros(5), jnp.ones((6, 5))
    assert private.update(rows, private.init(w), w)[0].shape == (5,)
    with pytest.raises(ValueError, match="params must be given"):
        private.update(rows, private.init(w))


@pytest.mark.parametrize("rows", [8, 9])
def test_everyones_rows_at_the_price_of_a_sample_need_a_mask(rows):
    private, params, gradients = sampled_link(), jnp.zeros(5), jnp.ones((rows, 5))
    with pytest.raises(ValueError, match="valid must say which rows are in the sample"):
        private.update(gradients, private.init(params), params)
    update, _ = private.update(gradients, private.init(params), params, valid=np.arange(rows) < 3)
    assert np.isfinite(update).all()
    # A batch that the loop sampled, and a schedule in which everyone takes part, need none.
    private.update(gradients[:7], private.init(params), params)
    everyone = training.filtered_aggregate(filters.gdp(5.0), EVERYONE, training.seeded_keys(0), clip_norm=1.0, size=8)
    everyone.update(gradients, everyone.init(params), params)


def test_flaxes_apply_gradients_is_refused_and_its_five_lines_work():
    train_state = pytest.importorskip("flax.training.train_state")
    params = {"w": jnp.zeros(5)}
    state = train_state.TrainState.create(apply_fn=None, params=params, tx=optax.chain(sampled_link(), optax.sgd(1.0)))
    gradients = {"w": jnp.ones((8, 5))}
    with pytest.raises(ValueError, match=r"apply_gradients cannot pass valid"):
        state.apply_gradients(grads=gradients)
    updates, opt_state = state.tx.update(gradients, state.opt_state, state.params, valid=np.arange(8) < 3)
    moved = optax.apply_updates(state.params, updates)
    state = state.replace(step=state.step + 1, params=moved, opt_state=opt_state)
    assert int(optax.tree.get(state.opt_state, "step")) == 1
    assert np.any(state.params["w"])


AROUND = {
    "masked": lambda link: optax.masked(link, {"a": True, "b": False}),
    "multi_transform": lambda link: optax.multi_transform({"p": link, "q": optax.sgd(0.1)}, {"a": "p", "b": "q"}),
    "partition": lambda link: optax.partition({"p": link, "q": optax.sgd(0.1)}, {"a": "p", "b": "q"}),
    "MultiSteps": lambda link: optax.MultiSteps(link, 2),
    "apply_if_finite": lambda link: optax.apply_if_finite(link, 2),
}


@pytest.mark.parametrize("inside", ["alone", "in a chain"])
@pytest.mark.parametrize("name", AROUND)
def test_no_wrapper_around_the_aggregate_lets_a_raw_gradient_pass(name, inside):
    link = sampled_link() if inside == "alone" else optax.chain(sampled_link(), optax.sgd(0.1))
    params = {"a": jnp.zeros(5), "b": jnp.zeros(3)}
    gradients = {"a": jnp.ones((4, 5)), "b": jnp.ones((4, 3))}
    wrapped = AROUND[name](link)
    hides = name in ("masked", "multi_transform", "partition")
    # optax itself finds that what these two keep has other shapes than rows.
    with pytest.raises(ValueError if hides else (ValueError, TypeError), match="masked parts" if hides else None):
        wrapped.update(gradients, wrapped.init(params), params)


def test_wrappers_after_the_aggregate_and_inside_then_see_releases_only():
    params = {"a": jnp.zeros(5), "b": jnp.zeros(3)}
    gradients = {"a": jnp.ones((4, 5)), "b": jnp.ones((4, 3))}
    frozen = optax.masked(optax.set_to_zero(), {"a": False, "b": True})
    for link in (optax.chain(sampled_link(), frozen), sampled_link(then=frozen)):
        update, _ = link.update(gradients, link.init(params), params)
        assert np.any(update["a"])
        assert not np.any(update["b"])
    everything = optax.masked(sampled_link(), {"a": True, "b": True})  # hides nothing
    assert np.any(everything.update(gradients, everything.init(params), params)[0]["b"])
