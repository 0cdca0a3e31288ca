"""Pure-DP and zCDP costs of queries: numbers, laws, and mechanisms with a closed form.

A mechanism knows its own exact costs (``_pure``, ``_rho``, ``_approximate_rho``).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, not_negative
from jaxacct._numerics.rounding import inflated
from jaxacct._types import PyTree
from jaxacct.filters.additive.costs_of_plds import approximate_of_law, concentrated_of_law, pure_of_law
from jaxacct.filters.base import is_scalar_query
from jaxacct.losses.curves.pld import PLD
from jaxacct.mechanisms import Composed, PoissonSampled
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.parameters import whole_steps


def _array(value: ArrayLike) -> Array:
    _, value = floats(value)
    return value


def _total(query: Composed, cost: Callable[[object], PyTree]) -> PyTree:
    """The sum over the parts of ``cost``, an array or a pair of them; NaN where steps are no number of steps."""
    parts = [
        jax.tree.map(lambda one, n=steps: one * _array(whole_steps(n)), cost(part)) for part, steps in query.parts()
    ]
    return jax.tree.map(lambda *ones: inflated(sum(ones[1:], ones[0]), len(ones) * 2.0**-51), *parts)


@in_float64
@np.errstate(all="ignore")
def is_pure(query: object, relation: str = "add_or_remove") -> bool:
    """Whether `pure_cost` has a closed form for ``query``, which is a mechanism."""
    if isinstance(query, Composed):
        return all(is_pure(part, relation) for part in query.mechanisms)
    if relation == "replace" and isinstance(query, PoissonSampled):
        return False  # its parameters are those of a record that comes or goes, and so is the closed form
    return isinstance(query, Mechanism) and query._pure() is not None


@in_float64
@np.errstate(all="ignore")
def pure_cost(query: object) -> Array:
    """The largest privacy loss of ``query``, rounded up; float64, NaN or infinite where there is none."""
    if is_scalar_query(query):
        return _array(not_negative(query))
    if isinstance(query, PLD):
        return pure_of_law(query)
    if isinstance(query, Composed):
        return _total(query, pure_cost)
    pure = query._pure() if isinstance(query, Mechanism) else None
    if pure is not None:
        return _array(pure)
    raise ValueError(
        "query must be a number epsilon, a PLD or a mechanism of pure privacy (PureDP, Laplace, ...), got "
        f"{_named(query)}: Gaussian noise has no pure epsilon; filters.zcdp, approximate_dp, gdp_residue and renyi "
        "take both"
    )


def _named(query: object) -> str:
    return type(query.mechanism if isinstance(query, PoissonSampled) else query).__name__


@in_float64
@np.errstate(all="ignore")
def concentrated_cost(query: object) -> Array:
    """The rho of ``query``, rounded up; float64, NaN or infinite where there is none."""
    if is_scalar_query(query):
        return _array(not_negative(query))
    if isinstance(query, PLD):
        return concentrated_of_law(query)
    if isinstance(query, Composed):
        return _total(query, concentrated_cost)
    rho = query._rho() if isinstance(query, Mechanism) else None
    if rho is not None:
        return _array(rho)
    if isinstance(query, PoissonSampled):
        raise ValueError(
            f"zCDP cannot account for a Poisson-sampled {type(query.mechanism).__name__} (rate not concretely 1): use "
            "filters.renyi or filters.menu"
        )
    raise ValueError(
        "query must be a number rho, a PLD or a mechanism with a known zCDP parameter (Gaussian, PureDP, ...), got "
        f"{type(query).__name__}: filters.approximate_dp takes ApproximateDP as well, filters.gdp_residue anything"
    )


@in_float64
@np.errstate(all="ignore")
def approximate_cost(query: object) -> tuple[Array, Array]:
    """(rho, delta) of ``query`` as delta-approximate rho-zCDP, rounded up; float64."""
    if isinstance(query, tuple) and len(query) == 2 and all(is_scalar_query(part) for part in query):
        return _array(not_negative(query[0])), _array(not_negative(query[1]))
    if isinstance(query, PLD):
        return approximate_of_law(query)
    if isinstance(query, Composed):
        return _total(query, approximate_cost)
    if is_scalar_query(query):
        raise ValueError(f"query must be a pair (rho, delta) or a mechanism, got the single number {query}")
    known = query._approximate_rho() if isinstance(query, Mechanism) else None
    if known is None:
        return concentrated_cost(query), _array(0.0)
    return _array(known[0]), _array(known[1])
