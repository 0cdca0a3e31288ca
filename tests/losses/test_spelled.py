"""Concrete curves compile nothing, and what NumPy and JAX spell differently means the same."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct._numerics import curve_arrays as _spelled
from jaxacct._numerics.arrays import running_greatest

pytestmark = pytest.mark.usefixtures("in_float64")

CALLS = """
import jaxacct
from jaxacct import *
from jaxacct.losses.compare.attack import advantage, bayes_risk, power
from jaxacct.losses.approximations.central_limit import clt_of_box
from jaxacct.losses.compare.distance import delta_divergence
from jaxacct.losses.compare.suprema import infimum
from jaxacct.losses.compare.gaussian_order import gaussian_trade_off, mu_of
from jaxacct.losses.compare.order import crossings

sampled, noise = PoissonSampled(Gaussian(1.0), 0.01), Laplace(1.0)
for bound in ("upper", "lower"):
    law = PLD.from_mechanism(sampled, bound)
    law.self_compose(1000).compose(law).hockey_stick([0.1, 1.0])
    law.tilt(1.0), law.log_moment(1.0), law.trade_off(0.1)
    profile = PrivacyProfile.from_mechanism(noise, bound)
    profile.symmetrise(), profile.compose(profile), profile.values(), profile.to_pld()
    curve = TradeOff.from_profile(profile)
    curve.power(0.1), curve.trade_off(0.1), curve.points(), curve.profile(profile.grid)
    bayes_risk(law, 0.3), power(law, 0.1), advantage(curve)
few = TradeOff.from_points([0.0, 0.3, 1.0], [1.0, 0.3, 0.0])
few.compose(few, 16), few.compose(few), supremum([few, few.reflect()]), dominates(few, few)
pair = [Gaussian(1.0), noise]
dominates(*pair), is_chain([*pair, Gaussian(2.0)]), supremum(pair), infimum(pair), crossings(*pair)
delta_divergence(*pair), mu_of(noise, delta=1e-6), gaussian_trade_off(1.0, 0.1)
clt_of_box((0.01, 0.02), (1.0, 2.0), 100)
"""


def test_concrete_calls_compile_nothing():
    said = subprocess.run(
        [sys.executable, "-c", CALLS], env=os.environ | {"JAX_LOG_COMPILES": "1"}, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert "ompil" not in said.stderr


@pytest.mark.parametrize("size", [0, 1, 4, 5, 11])
def test_mapping_in_pieces_is_mapping(size):
    rows, other = np.arange(3.0 * size).reshape(size, 3), np.arange(size)
    ask = lambda given: (given[0].sum(-1) * given[1], given[0][:, :2])  # noqa: E731
    for program in (lambda x: _spelled.mapped(ask, x, 4), jax.jit(lambda x: _spelled.mapped(ask, x, 4))):
        total, part = program((rows, other))
        np.testing.assert_array_equal(total, rows.sum(-1) * other)
        np.testing.assert_array_equal(part, rows[:, :2])


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (0,), (2, 0)])
def test_rows_of_any_batch(shape):
    one, other = np.random.default_rng(0).random((*shape, 4)), np.arange(2.0)
    ask = lambda a, b: {"sum": a.sum() + b.sum(), "joined": (jnp if isinstance(a, jax.Array) else np).append(a, b)}  # noqa: E731
    for found in (_spelled.rows(ask, one, other), _spelled.rows(ask, jnp.asarray(one), other)):
        np.testing.assert_allclose(found["sum"], one.sum(-1) + 1)
        assert found["joined"].shape == (*shape, 6)


def test_arrays_are_changed_as_copies():
    for given in (np.arange(4.0), jnp.arange(4.0)):
        np.testing.assert_array_equal(_spelled.put(given, 1, 9.0), [0, 9, 2, 3])
        np.testing.assert_array_equal(_spelled.added(given, np.array([1, 1]), np.array([2.0, 3.0])), [0, 6, 2, 3])
        np.testing.assert_array_equal(given, np.arange(4.0))
        for reverse in (False, True):
            rows, way = given[None] * np.array([[1.0], [-1.0]]), slice(None, None, -1 if reverse else 1)
            expected = np.maximum.accumulate(np.asarray(rows)[:, way], -1)[:, way]
            np.testing.assert_array_equal(running_greatest(rows, reverse=reverse), expected)
