"""`select`: one of two trees, by whether a filter admitted a query."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.training.checks import Tree


def select(admitted: ArrayLike, new: Tree, old: Tree) -> Tree:
    """``new`` where ``admitted``, else ``old``, leaf by leaf: what a loop of one's own keeps of a step.

    Several trees go as one tuple::

        admitted, charged = budget.update(query, ledger)
        params, opt_state, ledger = training.select(
            admitted, (new_params, new_opt_state, charged), (params, opt_state, ledger)
        )

    Args:
        admitted: one truth, traced or not.
        new, old: pytrees of the same structure, shapes and types; keys may be among their leaves.

    Raises:
        ValueError: ``admitted`` that is not one truth, or trees of different structures, shapes or types.
    """
    _validate.numbers(admitted=admitted)
    if jnp.ndim(admitted):
        raise ValueError(f"admitted must be one truth, got shape {jnp.shape(admitted)}")
    wanted, found = (jax.tree.map(jax.typeof, tree) for tree in (old, new))
    if jax.tree.structure(found) != jax.tree.structure(wanted) or any(
        (one.shape, one.dtype) != (other.shape, other.dtype)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    ):
        raise ValueError(f"new must have the structure, shapes and types of old, {wanted!r:.200}, got {found!r:.200}")
    return jax.tree.map(lambda one, other: jnp.where(jnp.asarray(admitted, bool), one, other), new, old)
