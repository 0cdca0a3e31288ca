"""A search for a price that is too low, between the grid's points: random noise, rate and budget left."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct.filters.prices.family import UNITS
from verification.prices.inequality import Curves, worst_margins

__all__ = ["BOXES", "Found", "search"]

BOXES: dict[str, dict[str, Any]] = {
    "sigma 2 to 4, rate .002 to .05": {"sigma": (2.0, 4.0), "rate": (0.002, 0.05), "epsilon": 2.0, "delta": 1e-5},
    "sigma 1 to 4, rate .002 to .01": {"sigma": (1.0, 4.0), "rate": (0.002, 0.01), "epsilon": 2.0, "delta": 1e-5},
    "sigma 1 to 4, rate .002 to .05": {"sigma": (1.0, 4.0), "rate": (0.002, 0.05), "epsilon": 2.0, "delta": 1e-5},
    "sigma .6 to .9, rate .01": {"sigma": (0.6, 0.9), "rate": 0.01, "epsilon": 6.0, "delta": 1e-5},
    "sigma 1, rate .001 to .02": {"sigma": 1.0, "rate": (0.001, 0.02), "epsilon": 1.5, "delta": 1e-6},
    "sigma 4 to 8, rate .2": {"sigma": (4.0, 8.0), "rate": 0.2, "epsilon": 8.0, "delta": 1e-5},
}
_EACH = 1000
"""Budgets for each query."""
_LOWERED = 0.99


class Found:
    """What a search saw; margins are in units of what the slack adds for the price."""

    def __init__(self) -> None:
        self.queries = self.points = self.lowered = self.violated = self.violated_below = 0
        self.least, self.error, self.worst = math.inf, 0.0, {}

    def as_dict(self) -> dict[str, Any]:
        return {
            "queries": self.queries,
            "points": self.points,
            "violated": self.violated,
            "least margin over slack": self.least,
            "largest error over slack": self.error,
            "at": self.worst,
            "points at prices lowered by 1 %": self.lowered,
            "of these violated": self.violated_below,
        }


@jax.jit
def _prices(box: Any, sigma: Any, rate: Any, left: Any) -> Any:
    return box.price(
        PoissonSampled(Gaussian(sigma), rate), box.init()._replace(spent=jnp.asarray(UNITS - left, jnp.int32))
    )


def _queries(box: dict[str, Any], rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    """Log-uniform; one in ten at a random end of both ranges."""
    while True:
        ends = [np.broadcast_to(np.asarray(box[name], np.float64), (2,)) for name in ("sigma", "rate")]
        shares = rng.uniform(size=2) if rng.uniform() > 0.1 else rng.integers(0, 2, 2)
        sigma, rate = (float(low * (high / low) ** x) for (low, high), x in zip(ends, shares, strict=True))
        yield sigma, rate


def search(name: str, points: int, seed: int, seconds: float = math.inf, kept: int = 0) -> tuple[Found, list[Any]]:
    """Random points of one box, and some of them with the order at which the margin is least."""
    rng, found, sample = np.random.default_rng(seed), Found(), []
    with jax.enable_x64(True):
        box = filters.sampled_gaussian(**BOXES[name])
    # A ledger stays in one of a box's tables: each is searched by itself.
    tables = [box] if box.other is None else [dataclasses.replace(box, other=None), box.other]
    table, curves, count, start = box, None, 0, time.monotonic()
    for sigma, rate in _queries(BOXES[name], rng):
        if found.points >= points or time.monotonic() - start > seconds:
            break
        if curves is None or count % 25 == 0:
            table = tables[count // 25 % len(tables)]
            curves = Curves(table.promise, float(rng.uniform()))
        family = table.promise
        assert family is not None
        count += 1
        # Half anywhere, half near the end, where prices move most.
        shares = np.where(rng.uniform(size=_EACH) < 0.5, rng.uniform(size=_EACH), 10 ** rng.uniform(-3, 0, _EACH))
        left = np.maximum((UNITS * shares).astype(np.int64), 1)
        with jax.enable_x64(True):
            price = np.asarray(_prices(table, sigma, rate, jnp.asarray(left, jnp.int32))).astype(np.int64)
        fits = price <= left
        left, price = left[fits], price[fits]
        if not left.size:
            continue
        added, size = curves.added(sigma, rate)
        margin, error, where = worst_margins(curves, added, size, left / UNITS, (left - price) / UNITS)
        found.queries += 1
        found.points += left.size
        found.violated += int((margin < -error).sum())
        worst = int(margin.argmin())
        loss = float((where[worst] + family.grid.lowest + curves.shift) * family.grid.spacing)
        point = {"sigma": sigma, "rate": rate, "left": int(left[worst]), "price": int(price[worst]), "loss": loss}
        if margin[worst] < found.least:
            found.least, found.worst = float(margin[worst]), point
        found.error = max(found.error, float(error.max()))
        if len(sample) < kept and count % 3 == 1:
            sample.append((family, point, float(margin[worst])))
        below = np.maximum((price * _LOWERED).astype(np.int64), 1)
        margin, error, _ = worst_margins(curves, added, size, left / UNITS, (left - below) / UNITS)
        found.lowered += below.size
        found.violated_below += int((margin < -error).sum())
    return found, sample
