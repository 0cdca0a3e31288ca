"""`noisy_gradient`: samples, clips, sums and noises, which is the release of one step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.training import checks as _check
from jaxacct.training.checks import Loss, Params
from jaxacct.training.gradients.clipping import clipped_gradient_sum, gradient_sum_of_sample
from jaxacct.training.gradients.fixed_point import FixedPointSum
from jaxacct.training.gradients.noise import add_gaussian_noise, check_sigma
from jaxacct.training.gradients.quantile_clip import AdaptiveClip, as_clip
from jaxacct.training.keys import StepKeys, check_step_keys
from jaxacct.training.samplers import Sampler
from jaxacct.training.sampling import poisson_sample
from jaxacct.training.sharding import ShardedExamples, number_of


def noisy_gradient(
    loss: Loss[Params],
    params: Params,
    data: object,
    keys: StepKeys,
    *,
    clip_norm: ArrayLike | AdaptiveClip,
    sigma: ArrayLike | None = None,
    rate: ArrayLike | None = None,
    sampler: Sampler | None = None,
    clip_scale: ArrayLike = 1.0,
    physical_batch: int = 256,
    full_batch: bool = False,
    size: int | None = None,
    has_aux: bool = False,
) -> PyTree:
    """The subsampled Gaussian release of one step: (sum of clipped gradients + noise) / (rate * size).

    The divisor is the *expected* size of the sample, never the realised one, which is private.

    Args:
        loss: ``loss(params, example)``, a scalar for one example without a batch axis.
        params: pytree of float arrays.
        data: pytree of arrays (size, ...), or :func:`jaxacct.training.shard_examples` of it.
        keys: this step's keys, from :func:`jaxacct.training.step_keys`; never the roots, which repeat themselves.
        clip_norm: L2 bound C of each example's gradient, in [1e-12, 1e12]; or one that moves with releases, from
            :func:`jaxacct.training.adaptive_clip`.
        sigma: noise multiplier: the noise has standard deviation sigma * clip_norm, or a float32 rounding more: no
            less than a filter charges for that number, however it came into the program.
        rate: probability of each example to take part, in (0, 1], or a rounding less.
        sampler: from :func:`jaxacct.training.sampler`, in place of ``sigma`` and ``rate``: draws the batch of step
            ``keys.number`` and has the noise of its mechanism, which is what the filter is to be asked, once for every
            ``sampler.steps`` steps. Its ``piece`` stands for ``physical_batch``.
        clip_scale: factor in [0, 1] on that bound, not on the noise; one number, or one for each example.
        physical_batch: most per-example gradients in memory at once (on each device), static.
        full_batch: everyone takes part and no coins are thrown, static; ``rate`` is 1 then.
        size: a public number of examples, static. The default is the number in ``data``, which is then public: adding
            or removing an example changes it.
        has_aux: the loss returns ``(loss, aux)``; ``aux`` is private, and dropped.

    Returns:
        A pytree like ``params``, float32; NaN where a traced number is out of range. With a clip norm that moves, a
        pair: that tree, and what ``clip_norm`` is to be in the next step.

    Raises:
        ValueError: roots for keys, parameters that are not floating point, data of different lengths, a loss that is no
            scalar, concrete numbers that are none or out of range; neither a sampler nor ``sigma`` and ``rate``, or
            both.
    """
    check_step_keys(keys)
    _validate.truth(full_batch=full_batch)
    loss = _check.scalar_loss(loss, has_aux)
    count = number_of(data)
    _validate.whole(size=count if size is None else size)
    clip = as_clip(clip_norm)
    _check.clip_norms(clip_norm=clip.norm)
    if np.ndim(clip_scale) == 0:
        _validate.number(_validate.rate, clip_scale=clip_scale)
    if sampler is None:
        if sigma is None or rate is None:
            raise ValueError(f"sigma and rate must be given without a sampler, got {sigma!r:.200} and {rate!r:.200}")
        check_sigma(sigma, count)
        _validate.number(_validate.positive, _validate.rate, rate=rate)
        if full_batch and not _validate.is_traced(rate) and float(np.asarray(rate)) != 1:
            raise ValueError(f"rate must be 1 with full_batch, where everyone takes part, got {rate!r:.200}")
        coins, places = jax.random.split(keys.sampling)
        mask = jnp.ones(count, bool) if full_batch else poisson_sample(coins, count, rate)
        total = clipped_gradient_sum(
            loss, params, data, mask, clip, clip_scale=clip_scale, physical_batch=physical_batch, key=places
        )
        rate = jnp.asarray(1.0 if full_batch else rate, jnp.float32)
        public = jnp.float32(count if size is None else size)
        expected = jnp.where((rate > 0) & (rate <= 1), rate, jnp.float32(jnp.nan)) * public
    else:
        _validate.instance(Sampler, sampler=sampler)
        if isinstance(data, ShardedExamples):
            raise ValueError("data must be a tree of arrays for a sampler, got ShardedExamples: batches have no shards")
        if count != sampler.size:
            raise ValueError(f"data must hold the sampler's {sampler.size} examples, got {count}")
        if sigma is not None or rate is not None or size not in (None, sampler.size) or full_batch:
            raise ValueError("sampler has its own noise, rate and size: leave sigma, rate, size and full_batch out")
        sample, arrays = sampler.draw(keys.run, keys.number), jax.tree.map(jnp.asarray, data)
        total = gradient_sum_of_sample(loss, params, arrays, sample, clip, clip_scale=clip_scale)
        sigma, expected = sampler.noise_multiplier, jnp.float32(sampler.expected)
    gradient, following = averaged(keys.noise, total, sigma, clip, expected)
    return (gradient, following) if clip.counts else gradient


def averaged(
    key: jax.Array, total: FixedPointSum, sigma: ArrayLike, clip: AdaptiveClip, expected: jax.Array
) -> tuple[PyTree, AdaptiveClip]:
    """A sum with its noise over the ``expected`` size of the sample, and the next step's clip norm."""
    release = add_gaussian_noise(key, total, sigma, clip.bound)
    mean = jax.tree.map(lambda leaf: leaf / expected, release)
    return (mean[0], clip.moved(mean[1])) if clip.counts else (mean, clip)
