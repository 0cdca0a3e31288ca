"""`closed_form`: Algorithm 2's closed-form price with a certified budget, for sampled Gaussians of a range."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array, Real
from jaxacct._numerics.rounding import inflated
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.guarantees import ProfileGuarantee, certified
from jaxacct.filters.marks import row_of
from jaxacct.filters.prices.arguments import check_target
from jaxacct.filters.prices.closed_form import certified_closed_form
from jaxacct.filters.prices.kept import Progress, digest, kept
from jaxacct.filters.prices.sampled_gaussian import ranges
from jaxacct.filters.queries import as_sampled_gaussian, parts_of
from jaxacct.filters.states import filter_class
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid

_VERSION = 3  # of the arrays and of how they are computed: increase it to invalidate cached ones
_STATEMENT = (
    "The whole interaction satisfies this privacy profile, for add-or-remove neighbours and at every epsilon at once, "
    "if each query is dominated, given all earlier outputs, by the sampled Gaussian it was charged as, and every "
    "refusal was obeyed (residue filters, arXiv 2602.15815, Theorem 1). Prices are those of Algorithm 2 of Tran, "
    "Koskela, Räisä, Honkela (f-Differential Privacy Filters); the budget is one for which they are certified for "
    "every query of the range (docs/theorems/closed-form.md), with rounding counted."
)


@filter_class(SpentState, "closed_form", "budget")
class ClosedFormFilter(AdditiveFilter):
    """A budget on the sum of rate^2 (exp(1 / sigma^2) - 1) / 2; make it with `closed_form`.

    Attributes:
        pieces: the budget in exact float32 pieces.
        ends: the least noise, the most noise, the smallest and the largest rate, in float32 pieces.
        curve: the certified worst case.
        target: the epsilon and the delta, static.
    """

    pieces: Array
    ends: Array
    curve: PrivacyProfile
    target: tuple[float, float] = dataclasses.field(metadata={"static": True})

    budget = amounts.exact("pieces")
    """The largest sum of prices (float64)."""

    @property
    def guarantee(self) -> ProfileGuarantee:
        """The certified profile of the whole interaction, a proven bound."""
        return ProfileGuarantee(self.curve, _STATEMENT)

    def _identity(self) -> list[Array]:
        return [row_of(self.pieces), row_of(self.ends)]

    def _cost(self, query: object) -> Array:
        with jax.enable_x64(True):
            total = jnp.zeros(())
            for part, runs in parts_of(query):
                found = as_sampled_gaussian(part)
                if found is None:
                    raise ValueError(
                        "query must be a Gaussian, a PoissonSampled one or a Composed of them, got "
                        f"{type(part).__name__} (filters.sampled_gaussian takes others as extra=)"
                    )
                total = total + runs * self._price(*found)
            # Programs differ in last bits, and the accounts of one filter must not.
            return amounts.outward(inflated(total, 2.0**-48), "float32", up=True).astype(jnp.float64)

    def _price(self, noise: Array, rate: Real) -> Array:
        """NaN for less noise or a larger rate than the range has; beyond its other ends the price of the end."""
        least, most, rare, often = amounts.join(self.ends)
        noise, rate = jnp.asarray(noise, jnp.float64), jnp.asarray(rate, jnp.float64)
        inside = (noise >= least) & (noise < jnp.inf) & (rate >= 0) & (rate <= often)
        mu = 1.0 / jnp.clip(noise, least, most)
        rate = jnp.maximum(rate, rare)
        cost = inflated(rate * rate * jnp.expm1(mu * mu) / 2, 2.0**-50 * (1.0 + mu * mu))
        return jnp.where(inside, cost, jnp.nan)


def closed_form(
    *,
    sigma: float | tuple[float, float],
    rate: float | tuple[float, float],
    epsilon: float,
    delta: float,
    cache: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> ClosedFormFilter:
    """A rigorous filter with one closed-form price and no table, for all sampled Gaussians of a range.

    A step costs rate^2 (exp(1 / sigma^2) - 1) / 2, as in `approximate_gdp` for small rates, but at any rate; noise and
    rate may be chosen freely in the range, by looking at all earlier outputs. The budget is not the limit's: it is one
    for which these prices are certified at finite parameters, for every query of the range
    (docs/theorems/closed-form.md). `sampled_gaussian`, whose prices come from a table, admits more steps
    (docs/filters.md); this filter is one line, and its state one number.

    The budget is computed once for a range and a target, and kept on disk (``JAXACCT_CACHE_DIR`` moves it): some ten
    seconds for one rate, a few minutes where both move.

    Args:
        sigma: the smallest and the largest noise multiplier (noise over sensitivity), > 0; or one number. Steps with
            more noise pay for the largest.
        rate: the smallest and the largest sampling rate in (0, 1]; or one number.
        epsilon: target, > 0 and at most 100.
        delta: target, strictly between 0 and 1.
        cache: whether to look for the budget on disk, and to leave it there.
        progress: called as ``progress(done, total)`` meanwhile.

    Raises:
        ValueError: a bad argument (named), or a range for which no budget is certified.
    """
    target = check_target("closed_form", sigma, rate, epsilon=epsilon, delta=delta, progress=progress, cache=cache)
    noises, rates = ranges(sigma, rate)
    key = digest(f"closed form {_VERSION}", noises, rates, *target)

    def make(told: Progress) -> dict[str, np.ndarray]:
        found = certified_closed_form(noises, rates, *target, told or (lambda done, total: None))
        grid = found.family.grid
        return {
            "budget": np.array(found.budget()),
            "excess": found.excess(),
            "spacing": np.array(grid.spacing),
            "lowest": np.array(grid.lowest),
        }

    arrays = kept(key, make, cache, progress)
    budget = float(arrays["budget"])
    if not budget > 0:
        raise ValueError(
            f"sigma must be larger, or rate smaller, got {noises[0]:.6g} and {rates[1]:.6g}: no budget is certified "
            f"for epsilon {epsilon:g} at delta {delta:g}"
        )
    grid = LossGrid(float(arrays["spacing"]), int(arrays["lowest"]), arrays["excess"].size)
    curve = certified(arrays["excess"], grid, *target)
    pieces, ends = (np.asarray(amounts.split(x)) for x in (budget, np.array([*noises, *rates])))
    return ClosedFormFilter(pieces, ends, curve, target)
