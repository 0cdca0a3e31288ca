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
    _validate.number(admitted=admitted)
    _validate.arrays(new=new)
    _validate.arrays(old=old)
    found, wanted = (jax.tree.map(jax.typeof, tree) for tree in (new, old))
    kinds = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)] for tree in (found, wanted)]
    if jax.tree.structure(new) != jax.tree.structure(old) or kinds[0] != kinds[1]:
        raise ValueError(f"new must have the structure, shapes and types of old, {wanted!r:.200}, got {found!r:.200}")
    return jax.tree.map(lambda one, other: jnp.where(jnp.asarray(admitted, bool), one, other), new, old)
