"""Checks what makers of tables of prices have in common: a target, mechanisms, a cache and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.mechanisms.base import Mechanism, shapes_of_settings


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
        if any(shapes_of_settings(list(given))):
            raise ValueError(f"{name} must hold mechanisms with scalar parameters, got an array of settings")


def check_ranges(
    sigma: ArrayLike | tuple[float, float], rate: ArrayLike | tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Noise multipliers and rates, each as the first and the last of a range, float64. Raises ValueError for bad ones.

    Either argument is one number or two that rise.
    """
    _validate.numbers(sigma=sigma, rate=rate)
    if np.shape(sigma) not in ((), (2,)) or np.shape(rate) not in ((), (2,)):
        raise ValueError(f"sigma and rate must be one or two numbers, got {sigma!r:.200} and {rate!r:.200}")
    _validate.positive(sigma=sigma)
    _validate.finite(sigma=sigma)
    _validate.rate(rate=rate)
    _validate.greater(0.0, rate=rate)
    noises, rates = (np.broadcast_to(np.asarray(x, np.float64), (2,)) for x in (sigma, rate))
    if noises[0] > noises[1] or rates[0] > rates[1]:
        raise ValueError(f"sigma and rate must rise, got {sigma} and {rate}")
    return noises, rates
