"""Flax networks, NNX or linen, as pure functions of their parameters, and a few that suit private training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jaxacct import _validate
from jaxacct._types import PyTree

MODELS = ("linear", "mlp", "conv")
_HIDDEN = 64


class Network(NamedTuple):
    """A classifier as parameters and pure functions.

    Attributes:
        params: pytree of float32 parameters.
        logits: ``logits(params, x)``: (..., *features) to (..., classes).
        loss: ``loss(params, (x, y))``: cross-entropy of one example, x (*features), y () integer label; a
            scalar.
    """

    params: PyTree
    logits: Callable[[PyTree, jax.Array], jax.Array]
    loss: Callable[[PyTree, tuple[jax.Array, jax.Array]], jax.Array]


def from_flax(model: object, variables: object = None) -> Network:
    """``model``, called on a batch, as pure functions of its parameters.

    Args:
        model: an ``nnx.Module``, or a ``flax.linen.Module`` together with its variables.
        variables: for linen: what ``model.init(key, batch)`` returned.

    Raises:
        ValueError: the model holds state besides parameters. Running averages (BatchNorm) are statistics of
            private examples that no noise protects, and random state (Dropout) would be reused across
            steps; LayerNorm and GroupNorm look at one example at a time and are fine. Also: a linen model without
            its variables, or something that is neither kind of model.
    """
    params, logits = _nnx(model) if isinstance(model, nnx.Module) else _linen(model, variables)

    def loss(params: PyTree, example: tuple[jax.Array, jax.Array]) -> jax.Array:
        x, y = example
        scores = logits(params, x[None])[0]
        return optax.softmax_cross_entropy_with_integer_labels(scores, y)

    return Network(params, logits, loss)


def _nnx(model: nnx.Module) -> tuple[PyTree, Callable[[PyTree, jax.Array], jax.Array]]:
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    _only_parameters(
        {type(leaf).__name__ for leaf in jax.tree.leaves(rest, is_leaf=lambda v: isinstance(v, nnx.Variable))}
    )
    return params, lambda params, x: nnx.merge(graph, params, rest)(x)


def _linen(model: object, variables: object) -> tuple[PyTree, Callable[[PyTree, jax.Array], PyTree]]:
    from flax import linen

    if not isinstance(model, linen.Module):
        raise ValueError(f"model must be an nnx.Module or a flax.linen.Module, got {type(model).__name__}")
    if not isinstance(variables, Mapping) or "params" not in variables:
        raise ValueError("variables must hold a linen model's parameters, as model.init(key, batch) returns them")
    _only_parameters(set(variables) - {"params"})
    return variables["params"], lambda params, x: model.apply({"params": params}, x)


def _only_parameters(extra: set[str]) -> None:
    if extra:
        raise ValueError(
            f"model must hold parameters only, got {', '.join(sorted(extra))}: private training would leak such state"
        )


class Mlp(nnx.Module):
    """Dense layers with tanh between (bounded activations keep gradients short: Papernot et al. 2021)."""

    def __init__(self, widths: tuple[int, ...], *, rngs: nnx.Rngs):
        self.layers = nnx.List([nnx.Linear(before, after, rngs=rngs) for before, after in itertools.pairwise(widths)])

    def __call__(self, x: jax.Array) -> jax.Array:
        """(batch, *features) to (batch, classes)."""
        x = x.reshape(x.shape[0], -1)
        for layer in self.layers[:-1]:
            x = jnp.tanh(layer(x))
        return self.layers[-1](x)


class ConvNet(nnx.Module):
    """Two strided convolutions with tanh, group normalisation within each example, and a dense layer."""

    def __init__(self, shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs):
        (height, width, depth), channels = shape, 16
        self.first = nnx.Conv(depth, channels, (3, 3), strides=(2, 2), rngs=rngs)
        self.norm = nnx.GroupNorm(channels, num_groups=4, rngs=rngs)
        self.second = nnx.Conv(channels, 2 * channels, (3, 3), strides=(2, 2), rngs=rngs)
        rows, columns = -(-height // 4), -(-width // 4)
        self.head = nnx.Linear(rows * columns * 2 * channels, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """(batch, height, width, depth) to (batch, classes)."""
        x = jnp.tanh(self.norm(self.first(x)))
        x = jnp.tanh(self.second(x))
        return self.head(x.reshape(x.shape[0], -1))


def build_network(name: str, shape: tuple[int, ...], classes: int, seed: int) -> Network:
    """A fresh network for examples of ``shape``: "linear", "mlp" (64 numbers in between) or "conv" (images only).

    Args:
        name: one of ``MODELS``.
        shape: features of one example, (features,) or (height, width, depth).
        classes: number of labels.
        seed: seed of the initial parameters, which are public.

    Raises:
        ValueError: an unknown name, "conv" on examples that are not images, sizes that are no whole numbers above 0 or
            may give more than 2^28 parameters.
    """
    _validate.integer(0, 2**32 - 1, seed=seed)
    _validate.one_of(MODELS, model=name)
    if not isinstance(shape, tuple | list) or not shape:
        raise ValueError(f"shape must be a tuple of whole numbers, got {shape!r:.200}")
    for part in shape:
        _validate.whole(shape=part)
    _validate.whole(classes=classes)
    shape, classes, rngs = tuple(int(part) for part in shape), int(classes), nnx.Rngs(int(seed))
    features = math.prod(shape)
    if max(features, classes) * max(classes, _HIDDEN) > 2**28:
        raise ValueError(f"shape and classes must give at most 2**28 parameters, got {shape} and {classes}")
    if name != "conv":
        return from_flax(Mlp((features, _HIDDEN, classes) if name == "mlp" else (features, classes), rngs=rngs))
    if len(shape) != 3:
        raise ValueError(f"model conv needs images (height, width, depth), got examples of shape {shape}")
    return from_flax(ConvNet(shape, classes, rngs=rngs))
