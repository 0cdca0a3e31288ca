"""Per-example gradients, clipped so that none moves the sum by more than the clip norm, rounding included."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.training import checks as _check
from jaxacct.training.checks import Loss, Params
from jaxacct.training.gradients import fixed_point
from jaxacct.training.gradients.cpu_forms import in_cpu_form
from jaxacct.training.gradients.fixed_point import FixedPointSum
from jaxacct.training.gradients.quantile_clip import AdaptiveClip, as_clip
from jaxacct.training.sampling import Sample, draw_lanes, in_lanes, lanes_of, over_pieces
from jaxacct.training.sharding import AXIS, ShardedExamples, number_of

_UNIT_ROUNDOFF = 2.0**-24


def global_norm(tree: object) -> jax.Array:
    """The L2 norm over all leaves, () float32; inf or NaN if an entry is, or if it is above 3e38.

    Very large or small entries are scaled by a constant power of two first, so that squares neither
    overflow nor vanish. (Dividing by the largest entry is not safe: compiled to a product with its
    reciprocal, which is flushed to zero for entries above 2^126, it gives the longest of gradients a norm
    of zero.)
    """
    _validate.real_arrays(tree=tree)
    leaves = [jnp.asarray(leaf, jnp.float32) for leaf in jax.tree.leaves(tree) if np.size(leaf)]
    if not leaves:
        return jnp.float32(0.0)
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves]))
    high, low = largest > 2.0**40, largest < 2.0**-40
    scale = jnp.where(high, jnp.float32(2.0**-80), jnp.where(low, jnp.float32(2.0**80), 1.0))
    squares = jnp.stack([_sum_of_squares(leaf * scale) for leaf in leaves])
    return jnp.sqrt(jnp.sum(squares)) / scale


def per_example_gradients(loss: Loss[Params], params: Params, examples: object, *, has_aux: bool = False) -> PyTree:
    """Gradients of ``loss(params, example)`` for each example alone: leaves (batch, *parameter shape).

    Private, as what ``has_aux`` adds is: ``(gradients, aux)``, with a leading axis of the batch in ``aux`` too.

    Args:
        loss: maps parameters and *one* example (no batch axis) to a scalar. It sees one example only, so a
            model whose output for one example depends on others (batch normalisation) cannot be expressed
            by accident.
        params: pytree of float arrays.
        examples: pytree of arrays with a leading batch axis.
        has_aux: the loss returns ``(loss, aux)``.

    Raises:
        ValueError: parameters that are not floating point, examples of different lengths, a loss that is no scalar.
    """
    _check.floats(params=params)
    _check.rows(examples=examples)
    gradients = jax.vmap(jax.grad(_check.losses(loss, has_aux), has_aux=has_aux), in_axes=(None, 0))
    return in_cpu_form(gradients)(params, examples)


def add_clipped(
    total: FixedPointSum,
    gradients: object,
    valid: ArrayLike,
    clip_norm: ArrayLike | AdaptiveClip,
    *,
    clip_scale: ArrayLike = 1.0,
) -> FixedPointSum:
    """``total`` plus clipped per-example gradients: gradient accumulation for samples that come piece by piece.

    Start from ``fixed_point.empty_sum(params, size)``, add every piece of one Poisson sample (each example once), and
    hand the result to :func:`jaxacct.training.add_gaussian_noise`. The noise is added once, to the whole sum; the order
    and the sizes of the pieces do not matter. Padding rows are marked in ``valid``, and may hold anything. With a clip
    norm that moves, the sum is of pairs: start from ``fixed_point.empty_sum((params, 0.0), size)``.

    Args:
        total: the sum so far, of at most ``total.size`` gradients.
        gradients: leaves (batch, *parameter shape), from :func:`per_example_gradients`.
        valid: (batch,) bool: which rows are in the sample.
        clip_norm, clip_scale: as in :func:`clipped_gradient_sum`; of several scales, one for each row, shape (batch,).

    Raises:
        ValueError: a batch of more than 2^18; gradients that do not have the sum's shapes, and as many rows as
            ``valid``.
    """
    _validate.instance(FixedPointSum, total=total)
    _validate.numbers(valid=valid)
    if np.ndim(valid) != 1:
        raise ValueError(f"valid must have shape (batch,), got {np.shape(valid)}")
    valid = jnp.asarray(valid)
    clip = as_clip(clip_norm)
    _validate.number(_validate.positive, clip_norm=clip.norm)
    _check.per_example(clip.added(gradients, valid), total.high, valid.shape[0])
    unit = clip.bound
    if clip.counts:
        gradients = _with_count(gradients, clip)
    factors = _factors(gradients, unit, jnp.clip(_of_rows(valid.shape[0], clip_scale), 0.0, 1.0))

    # In units of the clip norm, before the norm is taken: rounding here cannot lengthen what is clipped later.
    return fixed_point.accumulate(total, gradients, valid, lambda leaf: _times(_in_units(leaf, unit), factors))


def _factors(gradients: object, unit: jax.Array, scale: jax.Array) -> jax.Array:
    """What each row is multiplied with to be of norm at most ``scale`` units, (batch,) float32; 0 where it counts as 0.

    The target is lowered by what the computed norm may be too small by (docs/proofs/training.md). A row with an entry
    that is not finite, or whose squares overflow, counts as 0: one broken record must neither poison the model nor tell
    on itself.
    """
    leaves = [leaf for leaf in jax.tree.leaves(gradients) if leaf.size]
    if not leaves:
        return jnp.ones(jax.tree.leaves(gradients)[0].shape[0], jnp.float32)
    squares = [jax.vmap(_sum_of_squares)(_in_units(leaf, unit)) for leaf in leaves]
    chain = max(sum(_blocks(math.prod(leaf.shape[1:]))) for leaf in leaves)
    target = scale * jnp.float32(1.0 - (0.5 * (chain + len(leaves)) + 16) * _UNIT_ROUNDOFF)
    total = jnp.sum(jnp.stack(squares), axis=0)
    norm = jnp.sqrt(total)
    # where, not minimum: a NaN norm must land on the zero branch.
    factor = jnp.where(norm <= target, 1.0, target / jnp.where(norm > 0, norm, 1.0))
    return jnp.where(jnp.isfinite(total) & (target > 0) & (unit > 0), factor, 0.0)


def _with_count(gradients: object, clip: AdaptiveClip) -> tuple[PyTree, jax.Array]:
    """Gradients clipped to the norm of ``clip``, and beside each the coordinate that counts it; row by row."""
    factors = _factors(gradients, jnp.asarray(clip.norm, jnp.float32), jnp.float32(1.0))
    side = jnp.where(factors > 0, jnp.where(factors == 1, clip.weight, -clip.weight), 0.0)
    return jax.tree.map(lambda leaf: _times(leaf.astype(jnp.float32), factors), gradients), side * clip.bound


def _in_units(leaf: jax.Array, unit: jax.Array) -> jax.Array:
    return leaf.astype(jnp.float32) / unit


def _times(leaf: jax.Array, factors: jax.Array) -> jax.Array:
    """Each row of ``leaf`` times its factor; zeros, whatever it holds, where that is 0."""
    of_rows = factors.reshape((-1,) + (1,) * (leaf.ndim - 1))
    return jnp.where(of_rows > 0, leaf * of_rows, 0.0)


def clipped_gradient_sum(
    loss: Loss[Params],
    params: Params,
    data: object,
    mask: ArrayLike,
    clip_norm: ArrayLike | AdaptiveClip,
    *,
    clip_scale: ArrayLike = 1.0,
    physical_batch: int = 256,
    key: jax.Array | None = None,
) -> FixedPointSum:
    """The exact sum of clipped gradients over the examples in ``mask``, in units of ``clip_norm``.

    The sample is processed in as many pieces as it needs (:func:`jaxacct.training.sample_pieces`), of 8 examples on a
    CPU and of ``physical_batch`` elsewhere: memory is bounded by the physical batch, and no example is ever left out.
    The result does not depend on the number of devices, nor on the physical batch beyond the last bits of the gradients
    themselves, which compilers may round otherwise in pieces of another size. How long the call takes does depend on
    the sample, as with every implementation that skips the unsampled: the guarantee is for what is released, not for an
    adversary who times the steps.

    Args:
        loss: as in :func:`per_example_gradients`.
        params: pytree of float arrays.
        data: pytree of arrays (size, ...), every example of the training set; or :class:`ShardedExamples`, of which
            each device processes its own.
        mask: (size,) bool, from :func:`jaxacct.training.poisson_sample`.
        clip_norm: scalar, the L2 bound C of each example's gradient; the noise is sigma * C. Or from
            :func:`jaxacct.training.adaptive_clip`: the sum is then of pairs (gradient, count), in units of its
            ``bound``.
        clip_scale: in [0, 1]: clip at ``clip_scale * clip_norm`` instead, with the unit left at ``clip_norm``
            (the last step of an approximate GDP filter); a scalar, or one for each example, shape (size,) (an
            individual filter's bounds).
        physical_batch: most examples whose gradients are in memory at once (on each device), static.
        key: a typed PRNG key that nothing else uses, from which every row draws its place in a piece. Without one rows
            have places by their index, which is as good for neighbours that have one row less in ``mask``; with one the
            order of the rows does not matter either (docs/proofs/training.md).

    Returns:
        A sum whose L2 sensitivity to adding or removing one example is at most its ``clip_scale`` (in clip norms), if
        a row's gradient, to the last bit, depends on that row and its place in a piece only.

    Raises:
        ValueError: no examples, data of another length than ``mask``, a physical batch outside [1, 2^18], a loss
            that is no scalar, or a key that is none.
    """
    _validate.whole(physical_batch=physical_batch)
    _check.floats(params=params)
    size, physical_batch = number_of(data), int(physical_batch)
    mask = _check.mask(mask)
    if np.shape(mask) != (size,):
        raise ValueError(f"mask must have shape {(size,)}, one entry an example, got {np.shape(mask)}")
    clip, scale = as_clip(clip_norm), _of_rows(size, clip_scale)
    _validate.number(_validate.positive, clip_norm=clip.norm)

    # Lanes are drawn for the whole data set, so that they are the same on one device and on many.
    piece = lanes_of(physical_batch, size)
    lanes = draw_lanes(key, size, piece)

    def over(
        params: Params, rows: object, mask: jax.Array, lanes: jax.Array, clip: AdaptiveClip, scale: jax.Array
    ) -> FixedPointSum:
        sample = in_lanes(mask, lanes, piece)
        return gradient_sum_of_sample(loss, params, rows, sample, clip, clip_scale=scale, size=size)

    if not isinstance(data, ShardedExamples):
        return over(params, jax.tree.map(jnp.asarray, data), mask, lanes, clip, scale)
    # Manual and unchecked: a gradient with respect to replicated parameters must stay each device's own here, since
    # it is clipped example by example before anything is added.
    everywhere = jax.shard_map(
        lambda *inputs: fixed_point.over_devices(over(*inputs), AXIS),
        mesh=data.mesh,
        in_specs=(P(), P(AXIS), P(AXIS), P(AXIS), P(), P(AXIS) if scale.ndim else P()),
        out_specs=P(),
        check_vma=False,
    )
    scale = data.placed(scale) if scale.ndim else scale
    return everywhere(params, data.rows, data.placed(mask), data.placed(lanes), clip, scale)


def gradient_sum_of_sample(
    loss: Loss[Params],
    params: Params,
    data: object,
    sample: Sample,
    clip_norm: ArrayLike | AdaptiveClip,
    *,
    clip_scale: ArrayLike = 1.0,
    size: int | None = None,
) -> FixedPointSum:
    """The exact sum of the clipped gradients of a sample, as often as each example is in it, in units of ``clip_norm``.

    Like :func:`clipped_gradient_sum`, for a `Sample` instead of a mask; piece by piece. ``size`` is the most gradients
    that the sum may hold, by default the capacity of the sample.
    """
    scale = jnp.asarray(clip_scale, jnp.float32)

    def add(total: FixedPointSum, indices: jax.Array, valid: jax.Array) -> FixedPointSum:
        gradients = per_example_gradients(loss, params, jax.tree.map(lambda leaf: leaf[indices], data))
        of_each = scale[indices] if scale.ndim else scale
        return add_clipped(total, gradients, valid, clip_norm, clip_scale=of_each)

    start = fixed_point.empty_sum(as_clip(clip_norm).added(params), sample.indices.shape[0] if size is None else size)
    return over_pieces(sample, start, add)


def _of_rows(count: int, clip_scale: ArrayLike) -> jax.Array:
    """``clip_scale`` in float32: one number, or one for each of ``count`` rows."""
    _validate.numbers(clip_scale=clip_scale)
    if np.shape(clip_scale) not in ((), (count,)):
        raise ValueError(f"clip_scale must be one number or one for each of {count}, got shape {np.shape(clip_scale)}")
    return jnp.asarray(clip_scale, jnp.float32)


def _sum_of_squares(leaf: jax.Array) -> jax.Array:
    """In blocks of about sqrt(size), so that no chain of additions is longer than 2 sqrt(size)."""
    flat = leaf.reshape(-1)
    rows, width = _blocks(flat.size)
    blocks = jnp.pad(flat, (0, rows * width - flat.size)).reshape(rows, width)
    # The barrier keeps the compiler from merging the two sums into one long one.
    partial = jax.lax.optimization_barrier(jnp.sum(blocks * blocks, axis=1))
    return jnp.sum(partial)


def _blocks(size: int) -> tuple[int, int]:
    """How many blocks, and how long each is."""
    width = max(1, math.isqrt(size))
    return -(-size // width), width
