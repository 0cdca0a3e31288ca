"""Keys of a cryptographic generator do what others do: fresh each time, compiled, resumed to the bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import filters, training
from tests.training.small import DATA, PARAMS, SGD, bits, loss

FILTER, SCHEDULE = filters.approximate_gdp(1.0), training.schedules.constant(2.0, 0.15, 40)
SECURE = training.secure_keys()


def test_every_call_draws_256_bits_for_each_root():
    words = [np.asarray(jax.random.key_data(key)) for _ in range(8) for key in training.secure_keys()]
    assert all(word.shape == (8,) for word in words)
    assert np.unique(words).size == 16 * 8


def test_a_compiled_step_draws_what_an_eager_one_does_and_keys_are_all_that_it_depends_on():
    roots = training.secure_keys()

    def release(roots, number):
        keys = training.step_keys(roots, number)
        return training.noisy_gradient(loss, PARAMS, DATA, keys, sigma=1.0, rate=0.15, clip_norm=1.0)

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
    step = training.make_step(loss, SGD, FILTER, SCHEDULE, clip_norm=1.0, physical_batch=4)
    roots = training.secure_keys()
    keys = functools.partial(training.attempt_keys, roots)
    ends = []
    for folder in ("one", "other"):
        for number, steps in enumerate((6, 2)):
            state = training.init_state(PARAMS, SGD, FILTER, SCHEDULE, training.secure_keys())
            place = tmp_path / folder
            with training.durable_run(place, step, state, FILTER, resume=number > 0, every=4, keys=keys) as run:
                state = run.state
                for _ in range(steps):
                    state, _ = run.step(state, DATA)
                run.save(state)
        ends.append((int(state.step), bits(state.params)))
    assert ends[0] == ends[1]  # attempts have noise of their own, and it is the same each time
    assert ends[0][0] == 8
