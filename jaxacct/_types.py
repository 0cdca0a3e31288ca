"""Names for annotations: arrays of either module, their shapes and dtypes, and trees.

``Float[Array, "*settings edges"]`` is jaxtyping's notation: an array of floats whose last axis is ``edges`` long, after
any number of axes of settings; a name stands for one size in all of a function's annotations, ``...`` for any axes.
It is ``Annotated[Array, "*settings edges"]``, a note beside the type, unless jaxtyping was imported before jaxacct:
then it is jaxtyping's own, for its import hook to check in every call. jaxacct itself neither needs it nor imports it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import jax
import numpy as np

if TYPE_CHECKING:
    from typing import Annotated as Bool
    from typing import Annotated as Float
    from typing import Annotated as Float64
    from typing import Annotated as Int
    from typing import Annotated as Num

    Array: TypeAlias = np.ndarray | jax.Array
    """One of NumPy's or JAX's. An answer of NumPy's without axes may be its scalar, which has the same methods."""
else:
    if "jaxtyping" in sys.modules:
        from jaxtyping import Bool, Float, Float64, Int, Num
    else:
        Bool = Float = Float64 = Int = Num = Annotated
    Array = np.ndarray | np.generic | jax.Array

Real: TypeAlias = Array | float
"""An array, or one number."""

PyTree: TypeAlias = Any
"""A tree of arrays that JAX takes apart, of whatever containers: parameters, states, data."""

Fields: TypeAlias = dict[str, Any]
"""Values by name: a JSON object, the arguments of a command, keywords."""

__all__ = ["Array", "Bool", "Fields", "Float", "Float64", "Int", "Num", "PyTree", "Real"]
