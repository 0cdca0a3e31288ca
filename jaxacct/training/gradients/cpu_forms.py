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

import jax
import jax.numpy as jnp
from jax.extend import core

from jaxacct import _jaxprs
from jaxacct._types import PyTree

# The types of which XLA keeps the groups of features in a convolution apart. Of others (float64), and in some places of
# groups of a batch in any type, it makes one convolution, with zeros between the groups: 0 times infinity, in one
# example's group, is a NaN in all others'.
_GROUPED = ("float32", "float16", "bfloat16")
# Functions of JAX's that look at all entries of an array to compute one.
_TOGETHER = {"regularized_incomplete_beta": "jax.scipy.special.betainc"}
# Most entries of the windows that a convolution in groups is cut into: 256 MB of float32.
_MOST_WINDOWS = 2**26
# Most entries of a pooling window: they are compared one after the other.
_MOST_POOLED = 16


def in_cpu_form(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``function`` with its convolutions and poolings, and those of the functions that it calls, in these forms.

    What stands inside loops and conditions of ``function`` itself stays as it is, and on another backend so does
    everything but groups of a batch. Apply it to what has been differentiated and mapped already: rules of custom
    derivatives do not survive.

    Raises ValueError where one row would change another's result: for convolutions inside of loops and conditions whose
    groups, one an example, XLA would mix, and for functions of JAX's that look at all rows.
    """

    def rewritten(*arguments: PyTree) -> PyTree:
        program, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        if not _has_any(program.jaxpr):
            return function(*arguments)
        results = _jaxprs.run(program, jax.tree.leaves(arguments), _in_form)
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return rewritten


def _has_any(jaxpr: core.Jaxpr, looped: bool = False) -> bool:
    """Whether there is something to rewrite, which there is not where it is ``looped``: inside a loop or condition.

    Raises ValueError where rows would be mixed: by some functions; by groups inside of a loop or condition.
    """
    found = False
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in _TOGETHER:
            raise ValueError(
                f"loss must not use {_TOGETHER[name]}: it refines all rows until the last one has converged, so that a "
                "row's last bits depend on the other rows"
            )
        if looped and name == "conv_general_dilated" and _is_mixed(equation):
            raise ValueError(
                "loss must not convolve in groups, or in float64, inside a loop or condition, where an example that is "
                "not finite spoils the others' gradients: write the loop out, or convolve in float32"
            )
        found |= _has_form(equation) and not looped
        for inner in _jaxprs.inside(equation):
            found |= _has_any(inner.jaxpr, looped or name not in _jaxprs.CALLS)
    return found


def _has_form(equation: core.JaxprEqn) -> bool:
    on_cpu = jax.default_backend() == "cpu"
    return equation.primitive.name in _FORMS and (on_cpu or equation.params.get("batch_group_count", 1) > 1)


def _is_mixed(equation: core.JaxprEqn) -> bool:
    kind = equation.outvars[0].aval.dtype.name  # pyright: ignore[reportAttributeAccessIssue]
    groups = equation.params["feature_group_count"]
    return equation.params["batch_group_count"] > 1 or (groups > 1 and kind not in _GROUPED)


def _in_form(equation: core.JaxprEqn, inputs: list[PyTree]) -> Sequence[PyTree]:
    if equation.primitive.name in _jaxprs.CALLS:
        (inner,) = _jaxprs.inside(equation)
        return _jaxprs.run(inner, inputs, _in_form)
    found = _FORMS[equation.primitive.name](*inputs, **equation.params) if _has_form(equation) else None
    return _jaxprs.evaluated(equation, inputs) if found is None else [found]


def _convolved(image: jax.Array, kernel: jax.Array, *, dimension_numbers: PyTree, **parameters: PyTree) -> jax.Array:
    images, kernels, outputs = dimension_numbers
    # (batch, feature, *space); kernels (output feature, input feature, *space).
    image, kernel = image.transpose(images), kernel.transpose(kernels)
    if (groups := parameters["batch_group_count"]) > 1:  # the same sums, as groups of features
        split = image.reshape(groups, -1, *image.shape[1:]).swapaxes(0, 1)
        image = split.reshape(split.shape[0], -1, *image.shape[2:])
        parameters |= {"batch_group_count": 1, "feature_group_count": groups}
    found = _in_matrices(image, kernel, **parameters)
    found = _canonical(image, kernel, **parameters) if found is None else found
    return found.transpose([outputs.index(axis) for axis in range(len(outputs))])


def _canonical(image: jax.Array, kernel: jax.Array, **parameters: PyTree) -> jax.Array:
    """The convolution with batch and space first and features last, between transpositions."""
    rank = image.ndim
    last = (0, rank - 1, *range(1, rank - 1))
    numbers = jax.lax.ConvDimensionNumbers(last, (rank - 1, rank - 2, *range(rank - 2)), last)
    found = jax.lax.conv_general_dilated_p.bind(
        image.transpose(0, *range(2, rank), 1),
        kernel.transpose(*range(2, rank), 1, 0),
        dimension_numbers=numbers,
        **parameters,
    )
    return found.transpose(last)


def _in_matrices(
    image: jax.Array,
    kernel: jax.Array,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    feature_group_count: int,
    **parameters: PyTree,
) -> jax.Array | None:
    """The convolution in groups as one product of matrices a group; None where that is neither faster nor needed."""
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
    slower = positions >= math.prod(window) or entries > _MOST_WINDOWS
    if not positions or (slower and image.dtype.name in _GROUPED):
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
