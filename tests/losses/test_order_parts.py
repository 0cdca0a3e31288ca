"""The order's decisions on toy curves, against what a loop over their numbers says."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import Composed, Gaussian, Laplace, LossGrid, PoissonSampled, PrivacyProfile, TradeOff
from jaxacct.losses.compare import order
from tests import stored

pytestmark = pytest.mark.usefixtures("in_float64")

INF = math.inf


def test_sampled_gaussians_that_are_ordered_in_closed_form():
    s = lambda sigma, rate=1.0: PoissonSampled(Gaussian(sigma), rate) if rate < 1 else Gaussian(sigma)  # noqa: E731
    known = lambda a, b, relation="add_or_remove": order.known_order(a, b, relation)  # noqa: E731
    assert known(s(1.0, 0.5), s(1.0, 0.5))
    assert known(s(1.0, 0.5), s(2.0, 0.5))
    assert known(s(1.0, 0.5), s(1.0, 0.25))
    assert not known(s(2.0, 0.5), s(1.0, 0.5))
    assert not known(s(1.0, 0.25), s(1.0, 0.5))
    assert not known(s(1.0, 0.25), s(2.0, 0.5))
    assert known(s(1.0), s(1.0, 0.5))  # one direction stands for both
    assert not known(s(1.0, 0.5), s(1.0))
    assert known(s(1.0, 0.5), s(1.0, 0.25), "remove")
    assert known(Composed([s(1.0, 0.5)], 3), Composed([s(1.0, 0.5)], 2))
    assert known(Composed([s(1.0, 0.5)], 3), Composed([s(1.0, 0.5)], 3))
    assert not known(Composed([s(1.0, 0.5)], 2), Composed([s(1.0, 0.5)], 3))
    two = Composed([s(1.0, 0.5), s(2.0, 0.25)], (2, 3))
    assert not known(two, s(1.0, 0.5))
    assert not known(s(1.0, 0.5), two)
    assert not known(Laplace(1.0), s(5.0, 0.5), "remove")
    assert not known(s(0.1, 0.5), Laplace(5.0), "remove")
    assert not known(s(np.array([1.0, 1.0]), 0.5), s(1.0, 0.5))  # a batch is no single answer
    assert not known(s(np.array([1.0]), 0.5), s(1.0, 0.5))
    grid = LossGrid(0.5, -2, 5)
    law = PrivacyProfile(np.zeros(5), grid)
    assert not known(law, s(1.0))
    assert not known(s(1.0), law)
    assert not jax.jit(lambda x: jnp.asarray(known(Gaussian(x), Gaussian(2 * x))))(1.0)


def test_tolerances():
    grid = LossGrid(0.5, -2, 5)
    law, mechanism = PrivacyProfile(np.zeros(5), grid), Gaussian(1.0)
    assert order.tolerance_of(None, [law, law]) == 0.0
    assert order.tolerance_of(None, [law, mechanism]) == 1e-12
    assert order.tolerance_of(0.25, [law, mechanism]) == 0.25
    for bad in (-0.25, math.nan, INF, "x", [0.1, 0.2]):
        with pytest.raises((ValueError, TypeError), match="tolerance"):
            order.tolerance_of(bad, [law])


def test_curves_are_compared_at_every_slope_of_any():
    one = TradeOff(np.array([0.25, 0.75]), np.array([0.75, 0.25]))
    other = TradeOff(np.array([0.0, 0.5, 0.5]), np.array([0.125, 0.75, 0.125]))
    points, both = order.all_at_slopes([one, other])
    wanted = [math.log(1 / 3), math.log(3), math.log(2 / 3), math.log(4), 0.0, INF, -INF]
    seen = np.asarray(points)
    for x in wanted:
        assert np.any(np.isclose(seen, x, rtol=1e-14) | (seen == x))
    assert set(np.round(seen, 9)) == set(np.round(wanted, 9))
    assert both.upper.shape == (2, seen.size)
    for row, experiment in enumerate(([(0.25, 0.75), (0.75, 0.25)], [(0.0, 0.125), (0.5, 0.75), (0.5, 0.125)])):
        for loss, low, point, high in zip(seen, both.line[row], both.point[row], both.upper[row], strict=True):
            if np.isfinite(loss):
                gamma = math.exp(loss)
                truth = sum(max(w - gamma * d if loss >= 0 else gamma * d - w, 0.0) for w, d in experiment)
            else:
                truth = sum((w if d == 0 else 0.0) if loss > 0 else (d if w == 0 else 0.0) for w, d in experiment)
            assert low == point
            assert point <= truth + 1e-17
            assert truth <= high + 1e-17
            assert high - low <= 60 * 2.0**-52


def test_curves_that_hold_nan_are_refused_wherever_it_is():
    grid = LossGrid(0.5, -2, 5)
    good = PrivacyProfile(np.full(5, 0.1), grid)
    bad = [
        stored.profile(np.array([0.1, 0.1, math.nan, 0.1, 0.1]), grid),
        stored.law(np.array([0.2, 0.2, 0.2, 0.2, math.nan]), np.array(0.0), grid),
        stored.law(np.full(5, 0.2), np.array(math.nan), grid),
        stored.trade_off(np.array([0.5, 0.5]), np.array([0.5, math.nan])),
    ]
    for one in bad:
        for members in ([one], [good, one], [jaxacct.Gaussian(1.0), one]):
            with pytest.raises(ValueError, match="must hold numbers, got nan"):
                order.refuse_nan(members)
    order.refuse_nan([good, jaxacct.Gaussian(1.0)])
