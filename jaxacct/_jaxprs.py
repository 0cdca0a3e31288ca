"""Runs JAX's programs (jaxprs) operation by operation, so that some can be watched, or computed in another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.extend import core

from jaxacct._types import PyTree

CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})
"""Operations that run another program once, as it stands."""


def run(
    program: core.ClosedJaxpr, arguments: Sequence[PyTree], results: Callable[[core.JaxprEqn, list[Any]], Sequence[Any]]
) -> list[Any]:
    """What a program returns of ``arguments``, where ``results(equation, inputs)`` are those of one operation."""
    jaxpr = program.jaxpr
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*program.consts, *arguments), strict=True))

    def value(atom: core.Var | core.Literal) -> PyTree:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        values.update(zip(equation.outvars, results(equation, [value(atom) for atom in equation.invars]), strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def evaluated(equation: core.JaxprEqn, inputs: Sequence[PyTree]) -> list[Any]:
    """The results of an operation as JAX computes them."""
    found = equation.primitive.get_bind_params(equation.params)
    functions, parameters = found if isinstance(found, tuple) else ((), found)  # a pair until JAX 0.9
    with equation.ctx.manager:  # its precision
        results = equation.primitive.bind(*functions, *inputs, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]


def inside(equation: core.JaxprEqn) -> Iterator[core.ClosedJaxpr]:
    """The programs that an operation runs: that of a call, those of a condition or of a loop."""
    for value in equation.params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, core.ClosedJaxpr | core.Jaxpr):
                yield one if isinstance(one, core.ClosedJaxpr) else core.ClosedJaxpr(one, [])
