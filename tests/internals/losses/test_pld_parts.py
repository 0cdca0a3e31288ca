"""What a law on a grid is made of, part by part: the lattice step and the transform are given, and what they charge."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.stats

from jaxacct import PLD, Laplace, LossGrid
from jaxacct.losses.curves import pld, pld_composition
from jaxacct.mechanisms.pairs.base import Tails
from tests import stored

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
MASSES = np.array([0.1, 0.0, 0.3, 0.2, 0.05, 0.15])


def single(monkeypatch, pair, grid, bound, **step):
    """The law of a step, of which all is 0 that is not named."""
    asked = []
    names = ("masses", "infinite") if bound == "upper" else ("masses", "infinite", "clipped")
    made = tuple(np.asarray(({"masses": MASSES} | step).get(name, 0.0)) for name in names)
    side = "masses_above" if bound == "upper" else "masses_below"
    monkeypatch.setattr(pld, side, lambda *given: asked.append(given) or made)
    lattice = np.asarray(grid.spacing), np.asarray(float(grid.lowest)), grid.size
    found = pld._single(pair, *lattice, bound)
    assert asked[0][1:] == lattice
    assert set(found) == {"masses", "infinity_mass"}
    return found["masses"], found["infinity_mass"]


@pytest.mark.parametrize(
    ("error", "spacing", "lowest"), [(1e-2, 0.5, -2), (0.0, 0.5, -(2**42)), (0.0, 0.5, 2**42), (0.1, 0.2, -2)]
)
def test_losses_that_are_off_are_moved_up_on_the_grid(monkeypatch, error, spacing, lowest):
    grid = LossGrid(spacing, lowest, 6)
    masses, infinite = single(monkeypatch, Given(error), grid, "upper", infinite=3e-3)
    with mpmath.workdps(30):
        largest = max(abs(lowest), abs(lowest + 5)) * mpmath.mpf(spacing)
        eta = 2 * (mpmath.mpf(error) + mpmath.mpf(2) ** -51 * largest)
        share = mpmath.expm1(-eta) / mpmath.expm1(-mpmath.mpf(spacing)) * (1 + mpmath.mpf(1e-9))
        if share > 1:
            assert not masses.any()
            assert infinite == 1
            return
        exact = [mpmath.mpf(float(m)) for m in MASSES]
        for k, mass in enumerate(exact):
            come = exact[k - 1] * share if k else 0
            expected = mass * (1 - share) * (1 + mpmath.mpf(2) ** -50) + come
            assert abs(float(masses[k] - expected)) <= 3e-16 * mass + 1e-15 * come
        expected = mpmath.mpf(3e-3) + exact[-1] * share * (1 + mpmath.mpf(1e-12))
        assert float(infinite) == pytest.approx(float(expected), rel=1e-14, abs=0)


def test_a_step_that_is_off_by_more_than_a_cell_says_nothing(monkeypatch):
    grid = LossGrid(0.5, -2, 6)
    for error in (0.26, math.nan):
        masses, infinite = single(monkeypatch, Given(error), grid, "upper")
        assert not masses.any()
        assert infinite == 1
    masses, infinite = single(monkeypatch, Given(0.0), grid, "upper", infinite=1.5)
    assert infinite == 1
    assert masses.sum() > 0


def test_what_may_underflow_lies_above_the_largest_loss_that_may_be_off(monkeypatch):
    grid = LossGrid(0.5, -2, 6)
    for error, at in ((0.0, 4), (0.2, 5)):  # 0.3 is rounded up to 0.5, and 0.7 to 1; one more point for good measure
        masses, infinite = single(monkeypatch, Given(error, 0.3), grid, "upper", masses=0 * MASSES, infinite=1e-255)
        assert infinite == 0
        assert np.flatnonzero(masses).tolist() == [at]
        assert masses[at] == pytest.approx(1e-255 / -np.expm1(-0.5) * (1 + 1e-12), rel=1e-13, abs=0)


def test_what_lies_below_a_grid_is_kept_and_what_lies_above_it_is_not():
    found = pld._single(Logistic(jnp.asarray(2.0)), 0.5, -1.0, 4, "upper")
    masses, infinite = (np.asarray(found[name]) for name in ("masses", "infinity_mass"))
    assert infinite == pytest.approx(1 / (1 + np.exp(2.0)), rel=1e-6)  # the grid ends at 1
    assert masses.sum() == pytest.approx(1 - infinite, rel=1e-6)


def test_what_has_no_right_to_be_there_is_taken_off_the_infinite_loss_first(monkeypatch):
    grid = LossGrid(math.log(2), 3, 6)
    taken = []
    monkeypatch.setattr(pld, "lowered", lambda masses, h, by: taken.append((h, float(by))) or 0.5 * masses)
    for excess, certain in ((3e-3, 0.01), (3e-3, 2.5e-3), (0.0, 0.02)):
        masses, infinite = single(monkeypatch, Given(), grid, "lower", clipped=excess, infinite=certain)
        assert infinite == pytest.approx(max(certain - excess, 0.0), rel=1e-12, abs=0)
        spacing, by = taken[-1]
        assert spacing == grid.spacing
        assert by == pytest.approx(max(excess - certain, 0.0) * (1 + 1e-9), rel=1e-12, abs=0)
        np.testing.assert_array_equal(masses, 0.5 * MASSES)


def test_a_lower_law_that_is_less_than_no_loss_is_no_loss(monkeypatch):
    """Where its hockey stick is nowhere above that of the loss 0, whose point is on the grid."""
    monkeypatch.setattr(pld, "lowered", lambda masses, *_: masses)
    small, point = np.array([0.0, 0.4, 0.2, 0.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    for lowest, below, infinite, replaced in (
        (-2, small, 0.0, True),
        (-2, small, 1e-3, False),
        (-1, small, 0.0, False),  # it has losses above 0
        (-5, 0.1 * small, 0.0, True),
        (-6, 0.1 * small, 0.0, False),
        (0, 0.0 * small, 0.0, True),
        (1, small, 0.0, False),
        (-2, 2.0 * small, 0.0, False),  # more than probability 1
    ):
        grid = LossGrid(0.5, lowest, 6)
        masses, certain = single(monkeypatch, Given(), grid, "lower", masses=below, infinite=infinite)
        assert certain == infinite
        expected = np.roll(point, -2 - lowest) if replaced else np.asarray(below)
        np.testing.assert_allclose(masses, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("steps", "both", "bound"), [(3, True, "upper"), (3, False, "lower"), (2, True, "lower"), (2, False, "upper")]
)
def test_every_entry_of_a_composed_law_takes_its_rounding(monkeypatch, steps, both, bound):
    sign = 1 if bound == "upper" else -1
    rng, error = np.random.default_rng(steps), 0.05
    one = stored.law(rng.random((2, 5)), np.array([1e-3, 1e-30]), LossGrid(0.5, -2, 5), bound)
    two = stored.law(rng.random(4), np.array(2e-3), LossGrid(0.5, 7, 4), bound) if both else None
    seen = []

    def convolved(laws, count, size, other=None):
        seen.append((laws.shape, count, size, None if other is None else other.shape))
        made = np.zeros((2, size))
        for row, masses in enumerate(laws):
            exact = np.ones(1) if other is None else other
            for _ in range(count):
                exact = np.convolve(exact, masses)
            made[row, : exact.size] = exact
        return np.where(made > 0, made - 0.02, -0.03), np.full(2, error)

    monkeypatch.setattr(pld_composition, "convolved", convolved)
    found = pld._combine(one, two, steps)
    longest = steps * 4 + (3 if both else 0)
    size = 2 ** math.ceil(math.log2(longest + 1))
    assert seen == [((2, 5), steps, size, (4,) if both else None)]
    assert found.grid == LossGrid(0.5, -2 * steps + (7 if both else 0), size)
    assert found.bound == bound
    for row in range(2):
        exact = two.masses if both else np.ones(1)
        survives = (1 - mpmath.mpf(float(one.infinity_mass[row]))) ** steps * (1 - mpmath.mpf(2e-3) if both else 1)
        for _ in range(steps):
            exact = np.convolve(exact, one.masses[row])
        expected = np.maximum(np.maximum(exact - 0.02, 0.0) + sign * error, 0.0)
        np.testing.assert_allclose(found.masses[row][: longest + 1], expected, rtol=1e-12, atol=1e-15)
        assert not found.masses[row][longest + 1 :].any()
        with mpmath.workdps(50):
            survives = (1 - mpmath.mpf(float(one.infinity_mass[row]))) ** steps * (1 - mpmath.mpf(2e-3) if both else 1)
            assert abs(float(found.infinity_mass[row] / (1 - survives) - 1) - sign * 1e-12) <= 1e-14


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


def test_the_ends_of_a_batch_hold_all_of_its_sums():
    rows = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.5, 0.5]]
    assert pld_composition._ends([held(rows, 1000)], 0, 2000) == (0, 2000)
    first, last = pld_composition._ends([held([0.0, 0.0, 0.0], 1000)], 0, 2000)  # no finite loss: anywhere
    assert 0 <= first <= last <= 2000
    with np.errstate(all="ignore"):
        assert pld_composition._ends([held([0.5, np.nan, 0.5], 1000)], 0, 2000) == (0, 2000)


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


def test_a_composed_law_has_a_largest_size(monkeypatch):
    monkeypatch.setattr(pld_composition, "_MOST", 40)
    law = PLD(np.full(8, 0.125), np.array(0.0), LossGrid(0.5, -2, 8))
    assert law.self_compose(5).grid.size == 64
    with pytest.raises(ValueError, match="steps must keep the composed law below 40 points, got 6 steps of 8 points"):
        law.self_compose(6)


@pytest.mark.parametrize(("lowest", "largest", "at"), [(3, 1.0, 0), (3, 0.5, None), (-2, 2.0, 7), (-2, 2.5, None)])
def test_the_ends_of_a_grid_hold_what_may_underflow_and_no_more(lowest, largest, at):
    masses, infinite = pld._within(jnp.zeros(8), jnp.asarray(1e-260), jnp.asarray(largest), 0.5, float(lowest))
    assert np.flatnonzero(masses).tolist() == ([] if at is None else [at])
    assert float(infinite) == (1e-260 if at is None else 0.0)


def test_a_law_has_four_points_or_more(monkeypatch):
    law = PLD(np.full(4, 0.25), np.array(0.0), LossGrid(0.5, -1, 4))
    monkeypatch.setattr(pld, "_single", lambda *_: {"masses": law.masses, "infinity_mass": law.infinity_mass})
    assert PLD.from_mechanism(Laplace(1.0), grid=law.grid) is not None
    with pytest.raises(ValueError, match="grid must have at least 4 points, got 3"):
        PLD.from_mechanism(Laplace(1.0), grid=LossGrid(0.5, -1, 3))
