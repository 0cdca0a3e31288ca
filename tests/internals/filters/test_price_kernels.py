"""Kernels of queries against sums over their outcomes in many digits."""

import itertools

import jax
import mpmath
import numpy as np
import pytest
from mpmath import mpf

from jaxacct import Composed, FromTables, LossGrid, PoissonSampled
from jaxacct.filters.prices import kernels

GRID, WIDTH = LossGrid(0.25, -100, 201), 1.25
OFFSETS = GRID.spacing * np.arange(1 - GRID.size, GRID.size)
TABLES = [
    ([1.0, 0.0], [1.0 - 1e-9, 1e-9]),
    ([0.2, 0.8, 0.0, 1e-12], [0.7, 0.3 - 1e-3, 1e-3, 0.0]),
    ([1e-14, 1e-6, 1.0 - 1e-6], [0.5, 0.4, 0.1]),
    ([0.1, 0.9 - 1e-15, 1e-15], [0.9, 0.1 - 1e-25, 1e-25]),
]


def outcomes(p, q, rate, runs):
    """Probabilities of all sequences of outputs, as numbers of 120 digits; tables are divided by their sums."""
    p, q = ([mpf(x) / mpmath.fsum(map(mpf, table)) for x in table] for table in (p, q))
    pairs = [(rate * a + (1 - mpf(rate)) * b, b) for a, b in zip(p, q, strict=True)]
    return [
        tuple(mpmath.fprod(side) for side in zip(*some, strict=True)) for some in itertools.product(pairs, repeat=runs)
    ]


def gaussian(gamma):
    z, half = mpmath.log(gamma) / WIDTH, mpf(WIDTH) / 2
    return mpmath.ncdf(half - z) - gamma * mpmath.ncdf(-half - z)


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("rate", [1.0, 0.75, 1e-7])
@pytest.mark.parametrize(("p", "q"), TABLES)
def test_a_query_adds_no_more_than_its_kernel_at_any_order(p, q, rate, runs):
    query = FromTables(p, q) if rate == 1.0 else PoissonSampled(FromTables(p, q), rate)
    with jax.enable_x64(True):
        atoms = kernels.atoms_of(query if runs == 1 else Composed([query], [runs]), GRID)
        alone, kernel = (
            kernels.excess_of(atoms, GRID.spacing, GRID.size),
            kernels.kernel_of(atoms, WIDTH, GRID.spacing, GRID.size),
        )
    with mpmath.workdps(120):
        sequences = outcomes(p, q, rate, runs)
        for i in range(0, OFFSETS.size, 10):
            gamma, root = mpmath.exp(mpf(float(OFFSETS[i]))), mpmath.exp(mpf(float(OFFSETS[i])) / 2)
            excess = mpmath.fsum(max(a - gamma * b, 0) for a, b in sequences) - max(1 - gamma, 0)
            assert alone[i] >= excess / root * (1 - mpf(10) ** -12) - mpf(10) ** -100
            both = mpmath.fsum(a * gaussian(gamma * b / a) if b else a for a, b in sequences if a)
            assert kernel.values[i] + kernel.lost >= (both - gaussian(gamma)) / root
