"""Checks of arguments that are trees or functions, and the type of a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import Array, PyTree

# Outside of it float32 loses gradients: those longer than 1e19 clip norms count as 0, and so do coordinates below 2^-24
# of one.
_LEAST_CLIP, _MOST_CLIP = 1e-12, 1e12

_IN_FLAX = (
    "Running averages (BatchNorm) are statistics of private examples that no noise protects, and random streams "
    "(Dropout) would repeat: use GroupNorm or LayerNorm, or call model.eval() before nnx.split; and take the model "
    "that the loss calls from nnx.merge(graph, params) inside the loss"
)

Tree = TypeVar("Tree")
Params = TypeVar("Params")
Loss: TypeAlias = Callable[[Params, PyTree], jax.Array]
"""``loss(params, example)``: a scalar for one example, without a batch axis."""


def clip_norms(**named: ArrayLike) -> None:
    """Every value is one number, and where it is concrete a clip norm that gradients in float32 survive."""
    _validate.number(_validate.positive, **named)
    for name, value in named.items():
        if not _validate.is_traced(value) and not _LEAST_CLIP <= float(np.asarray(value)) <= _MOST_CLIP:
            raise ValueError(f"{name} must be between {_LEAST_CLIP:g} and {_MOST_CLIP:g}, got {value!r:.200}")


def usable_clip(clip_norm: jax.Array) -> jax.Array:
    """Whether a clip norm, traced or not, is what `clip_norms` asks for; False for NaN."""
    return (clip_norm >= _LEAST_CLIP) & (clip_norm <= _MOST_CLIP)


def mask(value: ArrayLike) -> jax.Array:
    """``mask``, one entry an example, as truth values: one that counted twice would be twice in the sum."""
    _validate.numbers(mask=value)
    if np.ndim(value) != 1 or not np.shape(value)[0]:
        raise ValueError(f"mask must have shape (size,), got {np.shape(value)}")
    return jnp.asarray(value if _validate.is_traced(value) else np.asarray(value) != 0).astype(bool)


def floats(**named: object) -> None:
    """One value is a tree of floating-point arrays, at least one."""
    ((name, value),) = named.items()
    _validate.real_arrays(**named)
    leaves = jax.tree_util.tree_leaves_with_path(value)
    if not leaves:
        raise ValueError(f"{name} must hold at least one floating-point array, got {_validate.shown(value)}")
    for path, leaf in leaves:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            at = jax.tree_util.keystr(path)
            raise ValueError(f"{name} must be floating point, got {jnp.result_type(leaf)} at {at or 'its root'}")


def rows(**named: object) -> int:
    """The one length of the leading axes of a tree of arrays, above 0.

    Were the leaves of different lengths, indices of the longer ones would be clipped to the shorter ones' last row,
    which would then count more than once.
    """
    ((name, value),) = named.items()
    _validate.real_arrays(**named)
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(value)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"{name} must hold arrays of one length, that of their common leading axis, and must not be empty, got "
            f"lengths {sorted(lengths)}"
        )
    return lengths.pop()


def per_example(gradients: object, like: object, batch: int) -> None:
    """``gradients`` are a tree of the shapes of ``like``, with a leading axis of ``batch``.

    Anything else would be broadcast, and a vector that is spread over more coordinates is longer than it was clipped.
    """
    _validate.real_arrays(gradients=gradients)
    structure, shapes = _validate.shapes(like)
    wanted = [(batch, *shape) for shape in shapes]
    found = _validate.shapes(gradients)
    if found != (structure, wanted):
        raise ValueError(f"gradients must be a tree of shapes {wanted}, got {found[1]} in {found[0]!r:.200}")


def losses(loss: Loss[Params], has_aux: bool = False) -> Callable[[Params, PyTree], PyTree]:
    """``loss``, with its results checked to be one real number each, with ``has_aux`` beside something else."""
    _validate.function(loss=loss)
    _validate.truth(has_aux=has_aux)

    def checked(params: Params, example: object) -> PyTree:
        try:
            value: Array = loss(params, example)
        except Exception as problem:
            if type(problem).__name__ != "TraceContextError":  # Flax's, which need not be installed
                raise
            said = str(problem).partition(" (http")[0]
            raise ValueError(
                f"loss must change nothing that was made outside of it, and Flax says: {said}. {_IN_FLAX}"
            ) from problem
        if has_aux and not (isinstance(value, tuple) and len(value) == 2):
            raise ValueError(f"loss must return a pair (loss, aux) with has_aux, got {_validate.shown(value)}")
        value, aux = value if has_aux else (value, None)
        _validate.real_arrays(loss=value)
        if not jax.tree_util.all_leaves([value]) or np.ndim(value):
            raise ValueError(f"loss must return one real number for one example, got {_validate.shown(value)}")
        value = jnp.asarray(value, jnp.promote_types(jnp.result_type(value), jnp.float32))
        return (value, aux) if has_aux else value

    return checked


def scalar_loss(loss: Loss[Params], has_aux: bool = False) -> Loss[Params]:
    """``loss`` checked as by `losses`, without what ``has_aux`` says to be beside it."""
    checked = losses(loss, has_aux)
    return (lambda params, example: checked(params, example)[0]) if has_aux else checked


def labels(scores: jax.Array, y: jax.Array) -> None:
    """``scores`` have a row of classes for every label; other shapes would broadcast to more answers than examples."""
    _validate.real_arrays(logits=scores)
    if np.ndim(y) != 1 or np.ndim(scores) != 2 or np.shape(scores)[0] != np.shape(y)[0]:
        raise ValueError(
            f"logits must have shape (examples, classes) and y (examples,), got {np.shape(scores)} and {np.shape(y)}"
        )
