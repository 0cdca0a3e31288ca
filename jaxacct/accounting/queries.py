"""`epsilon` and `delta`: certified bounds for a mechanism, over arrays of settings.

This room checks arguments, turns a mechanism and a relation into dominating pairs, lays everything out as one flat
batch, and hands it to :mod:`jaxacct.losses.engines.choose`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float64 import settled
from jaxacct.accounting.batch import Bounds
from jaxacct.accounting.enclosure import enclosure
from jaxacct.accounting.traced import traced_answer
from jaxacct.losses.engines.narrowing import Options
from jaxacct.mechanisms.base import Mechanism, as_mechanism
from jaxacct.mechanisms.directions import witness

_WIDE = 1.1  # upper over lower
_ADVICE = {
    False: "More noise, a larger rate, fewer steps or a larger delta narrow them.",
    True: "No epsilon is certified: losses are too large or likely infinite; more noise or a larger delta would help.",
}


def delta(
    mechanism: Mechanism,
    epsilon: ArrayLike,
    *,
    steps: ArrayLike = 1,
    relation: str = "add_or_remove",
    progress: Callable[[int, int], object] | None = None,
) -> Bounds:
    """Smallest delta for which ``steps`` runs of ``mechanism`` are (epsilon, delta)-DP, enclosed.

    Args:
        mechanism: see :mod:`jaxacct.mechanisms`; parameters of any shape.
        epsilon: any real number, any shape.
        steps: whole number from 0 to 2**53 of runs, fixed in advance, any shape. All shapes broadcast. No runs
            release nothing.
        relation: what neighbours differ in. ``"add_or_remove"`` is the worse of ``"add"`` and ``"remove"``, each
            composed first; ``"replace"`` exchanges one record for another; ``"replace_special"`` one for a special
            record that counts as nothing (a zero in a sum), the worse of ``"zero_out"`` and ``"fill_in"``.
        progress: called as ``progress(settled, total)`` while many settings are worked on. Two directions count
            as two settings.

    Returns:
        ``Bounds(lower, upper)`` of the broadcast shape, float64 NumPy arrays or scalars; inside a ``jit``, JAX
        arrays of the surrounding program's precision, rounded outwards.

    Raises:
        ValueError: a bad concrete value (named), or a relation that the mechanism has no analysis for. Bad
            traced values give ``upper`` 1.
    """
    _validate.finite(epsilon=epsilon)
    return _answer("delta", mechanism, epsilon, steps, relation, Options(progress))


def delta_beside(
    limit: np.ndarray,
    mechanism: Mechanism,
    epsilon: ArrayLike,
    *,
    steps: ArrayLike = 1,
    relation: str = "add_or_remove",
) -> Bounds:
    """Bounds of :func:`delta` that tell on which side of ``limit`` it is, and roughly how far away.

    They are sound, as narrow as ``delta`` has them where they enclose the limit, and wider the further away they are.
    Where ``limit`` is inf nothing is asked, and they are (0, 1).
    """
    return _answer("delta", mechanism, epsilon, steps, relation, Options(limit=limit))


def epsilon(
    mechanism: Mechanism,
    delta: ArrayLike,
    *,
    steps: ArrayLike = 1,
    relation: str = "add_or_remove",
    progress: Callable[[int, int], object] | None = None,
) -> Bounds:
    """Smallest epsilon >= 0 for which ``steps`` runs of ``mechanism`` are (epsilon, delta)-DP, enclosed.

    Args:
        mechanism: see :mod:`jaxacct.mechanisms`; parameters of any shape.
        delta: from 0 to 1, any shape. At 0 epsilon is the largest privacy loss, inf for Gaussian noise; at 1 it is 0.
        steps: whole number from 0 to 2**53 of runs, fixed in advance, any shape. All shapes broadcast. No runs
            release nothing.
        relation, progress: see :func:`delta`.

    Returns:
        ``Bounds(lower, upper)``, as `delta` has them; ``upper`` is inf where no finite epsilon is certified.

    Raises:
        ValueError: a bad concrete value (named), or a relation that the mechanism has no analysis for. Bad
            traced values give ``upper`` inf.
    """
    _validate.rate(delta=delta)
    return _answer("epsilon", mechanism, delta, steps, relation, Options(progress))


def _answer(
    kind: str, mechanism: Mechanism, target: ArrayLike, steps: ArrayLike, relation: str, options: Options
) -> Bounds:
    _validate.count(0, steps=steps)
    if options.progress is not None:
        _validate.function(progress=options.progress)
    mechanism, target, steps = settled(as_mechanism(mechanism), target, steps, buffers=False)
    traced = _validate.is_traced((mechanism, target, steps))
    if traced and options.progress is not None:
        raise ValueError("progress belongs to calls outside jit, vmap and grad")

    def bounds(attained: bool, warn: bool = True) -> Bounds:
        """Of ``mechanism``, or of its witness where ``attained``."""
        if traced:
            return traced_answer(kind, mechanism, target, steps, relation, attained)
        with jax.enable_x64(True):
            asked = witness(mechanism, relation) if attained else mechanism
            lower, upper, _, _ = enclosure(kind, asked, target, steps, relation, options)
        if warn:
            _warn_if_wide(kind, target, lower, upper)
        return Bounds(lower[()], upper[()])

    if _is_exact(mechanism, relation):
        return bounds(attained=False)
    # The mechanism's own pair is more than its worst case; the witness is a case, so its lower bound is one.
    upper = bounds(attained=False, warn=False).upper
    return Bounds((jnp if traced else np).minimum(bounds(attained=True).lower, upper), upper)


def _is_exact(mechanism: Mechanism, relation: str) -> bool:
    """Whether the mechanism's own pair is its worst case, whatever its parameters."""
    stand_in = jax.tree.map(lambda leaf: np.ones(leaf.shape) if _validate.is_traced(leaf) else leaf, mechanism)
    with jax.enable_x64(True), _validate.unchecked():
        return witness(stand_in, relation) is stand_in


def _warn_if_wide(kind: str, target: ArrayLike, lower: np.ndarray, upper: np.ndarray) -> None:
    """Says so where a bound is too wide to be of use, unless it is next to nothing anyway.

    An infinite epsilon at a delta of 0 is no wide bound: it says that losses have no largest one.
    """
    wide = (upper > _WIDE * lower) & (upper > (1e-6 if kind == "epsilon" else 1e-50))
    if kind == "epsilon":
        wide = wide & ~(np.isinf(upper) & (np.asarray(target) == 0))
    if wide.any():
        first = int(np.argmax(wide))
        warnings.warn(
            f"{int(wide.sum())} of {wide.size} bounds of {kind} are wide (the first: {lower.flat[first]:.3g} to "
            f"{upper.flat[first]:.3g}); they are sound. {_ADVICE[bool(np.isinf(upper.flat[first]))]}",
            RuntimeWarning,
            stacklevel=5,
        )
