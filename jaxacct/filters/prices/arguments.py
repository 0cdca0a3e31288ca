"""Checks what makers of tables of prices have in common: a target, mechanisms, a cache and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxacct import _validate
from jaxacct.mechanisms.base import Mechanism


def check_target(
    maker: str, *given: object, epsilon: float, delta: float, progress: Callable[..., object] | None, **switches: bool
) -> tuple[float, float]:
    """(epsilon, delta) as floats. Raises ValueError for a bad target, a traced argument of the maker, or no switch."""
    if _validate.is_traced((given, epsilon, delta)):
        raise ValueError(f"{maker} needs concrete arguments, got a traced one: call it outside jit, vmap and grad")
    _validate.scalar(_validate.positive, epsilon=epsilon)
    _validate.at_most(100.0, epsilon=epsilon)
    _validate.scalar(_validate.probability, delta=delta)
    _validate.instance(bool | np.bool_, **switches)
    if progress is not None:
        _validate.function(progress=progress)
    return float(epsilon), float(delta)


def check_mechanisms(**named: Sequence[Mechanism]) -> None:
    """Raises ValueError unless an argument is a sequence of mechanisms with scalar parameters."""
    for name, given in named.items():
        if not isinstance(given, Sequence) or not all(isinstance(one, Mechanism) for one in given):
            raise ValueError(f"{name} must be a sequence of mechanisms, got {given!r:.200}")
        if any(np.ndim(leaf) for leaf in jax.tree.leaves(list(given))):
            raise ValueError(f"{name} must hold mechanisms with scalar parameters, got an array of settings")
