"""The engine of discrete laws: sound wherever, tight where it is meant for."""

import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest

from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rows import Row
from jaxacct.losses.engines.discrete_laws.bounds import Size, universal_bounds
from jaxacct.losses.engines.laws import cells
from jaxacct.mechanisms.pairs.table import TablePair

SMALL, LARGE = Size(128, 256), Size(512, 1024)


def bounds(kind, size, pairs, counts, goal):
    """Bounds of a batch; ``counts`` has a row for each of its settings."""
    with jax.enable_x64(True), np.errstate(all="ignore"):
        return universal_bounds(kind, size, pairs, np.array(counts, float), np.atleast_1d(np.asarray(goal, float)))


@mechanism
class Displaced(TablePair):
    """A table whose tails are those of losses that are off by all that it says, to changing sides."""

    losses: Any
    p: Any
    q: Any
    mass_error: Any
    loss_slack: Any
    side: Any

    def lists_outcomes(self):
        return False

    def tails(self, losses):
        side = self.side[..., None]
        off = np.where(side == 0, np.sin(1e9 * losses), side)
        return super().tails(losses + 0.99 * self.loss_slack[..., None] * off)


def displaced(p, q, slack, side):
    p, q = np.array(p), np.array(q)
    rows = [Row(x[None, None]) for x in (np.log(p / q), p, q)]
    return Displaced(*rows, *(np.full((1, 1), x) for x in (1e-15, slack, side)))


@pytest.mark.parametrize("side", [-1.0, 0.0, 1.0])
def test_an_atom_at_an_edge_is_counted_once(side):
    p, q, slack = [0.2, 0.3, 0.5], [0.5, 0.3, 0.2], 1e-3
    pair = displaced(p, q, slack, side)
    edges = np.linspace(-1.0, 1.0, 9)
    near = np.concatenate([x + 0.3 * slack * np.arange(-4.0, 5.0) for x in (0.0, np.log(0.4), np.log(2.5))])
    with np.errstate(all="ignore"):
        laws = cells.laws(pair, np.sort(np.concatenate([edges, near]))[None, None])
    for gamma in np.exp(np.linspace(-1.1, 1.1, 45)):
        truth = sum(max(a - gamma * b, 0.0) for a, b in zip(p, q, strict=True))
        low, high = (
            (law.masses * np.maximum(1.0 - gamma * np.exp(-law.losses), 0.0)).sum() + law.infinite.sum()
            for law in (laws.lower, laws.upper)
        )
        assert low <= truth * (1 + 1e-12)
        assert truth <= high * (1 + 1e-12)
        assert high - low < 0.05 or side < 0


@pytest.mark.parametrize("side", [-1.0, 0.0, 1.0])
def test_displaced_atoms_are_composed_soundly(side):
    p, q, count = [0.2, 0.3, 0.5], [0.5, 0.3, 0.2], 6
    outcomes = []
    for drawn in itertools.product(range(3), repeat=count):
        outcomes.append((math.prod(p[i] for i in drawn), math.prod(q[i] for i in drawn)))
    pair = displaced(p, q, 1e-4, side)
    for epsilon in (-1.0, 0.0, 1.5, 4.0, 5.4, 6.0):
        truth = sum(max(a - math.exp(epsilon) * b, 0.0) for a, b in outcomes)
        lower, upper = bounds("delta", SMALL, (pair,), [[count]], epsilon)
        assert lower <= truth + 1e-13
        assert truth <= upper + 1e-13
