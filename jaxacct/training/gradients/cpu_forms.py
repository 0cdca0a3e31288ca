"""Convolutions and maximum pooling in the forms that XLA's CPU backend has fast code for.

Convolutions: batch and space first, features last; kernels with space first. XLA brings them into that order in the
entry of a program only. In the body of a loop or the branch of a condition, which is where a private training step
takes its gradients, those of a backward pass keep another order and run five times slower.

Convolutions in groups, which is what gradients of each example's own with respect to a kernel become: products of
matrices, one a group. XLA convolves one group after the other, in twice the time.

Gradients of maximum pooling over windows that do not overlap: comparisons of whole arrays. XLA visits the entries one
by one, in four times the time.

Groups that XLA would mix, so that a row that is not finite spoils the others, are kept apart on the way.

`in_cpu_form` writes these forms into the program itself; what is computed is the same, up to the order of additions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

# The types of which XLA keeps the groups of features in a convolution apart. Of others (float64), and in some places of
# groups of a batch in any type, it makes one convolution, with zeros between the groups: 0 times infinity, in one
# example's group, is a NaN in all others'.
_GROUPED = ("float32", "float16", "bfloat16")
# Functions of JAX's that look at all entries of an array to compute one.
_TOGETHER = {"regularized_incomplete_beta": "jax.scipy.special.betainc"}
_INLINED = ("jit", "pjit", "closed_call", "core_call")
# Most entries of the windows that a convolution in groups is cut into: 256 MB of float32.
_MOST_WINDOWS = 2**26
# Most entries of a pooling window: they are compared one after the other.
_MOST_POOLED = 16


def in_cpu_form(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with its convolutions and poolings, and those of the functions that it calls, in these forms.

    What stands inside loops and conditions of ``function`` itself stays as it is, and so does everything where this
    version of JAX does not let its programs be rewritten, and on another backend everything but groups of a batch.
    Apply it to what has been differentiated and mapped already: rules of custom derivatives do not survive.

    Raises ValueError where one row would change another's result: for convolutions inside of loops and conditions whose
    groups, one an example, XLA would mix, and for functions of JAX's that look at all rows.
    """

    def rewritten(*arguments: Any) -> Any:
        if not hasattr(core.Primitive, "get_bind_params"):
            return function(*arguments)
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        _refuse_mixed(closed.jaxpr, inside=False)
        if not _has_any(closed.jaxpr):
            return function(*arguments)
        results = _evaluated(closed.jaxpr, closed.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return rewritten


def _has_any(jaxpr: core.Jaxpr) -> bool:
    return any(
        _has_form(equation) or (equation.primitive.name in _INLINED and _has_any(_inner(equation).jaxpr))
        for equation in jaxpr.eqns
    )


def _has_form(equation: core.JaxprEqn) -> bool:
    on_cpu = jax.default_backend() == "cpu"
    return equation.primitive.name in _FORMS and (on_cpu or equation.params.get("batch_group_count", 1) > 1)


def _refuse_mixed(jaxpr: core.Jaxpr, inside: bool) -> None:
    """Raises ValueError where rows would be mixed: by some functions; by groups ``inside`` of a loop or condition."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in _TOGETHER:
            raise ValueError(
                f"loss must not use {_TOGETHER[equation.primitive.name]}: it refines all rows until the last one has "
                "converged, so that a row's last bits depend on the other rows"
            )
        if inside and equation.primitive.name == "conv_general_dilated" and _is_mixed(equation):
            raise ValueError(
                "loss must not convolve in groups, or in float64, inside a loop or condition, where an example that is "
                "not finite spoils the others' gradients: write the loop out, or convolve in float32"
            )
        for value in equation.params.values():
            for one in value if isinstance(value, tuple | list) else (value,):
                if isinstance(one, core.ClosedJaxpr | core.Jaxpr):
                    inner = one.jaxpr if isinstance(one, core.ClosedJaxpr) else one
                    _refuse_mixed(inner, inside or equation.primitive.name not in _INLINED)


def _is_mixed(equation: core.JaxprEqn) -> bool:
    kind = equation.outvars[0].aval.dtype.name  # pyright: ignore[reportAttributeAccessIssue]
    groups = equation.params["feature_group_count"]
    return equation.params["batch_group_count"] > 1 or (groups > 1 and kind not in _GROUPED)


def _inner(equation: core.JaxprEqn) -> core.ClosedJaxpr:
    return equation.params["jaxpr"] if "jaxpr" in equation.params else equation.params["call_jaxpr"]


def _evaluated(jaxpr: core.Jaxpr, constants: Sequence[object], arguments: Sequence[object]) -> list[Any]:
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))

    def value(atom: core.Var | core.Literal) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    for equation in jaxpr.eqns:
        inputs = [value(atom) for atom in equation.invars]
        name = equation.primitive.name
        found = _FORMS[name](*inputs, **equation.params) if _has_form(equation) else None
        if found is not None:
            outputs = [found]
        elif name in _INLINED and _has_any(_inner(equation).jaxpr):
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


def _convolved(image: jax.Array, kernel: jax.Array, *, dimension_numbers: Any, **parameters: Any) -> jax.Array:
    images, kernels, outputs = dimension_numbers
    # (batch, feature, *space); kernels (output feature, input feature, *space).
    image, kernel = image.transpose(images), kernel.transpose(kernels)
    if (groups := parameters["batch_group_count"]) > 1:  # the same sums, as groups of features
        split = image.reshape(groups, -1, *image.shape[1:]).swapaxes(0, 1)
        image = split.reshape(split.shape[0], -1, *image.shape[2:])
        parameters |= {"batch_group_count": 1, "feature_group_count": groups}
    found = _in_matrices(image, kernel, **parameters)
    if found is None:
        whole = image.dtype.name in _GROUPED or parameters["feature_group_count"] == 1
        found = (_canonical if whole else _one_by_one)(image, kernel, **parameters)
    return found.transpose([outputs.index(axis) for axis in range(len(outputs))])


def _canonical(image: jax.Array, kernel: jax.Array, **parameters: Any) -> jax.Array:
    """The convolution with batch and space first and features last, between transpositions."""
    rank = image.ndim
    last = (0, rank - 1, *range(1, rank - 1))
    numbers = jax.lax.ConvDimensionNumbers(last, (rank - 1, rank - 2, *range(rank - 2)), last)
    known = (
        "window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count", "batch_group_count",
        "precision", "preferred_element_type",
    )  # fmt: skip
    found = jax.lax.conv_general_dilated(
        image.transpose(0, *range(2, rank), 1),
        kernel.transpose(*range(2, rank), 1, 0),
        dimension_numbers=numbers,
        **{name: parameters[name] for name in known},
    )
    return found.transpose(last)


def _one_by_one(image: jax.Array, kernel: jax.Array, *, feature_group_count: int, **parameters: Any) -> jax.Array:
    """The convolution in groups as a loop over them."""
    groups = feature_group_count
    image = image.reshape(image.shape[0], groups, -1, *image.shape[2:]).swapaxes(0, 1)
    kernel = kernel.reshape(groups, -1, *kernel.shape[1:])
    found = jax.lax.map(lambda pair: _canonical(*pair, feature_group_count=1, **parameters), (image, kernel))
    return found.swapaxes(0, 1).reshape(found.shape[1], -1, *found.shape[3:])


def _in_matrices(
    image: jax.Array,
    kernel: jax.Array,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    feature_group_count: int,
    **parameters: Any,
) -> jax.Array | None:
    """The convolution in groups as one product of matrices a group; None unless outputs are fewer than a kernel's."""
    groups, window = feature_group_count, kernel.shape[2:]
    if groups == 1 or not math.prod(image.shape) * math.prod(kernel.shape):
        return None
    batch, features = image.shape[0], kernel.shape[1]
    spread = [(low, high, step - 1) for (low, high), step in zip(padding, lhs_dilation, strict=True)]
    widths = [
        max(0, size + (size - 1) * gap + low + high)
        for size, (low, high, gap) in zip(image.shape[2:], spread, strict=True)
    ]
    spans = [(size - 1) * step + 1 for size, step in zip(window, rhs_dilation, strict=True)]
    counts = [max(0, (w - span) // step + 1) for w, span, step in zip(widths, spans, window_strides, strict=True)]
    positions = math.prod(counts)
    entries = positions * groups * batch * features * math.prod(window)
    if not 0 < positions < math.prod(window) or entries > _MOST_WINDOWS:
        return None

    split = image.swapaxes(0, 1).reshape(groups, features, batch, *image.shape[2:]).swapaxes(1, 2)
    padded = jax.lax.pad(split, jnp.zeros((), split.dtype), [(0, 0, 0)] * 3 + spread)
    padded = jax.lax.optimization_barrier(padded)  # or it is padded again in each window

    def cut(position: tuple[int, ...]) -> jax.Array:
        first = [p * step for p, step in zip(position, window_strides, strict=True)]
        end = [start + span for start, span in zip(first, spans, strict=True)]
        return jax.lax.slice(padded, [0] * 3 + first, [*padded.shape[:3], *end], [1] * 3 + list(rhs_dilation))

    windows = jnp.stack([cut(position) for position in itertools.product(*map(range, counts))], axis=1)
    products = jnp.einsum(
        "gpk,kgo->gpo",
        windows.reshape(groups, positions * batch, -1),
        jnp.moveaxis(kernel, 0, -1).reshape(-1, groups, kernel.shape[0] // groups),
        precision=parameters["precision"],
        preferred_element_type=parameters["preferred_element_type"],
    )
    found = products.reshape(groups, positions, batch, -1).transpose(2, 0, 3, 1)
    return found.reshape(batch, -1, *counts)


def _pooling_gradient(
    source: jax.Array,
    operand: jax.Array,
    *,
    select_prim: core.Primitive,
    window_dimensions: tuple[int, ...],
    window_strides: tuple[int, ...],
    padding: Sequence[tuple[int, int]],
) -> jax.Array | None:
    """``source`` at the entry of each window that `select_prim` chooses, 0 elsewhere; None where windows overlap."""
    whole = tuple(size * width for size, width in zip(source.shape, window_dimensions, strict=True))
    if window_dimensions != window_strides or any(map(any, padding)) or math.prod(window_dimensions) > _MOST_POOLED:
        return None
    if any(size < width for size, width in zip(operand.shape, whole, strict=True)):
        return None
    offsets = list(itertools.product(*map(range, window_dimensions)))
    entries = [jax.lax.slice(operand, offset, whole, window_strides) for offset in offsets]
    best, chosen = entries[0], jnp.zeros(source.shape, jnp.int32)
    for i, entry in enumerate(entries[1:], 1):
        kept = select_prim.bind(best, entry)
        best, chosen = jnp.where(kept, best, entry), jnp.where(kept, chosen, i)
    # Each window dimension stands beside its own: (size, width, size, width, ...).
    beside = [part for size in source.shape for part in (size, 1)]
    number = jnp.arange(len(offsets)).reshape([part for width in window_dimensions for part in (1, width)])
    placed = jnp.where(chosen.reshape(beside) == number, source.reshape(beside), 0).reshape(whole)
    rest = [(0, size - width, 0) for size, width in zip(operand.shape, whole, strict=True)]
    return jax.lax.pad(placed, jnp.zeros((), source.dtype), rest)


_FORMS = {"conv_general_dilated": _convolved, "select_and_scatter_add": _pooling_gradient}
