"""`halting_scan`: runs a step until the filter refuses, in one compiled loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.manual_axes import cond, while_loop
from jaxacct._types import PyTree
from jaxacct.filters.base import Filter
from jaxacct.filters.marks import check_state, shown

_MOST = 2**31 - 2


class Halted(NamedTuple):
    """The result of `halting_scan`.

    Attributes:
        carry: after the last admitted step.
        state: the filter's state after it.
        steps: how many steps ran, int32.
        refused: True if the filter ended the loop, False if ``length`` did.
    """

    carry: PyTree
    state: PyTree
    steps: Array
    refused: Array


def halting_scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, Callable[[], PyTree]]],
    filter: Filter,
    carry: PyTree,
    *,
    state: PyTree = None,
    length: ArrayLike | None = None,
) -> Halted:
    """Runs a loop under a filter: propose a query, ask, run it; until one is refused or ``length`` steps have run.

    ``step(carry, state)`` looks at what has been released so far and returns ``(query, run)``: the query that it wants
    to make, and a function of no arguments that makes it and returns the next carry. ``run`` is called only where
    ``filter.update`` has admitted that very query; it may close over anything that ``step`` computed. A DP-SGD step:

        def step(carry, state):
            params, key, n = carry
            sigma = schedule(params, filter.remaining(state))
            def run():
                return sgd(params, sigma, jax.random.fold_in(key, n)), key, n + 1
            return PoissonSampled(Gaussian(sigma), rate), run

        end = jax.jit(lambda filter, carry: halting_scan(step, filter, carry))(filters.renyi(...), carry)

    The filter does not cover what ``step`` itself does: whatever touches private data belongs into ``run``. (XLA may
    execute a ``run`` that was not admitted, for example under `vmap`; its result is discarded.)

    The loop is one ``jax.lax.while_loop``: budgets, states and ``length`` may be traced, ``vmap`` maps over many
    interactions (each stops by itself), and a float32 program stays float32.

    Args:
        step: as above; the carry that ``run`` returns has the structure, shapes and dtypes of ``carry``.
        filter: any filter or odometer for one interaction.
        carry: a pytree of arrays.
        state: the filter's state to go on from; by default ``filter.init()``.
        length: most steps to run, a whole number >= 0, traced or not; by default 2^31 - 2.

    Returns:
        `Halted`; a ``length`` of 0 runs nothing and asks nothing.

    Raises:
        ValueError: a filter with a batch of budgets (use ``jax.vmap``), a negative ``length``, a concrete ``state`` of
            another filter, a ``step`` that does not return a pair.
    """
    _validate.function(step=step)
    _validate.methods("init", "update", filter=filter)
    _validate.arrays(carry=carry, state=state)
    length = _MOST if length is None else length
    _validate.number(_validate.nonnegative, length=length)
    if not _validate.is_traced(length):
        length = min(int(np.asarray(length)[()]), _MOST)
    most = jnp.minimum(jnp.asarray(length), _MOST).astype(jnp.int32)
    start = filter.init()
    if state is not None:
        if jax.tree.structure(state) != jax.tree.structure(start):
            raise ValueError(f"state must be what this filter's init or update returned, got {shown(state)}")
        check_state(filter, state)
        start = state
    carry = jax.tree.map(jnp.asarray, carry)
    shapes = jax.eval_shape(lambda: carry)

    def more(loop: Halted) -> Array:
        return (loop.steps < most) & ~loop.refused

    def body(loop: Halted) -> Halted:
        proposal = step(loop.carry, loop.state)
        if not (isinstance(proposal, tuple) and len(proposal) == 2 and callable(proposal[1])):
            raise ValueError(f"step must return (query, run), got {type(proposal).__name__}")
        query, run = proposal
        admitted, after = filter.update(query, loop.state)
        if np.shape(admitted) != ():
            raise ValueError(
                f"filter must have one budget, got a batch of shape {np.shape(admitted)}; map over it with jax.vmap"
            )
        moved = cond(admitted, lambda: _like(shapes, run()), lambda: loop.carry)
        return Halted(moved, after, loop.steps + admitted.astype(jnp.int32), ~admitted)

    return while_loop(more, body, Halted(carry, start, jnp.int32(0), jnp.array(False)))


def _like(shapes: PyTree, moved: PyTree) -> PyTree:
    """``moved``, once it is known to have the structure, shapes and types of the carry before."""

    def of(tree: PyTree) -> PyTree:
        return jax.tree.structure(tree), [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in jax.tree.leaves(tree)]

    _validate.arrays(step=moved)
    if of(moved) != of(shapes):
        raise ValueError(f"step's run must return a carry like the one before, {shapes!r:.200}, got {moved!r:.200}")
    return moved
