"""The public lattice law: it brackets the certified numbers, composes, and keeps its side."""

import jax
import numpy as np
import pytest
import scipy.stats

import jaxacct
from jaxacct import PLD, LossGrid
from tests.refusals import all_refused

GRID = LossGrid(0.004, -2048, 4096)
EPSILON = np.array([-0.2, 0.0, 0.05, 0.5, 1.0, 2.0])


def _sampled():
    return jaxacct.PoissonSampled(jaxacct.Gaussian(1.0), 0.05)


@pytest.fixture(scope="module", params=["remove", "add"])
def laws(request):
    upper = PLD.from_mechanism(_sampled(), "upper", relation=request.param, grid=GRID)
    lower = PLD.from_mechanism(_sampled(), "lower", relation=request.param, grid=GRID)
    return request.param, upper, lower


def test_one_run_is_bracketed(laws):
    relation, upper, lower = laws
    truth = jaxacct.delta(_sampled(), EPSILON, relation=relation)
    assert np.all(upper.hockey_stick(EPSILON) >= truth.lower)
    assert np.all(lower.hockey_stick(EPSILON) <= truth.upper)
    seen = truth.upper > 1e-4  # where the curve ends inside a cell, a chord has no relative accuracy
    ratio = upper.hockey_stick(EPSILON)[seen] / np.maximum(lower.hockey_stick(EPSILON)[seen], 1e-300)
    assert np.all(ratio < 1.02)


def test_composition_is_bracketed(laws):
    relation, upper, lower = laws
    truth = jaxacct.delta(_sampled(), EPSILON, steps=20, relation=relation)
    above, below = upper.self_compose(20), lower.self_compose(20)
    assert np.all(above.hockey_stick(EPSILON) >= truth.lower)
    assert np.all(below.hockey_stick(EPSILON) <= truth.upper)
    twice = upper.self_compose(12).compose(upper.self_compose(8))
    np.testing.assert_allclose(twice.hockey_stick(EPSILON), above.hockey_stick(EPSILON), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_a_composed_mechanism_composes_its_parts():
    parts = jaxacct.Composed([_sampled(), jaxacct.Gaussian(4.0)], [3, 2])
    truth = jaxacct.delta(parts, EPSILON, relation="remove")
    assert np.all(PLD.from_mechanism(parts).hockey_stick(EPSILON) >= truth.lower)
    assert np.all(PLD.from_mechanism(parts, "lower").hockey_stick(EPSILON) <= truth.upper)


def test_a_composed_law_is_cut_where_no_mass_is_and_traced_ones_are_not(laws):
    """A thousand runs have four million sums, nearly all of them impossible; both laws stay on their side."""
    relation, upper, lower = laws
    steps, at = 1000, np.array([-1.0, 0.0, 1.0, 4.0, 8.0])
    truth = jaxacct.delta(_sampled(), at, steps=steps, relation=relation)
    above, below = upper.self_compose(steps), lower.self_compose(steps)
    assert max(above.grid.size, below.grid.size) < 2**15
    assert np.all(above.hockey_stick(at) >= truth.lower)
    assert np.all(below.hockey_stick(at) <= truth.upper)
    whole = jax.jit(lambda law: law.self_compose(steps).hockey_stick(at))
    for cut, law, sign in ((above, upper, 1), (below, lower, -1)):
        # Every entry of the whole law takes its rounding, so the cut one is the tighter.
        looser = sign * (np.asarray(whole(law)) - cut.hockey_stick(at))
        assert np.all((looser >= -1e-12) & (looser <= 1e-3))
        assert cut.infinity_mass <= 1001 * law.infinity_mass + 2.0**-79


@pytest.mark.parametrize("bound", ["upper", "lower"])
def test_one_epsilon_and_many_are_read_alike(bound):
    grid, rng = LossGrid(0.01, -150, 400), np.random.default_rng(1)
    law = PLD(rng.dirichlet(np.ones(400), (2, 3)) * 0.9, np.full((2, 3), 0.1), grid, bound)
    at = np.concatenate([np.linspace(-2.0, 3.0, 60), grid.losses[[0, 1, 200, 398, 399]]])
    many = law.hockey_stick(at)
    assert many.shape == (2, 3, 65)
    each = np.stack([law.hockey_stick(one) for one in at], -1)
    np.testing.assert_allclose(each, many, rtol=1e-12, atol=0)
    np.testing.assert_array_equal(law.hockey_stick(at[:4].reshape(2, 2)).reshape(2, 3, 4), each[..., :4])


def test_trade_off_is_bracketed_and_rounds_towards_the_guarantee():
    alpha = np.array([0.0, 1e-6, 0.01, 0.3, 0.9, 1.0])
    truth = scipy.stats.norm.cdf(-scipy.stats.norm.ppf(alpha) - 1.0)
    guarantee = PLD.from_mechanism(jaxacct.Gaussian(1.0), grid=GRID).trade_off(alpha)
    other = PLD.from_mechanism(jaxacct.Gaussian(1.0), "lower", grid=GRID).trade_off(alpha)
    assert np.all((guarantee <= truth) & (truth <= other))
    np.testing.assert_allclose(guarantee, truth, atol=1e-5)
    np.testing.assert_allclose(other, truth, atol=1e-5)
    with pytest.raises(ValueError, match=r"alpha must be between 0 and 1, got 1\.5"):
        PLD.from_mechanism(jaxacct.Gaussian(1.0), grid=GRID).trade_off(1.5)


@pytest.mark.slow
def test_a_tilt_reads_tails_that_a_plain_power_cannot_see():
    # 6 Gaussians at epsilon 60: delta = 2.6e-98 by the closed form. A plain FFT sees nothing below 1e-15.
    theta, epsilon, steps = 9.5, 60.0, 6
    truth = jaxacct.delta(jaxacct.Gaussian(1.0), epsilon, steps=steps)
    grid = LossGrid(0.02, -500, 2048)
    for bound in ("upper", "lower"):
        single = PLD.from_mechanism(jaxacct.Gaussian(1.0), bound, grid=grid)
        moment = single.log_moment(theta)
        assert moment == pytest.approx(theta * (theta + 1) / 2, rel=1e-3)
        law = single.tilt(theta).self_compose(steps)
        assert law.masses.sum() == pytest.approx(1.0, rel=1e-9)
        x = law.grid.losses - epsilon
        payoff = np.exp(-theta * np.maximum(x, 0.0)) * -np.expm1(-np.maximum(x, 0.0))
        value = np.exp(steps * moment - theta * epsilon) * (law.masses * payoff).sum()
        assert value == pytest.approx(truth.upper, rel=0.05)
        assert value >= truth.lower if bound == "upper" else value <= truth.upper
    with pytest.raises(ValueError, match="theta must be a finite number of at least 0, got -1"):
        single.tilt(-1.0)


@pytest.mark.slow
def test_an_infinite_loss_far_below_rounding_is_not_lost():
    law = PLD.from_mechanism(jaxacct.Gaussian(1.0), grid=LossGrid(1 / 64, -64 * 9, 64 * 18 + 1))
    twice = law.self_compose(2)
    assert twice.infinity_mass >= 2 * law.infinity_mass * (1 - 1e-9) > 0
    assert twice.hockey_stick(19.0) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "grid"),
    [(0.36, LossGrid(0.1, -60, 121)), (0.39, LossGrid(0.1, -60, 121)), (1.1, LossGrid(0.0135, -90, 180))],
)
def test_atoms_between_lattice_points_are_not_rounded_up_in_a_lower_law(epsilon, grid):
    at = np.linspace(-0.5, 1.5, 21)
    p = np.exp(epsilon) / (1 + np.exp(epsilon))
    truth = np.maximum(p - np.exp(at) * (1 - p), 0) + np.maximum(1 - p - np.exp(at) * p, 0)
    lower = PLD.from_mechanism(jaxacct.RandomizedResponse(epsilon), "lower", grid=grid).hockey_stick(at)
    upper = PLD.from_mechanism(jaxacct.RandomizedResponse(epsilon), "upper", grid=grid).hockey_stick(at)
    assert np.all(lower <= truth)
    assert np.all(truth <= upper)
    assert lower[5] > 0.4 * truth[5]  # at epsilon 0


def test_a_lower_law_keeps_the_tail_above_a_spike_inside_a_cell():
    # Nearly all of a rarely sampled record's loss is at log(1 - rate) = -0.01, between two points of this grid.
    grid = LossGrid(1 / 64, -1024, 2048)
    rare = jaxacct.PoissonSampled(jaxacct.Gaussian(1.0), 0.01)
    at = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 3.0])
    truth = jaxacct.delta(rare, at, relation="remove")
    found = PLD.from_mechanism(rare, "lower", relation="remove", grid=grid).hockey_stick(at)
    assert np.all(found <= truth.upper)
    np.testing.assert_array_less(0.9 * truth.lower[1:], found[1:])
    assert found[0] >= 0.6 * truth.lower[0]


def test_a_lower_law_is_never_less_than_no_loss_at_all():
    # Under `add` the loss is at most 0.01, less than a cell: what is left of it on this grid is nothing.
    rare = jaxacct.PoissonSampled(jaxacct.Gaussian(1.0), 0.01)
    law = PLD.from_mechanism(rare, "lower", relation="add", grid=LossGrid(1 / 64, -1024, 2048))
    at = np.array([-1.0, -0.1, 0.0, 0.1])
    np.testing.assert_allclose(law.hockey_stick(at), np.maximum(-np.expm1(at), 0.0), rtol=1e-12)


def test_laws_that_do_not_fit_are_refused(laws):
    _, upper, lower = laws
    other = PLD.from_mechanism(_sampled(), grid=LossGrid(0.008, -1024, 2048))
    all_refused(
        ("bounds must agree", lambda: upper.compose(lower)),
        ("spacings must agree", lambda: upper.compose(other)),
        ("steps must be a whole number", lambda: upper.self_compose(0)),
        ("steps must keep the composed law below", lambda: upper.self_compose(10**12)),
        ("grid must have at least 2 points", lambda: PLD.from_mechanism(_sampled(), grid=LossGrid(0.1, 0, 1))),
        ("relation must be one direction", lambda: PLD.from_mechanism(_sampled(), relation="add_or_remove")),
        ("bound must be one of upper, lower", lambda: PLD.from_mechanism(_sampled(), "middle")),
    )


@pytest.mark.usefixtures("in_float64")
def test_entries_that_no_sum_can_be_stay_empty():
    """Randomized response thrice: of the grid's thousand points eight are sums, and none is infinite."""
    law = PLD.from_mechanism(jaxacct.RandomizedResponse(1.0), grid=LossGrid(2.0**-8, -2048, 4097))
    assert law.infinity_mass == 0
    held = np.flatnonzero(law.masses)
    for steps in (3, 40):
        found = law.self_compose(steps)
        assert found.infinity_mass == 0
        losses = found.grid.losses[found.masses > 0]
        assert losses.max() == steps * law.grid.losses[held[-1]]
        assert losses.min() >= steps * law.grid.losses[held[0]]


@pytest.mark.usefixtures("in_float64")
def test_a_certain_infinite_loss_stays_certain_and_none_stays_none():
    for mass in (0.0, 1.0):
        law = PLD(np.array([1.0, 0.0]) * (1 - mass), np.array(mass), LossGrid(0.5, 0, 2))
        assert law.self_compose(3).infinity_mass == mass
