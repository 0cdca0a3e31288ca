"""The filters that keep one protocol: add a line to `CASES` and tests/contract/test_filters*.py run on it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import (
    GDP,
    PLD,
    ApproximateDP,
    Composed,
    Gaussian,
    Laplace,
    LossGrid,
    PoissonSampled,
    PrivacyProfile,
    RandomizedResponse,
    adversary,
    filters,
)
from tests import stored

STEP = 0.125
GRID = LossGrid(STEP, -64, 129)


def response(steps):
    """Randomized response at ``steps`` lattice steps: the family of pure-DP budgets L_epsilon (Remark 2)."""
    loss = jnp.asarray(GRID.losses)
    epsilon = jnp.asarray(steps, jnp.float64) * STEP
    p = jax.nn.sigmoid(epsilon)
    # Mass at 0 twice adds up to 1 where epsilon is 0.
    masses = jnp.where(jnp.abs(loss - epsilon) < STEP / 2, p, 0.0)
    masses = masses + jnp.where(jnp.abs(loss + epsilon) < STEP / 2, 1.0 - p, 0.0)
    bad = ~(steps >= 0)
    return PLD(jnp.where(bad, jnp.nan, masses), jnp.zeros(()), GRID, "upper")


def honest(left, query):
    """epsilon - epsilon' (the query's largest loss)."""
    used = jnp.max(jnp.where(jnp.asarray(query.masses) > 1e-9, jnp.asarray(query.grid.losses), -jnp.inf))
    return left - jnp.round(used / STEP)


def law(epsilon, infinite=0.0, grid=GRID, bound="upper") -> PLD:
    """Randomized response next to an atom at infinity, as a PLD in NumPy arrays; ``epsilon`` on the grid."""
    at = round(epsilon / grid.spacing)
    masses, p = np.zeros(grid.size), 1 / (1 + np.exp(-at * grid.spacing))
    masses[[at - grid.lowest, -at - grid.lowest]] = (1 - infinite) * p, (1 - infinite) * (1 - p)
    return PLD(masses, np.float64(infinite), grid, bound)


def broken(grid=GRID) -> list[PLD]:
    """Arrays that are no law: not a number, negative, without mass."""
    good = law(grid.spacing, grid=grid).masses
    return [stored.law(m, np.zeros(()), grid) for m in (np.full(grid.size, np.nan), -good, np.zeros(grid.size))]


@functools.cache
def menu(scale: float = 1.0) -> Any:
    """Two sampled Gaussians."""
    entries = [PoissonSampled(Gaussian(sigma), 0.1) for sigma in (2.0, 4.0)]
    return filters.menu(entries, epsilon=1.5 * scale, delta=1e-3, unit=16, points=256)


@functools.cache
def closed_form(scale: float = 1.0) -> Any:
    """One sampled Gaussian and quieter ones."""
    return filters.closed_form(sigma=2.0, rate=0.1, epsilon=1.5 * scale, delta=1e-3)


NATURAL = (Gaussian(10.0),)
SYMMETRIC = LossGrid(0.02, -100, 201)


@functools.cache
def additive_masses() -> np.ndarray:
    """Band masses of a small response."""
    return CASES["additive-profile"].make().prepare(RandomizedResponse(0.02))


@dataclasses.dataclass(frozen=True)
class Case:
    """A filter, a query of which some tens fit, and one that does not fit at all.

    Attributes:
        make: the filter for a budget that grows with its argument, a number, array or tracer; 1 is the usual size.
        small: a query with noise in proportion to its argument, likewise; of ``small(1.0)`` some tens (22 to 249) fit
            ``make(1.0)``. Noise that is 0, negative, NaN or infinite makes a query that must be refused.
        big: a query that ``make(1.0)`` refuses.
        number: the query in the filter's own parameter with this value in all its numbers; None if it takes none.
        offset: what the budget's argument is added to, so that tests of bad budgets hit the bad value.
        batched: whether budgets of any shape and ``vmap`` work.
        is_bound: what the guarantee says of itself.
        accepts: the kinds of query it takes, each admitted by a fresh ``make(1.0)``.
        refuses: queries that are refused: no law, a bound that is infinite, nothing known.
        rejects: queries that raise, with a part of the message.
        traced: whether noise and budgets may be traced; else ``small`` ignores its argument.
        heavy: whether programs around it take long to compile, so that most of those are slow tests.
        amounts: whether `spent` and `remaining` are amounts that move with every query.
        promises: whether there is a guarantee.
    """

    make: Callable[..., Any]
    small: Callable[[Any], Any]
    big: Any
    number: Callable[[Any], Any] | None = lambda x: x
    offset: float = 0.0
    batched: bool = True
    is_bound: bool = True
    accepts: Callable[[], list[Any]] = list
    refuses: Callable[[], list[Any]] = list
    rejects: Callable[[], list[tuple[Any, str]]] = list
    traced: bool = True
    heavy: bool = False
    amounts: bool = True
    promises: bool = True


tabled = functools.partial(Case, number=None, batched=False, traced=False, heavy=True)


def laws(own: Any, *mechanisms: Any, rejects: Any = ()) -> dict[str, Any]:
    """What the filters of scalar costs make of PLDs, beside ``mechanisms`` and ``own`` numbers."""
    return {
        "accepts": lambda: [own, *mechanisms, law(STEP)],
        "refuses": lambda: [law(STEP, 1e-9), law(7.5), *broken()],
        "rejects": lambda: [(law(STEP, bound="lower"), "upper PLD"), *rejects],
    }


SAMPLED, TWO = PoissonSampled(Gaussian(1.0), 0.5), (np.array([0.1, 0.1]), "query must match the state")
UNSAMPLED = "GDP cannot account for a Poisson-sampled"


CASES = {
    "pure-dp": Case(
        lambda scale=1.0: filters.pure_dp(scale), lambda t: Laplace(50.0 * t), Laplace(0.9), **laws(0.1, Laplace(9.0))
    ),
    "zcdp": Case(
        lambda scale=1.0: filters.zcdp(0.5 * scale),
        lambda t: Composed([Gaussian(10.0 * t), Laplace(20.0 * t)], [1, 2]),
        Gaussian(0.9),
        **laws(0.1, Gaussian(9.0), RandomizedResponse(0.1)),
    ),
    "approximate-zcdp": Case(
        lambda scale=1.0: filters.approximate_zcdp(0.5 * scale, 1e-6),
        lambda t: Composed([Gaussian(10.0 * t), ApproximateDP(0.01, 1e-8)]),
        (0.01, 2e-6),
        lambda x: (x, x),
        accepts=lambda: [(0.1, 1e-7), Gaussian(9.0), ApproximateDP(0.1, 1e-7), law(STEP), law(STEP, 1e-7)],
        refuses=lambda: [law(STEP, 1e-5), law(7.5), *broken()],
        rejects=lambda: [(law(STEP, bound="lower"), "upper PLD"), (0.1, "pair")],
    ),
    "approximate-dp": Case(
        lambda scale=1.0: filters.approximate_dp(2.0 * scale, 1e-5),
        lambda t: Gaussian(25.0 * t),
        (0.01, 2e-5),
        lambda x: (x, x * 1e-5),
        heavy=True,
        accepts=lambda: [(0.001, 1e-7), Gaussian(90.0), law(STEP, 1e-7)],
        refuses=lambda: [law(STEP, 1e-4), *broken()],
    ),
    "gdp": Case(
        lambda scale=1.0: filters.gdp(scale),
        lambda t: Gaussian(10.0 * t),
        Gaussian(0.9),
        **laws(
            *(0.1, Gaussian(9.0), GDP(0.1), Composed([Gaussian(9.0)], [3]), PoissonSampled(Gaussian(2.0), 1.0)),
            rejects=[(SAMPLED, UNSAMPLED), (Composed([Gaussian(1.0), SAMPLED]), UNSAMPLED), TWO],
        ),
    ),
    "renyi": Case(
        lambda scale=1.0: filters.renyi(2.0 + scale, 1e-5, order=8),
        lambda t: PoissonSampled(Gaussian(2.0 * t), 0.1),
        PoissonSampled(Gaussian(0.1), 0.1),
        offset=2.0,
        **laws(0.1, Gaussian(9.0), PoissonSampled(Gaussian(3.0), 0.1), rejects=[TWO]),
    ),
    "renyi-any": Case(
        lambda scale=1.0: filters.renyi_any(2.0 + scale, 1e-5, (8, 12.5)),
        lambda t: Gaussian(12.0 * t),
        Gaussian(0.9),
        lambda x: np.full(2, x),
        offset=2.0,
        heavy=True,
        **laws(np.full(2, 0.1), Gaussian(9.0)),
    ),
    "gdp-residue": Case(
        lambda scale=1.0: filters.gdp_residue(scale),
        lambda t: Gaussian(10.0 * t),
        Gaussian(0.9),
        None,
        batched=False,
        accepts=lambda: [0.1, Gaussian(9.0), GDP(0.1), *map(filters.prepare, (Gaussian(9.0), RandomizedResponse(0.1)))],
        refuses=lambda: [-0.1, filters.prepare(ApproximateDP(0.1, 1e-3))],
        rejects=lambda: [(law(STEP, bound="lower"), "upper curve")],
    ),
    "residue": tabled(
        lambda scale=1.0: filters.residue(response, honest, 40.0 * scale, rounds=300, grid=GRID),
        lambda t: law(STEP),
        law(7.5),
        accepts=lambda: [law(2 * STEP), RandomizedResponse(STEP)],
        refuses=lambda: [law(STEP, 1e-3), *broken()],
        rejects=lambda: [(law(STEP, bound="lower"), "upper")],
    ),
    "natural": tabled(
        lambda scale=1.0: filters.natural(Gaussian(1.0 / scale), NATURAL, 120),
        lambda t: 0,
        1,
        amounts=False,
        accepts=lambda: [0, NATURAL[0], Gaussian(10.0)],
        refuses=lambda: [-1, 1, 0.5, np.nan],
        rejects=lambda: [(Gaussian(9.0), "member"), (law(STEP), "member")],
    ),
    "natural-undeclared": tabled(
        lambda scale=1.0: filters.natural(law(32 * STEP * scale), grid=GRID, relation="replace"),
        lambda t: law(STEP),
        law(7.5),
        amounts=False,
        promises=False,
        accepts=lambda: [law(2 * STEP), RandomizedResponse(STEP), PrivacyProfile.from_pld(law(STEP))],
        refuses=lambda: [law(STEP, 1e-3), *broken()],
        rejects=lambda: [(law(STEP, bound="lower"), "guarantee")],
    ),
    "natural-approximate-dp": tabled(
        lambda scale=1.0: adversary.natural_approximate_dp(scale, 1e-4, rounds=300, grid=SYMMETRIC),
        lambda t: law(0.02, grid=SYMMETRIC),
        law(1.9, grid=SYMMETRIC),
        amounts=False,
        accepts=lambda: [law(0.1, grid=SYMMETRIC), RandomizedResponse(0.02)],
        refuses=lambda: [law(0.1, 1e-3, grid=SYMMETRIC), *broken(SYMMETRIC)],
        rejects=lambda: [(law(STEP, bound="lower"), "guarantee")],
    ),
    "additive-profile": tabled(
        lambda scale=1.0: adversary.additive_profile(scale, 1e-6, rounds=100),
        lambda t: additive_masses(),
        RandomizedResponse(30.0),
        accepts=lambda: [RandomizedResponse(0.02), law(STEP), additive_masses()],
        refuses=lambda: [additive_masses() * bad for bad in (np.nan, -1.0, 0.5)],
        rejects=lambda: [(np.ones(3), "one mass"), (PoissonSampled(Gaussian(1.0), 0.1), "symmetric")],
    ),
    "menu": tabled(
        menu,
        lambda t: PoissonSampled(Gaussian(2.0 * t), 0.1),
        PoissonSampled(Gaussian(1.0), 0.1),
        accepts=lambda: [0, 1, PoissonSampled(Gaussian(3.0), 0.05), Composed([PoissonSampled(Gaussian(2.0), 0.1)], 2)],
        refuses=lambda: [-1, 2, Gaussian(4.0), PoissonSampled(Gaussian(np.float32(4.0)), 0.5)],
        rejects=lambda: [(law(STEP), "menu"), (0.5, "query must be")],
    ),
    "closed-form": Case(
        closed_form,
        lambda t: PoissonSampled(Gaussian(2.0 * t), 0.1),
        PoissonSampled(Gaussian(1.0), 0.1),
        None,
        batched=False,
        heavy=True,
        accepts=lambda: [PoissonSampled(Gaussian(9.0), 0.05), Composed([PoissonSampled(Gaussian(2.0), 0.1)], 2)],
        refuses=lambda: [Gaussian(4.0), PoissonSampled(Gaussian(1.9), 0.1), PoissonSampled(Gaussian(2.5), 0.11)],
        rejects=lambda: [(law(STEP), "query must be"), (0.5, "query must be")],
    ),
    "approximate-gdp-small": Case(
        lambda scale=1.0: filters.approximate_gdp(0.05 * scale),
        lambda t: PoissonSampled(Gaussian(3.0 * t), 0.1),
        PoissonSampled(Gaussian(0.1), 0.1),
        None,
        is_bound=False,
        rejects=lambda: [(SAMPLED, "rate must be below 0.2 in the regime 'small'"), ("gaussian", "must be")],
    ),
}


def like(name: str, **changed: Any) -> Case:
    """A case that differs in these attributes."""
    return dataclasses.replace(CASES[name], **changed)


CASES |= {
    f"odometer-{name}": like(name, make=lambda scale=1.0, of=CASES[name].make: filters.odometer(of(scale)), heavy=True)
    for name in ("gdp", "pure-dp", "zcdp", "renyi")
}
CASES["renyi-fractional"] = like(
    "renyi", make=lambda scale=1.0: filters.renyi(2.0 + scale, 1e-5, order=6.5), heavy=True, accepts=list, refuses=list,
    rejects=list,
)  # fmt: skip
CASES["approximate-gdp-large"] = like(
    "approximate-gdp-small", make=lambda scale=1.0: filters.approximate_gdp(0.5 * scale, regime="large"),
    small=lambda t: PoissonSampled(Gaussian(10.0 * t), 0.9), big=PoissonSampled(Gaussian(0.1), 0.9), heavy=True,
    accepts=lambda: [Gaussian(5.0)], rejects=lambda: [(SAMPLED, "rate must be above 0.8")],
)  # fmt: skip

# Around a heavy filter a program of its own is for the slow tests; one that holds much of them runs by default.
in_programs = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if case.heavy else ()) for name, case in CASES.items()]
)


def play(ledger, query, steps):
    """Admissions of ``steps`` equal queries, one Python call each."""
    state, history = ledger.init(), []
    for _ in range(steps):
        admitted, state = ledger.update(query, state)
        history.append(bool(admitted))
    return history, state


def leaves(value: Any) -> np.ndarray:
    """All numbers of a state, or of what `spent` returns, in a row."""
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(value)])
