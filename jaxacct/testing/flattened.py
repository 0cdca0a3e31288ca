"""A training step as one straight line of primitive operations, so that noise can be followed through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core as core
from jax.interpreters.partial_eval import dce_jaxpr

from jaxacct._types import PyTree

_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2"}
_MOST_ROUNDS = 256  # of a loop that is written out


def flattened(function: Callable[..., Any], *arguments: Any) -> tuple[core.ClosedJaxpr, Any]:
    """``function`` of ``arguments`` as a jaxpr without calls, and the shapes of what it returns.

    Conditions and scans that draw normal noise are written out, so that no noise is hidden in an operation: of a
    condition both branches run, and one result is selected.

    Raises:
        ValueError: noise in a loop of unknown length, or in a scan of more than 256 rounds.
    """
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    flat = jax.make_jaxpr(lambda *leaves: _opened(traced.jaxpr, traced.consts, *leaves))(*jax.tree.leaves(arguments))
    jaxpr, _ = dce_jaxpr(flat.jaxpr, [True] * len(flat.jaxpr.outvars), instantiate=True)  # draws that nobody uses
    return core.ClosedJaxpr(jaxpr, flat.consts), shapes


def _opened(jaxpr: Any, consts: Any, *values: Any) -> list[Any]:
    found: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *values), strict=True))

    def read(atom: core.Var | core.Literal) -> PyTree:
        return atom.val if isinstance(atom, core.Literal) else found[atom]

    for equation in jaxpr.eqns:
        results = _results(equation, [read(atom) for atom in equation.invars])
        found.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _results(equation: core.JaxprEqn, values: list[jax.Array]) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        inner = params.get("jaxpr", params.get("call_jaxpr"))
        closed = isinstance(inner, core.ClosedJaxpr)
        return _opened(inner.jaxpr, inner.consts, *values) if closed else _opened(inner, [], *values)
    if not any(_draws_noise(inner) for inner in _inside(params)):
        return evaluated(equation, values)
    if name == "cond":
        which, *rest = values
        branches = [_opened(branch.jaxpr, branch.consts, *rest) for branch in params["branches"]]
        if which.dtype != bool and len(branches) == 2:
            which = which.astype(bool)
        return [jax.lax.select_n(which, *results) for results in zip(*branches, strict=True)]
    if name == "scan" and params["length"] <= _MOST_ROUNDS:
        return _unrolled(params, values)
    raise ValueError(
        f"step must draw its noise outside of loops, got noise in a {name}: check one round of the loop, "
        f"or a scan of at most {_MOST_ROUNDS}"
    )


def _unrolled(params: Any, values: list[Any]) -> list[Any]:
    fixed, carried, length = params["num_consts"], params["num_carry"], params["length"]
    consts, carry, rows = values[:fixed], values[fixed : fixed + carried], values[fixed + carried :]
    body, kept = params["jaxpr"], [None] * length
    for number in reversed(range(length)) if params["reverse"] else range(length):
        row = [jax.lax.index_in_dim(leaf, number, keepdims=False) for leaf in rows]
        results = _opened(body.jaxpr, body.consts, *consts, *carry, *row)
        carry, kept[number] = results[:carried], results[carried:]
    return [*carry, *(jax.lax.concatenate([x[None] for x in leaf], 0) for leaf in zip(*kept, strict=True))]


def evaluated(equation: core.JaxprEqn, values: list[jax.Array]) -> list[Any]:
    """The results of one operation."""
    found = equation.primitive.get_bind_params(equation.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # a pair until JAX 0.9
    with equation.ctx.manager:  # its precision
        results = equation.primitive.bind(*functions, *values, **params)
    return list(results) if equation.primitive.multiple_results else [results]


def _inside(params: dict[str, object]) -> Iterator[Any]:
    for value in params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            if isinstance(inner, core.ClosedJaxpr | core.Jaxpr):
                yield getattr(inner, "jaxpr", inner)


def _draws_noise(jaxpr: core.Jaxpr) -> bool:
    names = _names(jaxpr)
    return "erf_inv" in names or {"random_bits", "sqrt", "cos"} <= names


def _names(jaxpr: core.Jaxpr) -> set[str]:
    found = {equation.primitive.name for equation in jaxpr.eqns}
    return found.union(*(_names(inner) for equation in jaxpr.eqns for inner in _inside(equation.params)))
