"""What a law on a grid is made of, part by part: the lattice step and the transform are given, and what they charge."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxacct import PLD, LossGrid
from jaxacct.losses.curves import pld_composition
from jaxacct.mechanisms.pairs.base import Tails

pytestmark = pytest.mark.usefixtures("in_float64")


class Given:
    """A pair of which only its ends are asked."""

    def __init__(self, error=0.0, largest=math.inf, survey=None):
        self.error, self.largest, self.given = error, largest, survey

    def loss_error(self):
        return jnp.asarray(self.error)

    def max_loss(self):
        return jnp.asarray(self.largest)

    def survey(self):
        return self.given


jax.tree_util.register_pytree_node(Given, lambda x: ((x.error, x.largest), x.given), lambda given, x: Given(*x, given))


class Logistic(Given):
    """The tails of some law, all of whose losses are possible."""

    def tails(self, losses):
        p, q = self.error * losses, (self.error + 1.0) * losses
        sides = (jax.nn.sigmoid(x) for x in (-p, p, -q, q))
        return Tails(*sides, jnp.full(losses.shape, 1e-15))

    def loss_error(self):
        return jnp.zeros(())

    def infinity(self):
        return jnp.zeros(())


jax.tree_util.register_pytree_node(
    Logistic, lambda x: ((x.error, x.largest), x.given), lambda given, x: Logistic(*x, given)
)


def held(masses, times):
    return pld_composition._Held(np.array(masses), LossGrid(0.5, 0, 3), times)


@pytest.mark.parametrize(("p", "steps"), [(0.5, 2000), (0.01, 50_000), (1e-9, 10**6), (0.999, 10**4)])
def test_a_sum_leaves_its_ends_with_less_than_the_cut(p, steps):
    """A binomial number of points, some of them of another law: its own tails by the exact beta integral."""
    binom = scipy.stats.binom
    some, other = held([1 - p, p, 0.0], steps), held([0.0, 0.0, 1.0], 1)
    first, last = pld_composition._ends([some, other], 0, 2 * (steps + 1))
    assert 0 <= first <= last <= 2 * (steps + 1)
    below, above = binom.logcdf(first - 3, steps, p), binom.logsf(last - 2, steps, p)
    assert max(below, above) <= math.log(pld_composition._CUT)
    assert last - first <= 40 + 25 * math.sqrt(steps * p * (1 - p))  # and not much earlier than needed


@pytest.mark.parametrize(("bound", "infinity"), [("upper", 1e-9), ("upper", 0.0), ("lower", 0.0)])
def test_what_a_cut_law_leaves_out_is_charged(monkeypatch, bound, infinity):
    """With a cut large enough to be seen: infinite, or the largest sum; from below every entry gives up both ends."""
    monkeypatch.setattr(pld_composition, "_CUT", 1e-3)
    monkeypatch.setattr(pld_composition, "_SHORT", 8)
    fair = PLD(np.array([0.5, 0.0, 0.0, 0.5]), np.array(infinity), LossGrid(0.5, -1, 4), bound)
    steps = 400
    found = fair.self_compose(steps)
    assert found.grid.lowest > -steps
    assert (found.grid.highest == 2 * steps) == (bound == "upper" and not infinity)
    exact = np.zeros(3 * steps + 1)
    exact[::3] = scipy.stats.binom.pmf(np.arange(steps + 1), steps, 0.5)
    inside = found.grid.lowest + steps + np.arange(found.grid.size)
    if bound == "upper":
        assert found.infinity_mass == (pytest.approx(2e-3 + 400e-9, rel=1e-6) if infinity else 0.0)
        held = exact[inside] > 1e-3  # beyond the ends all is in one place
        assert np.all(found.masses[held] >= exact[inside][held])
        assert 1.0 - 1e-9 <= found.masses.sum() + found.infinity_mass <= 1.0 + 3e-3
    else:
        assert found.infinity_mass == 0
        assert np.all(found.masses <= exact[inside])
        np.testing.assert_allclose(found.masses, np.maximum(exact[inside] - 2e-3, 0.0), atol=1e-4)
