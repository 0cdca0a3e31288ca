"""A query of epsilon or delta, split into a hashable description and the arrays of its numbers.

:mod:`jaxacct.accounting.on_host` answers it in NumPy, :mod:`jaxacct.accounting.compiled` as a part of a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rows import settings_shapes
from jaxacct._types import PyTree
from jaxacct.losses.engines.lines.line_of_pair import has_derivatives
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions, witness
from jaxacct.mechanisms.pairs.base import is_one_run


class Question(NamedTuple):
    """Everything but numbers. Hashable.

    Attributes:
        kind, relation: "epsilon" or "delta", and the neighbouring relation; see :mod:`jaxacct.accounting.queries`.
        tree: structure of (mechanism, target, steps).
        traced: which leaves are open.
        target: which leaf is the target.
        known: leaves that are plain numbers, None for the others: one step is seen to be one step.
        attained: whether it is about the mechanism's witness.
    """

    kind: str
    relation: str
    tree: PyTree
    traced: tuple[bool, ...]
    target: int
    known: tuple[float | None, ...]
    attained: bool

    def asked(self, constants: tuple[Array, ...], numbers: Iterable[Array]) -> tuple[Mechanism, Array, Array]:
        """Mechanism, target and steps with ``numbers`` in the open places and ``constants`` in the others."""
        constant, number = iter(constants), iter(numbers)
        leaves = []
        for is_traced, known in zip(self.traced, self.known, strict=True):
            value = next(number) if is_traced else next(constant)
            leaves.append(value if known is None else np.float64(known))
        mechanism, target, steps = jax.tree.unflatten(self.tree, leaves)
        return witness(mechanism, self.relation) if self.attained else mechanism, target, steps


def outline(
    question: Question, constants: tuple[Array, ...], shapes: Iterable[tuple[int, ...]]
) -> tuple[tuple[int, ...], bool]:
    """The shape of an answer for open numbers of these shapes, and whether it has derivatives."""
    found = []

    def run(*numbers: jax.Array) -> None:
        mechanism, target, steps = question.asked(constants, numbers)
        sides = directions(mechanism, question.relation, steps)
        shape = np.broadcast_shapes(*settings_shapes((sides, target)))
        composed = all(has_derivatives([pair for pair, _ in side]) for side in sides)
        found.append((shape, composed or all(map(is_one_run, sides))))

    with jax.enable_x64(True):
        jax.eval_shape(run, *(jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes))
    return found[0]
