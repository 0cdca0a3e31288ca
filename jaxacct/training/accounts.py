"""What every example is charged for where each pays for its own gradient."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.mechanisms.base import Mechanism
from jaxacct.training import checks as _check
from jaxacct.training.checks import Loss, Params
from jaxacct.training.gradients.clipping import global_norm

# What is charged is a hair more than the norm was computed to be, so that the clipping to it, which allows for the
# rounding of its own norm, leaves a gradient as it is.
_HAIR = np.float32(1 + 2.0**-12)


def gradient_norms(loss: Loss[Params], params: Params, data: object, *, physical_batch: int = 256) -> jax.Array:
    """The norm of every example's gradient at ``params``, (size,) float32; what every example is charged for.

    ``loss`` and ``data`` as in :func:`jaxacct.training.make_step`; ``physical_batch`` is the most per-example gradients
    in memory at once, static. Every row has its place in the program by its index: what a row is charged for depends on
    no other row, as long as they keep their rows.
    """
    _validate.whole(physical_batch=physical_batch)
    _check.floats(params=params)
    physical_batch = min(int(physical_batch), _check.rows(data=data))
    loss, data = _check.losses(loss), jax.tree.map(jnp.asarray, data)
    return jax.lax.map(lambda example: global_norm(jax.grad(loss)(params, example)), data, batch_size=physical_batch)


def charged(
    filter: Any, query: Mechanism, lengths: jax.Array, clip_norm: ArrayLike, accounts: PyTree, size: int
) -> tuple[PyTree, jax.Array]:
    """The accounts after a step, and what each example's clip norm is to be multiplied with, (size,) float32.

    Every example's length at the current parameters is charged to its own account, sampled or not. A gradient is then
    clipped to the norm *that was charged*, so that the charge covers it whatever ``lengths`` are. An example with no
    budget left has a factor of 0 and contributes exactly nothing.
    """
    _validate.real_arrays(accounts=lengths)
    if np.shape(lengths) != (size,):
        raise ValueError(f"accounts must return one norm an example, shape {(size,)}, got {np.shape(lengths)}")
    share = jnp.asarray(lengths, jnp.float32) / jnp.float32(clip_norm) * _HAIR
    _, accounts = filter.update(query, share, accounts)
    return accounts, filter.bounds(query, share, accounts)
