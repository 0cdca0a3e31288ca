"""What is drawn is at least as private as what is charged, whichever way a number comes into the program."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, filters, training
from tests.refusals import all_refused
from tests.training.small import begun

ROOTS = training.seeded_keys(7)
KEY, STEP = ROOTS.noise, training.step_keys(ROOTS, 0)
X = jnp.ones((4, 3))
PARAMS = {"w": jnp.zeros(3)}
SILENT = {"w": jnp.zeros(1)}


def beside(values):
    """Numbers and what is next to them, in float64 and in float32."""
    found = {float(value) for value in values}
    for value in values:
        found |= {float(np.nextafter(value, side)) for side in (0.0, 2.0)}
        near = np.float32(value)
        found |= {float(np.nextafter(near, np.float32(side))) for side in (0.0, 2.0)} | {float(near)}
    return sorted(found)


# A traced rate that rounds to 1 is 1.
RATES = [rate for rate in beside([1e-6, 0.05, 1 / 3, 0.7, 1 - 2.0**-24]) if rate < 1 - 2.0**-25]
SIGMAS = beside([0.7, 1.0, 1.1])


def with_input(run, of):
    return lambda number: run(of(number))


# Ways for a Python float into a draw: what each makes of ``draw``.
WAYS = {
    "eager": lambda draw: draw,
    "NumPy's float64": lambda draw: with_input(draw, np.float64),
    "an array": lambda draw: with_input(draw, np.array),
    "closed over": lambda draw: lambda number: jax.jit(lambda: draw(number))(),
    "an argument": jax.jit,
    "an argument, NumPy's": lambda draw: with_input(jax.jit(draw), np.float64),
    "mapped over": lambda draw: jax.jit(lambda number: jax.vmap(draw)(jnp.asarray(number)[None])[0]),
    "scanned over": lambda draw: jax.jit(lambda number: jax.lax.map(draw, jnp.asarray(number)[None])[0]),
    "in float64": lambda draw: jax.enable_x64(True)(jax.jit(draw)),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_coin_comes_up_more_often_than_at_the_rate_that_is_charged(monkeypatch, way):
    wholes = [math.floor(Fraction(rate) * 2**32) for rate in RATES]
    bits = np.unique(np.clip(np.add.outer(wholes, np.arange(-600, 600)), 0, 2**32 - 1)).astype(np.uint32)
    monkeypatch.setattr(jax.random, "bits", lambda key, shape, dtype: jnp.asarray(bits))
    drawn = WAYS[way](lambda rate: training.poisson_sample(KEY, bits.size, rate))
    for rate, whole in zip(RATES, wholes, strict=True):
        threshold = int(bits[np.asarray(drawn(rate))].max(initial=0)) + 1
        assert threshold <= whole, rate
        # Not much less often either: to the last of 32 bits where the number is known, else to two float32 roundings.
        known = way in ("eager", "NumPy's float64", "an array", "closed over")
        assert known <= (threshold == whole), rate
        assert threshold >= whole - max(1, whole * 2.0**-22), rate
    for rate, heads in ((0.0, 0), (1.0, bits.size)):
        assert int(np.sum(drawn(rate))) == heads


def added(sigma):
    return training.add_gaussian_noise(KEY, training.empty_sum(SILENT, 1), sigma, 1.0)["w"][0]


def stepped(sigma):
    nothing = lambda params, row: 0.0 * jnp.sum(params["w"])  # noqa: E731
    options = dict(rate=1.0, clip_norm=1.0, full_batch=True)
    return training.noisy_gradient(nothing, SILENT, X[:1], STEP, sigma=sigma, **options)["w"][0]


@pytest.mark.parametrize(("release", "way"), [(added, way) for way in WAYS] + [(stepped, "an argument")])
def test_no_noise_is_less_than_what_is_charged(monkeypatch, release, way):
    # Where normals are 2^14 their half-sum is 2^15, and what is released of nothing is 2^15 sigma exactly.
    monkeypatch.setattr(jax.random, "normal", lambda key, shape, dtype: jnp.full(shape, 2.0**14, dtype))
    run = WAYS[way](release)
    for sigma in SIGMAS:
        used = float(run(sigma)) / 2**15
        assert sigma <= used <= sigma * (1 + 2.0**-22), sigma


def test_a_sampler_draws_what_it_is_charged_for(monkeypatch):
    for sigma, rate in ((0.7, 0.05), (1.1, 0.1)):
        made = training.sampler(PoissonSampled(Gaussian(sigma), rate), 20)
        assert made.noise_multiplier >= sigma
        whole = math.floor(Fraction(rate) * 2**32)
        monkeypatch.setattr(jax.random, "bits", lambda key, shape, dtype, w=whole: jnp.full(shape, w, dtype))
        assert int(made.draw(KEY, 0).count) == 0


def noisy(**changed):
    numbers = {"sigma": 1.0, "rate": 0.5, "clip_norm": 1.0, "clip_scale": 1.0} | changed
    loss = lambda params, row: jnp.sum(params["w"] * row)  # noqa: E731
    return training.noisy_gradient(loss, PARAMS, X, STEP, **numbers)["w"]


TRACED = {name: jax.jit(lambda value, name=name: noisy(**{name: value})) for name in ("sigma", "rate", "clip_norm")}
BAD = {
    "sigma": [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1e-50, 2.0**-25, 1e9],
    "rate": [0.0, -0.0, -0.5, math.nan, 1.0000001, math.inf, -5e-324],
    "clip_norm": [0.0, -1.0, math.nan, math.inf, 1e-13, 1e13, 1e-50, 1e300, 5e-324],
    "clip_scale": [-0.1, math.nan, 1.1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_numbers_that_make_no_step_raise_by_name_or_release_nothing_where_they_are_traced(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        noisy(**{name: value})
    with np.errstate(over="ignore"):
        narrow = np.float32(value)
    if name != "clip_scale" and narrow != 1:
        assert np.isnan(TRACED[name](narrow)).all()


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, math.inf, 1e-50, 1e13])
def test_every_maker_of_steps_refuses_a_clip_norm_that_gradients_do_not_survive(clip_norm):
    plan, budget = training.schedules.constant(1.0, 0.5, 3), filters.renyi(9.0, 1e-5, order=8.0)
    each, drawn = filters.per_example(budget, examples=4), training.sampler(PoissonSampled(Gaussian(1.0), 0.5), 4)
    makers = [
        lambda: begun(budget, plan, clip_norm=clip_norm),
        lambda: begun(each, plan, clip_norm=clip_norm),
        lambda: begun(budget, drawn.schedule(3), clip_norm=clip_norm, sampler=drawn),
        lambda: training.filtered_aggregate(budget, plan, ROOTS, clip_norm=clip_norm, size=4),
        lambda: training.add_gaussian_noise(KEY, training.empty_sum(PARAMS, 4), 1.0, clip_norm),
    ]
    all_refused(*(("clip_norm must be", make) for make in makers))
    with pytest.raises(ValueError, match="rate must be 1 with full_batch"):
        noisy(rate=0.5, full_batch=True)
