"""A DP-SGD loop of one's own with mistakes that can be planted in it, for `verification.audit`."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxacct import Gaussian, PoissonSampled, audit, filters
from jaxacct.training import init_state, make_step, seeded_keys
from jaxacct.training.demo import load_data
from jaxacct.training.schedules import constant

CLIP, LONG, PIECE, LEARNING = 1.0, 10.0, 256, 4.0


class Run(NamedTuple):
    """What a run does, and what it was accounted for.

    Attributes:
        sigma, rate, steps: what is charged: a Poisson sample of that rate, with that noise multiplier, so often.
        noise: of the noise that is added, relative to what is charged.
        clips: whether gradients are clipped.
        copies: how often each sampled record enters the sum.
        fresh: whether every step has a noise key of its own.
        cut: None, or how many times the rate the coins are thrown with; of the sample as many as ``rate`` times the
            rows are kept.
        first: whether the first rows of the sample are kept, and not random ones.
        library: whether `jaxacct.training.make_step` takes the steps, and not the loop here.
        high, low: shares of the canaries that are said to be in and out.
    """

    sigma: float = 8**0.5
    rate: float = 0.5
    steps: int = 32
    noise: float = 1.0
    clips: bool = True
    copies: int = 1
    fresh: bool = True
    cut: float | None = None
    first: bool = True
    library: bool = False
    high: float = 0.1
    low: float = 0.1

    @property
    def mechanism(self):
        return PoissonSampled(Gaussian(self.sigma), self.rate)


CUT = dict(sigma=2.0, rate=0.05, steps=150, high=0.04, low=0.0)
RUNS = {
    "as accounted for": Run(),
    "half the noise": Run(noise=0.5),
    "no clip": Run(clips=False),
    "a record twice": Run(copies=2),
    "noise key reused": Run(fresh=False),
    "mean for sum": Run(noise=None),
    "as accounted for, small sample": Run(**CUT),
    "truncation not charged": Run(**CUT, cut=10.0),
    "truncation at random": Run(**CUT, cut=10.0, first=False),
    "make_step": Run(library=True),
}


def loss(params, example):
    """Cross-entropy of a linear classifier."""
    x, y = example
    return optax.softmax_cross_entropy_with_integer_labels(x.reshape(-1) @ params["w"] + params["b"], y)


@functools.cache
def digits():
    return load_data("digits")


def place(number: int, key: jax.Array) -> audit.placed.Canaries:
    """The digits example with so many gradient canaries, of ten clip norms each."""
    data = digits()
    params = {"w": jnp.zeros((64, 10)), "b": jnp.zeros(10)}
    return audit.canaries(loss, params, (data.train_x, data.train_y), key=key, number=number, gradient_norm=LONG * CLIP)


def compiled(run: Run, placed: audit.placed.Canaries):
    """``train(params, data, key) -> (params, scores)``, the whole run as one program.

    ``placed`` gives loss and shapes only, so that one program serves for all placements of as many canaries.
    """
    optimizer = placed.optimizer(optax.sgd(LEARNING))
    if run.library:
        return _library(run, placed, optimizer)
    rows = jax.tree.leaves(placed.data)[0].shape[0]
    expected = run.rate * rows
    scale = run.sigma * CLIP * (1.0 / expected if run.noise is None else run.noise)

    def gradient_sum(params, data, mask):
        """Of the clipped gradients of the rows in ``mask``, piece by piece."""
        pieces = -(-rows // PIECE)
        padding = pieces * PIECE - rows

        def cut(leaf):
            padded = jnp.pad(leaf, [(0, padding)] + [(0, 0)] * (leaf.ndim - 1))
            return padded.reshape(pieces, PIECE, *leaf.shape[1:])

        def add(total, piece):
            examples, mask = piece
            gradients = jax.vmap(jax.grad(placed.loss), (None, 0))(params, examples)
            squares = sum(jnp.sum(leaf**2, axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(gradients))
            factors = jnp.minimum(1.0, CLIP / jnp.sqrt(squares + 1e-12)) if run.clips else 1.0
            weights = mask * factors * run.copies
            return jax.tree.map(lambda sum_, leaf: sum_ + jnp.tensordot(weights, leaf, 1), total, gradients), None

        start = jax.tree.map(jnp.zeros_like, params)
        return jax.lax.scan(add, start, (jax.tree.map(cut, data), cut(mask.astype(jnp.float32))))[0]

    def train(params, data, key):
        coins, noises = jax.random.split(key)

        def step(carry, number):
            params, state = carry
            mask = jax.random.bernoulli(jax.random.fold_in(coins, number), run.rate * (run.cut or 1.0), (rows,))
            if run.cut is not None:
                order = jax.random.permutation(jax.random.fold_in(coins, run.steps + number), rows)
                order = jnp.arange(rows) if run.first else order
                mask &= jnp.zeros(rows, bool).at[order].set(jnp.cumsum(mask[order]) <= int(expected))
            noise_key = jax.random.fold_in(noises, number) if run.fresh else noises
            leaves, tree = jax.tree.flatten(gradient_sum(params, data, mask))
            keys = jax.random.split(noise_key, len(leaves))
            noisy = [leaf + scale * jax.random.normal(one, leaf.shape) for leaf, one in zip(leaves, keys, strict=True)]
            mean = jax.tree.map(lambda leaf: leaf / expected, jax.tree.unflatten(tree, noisy))
            updates, state = optimizer.update(mean, state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, state), _ = jax.lax.scan(step, (params, optimizer.init(params)), jnp.arange(run.steps))
        return params, state.scores

    return jax.jit(train)


def _library(run: Run, placed: audit.placed.Canaries, optimizer):
    """The same run by the library's step, under a filter that has room for it."""
    filter, schedule = filters.renyi(100.0, 1e-5, order=8.0), constant(run.sigma, run.rate, run.steps)
    step = make_step(placed.loss, optimizer, filter, schedule, clip_norm=CLIP)

    def train(params, data, key):
        state = init_state(params, optimizer, filter, schedule, seeded_keys(int(jax.random.bits(key))))
        for _ in range(run.steps):
            state, report = step(state, data)
            assert report.admitted
        return state.params, state.opt_state.scores

    return train


def accuracy(params) -> float:
    data = digits()
    scores = data.test_x.reshape(len(data.test_x), -1) @ np.asarray(params["w"]) + np.asarray(params["b"])
    return float(np.mean(scores.argmax(1) == data.test_y))
