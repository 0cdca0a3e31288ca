"""Adversaries who know the prices: the best adaptive play by dynamic programming, and policies that are simulated.

`best_play` is a lower bound on the hockey-stick curve of the best analyst:

- laws are discretised from below (`PLD.from_mechanism(..., "lower")`), and what leaves the lattice is dropped;
- a budget is rounded down to a lattice of budgets after every query, by a few units more than prices are rounded. Less
  budget never allows more: what a ledger leaves rises with what it holds (`_settled` finds the last interval of a
  bisection, which can only move up, and within it the line rises), and this is checked on the lattice;
- curves are read at lattice points only, less what transforms may be off by.

At the prices that are charged the best play must stay within the promise; it passes it when prices are lowered by as
much as the filter is above the best play.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxacct
from jaxacct import Gaussian, PoissonSampled
from jaxacct.filters.prices.family import UNITS
from jaxacct.losses.grids.grid import LossGrid

__all__ = ["best_play", "simulated", "weakest"]

_HAIR = 8  # units, above what rounding a price moves
_ROUNDING = 1e-11  # of all transforms of a play, in all: each is off by some 1e-15


def _query(sigma: float, rate: float) -> Any:
    return PoissonSampled(Gaussian(sigma), rate)


@jax.jit
def _prices(box: Any, sigma: Any, rate: Any, left: Any) -> Any:
    return box.price(
        PoissonSampled(Gaussian(sigma), rate), box.init()._replace(spent=jnp.asarray(UNITS - left, jnp.int32))
    )


def weakest(box: Any, sigma: Sequence[float], rate: Sequence[float], epsilon: float, seed: int) -> list[Any]:
    """The cheapest queries (sigma, rate) of a box for what they do, of 64 random ones and the corners.

    Two by what their runs, fixed in advance, cost until the refusal; one each by the variance of the loss for a unit
    with all, a third and a twentieth of the budget left.
    """
    rng = np.random.default_rng(seed)
    tried = [(s, q) for s in sigma for q in rate]
    for _ in range(64):
        x, y = rng.uniform(size=2)
        tried.append((sigma[0] * (sigma[1] / sigma[0]) ** x, rate[0] * (rate[1] / rate[0]) ** y))
    costs = []
    for one in tried:
        steps = int(box.steps_left(_query(*one)))
        costs.append(float(jaxacct.delta(_query(*one), epsilon, steps=steps).lower))
    found = [tried[i] for i in np.argsort(costs)[-2:]]
    noise, rates = np.array(tried).T
    for share in (1.0, 0.3, 0.05):
        with jax.enable_x64(True):
            price = np.asarray(_prices(box, noise, rates, np.full(noise.size, int(share * UNITS), np.int32)))
        found.append(tried[int((rates**2 * np.expm1(noise**-2.0) / price).argmax())])
    return sorted(set(found))


def best_play(
    box: Any, queries: Sequence[tuple[float, float]], scale: float, levels: int, grid: LossGrid, reach: int, at: int
) -> float:
    """delta of the best play of a few queries, from below, for `remove`, over the promised delta.

    Args:
        box: a `TableFilter`.
        queries: (sigma, rate) of each.
        scale: what prices are multiplied by.
        levels: of the lattice of budgets; a divisor of `UNITS`.
        grid: lattice of losses, of the curves.
        reach: points of a query's law on both sides.
        at: the epsilon, in points of ``grid`` above 0.
    """
    if UNITS % levels:
        raise ValueError(f"levels must divide {UNITS}, got {levels}")
    short, unit = LossGrid(grid.spacing, -reach, 2 * reach + 1), UNITS // levels
    left = unit * np.arange(levels + 1)
    spectra, alone, after = [], [], []
    size = 1 << (grid.size + 2 * reach).bit_length()
    for sigma, rate in queries:
        law = jaxacct.PLD.from_mechanism(_query(sigma, rate), "lower", relation="remove", grid=short)
        spectra.append(np.fft.rfft(np.asarray(law.masses), size))
        alone.append(np.asarray(jaxacct.PrivacyProfile.from_pld(law).on(grid).excess))
        with jax.enable_x64(True):
            price = np.asarray(_prices(box, sigma, rate, jnp.asarray(left, jnp.int32))).astype(np.int64)
        fits = price <= left
        kept = left - np.maximum(np.ceil(scale * price).astype(np.int64), 1)
        if (np.diff(kept[fits]) < -_HAIR).any() or (np.diff(fits.astype(int)) < 0).any():
            raise ArithmeticError(f"more budget leaves less of it after (sigma {sigma:g}, rate {rate:g})")
        after.append(np.where(fits, np.maximum((kept - _HAIR) // unit, -1), -1))
    # As many levels at a time as every query takes at least, and as many kept as one takes at most.
    taken = np.concatenate([(np.arange(levels + 1) - to)[to >= 0] for to in after])
    block, depth = int(taken.min()), int(taken.max() + taken.min())
    composed = np.zeros((len(queries), depth, grid.size))
    best = np.zeros(grid.size)
    for start in range(0, levels + 1, block):
        rows = np.arange(start, min(start + block, levels + 1))
        found = np.zeros((rows.size, grid.size))
        for done, own, to in zip(composed, alone, after, strict=True):
            found = np.maximum(found, np.where((to[rows] >= 0)[:, None], own + done[to[rows] % depth], 0.0))
        found[0] = np.maximum(found[0], best)
        curves = np.maximum.accumulate(found, 0)
        best = curves[-1]
        spectrum = np.fft.rfft(np.pad(curves, ((0, 0), (reach, reach))), size)
        for done, law in zip(composed, spectra, strict=True):
            done[rows % depth] = np.fft.irfft(spectrum * law, size)[:, 2 * reach : 2 * reach + grid.size]
    reached = float(best[at - grid.lowest]) - _ROUNDING
    return reached / float(box.guarantee.delta(at * grid.spacing))


def simulated(
    box: Any, queries: Sequence[tuple[float, float]], policy: str, scale: float, plays: int, to: float, seed: int
) -> tuple[float, float]:
    """Mean of (1 - exp(to - loss))_+ over simulated plays, and its standard error, both over the promised delta.

    Policies: "random"; "weakest", the query of most variance of the loss for each unit where it stands; "swings", the
    loudest once the loss is above its mean, else the quietest. Prices are multiplied by ``scale``.
    """
    sigma, rate = (jnp.asarray(column) for column in zip(*queries, strict=True))
    spread = rate**2 * jnp.expm1(1.0 / sigma**2)

    @jax.jit
    @jax.vmap
    def play(key: Any) -> Any:
        def price(left: Any) -> Any:
            state = box.init()._replace(spent=jnp.asarray(UNITS - left, jnp.int32))
            each = jax.vmap(lambda s, q: box.price(PoissonSampled(Gaussian(s), q), state))
            return each(sigma, rate)

        def step(state: Any) -> Any:
            key, left, loss, centre, _ = state
            key, chance, sampled, noise = jax.random.split(key, 4)
            prices = price(left)
            fits = prices <= left
            prices = jnp.maximum(jnp.ceil(scale * prices), 1.0).astype(jnp.int32)
            if policy == "random":
                worth = jax.random.uniform(chance, sigma.shape)
            elif policy == "weakest":
                worth = spread / prices
            else:
                worth = jnp.where(loss > centre, spread, -spread)
            pick = jnp.argmax(jnp.where(fits, worth, -jnp.inf))
            s, q = sigma[pick], rate[pick]
            x = jax.random.bernoulli(sampled, q) + s * jax.random.normal(noise)
            more = jnp.log1p(q * jnp.expm1((2.0 * x - 1.0) / (2.0 * s * s)))
            runs = fits.any()
            left = jnp.where(runs, left - prices[pick], left)
            return (key, left, loss + jnp.where(runs, more, 0.0), centre + jnp.where(runs, spread[pick] / 2, 0.0), runs)

        start = key, jnp.int32(UNITS), jnp.zeros(()), jnp.zeros(()), jnp.bool_(True)
        loss = jax.lax.while_loop(lambda state: state[-1], step, start)[2]
        return jnp.maximum(-jnp.expm1(to - loss), 0.0)

    with jax.enable_x64(True):
        found = np.concatenate(
            [np.asarray(play(keys)) for keys in jax.random.split(jax.random.key(seed), plays).reshape(-1, 10_000)]
        )
        promised = float(box.guarantee.delta(to))
    return float(found.mean() / promised), float(found.std() / found.size**0.5 / promised)
