"""Runs a flat training step with chosen noise, and from released values that are given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.extend.core as core
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _jaxprs
from jaxacct._types import PyTree
from jaxacct.testing.flattened import flattened
from jaxacct.testing.releases import Releases, releases


class Seen(NamedTuple):
    """What one run shows.

    Attributes:
        outputs: the leaves that the step returns; keys as their words.
        inputs: the value of every release: what is private in it, plus the noise of this run.
        normal: the normal draws, of variance 1, before any factor.
        keys: the words of the keys that bits were drawn from, one array an operation.
        split: the words of the keys that were split.
    """

    outputs: list[jax.Array]
    inputs: list[jax.Array]
    normal: list[jax.Array]
    keys: list[jax.Array]
    split: list[jax.Array]


class Program:
    """A step of given shapes of data and keys."""

    def __init__(self, step: Callable[[PyTree, PyTree], PyTree], data: PyTree, keys: PyTree) -> None:
        self.flat, shapes = flattened(step, data, keys)
        self.paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(shapes)]
        self.found: Releases = releases(self.flat, len(jax.tree.leaves(data)))
        self._run = jax.jit(functools.partial(_replay, self.flat, self.found))

    def place(self, number: int) -> str:
        """A release in words."""
        cut = self.found.cuts[number]
        return f"release {number} (shape {cut.aval.shape})"

    def run(
        self, data: PyTree, keys: PyTree, gains: PyTree = 1.0, *, signs: bool = False, released: PyTree = None
    ) -> Seen:
        """One run with every normal draw times its gain, or the sign of the draw in its place.

        ``gains`` is one number, or one for each draw, or a list of arrays of the draws' shapes.

        With ``released`` the program goes on from these values and not from those that it computes.
        """
        gains = gains if isinstance(gains, list | np.ndarray) else [gains] * len(self.found.sources)
        gains = [np.asarray(gain, np.float32) for gain in gains]
        given = released is not None
        if not given:
            released = [np.zeros(cut.aval.shape, cut.aval.dtype) for cut in self.found.cuts]
        leaves = [
            leaf if _is_key(leaf) else np.asarray(leaf, variable.aval.dtype)
            for leaf, variable in zip(jax.tree.leaves((data, keys)), self.flat.jaxpr.invars, strict=True)
        ]
        with jax.enable_x64(True):  # values keep the types that the program gives them
            return Seen(*self._run(leaves, gains, signs, released, given))


def _replay(
    flat: core.ClosedJaxpr,
    found: Releases,
    leaves: PyTree,
    gains: PyTree,
    signs: PyTree,
    released: PyTree,
    given: PyTree,
) -> tuple[list[Any], ...]:
    number = {source: place for place, source in enumerate(found.sources)}
    place_of = {cut: place for place, cut in enumerate(found.cuts)}
    inputs, normal, consumed = [], [], {"random_bits": [], "random_split": []}

    def results(equation: core.JaxprEqn, arguments: list[PyTree]) -> list[Any]:
        if equation.primitive.name in consumed:
            words = jax.random.key_data(arguments[0])
            consumed[equation.primitive.name].append(words.reshape(-1, words.shape[-1]))
        values = _jaxprs.evaluated(equation, arguments)
        for place, out in enumerate(equation.outvars):
            if out in number:
                scale = np.asarray(0.5**0.5, values[place].dtype)  # an inverse error function has variance 1/2
                normal.append(values[place] / scale)
                gain = gains[number[out]].astype(scale.dtype)
                used = jnp.where(signs, jnp.sign(values[place]) * scale, values[place])
                values[place] = jnp.where(gain == 0, jnp.zeros_like(used), used * gain)
            if out in place_of:
                inputs.append(values[place])
                values[place] = jnp.where(given, released[place_of[out]], values[place])
        return values

    outputs = _jaxprs.run(flat, leaves, results)
    return [_words(value) for value in outputs], inputs, normal, *consumed.values()


def _words(value: ArrayLike) -> PyTree:
    return jax.random.key_data(value) if _is_key(value) else value


def _is_key(value: ArrayLike) -> bool:
    return jnp.issubdtype(getattr(value, "dtype", np.float32), jax.dtypes.prng_key)


def as_array(value: Any) -> np.ndarray:
    """A leaf as an array of NumPy's; keys as their words."""
    return np.asarray(_words(value))
