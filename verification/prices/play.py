"""Adversaries who know the prices: the best adaptive play by dynamic programming, and policies that are simulated.

`best_play` is a lower bound on the hockey-stick curve of the best analyst: laws are discretised from below, and a price
is rounded up to the lattice of budgets. The best of all plays must stay within the promise; it must pass it when prices
are lowered by as much as the filter is above the best play, which says how tight the filter is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxacct
from jaxacct import Gaussian, PoissonSampled
from jaxacct.filters.boxes.family import UNITS
from jaxacct.filters.menus.priced_menu import MenuState
from jaxacct.losses.grids.grid import LossGrid

__all__ = ["best_play", "simulated"]


def best_play(
    box: Any, queries: Sequence[tuple[float, float]], scale: float, levels: int, grid: LossGrid, reach: int, to: float
) -> float:
    """delta(to) of the best play of a few queries, from below, for `remove`, over the promised delta.

    Args:
        box: a `PricedBoxFilter`.
        queries: (sigma, rate) of each.
        scale: what prices are multiplied by.
        levels: of the lattice of budgets.
        grid: lattice of losses, of the curves.
        reach: points of a query's law on both sides.
        to: the epsilon.
    """
    short = LossGrid(grid.spacing, -reach, 2 * reach + 1)
    # With so many levels left, as many as can be left after each query; below 0 what does not fit.
    left = np.rint(UNITS * np.arange(levels + 1) / levels).astype(np.int32)
    laws, alone, after = [], [], []
    for sigma, rate in queries:
        one = PoissonSampled(Gaussian(sigma), rate)
        law = jaxacct.PLD.from_mechanism(one, "lower", relation="remove", grid=short)
        laws.append(np.asarray(law.masses))
        alone.append(np.asarray(jaxacct.PrivacyProfile.from_pld(law).on(grid).excess))
        with jax.enable_x64(True):
            price = np.asarray(jax.jit(lambda x, one=one: box.price(one, MenuState(UNITS - x)))(left))
        fits = price <= left
        asked = np.ceil(scale * price * (levels / UNITS) - 1e-9).astype(np.int64)
        after.append(np.where(fits, np.maximum(np.arange(levels + 1) - np.maximum(asked, 1), -1), -1))
    size = 1 << (grid.size + 2 * reach).bit_length()
    spectra = [np.fft.rfft(law, size) for law in laws]
    composed: list[list[np.ndarray]] = [[] for _ in laws]
    curves: list[np.ndarray] = []
    for level in range(levels + 1):
        best = np.zeros(grid.size) if not curves else curves[-1]
        for done, own, to_level in zip(composed, alone, after, strict=True):
            if to_level[level] >= 0:
                best = np.maximum(best, own + done[to_level[level]])
        curves.append(best)
        spectrum = np.fft.rfft(np.pad(best, reach), size)
        for done, law in zip(composed, spectra, strict=True):
            done.append(np.fft.irfft(spectrum * law, size)[2 * reach : 2 * reach + grid.size])
    reached = float(np.interp(to, grid.losses, curves[-1]))
    return reached / float(box.guarantee.delta(to))


def simulated(box: Any, queries: Sequence[tuple[float, float]], policy: str, plays: int, to: float, seed: int) -> Any:
    """Mean of (1 - exp(to - loss))_+ over simulated plays, and its standard error, both over the promised delta.

    Policies: "random"; "weakest", the query of most variance of the loss for each unit where it stands; "swings", the
    loudest once the loss is above its mean, else the quietest.
    """
    sigma, rate = (jnp.asarray(column) for column in zip(*queries, strict=True))
    spread = rate**2 * jnp.expm1(1.0 / sigma**2)

    @jax.jit
    @jax.vmap
    def play(key: Any) -> Any:
        def price(left: Any) -> Any:
            each = jax.vmap(lambda s, q: box.price(PoissonSampled(Gaussian(s), q), MenuState(UNITS - left)))
            return each(sigma, rate)

        def step(state: Any) -> Any:
            key, left, loss, centre, _ = state
            key, chance, sampled, noise = jax.random.split(key, 4)
            prices = price(left)
            fits = prices <= left
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
            return (
                key,
                left,
                loss + jnp.where(runs, more, 0.0),
                centre + jnp.where(runs, spread[pick] / 2, 0.0),
                runs,
            )

        start = key, jnp.int32(UNITS), jnp.zeros(()), jnp.zeros(()), jnp.bool_(True)
        loss = jax.lax.while_loop(lambda state: state[-1], step, start)[2]
        return jnp.maximum(-jnp.expm1(to - loss), 0.0)

    with jax.enable_x64(True):
        found = np.concatenate(
            [np.asarray(play(keys)) for keys in jax.random.split(jax.random.key(seed), plays).reshape(-1, 10_000)]
        )
        promised = float(box.guarantee.delta(to))
    return float(found.mean() / promised), float(found.std() / found.size**0.5 / promised)
