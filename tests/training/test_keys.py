"""Roots and step keys of both generators: others are refused, all are pytrees, and no text shows a word of them."""

import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct import filters, training
from tests.training import small
from tests.training.small import DATA, SGD, bits
from tests.training.small import loss as squared

ROOTS = training.seeded_keys(0xFEDCBA9876543210)
STEP = training.step_keys(ROOTS, 0)
SECURE = training.secure_keys()
X = jnp.ones((4, 3))
PARAMS = {"w": jnp.zeros(3)}
BUDGET, PLAN = filters.gdp(1.0), training.schedules.constant(2.0, 1.0, 3)
ACCOUNTS = filters.per_example(filters.gdp(1.0), examples=4)
STATE = training.init_state(PARAMS, SGD, BUDGET, PLAN, ROOTS)


def outcome():
    return training.FitResult(STATE, [training.StepRecord(1, 2.0, 1.0, 1.0, 0.1, 0.9)], [(1, 0.5)], "plan finished")


def loss(params, row):
    return jnp.sum(params["w"] * row)


def noisy(keys):
    return training.noisy_gradient(loss, PARAMS, X, keys, sigma=1.0, rate=0.5, clip_norm=1.0)


def words_of(keys):
    held = keys[:3] if isinstance(keys, training.StepKeys) else keys  # and a number
    return {str(word) for key in held for word in np.asarray(jax.random.key_data(key)).tolist()}


WORDS = words_of(ROOTS) | words_of(STEP) | words_of(SECURE)
TAKES_ROOTS = {
    "step_keys": lambda keys: training.step_keys(keys, 0),
    "attempt_keys": lambda keys: training.attempt_keys(keys, 0),
    "init_state": lambda keys: training.init_state(PARAMS, SGD, BUDGET, PLAN, keys),
    "filtered_aggregate": lambda keys: training.filtered_aggregate(BUDGET, PLAN, keys, clip_norm=1.0, size=4),
}
WRONG = {
    "step keys": STEP,
    "one key": ROOTS.noise,
    "an old key": jax.random.PRNGKey(7),
    "a tuple": tuple(ROOTS),
    "raw words": training.RootKeys(*(jax.random.key_data(key) for key in ROOTS)),
    "two keys in one": training.RootKeys(*(jax.random.split(key) for key in ROOTS)),
    "none": None,
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("taker", TAKES_ROOTS)
def test_what_takes_roots_refuses_everything_else_and_names_what_works(taker, wrong):
    with pytest.raises(ValueError, match=r"keys must be RootKeys.*pass training.fresh_keys\(\)") as caught:
        TAKES_ROOTS[taker](WRONG[wrong])
    assert not any(word in str(caught.value) for word in WORDS)
    TAKES_ROOTS[taker](ROOTS)
    TAKES_ROOTS[taker](SECURE)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(
    "make", [training.fresh_keys, training.secure_keys, lambda: ROOTS, lambda: training.attempt_keys(ROOTS, 1)]
)
def test_roots_where_a_steps_keys_belong_are_refused_and_would_repeat_the_noise(make, jitted):
    with pytest.raises(ValueError, match=r"keys must be StepKeys, got a RootKeys: pass training.step_keys\(roots, nu"):
        (jax.jit(noisy) if jitted else noisy)(make())
    one, other = (noisy(training.step_keys(make(), number)) for number in range(2))
    assert not np.array_equal(one["w"], other["w"])


@pytest.mark.parametrize("pair", [ROOTS, STEP])
def test_a_pair_where_one_key_belongs_is_refused(pair):
    total = training.empty_sum(PARAMS, 4)
    for draw in (
        lambda key: training.poisson_sample(key, 4, 0.5),
        lambda key: training.add_gaussian_noise(key, total, 1.0, 1.0),
    ):
        with pytest.raises(ValueError, match=r"key must be one key, got (Root|Step)Keys"):
            draw(pair)
        draw(pair.noise)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("generator", ["unsafe_rbg", "rbg"])
def test_keys_of_other_generators_are_refused_because_steps_and_leaves_would_share_their_noise(generator, jitted):
    one, other = (jax.random.key(seed, impl=generator) for seed in (5, 6))
    total = training.empty_sum(PARAMS, 4)
    takers = [
        *TAKES_ROOTS.values(),
        lambda roots: noisy(training.StepKeys(*roots, roots.sampling, 0)),
        lambda roots: training.poisson_sample(roots.sampling, 4, 0.5),
        lambda roots: training.sample_pieces(jnp.ones(4, bool), 2, roots.sampling),
        lambda roots: training.add_gaussian_noise(roots.noise, total, 1.0, 1.0),
    ]
    for take in takers:
        with pytest.raises(ValueError, match=f"threefry2x32 or chacha20, got .*{generator}"):
            (jax.jit(lambda roots, take=take: (take(roots), 0)[1]) if jitted else take)(training.RootKeys(one, other))


@pytest.mark.parametrize("jitted", [False, True])
def test_one_key_for_coins_and_noise_is_refused(jitted):
    one, again = jax.random.key(5), jax.random.key(5)
    for take in (*TAKES_ROOTS.values(), lambda roots: noisy(training.StepKeys(*roots, roots.sampling, 0))):
        for roots in (training.RootKeys(one, one), training.RootKeys(one, again)):

            def run(roots=roots, take=take):  # the keys are constants of a program
                take(roots)
                return 0

            with pytest.raises(ValueError, match="two different keys"):
                (jax.jit(run) if jitted else run)()


def test_both_kinds_go_through_jit_scan_vmap_and_trees_unchanged():
    def body(roots, number):
        return roots, training.step_keys(roots, number)

    kept, stacked = jax.jit(lambda roots: jax.lax.scan(body, roots, jnp.arange(3)))(ROOTS)
    assert isinstance(kept, training.RootKeys)
    assert isinstance(stacked, training.StepKeys)
    mapped = jax.vmap(lambda number: training.step_keys(ROOTS, number))(jnp.arange(3))
    for number in range(3):
        alone = training.step_keys(ROOTS, number)
        for found in (stacked, mapped):
            assert words_of(jax.tree.map(lambda leaf, n=number: leaf[n], found)) == words_of(alone)


def test_no_text_of_keys_or_states_shows_a_word_of_them():
    aggregate = training.filtered_aggregate(BUDGET, PLAN, ROOTS, clip_norm=1.0, size=4)
    states = STATE, training.init_state(PARAMS, SGD, ACCOUNTS, PLAN, ROOTS), aggregate.init(PARAMS)
    for one in (ROOTS, STEP, SECURE, *states, STATE._asdict(), optax.chain(aggregate, SGD).init(PARAMS), outcome()):
        for text in (repr(one), str(one), f"{one}"):
            assert not WORDS & set(re.findall(r"\d+", text))


# Keys and states that hold them, where something else belongs: what the errors say of them.
MISTAKES = {
    "params": lambda wrong: training.init_state(wrong, SGD, BUDGET, PLAN, ROOTS),
    "optimizer": lambda wrong: training.init_state(PARAMS, wrong, BUDGET, PLAN, ROOTS),
    "data": lambda wrong: training.noisy_gradient(loss, PARAMS, wrong, STEP, sigma=1.0, rate=0.5, clip_norm=1.0),
    "sigma": lambda wrong: training.noisy_gradient(loss, PARAMS, X, STEP, sigma=wrong, rate=0.5, clip_norm=1.0),
    "a filter's state": lambda wrong: BUDGET.update(0.1, wrong),
    "a filter's query": lambda wrong: BUDGET.update([wrong], BUDGET.init()),
    "a step's number": lambda wrong: training.step_keys(ROOTS, wrong),
    "a mask": lambda wrong: training.sample_pieces(wrong, 2),
    "gradients": lambda wrong: training.add_clipped(training.empty_sum(PARAMS, 4), wrong, np.ones(4, bool), 1.0),
    "what a step returns": lambda wrong: training.fit(lambda *_: (wrong, 1), STATE, X, steps=1, evaluate=lambda _: 0.5),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize(
    "wrong", [ROOTS, SECURE, STEP, ROOTS.noise, {"keys": [STEP.noise]}], ids=["roots", "secure", "step", "key", "tree"]
)
def test_errors_show_no_word_of_keys_that_stand_where_something_else_belongs(mistake, wrong):
    with pytest.raises((ValueError, TypeError)) as caught:
        MISTAKES[mistake](wrong)
    assert not WORDS & set(re.findall(r"\d+", str(caught.value)))


def test_a_report_says_that_a_run_was_seeded_and_not_by_what():
    about = {"budget": training.Budget(BUDGET, PLAN), "delta": 1e-5, "data": {}, "settings": {}}
    report = training.make_report(outcome(), seeded=True, **about)
    assert report["seeded"] is True
    assert not WORDS & set(re.findall(r"\d+", json.dumps(report)))
    with pytest.raises(ValueError, match="seeded must be True or False, and no seed, got a int") as caught:
        training.make_report(outcome(), seeded=987654321, **about)
    assert "987654321" not in str(caught.value)


FILTER, SCHEDULE = filters.approximate_gdp(1.0), training.schedules.constant(2.0, 0.15, 40)


def test_every_call_draws_256_bits_for_each_root():
    words = [np.asarray(jax.random.key_data(key)) for _ in range(8) for key in training.secure_keys()]
    assert all(word.shape == (8,) for word in words)
    assert np.unique(words).size == 16 * 8


def test_a_compiled_step_draws_what_an_eager_one_does_and_keys_are_all_that_it_depends_on():
    roots = training.secure_keys()

    def release(roots, number):
        keys = training.step_keys(roots, number)
        return training.noisy_gradient(squared, small.PARAMS, DATA, keys, sigma=1.0, rate=0.15, clip_norm=1.0)

    def drawn(roots, number):
        return [jax.random.bits(key, (3, 7)) for key in training.step_keys(roots, number)[:3]]

    compiled = jax.jit(release)
    assert bits(compiled(roots, 3)) == bits(compiled(roots, 3))
    assert bits(jax.jit(drawn)(roots, 3)) == bits(drawn(roots, 3))
    others = [compiled(roots, 4), compiled(SECURE, 3), compiled(roots._replace(noise=SECURE.noise), 3)]
    assert all(bits(other) != bits(compiled(roots, 3)) for other in others)


def test_noise_is_normal_and_coins_are_fair():
    roots = training.secure_keys()
    noise = np.sort(np.asarray(training.gaussian_tree(roots.noise, jnp.zeros(100_000))))
    normal = np.asarray(jax.scipy.stats.norm.cdf(noise))
    distance = np.abs(normal - (np.arange(100_000) + 0.5) / 100_000).max()
    assert distance < 3.2 / 100_000**0.5  # Kolmogorov and Smirnov: exceeded once in 4e8 draws
    coins = training.poisson_sample(roots.sampling, 100_000, 0.25)
    assert abs(int(coins.sum()) - 25_000) < 6.0 * (100_000 * 0.25 * 0.75) ** 0.5


def test_a_durable_run_is_resumed_to_the_bit(tmp_path):
    step = training.make_step(squared, SGD, FILTER, SCHEDULE, clip_norm=1.0, physical_batch=4)
    roots = training.secure_keys()
    keys = functools.partial(training.attempt_keys, roots)
    ends = []
    for folder, killed in (("one", True), ("other", True), ("whole", False)):
        state = training.init_state(small.PARAMS, SGD, FILTER, SCHEDULE, training.secure_keys())
        for steps in (6, 2) if killed else (8,):
            opened = training.durable_run(
                tmp_path / folder, step, state, FILTER, resume=steps != 8 and killed, every=4, keys=keys
            )
            with opened as run:
                state = run.state
                for _ in range(steps):
                    state, _ = run.step(state, DATA)
                run.save(state)
        ends.append((int(state.step), bits(state.params)))
    assert ends[0] == ends[1]  # attempts have noise of their own, and it is the same each time
    assert ends[2][0] == ends[0][0] == 8
    assert ends[2][1] != ends[0][1]
