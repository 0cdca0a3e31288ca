"""Mechanisms with finitely many losses, and discrete noise, against sums over their outputs."""

import functools

import jax
import mpmath as mp
import numpy as np
import pytest

from jaxacct.losses.engines.fallback_bounds import capped
from jaxacct.mechanisms.pairs.response import ResponsePair

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of:RuntimeWarning")


def test_epsilon_is_tight_from_below_where_only_the_largest_loss_of_all_is_likelier_than_delta():
    pure, steps, delta = 2.0, 14.0, 1e-9
    with jax.enable_x64(True):
        part = jax.tree.map(lambda x: np.full(1, x), ResponsePair(pure, 2.0, 0.0))
        known = jax.jit(functools.partial(capped, "epsilon"))((part,), np.full(1, steps), delta, (0.0, np.inf))
        lower = float(known[0])
    p, q = 1 / (1 + mp.exp(-pure)), 1 / (1 + mp.exp(pure))
    truth = mp.log((p**steps - mp.mpf(delta)) / q**steps)
    assert lower <= truth
    assert lower == pytest.approx(float(truth), rel=1e-9)
