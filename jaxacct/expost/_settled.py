"""Arguments as they may enter ``enable_x64``."""

from __future__ import annotations

from typing import Any

import jax

from jaxacct import _validate

__all__ = ["settled"]


def settled(*values: Any) -> list[Any]:
    """``values`` with traced leaves in buffers of the types they claim to have.

    ``jax.vmap`` over a NumPy float64 array in a float32 program hands out tracers that say float32 over float64
    buffers; the first operation outside ``enable_x64`` converts them, the first one inside would fail. What says
    float64 came from inside and stays as it is.
    """

    def settle(leaf: Any) -> Any:
        return leaf * 1 if _validate.is_traced(leaf) and leaf.dtype != "float64" else leaf

    return [jax.tree.map(settle, value) for value in values]
