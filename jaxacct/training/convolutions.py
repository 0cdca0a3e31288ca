"""Convolutions in the one order of dimensions that XLA's CPU backend has a fast kernel for.

XLA brings convolutions into that order (batch and space first, features last; kernels with space first) in the entry of
a program only. In the body of a loop or the branch of a condition, which is where a private training step takes its
gradients, those of a backward pass keep another order and run five times slower. `in_canonical_order` writes the
transpositions into the program itself; what is computed is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core

__all__ = ["in_canonical_order"]

_CONVOLUTION = "conv_general_dilated"
_INLINED = ("jit", "pjit", "closed_call", "core_call")


def in_canonical_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with its convolutions, and those of the functions that it calls, in canonical order.

    Convolutions inside loops and conditions of ``function`` itself stay as they are, and so does everything where this
    version of JAX does not let its programs be rewritten. Apply it to what has been differentiated and mapped already:
    rules of custom derivatives do not survive.
    """

    def rewritten(*arguments: Any) -> Any:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        if not _has_convolutions(closed.jaxpr) or not hasattr(core.Primitive, "get_bind_params"):
            return function(*arguments)
        results = _evaluated(closed.jaxpr, closed.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return rewritten


def _has_convolutions(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name == _CONVOLUTION
        or (equation.primitive.name in _INLINED and _has_convolutions(_inner(equation).jaxpr))
        for equation in jaxpr.eqns
    )


def _inner(equation: Any) -> Any:
    return equation.params["jaxpr"] if "jaxpr" in equation.params else equation.params["call_jaxpr"]


def _evaluated(jaxpr: Any, constants: list[Any], arguments: list[Any]) -> list[Any]:
    known: dict[Any, Any] = {}

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    known.update(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))
    for equation in jaxpr.eqns:
        inputs = [value(atom) for atom in equation.invars]
        name = equation.primitive.name
        if name == _CONVOLUTION:
            outputs = [_canonical(*inputs, **equation.params)]
        elif name in _INLINED and _has_convolutions(_inner(equation).jaxpr):
            inner = _inner(equation)
            outputs = _evaluated(inner.jaxpr, inner.consts, inputs)
        else:
            bound = equation.primitive.get_bind_params(equation.params)  # a pair with functions in front in older JAX
            functions, parameters = bound if isinstance(bound, tuple) else ((), bound)
            with equation.ctx.manager:
                found = equation.primitive.bind(*functions, *inputs, **parameters)
            outputs = found if equation.primitive.multiple_results else [found]
        known.update(zip(equation.outvars, outputs, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _canonical(image: Any, kernel: Any, *, dimension_numbers: Any, **parameters: Any) -> Any:
    """The convolution with batch and space first and features last, between transpositions."""
    images, kernels, outputs = dimension_numbers
    space = range(2, len(images))
    # Of images and outputs: (batch, feature, *space); of kernels: (output feature, input feature, *space).
    image = image.transpose(images[0], *(images[i] for i in space), images[1])
    kernel = kernel.transpose(*(kernels[i] for i in space), kernels[1], kernels[0])
    rank = len(images)
    last = (0, rank - 1, *range(1, rank - 1))
    numbers = jax.lax.ConvDimensionNumbers(last, (rank - 1, rank - 2, *range(rank - 2)), last)
    known = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count", "batch_group_count")
    found = jax.lax.conv_general_dilated(
        image,
        kernel,
        dimension_numbers=numbers,
        precision=parameters.get("precision"),
        preferred_element_type=parameters.get("preferred_element_type"),
        **{name: parameters[name] for name in known},
    )
    back = [0] * rank
    back[outputs[0]], back[outputs[1]] = 0, rank - 1
    for i, axis in enumerate(outputs[2:]):
        back[axis] = i + 1
    return found.transpose(back)
