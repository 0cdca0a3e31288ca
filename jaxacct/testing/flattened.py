"""A training step as one straight line of primitive operations, so that noise can be followed through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as core
from jax.interpreters.partial_eval import dce_jaxpr

from jaxacct import _jaxprs
from jaxacct._types import Fields, PyTree

_CALLS = _jaxprs.CALLS | {"custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2"}
_MOST_ROUNDS = 256  # of a loop that is written out


def flattened(function: Callable[..., PyTree], *arguments: PyTree) -> tuple[core.ClosedJaxpr, PyTree]:
    """``function`` of ``arguments`` as a jaxpr without calls, and the shapes of what it returns.

    Conditions and scans that draw normal noise are written out, so that no noise is hidden in an operation: of a
    condition both branches run, and one result is selected.

    Raises:
        ValueError: noise in a loop of unknown length, or in a scan of more than 256 rounds.
    """
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    flat = jax.make_jaxpr(lambda *leaves: _opened(traced, leaves))(*jax.tree.leaves(arguments))
    jaxpr, _ = dce_jaxpr(flat.jaxpr, [True] * len(flat.jaxpr.outvars), instantiate=True)  # draws that nobody uses
    return core.ClosedJaxpr(jaxpr, flat.consts), shapes


def _opened(program: core.ClosedJaxpr, values: Sequence[PyTree]) -> list[Any]:
    return _jaxprs.run(program, values, _results)


def _results(equation: core.JaxprEqn, values: list[PyTree]) -> list[Any]:
    name, params, programs = equation.primitive.name, equation.params, list(_jaxprs.inside(equation))
    if name in _CALLS:
        return _opened(programs[0], values)
    if not any(map(_draws_noise, programs)):
        return _jaxprs.evaluated(equation, values)
    if name == "cond":
        which, *rest = values
        if which.dtype != bool and len(programs) == 2:
            which = which.astype(bool)
        branches = (_opened(branch, rest) for branch in programs)
        return [jax.lax.select_n(which, *results) for results in zip(*branches, strict=True)]
    if name == "scan" and params["length"] <= _MOST_ROUNDS:
        return _unrolled(params, values)
    raise ValueError(
        f"step must draw its noise outside of loops, got noise in a {name}: check one round of the loop, "
        f"or a scan of at most {_MOST_ROUNDS}"
    )


def _unrolled(params: Fields, values: list[PyTree]) -> list[Any]:
    fixed, carried, length = params["num_consts"], params["num_carry"], params["length"]
    consts, carry, rows = values[:fixed], values[fixed : fixed + carried], values[fixed + carried :]
    kept: list[PyTree] = [None] * length
    for number in reversed(range(length)) if params["reverse"] else range(length):
        row = [jax.lax.index_in_dim(leaf, number, keepdims=False) for leaf in rows]
        results = _opened(params["jaxpr"], [*consts, *carry, *row])
        carry, kept[number] = results[:carried], results[carried:]
    return [*carry, *(jax.lax.concatenate([x[None] for x in leaf], 0) for leaf in zip(*kept, strict=True))]


def _draws_noise(program: core.ClosedJaxpr) -> bool:
    return any(
        equation.primitive.name == "erf_inv" or any(map(_draws_noise, _jaxprs.inside(equation)))
        for equation in program.jaxpr.eqns
    )
