"""Pure-DP, zCDP and GDP costs of queries: numbers, laws, and mechanisms with a closed form.

A mechanism knows its own exact costs (``_pure``, ``_rho``, ``_approximate_rho``).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, not_negative
from jaxacct._numerics.rounding import inflated
from jaxacct._types import PyTree
from jaxacct.filters.additive.costs_of_plds import approximate_of_law, concentrated_of_law, gaussian_of_law, pure_of_law
from jaxacct.filters.base import is_scalar_query
from jaxacct.losses.curves.pld import PLD
from jaxacct.mechanisms import GDP, Composed, Gaussian, PoissonSampled
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


def _costs(
    of_law: Callable[[PLD], PyTree],
    known: Callable[[Mechanism], PyTree],
    refusal: Callable[[object], str],
    of_number: Callable[[ArrayLike], ArrayLike] = not_negative,
) -> Callable[[object], PyTree]:
    """The cost of a number, a law, a composition, or a mechanism with a ``known`` one; ValueError for any other."""

    @in_float64
    @np.errstate(all="ignore")
    def cost(query: object) -> PyTree:
        if is_scalar_query(query):
            return _array(of_number(query))
        if isinstance(query, PLD):
            return of_law(query)
        if isinstance(query, Composed):
            return _total(query, cost)
        found = known(query) if isinstance(query, Mechanism) else None
        if found is None:
            raise ValueError(refusal(query))
        return jax.tree.map(_array, found)

    return cost


@in_float64
@np.errstate(all="ignore")
def is_pure(query: object, relation: str = "add_or_remove") -> bool:
    """Whether `pure_cost` has a closed form for ``query``, which is a mechanism."""
    if isinstance(query, Composed):
        return all(is_pure(part, relation) for part in query.mechanisms)
    if relation == "replace" and isinstance(query, PoissonSampled):
        return False  # its parameters are those of a record that comes or goes, and so is the closed form
    return isinstance(query, Mechanism) and query._pure() is not None


def is_gaussian(query: object) -> bool:
    """Whether ``query`` is a mechanism of which `gaussian_cost` knows the mu."""
    if isinstance(query, PoissonSampled):
        return not _validate.is_traced(query.rate) and bool(np.all(query.rate == 1)) and is_gaussian(query.mechanism)
    if isinstance(query, Composed):
        return all(is_gaussian(part) for part in query.mechanisms)
    return isinstance(query, Gaussian | GDP)


def _no_pure(query: object) -> str:
    kind = type(query.mechanism if isinstance(query, PoissonSampled) else query).__name__
    return (
        f"query must be a number epsilon, a PLD or a mechanism of pure privacy (PureDP, Laplace, ...), got {kind}: "
        "Gaussian noise has no pure epsilon; filters.zcdp, approximate_dp, gdp_residue and renyi take both"
    )


def _no_rho(query: object) -> str:
    if isinstance(query, PoissonSampled):
        return (
            f"zCDP cannot account for a Poisson-sampled {type(query.mechanism).__name__} (rate not concretely 1): use "
            "filters.renyi or filters.menu"
        )
    return (
        "query must be a number rho, a PLD or a mechanism with a known zCDP parameter (Gaussian, PureDP, ...), got "
        f"{type(query).__name__}: filters.approximate_dp takes ApproximateDP as well, filters.gdp_residue anything"
    )


def _no_mu(query: object) -> str:
    if isinstance(query, PoissonSampled):
        return (
            "GDP cannot account for a Poisson-sampled Gaussian (rate not concretely 1): use filters.menu or "
            "filters.renyi"
        )
    return (
        f"query must be a Gaussian, a Composed of them, a PLD or a number mu, got {type(query).__name__}: filters.zcdp "
        "and gdp_residue take Gaussians and other mechanisms"
    )


pure_cost = _costs(pure_of_law, lambda one: one._pure(), _no_pure)
"""The largest privacy loss of a query, rounded up; float64, NaN or infinite where there is none."""

concentrated_cost = _costs(concentrated_of_law, lambda one: one._rho(), _no_rho)
"""The rho of a query, rounded up; float64, NaN or infinite where there is none."""


def _square(mu: ArrayLike) -> Array:
    mu = _array(not_negative(mu))
    return _counted(mu * mu)


def _counted(square: Array) -> Array:
    """A mu^2 rounded up, never 0, as a square may underflow; infinite where it is none."""
    xp = array_module(square)
    return xp.where(square >= 0, xp.maximum(inflated(square, 2.0**-50), 1e-300), np.inf)


gaussian_cost = _costs(
    lambda law: _square(gaussian_of_law(law)),
    lambda one: _counted(2.0 * concentrated_cost(one)) if is_gaussian(one) else None,
    _no_mu,
    _square,
)
"""The mu^2 of a query that is a Gaussian mechanism or is dominated by one, rounded up; float64, infinite for none."""


def _no_pair(number: ArrayLike) -> ArrayLike:
    raise ValueError(f"query must be a pair (rho, delta) or a mechanism, got the single number {number}")


_approximate = _costs(approximate_of_law, lambda one: one._approximate_rho(), _no_rho, _no_pair)


def approximate_cost(query: object) -> tuple[Array, Array]:
    """(rho, delta) of ``query`` as delta-approximate rho-zCDP, rounded up; float64."""
    if isinstance(query, tuple) and len(query) == 2 and all(is_scalar_query(part) for part in query):
        return concentrated_cost(query[0]), concentrated_cost(query[1])
    return _approximate(query)
