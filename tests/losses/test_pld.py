"""The public lattice law: it brackets the certified numbers, composes, and keeps its side."""

import jax
import numpy as np
import pytest

import jaxacct
from jaxacct import PLD, LossGrid

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


def test_a_composed_mechanism_composes_its_parts():
    parts = jaxacct.Composed([_sampled(), jaxacct.Gaussian(4.0)], [3, 2])
    truth = jaxacct.delta(parts, EPSILON, relation="remove")
    assert np.all(PLD.from_mechanism(parts).hockey_stick(EPSILON) >= truth.lower)
    assert np.all(PLD.from_mechanism(parts, "lower").hockey_stick(EPSILON) <= truth.upper)


def test_an_infinite_loss_far_below_rounding_is_not_lost():
    law = PLD.from_mechanism(jaxacct.Gaussian(1.0), grid=LossGrid(1 / 64, -64 * 9, 64 * 18 + 1))
    twice = law.self_compose(2)
    assert twice.infinity_mass >= 2 * law.infinity_mass * (1 - 1e-9) > 0
    assert twice.hockey_stick(19.0) > 0


def test_a_grid_beyond_every_float_gives_bounds_and_not_nan():
    grid = LossGrid(0.5, -100, 2000)
    at, gaussian = np.array([0.0, 1.0, 5.0]), jaxacct.Gaussian(1.0)
    truth = jaxacct.delta(gaussian, at)
    assert np.all(PLD.from_mechanism(gaussian, grid=grid).hockey_stick(at) >= truth.lower)
    assert np.all(PLD.from_mechanism(gaussian, "lower", grid=grid).hockey_stick(at) <= truth.upper)


def test_a_pld_is_a_pytree_whose_grid_is_static(laws):
    _, upper, _ = laws
    masses, infinity = jax.tree.leaves(upper)
    assert masses.shape == (GRID.size,)
    assert infinity.shape == ()
    assert jax.tree.structure(upper) == jax.tree.structure(jax.tree.map(lambda x: x, upper))


def test_laws_that_do_not_fit_are_refused(laws):
    _, upper, lower = laws
    with pytest.raises(ValueError, match="bounds must agree"):
        upper.compose(lower)
    other = PLD.from_mechanism(_sampled(), grid=LossGrid(0.008, -1024, 2048))
    with pytest.raises(ValueError, match="spacings must agree"):
        upper.compose(other)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        upper.self_compose(0)
    with pytest.raises(ValueError, match="steps must keep the composed law below"):
        upper.self_compose(10**6)
    with pytest.raises(ValueError, match="grid must have at least 4 points"):
        PLD.from_mechanism(_sampled(), grid=LossGrid(0.1, 0, 1))
    with pytest.raises(ValueError, match="relation must be one direction"):
        PLD.from_mechanism(_sampled(), relation="add_or_remove")
    with pytest.raises(ValueError, match="bound must be one of upper, lower"):
        PLD.from_mechanism(_sampled(), "middle")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0, 1), "spacing must be a finite number above 0"),
        ((float("nan"), 0, 1), "spacing must be a finite number above 0"),
        ((0.1, 0.5, 1), "lowest must be an integer"),
        ((0.1, 0, 0), "size must be at least 1"),
    ],
)
def test_a_bad_grid_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LossGrid(*arguments)


def test_a_grid_hashes_and_holds_zero():
    grid = LossGrid(np.float32(0.5), np.int64(-3), 7)
    assert hash(grid) == hash(LossGrid(0.5, -3, 7))
    assert 0.0 in grid.losses
    assert grid.highest == 3
