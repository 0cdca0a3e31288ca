"""Pairs answer in NumPy what they answer in JAX, over settings, and one run of a mechanism compiles nothing."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxacct import (
    GDP,
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FromProfile,
    FromTables,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    RandomSensitivityGaussian,
    RenyiDP,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedPoisson,
    ZeroConcentratedDP,
)
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct.mechanisms.directions import directions

TABLES = np.array([[0.0, 0.2, 0.3, 0.5], [0.1, 0.1, 0.3, 0.5]]), np.array([[0.3, 0.4, 0.1, 0.2], [0.2, 0.5, 0.3, 0.0]])
PLAIN = {
    "gaussian": Gaussian(np.array([0.3, 1.3, 50.0])),
    "gdp": GDP(1.2),
    "laplace": Laplace(np.array([0.05, 0.7, 30.0])),
    "discrete gaussian": DiscreteGaussian(np.array([0.4, 3.3, 25.0, 1000.0]), 3),
    "discrete laplace": DiscreteLaplace(np.array([0.2, 3.0, 90.0]), 2),
    "randomized response": RandomizedResponse(np.array([0.3, 2.0]), 4),
    "pure": PureDP(0.7),
    "approximate": ApproximateDP(1.0, np.array([0.0, 1e-3])),
    "exponential": Exponential(np.array([0.1, 1.5])),
    "permute and flip": PermuteAndFlip(0.8),
    "tables": FromTables(*TABLES),
    "profile": FromProfile([0.0, 0.5, 1.0], [0.3, 0.1, 0.01]),
    "mixture": RandomSensitivityGaussian(np.array([0.9, 4.0]), (0.0, 1.0, 2.5), (0.7, 0.2, 0.1)),
    "renyi": RenyiDP(np.array([2.0, 16.0]), 0.5),
    "concentrated": ZeroConcentratedDP(np.array([1e-3, 0.1, 5.0])),
}
EVERY = {
    **{name: (mechanism, "remove") for name, mechanism in PLAIN.items()},
    **{f"sampled {name}": (PoissonSampled(mechanism, 0.1), "add") for name, mechanism in PLAIN.items()},
    **{
        f"replaced {name}": (PoissonSampled(PLAIN[name], 0.1), "replace")
        for name in ("gaussian", "laplace", "mixture", "tables", "randomized response", "approximate", "pure")
    },
    "rarely sampled laplace": (PoissonSampled(Laplace(np.array([0.5, 5.0])), 1e-7), "remove"),
    "truncated": (TruncatedPoisson(Gaussian(np.array([0.9, 3.0])), 0.2, 3, 10), "remove"),
    "truncated, zeroed out": (TruncatedPoisson(Gaussian(np.array([0.9, 3.0])), 0.2, 3, 10), "zero_out"),
    "truncated, filled in": (TruncatedPoisson(Gaussian(0.9), np.array([0.2, 0.3]), 3, 10), "fill_in"),
    "truncated, replaced": (TruncatedPoisson(Gaussian(0.9), 0.2, np.array([3, 4, 5]), 10), "replace"),
    "with replacement": (SampledWithReplacement(Gaussian(np.array([1.1, 2.0])), 3, 10), "add"),
    "with replacement, replaced": (SampledWithReplacement(Gaussian(1.1), np.array([3, 5]), 10), "replace"),
    "without replacement": (SampledWithoutReplacement(Gaussian(np.array([0.5, 5.0])), 3, 10), "replace"),
}
ONE_OF_A_KIND = [
    *("gaussian", "laplace", "discrete gaussian", "discrete laplace", "randomized response", "exponential", "tables"),
    *("replaced gaussian", "replaced laplace", "replaced mixture", "replaced tables"),
    *("truncated", "truncated, zeroed out", "truncated, replaced", "with replacement", "with replacement, replaced"),
    *("mixture", "renyi", "concentrated", "sampled laplace", "sampled tables", "without replacement"),
]
LOSSES = np.sort(np.concatenate([np.linspace(-4.0, 4.0, 33), [-700.0, -40.0, -1e-6, 1e-6, 0.3, 40.0, 700.0]]))


def pair_of(mechanism, relation):
    ((pair, _),) = directions(mechanism, relation)[0]
    shape = np.broadcast_shapes(*settings_shapes(pair))
    return flattened(pair, shape, np), int(np.prod(shape))


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_tails_in_numpy_are_those_in_jax(name):
    pair, size = pair_of(*EVERY[name])
    tails = pair.tails(LOSSES)
    with jax.enable_x64(True):
        compiled = jax.tree.map(np.asarray, jax.jit(lambda pair: pair.tails(LOSSES))(pair))
    for mine, its in zip(tails[:4], compiled[:4], strict=True):
        assert isinstance(mine, np.ndarray)
        assert mine.shape == its.shape == tails.error.shape == compiled.error.shape == (size, LOSSES.size)
        room = 2.0 * (tails.error + compiled.error) * np.maximum(mine, its)
        assert np.all((np.abs(mine - its) <= room) | (np.maximum(mine, its) < 1e-290))


@pytest.mark.parametrize("name", ["gaussian", "discrete gaussian", "mixture", "concentrated", "randomized response"])
def test_parameters_that_are_none_give_tails_that_are_none(name):
    pair, size = pair_of(*EVERY[f"sampled {name}"])
    tails = jax.tree.map(lambda x: np.full_like(x, np.nan), pair).tails(np.zeros(1))
    assert tails.p_above.shape == (size, 1)
    assert np.all(np.isnan(tails.p_above) | np.isnan(tails.error))
