"""Plans for lattices: tilts at the saddle point, widths by Chernoff, levels that fit, layouts that are shared."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses import lattice
from jaxacct.losses.plan import CENTRE, Layout, Outline, layouts, levels_for, outline_for_delta, outline_for_epsilon
from jaxacct.losses.spread import Spread
from jaxacct.mechanisms._row import Row
from jaxacct.mechanisms._table_pair import TablePair

MU, STEPS = 0.1, 400.0


def _gaussian_survey():
    """Atoms of N(mu^2 / 2, mu^2), the loss of a Gaussian: all of its cumulants are known."""
    z = np.linspace(-12, 12, 401)
    return (MU * z + MU**2 / 2)[None], np.log(np.exp(-z * z / 2) * (z[1] - z[0]) / np.sqrt(2 * np.pi))[None]


def _saddle_log_delta(t, epsilon):
    spread = STEPS * MU**2 + t**-2 + (t + 1) ** -2
    return STEPS * MU**2 * t * (t + 1) / 2 - t * epsilon - np.log(t * (t + 1)) - 0.5 * np.log(2 * np.pi * spread)


def test_an_outline_of_gaussian_runs_is_that_of_their_closed_forms():
    with jax.enable_x64(True):
        losses, log_masses = _gaussian_survey()
        goal = jnp.asarray(1e-20)
        found = jax.jit(outline_for_epsilon)(losses, log_masses, jnp.full(1, STEPS), jnp.zeros(1), goal)
    found = jax.tree.map(np.asarray, found)
    t, mean = found.theta, MU**2 * (found.theta + 0.5)
    # The saddle point of K(t) - t epsilon - log t - log(t + 1), K(t) = mu^2 t (t + 1) / 2 a step.
    np.testing.assert_allclose(STEPS * mean - 1 / t - 1 / (t + 1), found.epsilon, rtol=1e-6)
    np.testing.assert_allclose(_saddle_log_delta(t, found.epsilon), np.log(1e-20), rtol=1e-5)
    np.testing.assert_allclose(found.log_normalisers, MU**2 * t * (t + 1) / 2, rtol=1e-6)
    np.testing.assert_allclose([*found.means, found.centre], mean, rtol=1e-6)
    np.testing.assert_allclose(found.deviation, MU, rtol=1e-6)
    np.testing.assert_allclose(found.rounds, STEPS ** np.linspace(0, 1, found.rounds.size), rtol=1e-12)
    # Chernoff's bound on c Gaussians is exp(-width^2 / (2 c mu^2)): it shall be e^-27 c / T.
    width = MU * np.sqrt(2 * found.rounds * (np.log(STEPS / found.rounds) + 27))
    shift = width / (found.rounds * MU**2)
    many = found.rounds > 20  # for fewer it matters that the survey has no atoms beyond 12 deviations
    for reach, at in ((found.up, found.shift_up), (found.down, found.shift_down)):
        assert np.all(reach >= width * np.where(many, 1 - 1e-9, 0.9))
        assert np.all(reach <= width * 1.005)
        np.testing.assert_allclose(at[many], shift[many], rtol=0.1)
    np.testing.assert_allclose(found.reach_up, MU * np.sqrt(2 * (np.log(STEPS) + 27)), rtol=0.08)
    np.testing.assert_allclose(found.reach_down, MU * np.sqrt(2 * (np.log(STEPS) + 22)), rtol=0.08)
    assert found.reach_up > found.reach_down
    assert float(found.total) == float(found.loose) == STEPS
    assert float(found.period) == 0
    # All steps together have e^-21 of delta above the cutoff.
    above = np.log(STEPS * np.exp(log_masses)[losses > found.cutoff].sum())
    assert above <= np.log(1e-20) - 21 <= above + 3
    assert found.tolerance == pytest.approx(np.clip(3e-4 * t * found.epsilon, 8e-4, 0.2))


def test_an_outline_of_atoms_sees_their_period_and_counts_what_does_not_fit():
    atoms = np.array([[-0.5, 0.5, 0.0], [-1.0, 0.5, 2.0], [-1.0, -0.3, 1.0]])
    masses = np.log([[0.3, 0.7, 1e-300], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])
    steps, epsilon = np.array([3.0, 5.0, 7.0]), 9.0
    with jax.enable_x64(True):
        found = jax.jit(outline_for_delta)(atoms, masses, steps, np.array([1.0, 1.5, 2.0]), jnp.asarray(epsilon))
    found = jax.tree.map(np.asarray, found)
    assert float(found.period) == 1.0
    # The second part's period is no multiple of the first one's; the third's atoms are not where it says.
    assert float(found.loose) == 12.0
    assert float(found.total) == 15.0
    t = found.theta
    weights = np.exp(t * atoms + masses)
    normalisers = np.log(weights.sum(1))
    weights /= weights.sum(1, keepdims=True)
    means = (weights * atoms).sum(1)
    spread = (weights * (atoms - means[:, None]) ** 2).sum(1)
    assert found.epsilon == epsilon
    assert (steps * means).sum() - 1 / t - 1 / (t + 1) == pytest.approx(epsilon, rel=1e-6)
    np.testing.assert_allclose(found.log_normalisers, normalisers, rtol=1e-12)
    np.testing.assert_allclose(found.means, means, rtol=1e-12)
    assert found.deviation == pytest.approx(spread.sum() ** 0.5, rel=1e-12)
    assert float(found.tolerance) == 8e-4
    # Chernoff at the exponents given: c rounds are no more runs of a part than there are.
    for reach, shift, sign in ((found.up, found.shift_up, 1), (found.down, found.shift_down, -1)):
        moved = sign * shift[:, None, None] * (atoms - means[:, None])
        cumulants = np.log((weights * np.exp(moved)).sum(-1))
        runs = np.minimum(found.rounds[:, None], steps)
        exponent = np.log(7.0 / found.rounds) + 27.0
        np.testing.assert_allclose(reach, ((runs * cumulants).sum(1) + exponent) / shift, rtol=1e-9)


def test_atoms_of_no_weight_may_be_anywhere():
    """What has a share of 1e-12 of a tilted law decides whether its losses are multiples of a period."""
    atoms = np.array([[-0.5, 0.5, 0.0, 0.2], [-0.5, 0.5, 0.0, 0.2], [1.5, 0.5, 9.0, 9.1]])
    masses = np.log([[0.3, 0.7, 1e-300, 1e-300], [0.3, 0.7, 1e-300, 1e-9], [0.4, 0.6, 1e-300, 1e-300]])
    with jax.enable_x64(True):
        plan = functools.partial(jax.jit(outline_for_delta), periods=jnp.ones(3), epsilon=jnp.asarray(3.0))
        found = plan(jnp.asarray(atoms), jnp.asarray(masses), jnp.asarray([3.0, 5.0, 7.0]))
    assert float(found.loose) == 5.0


def _outline(period=0.0, loose=400.0):
    rounds = 400.0 ** np.linspace(0, 1, 41)
    width = 0.7 * np.sqrt(rounds)
    fixed = {name: np.zeros(1) for name in Outline._fields}
    fixed |= {"theta": 3.0, "rounds": rounds, "up": 0.6 * width, "down": 0.4 * width, "reach_up": 0.65, "total": 400.0}
    fixed |= {"reach_down": 0.3, "period": period, "loose": loose}
    return Outline(**{name: np.asarray(value, np.float64) for name, value in fixed.items()})


@pytest.mark.parametrize("layout", [Layout(2**13, 2**13, 1), Layout(2**13, 2**13, 2), Layout(2**15, 2**13, 3)])
def test_levels_fit_their_windows_and_no_finer_spacing_does(layout):
    outline = _outline()
    found = levels_for(outline, layout, np)
    width = outline.up + outline.down
    scales = [1.0] + [layout.ratio * 8.0**j for j in range(layout.levels - 1)]
    sizes = [layout.first] + [layout.later] * (layout.levels - 1)
    needs = [width[0] / (0.94 * layout.first), width[-1] / (0.94 * sizes[-1] * scales[-1])]
    needs += [outline.reach_up / ((0.95 - CENTRE) * layout.first), outline.reach_down / (0.95 * CENTRE * layout.first)]
    assert found.spacing == pytest.approx(max(needs), rel=1e-12)
    assert len(found.counts) == layout.levels - 1
    reached, inflation = 1.0, 400.0 * found.spacing**2
    for count, size, scale, next_scale in zip(found.counts, sizes, scales, scales[1:], strict=False):
        assert count == np.floor(count) >= 1
        reached *= count
        window = 0.94 * size * scale * found.spacing
        assert np.interp(reached, outline.rounds, width) <= window
        assert np.interp(reached + reached / count, outline.rounds, width) > window * 0.9
        inflation += 400.0 / reached * (next_scale * found.spacing) ** 2
    assert found.gap == pytest.approx(3.0 * 4.0 / 8.0 * inflation, rel=1e-12)


def test_a_spacing_divides_the_period_of_atoms():
    free = levels_for(_outline(), Layout(2**13, 2**13, 1), np).spacing
    one = levels_for(_outline(1.5 * free, 0.0), Layout(2**13, 2**13, 1), np)
    assert one.spacing == 1.5 * free  # a single cell
    assert one.gap == 0
    for period, loose in ((0.3, 400.0), (0.3, 0.0), (free / 2, 400.0)):
        found = levels_for(_outline(period, loose), Layout(2**13, 2**13, 1), np)
        cells = period / found.spacing
        if period < free:
            assert found.spacing == free
            continue
        assert cells == pytest.approx(round(cells), abs=1e-9)
        assert found.spacing >= free * (1 - 1e-9)
        if loose:  # as fine as the lattice allows, in a number of cells that a stride of 8 divides
            assert round(cells) % 8 == 0
            assert found.spacing <= free * (1 + 8 / cells)
            assert found.gap > 0
        else:  # every loss is an atom: no finer than a length of 400 / theta asks for
            assert round(cells) == 2 ** round(np.log2(cells))
            assert 2**13 * found.spacing <= 400 / 3.0 < 2**14 * found.spacing
            assert found.gap == 0
    # Two levels: atoms must be points of the coarse lattice, or their steps count like any others.
    for cells, counted in ((64.0, 0.0), (4.0, 400.0)):
        outline = _outline(cells * 1e-2, 0.0)._replace(
            up=np.full(41, 1e-9), down=np.full(41, 1e-9), reach_up=0.57e-2 * 2**13
        )
        found = levels_for(outline, Layout(2**13, 2**13, 2), np)
        assert found.spacing >= 0.57 / 0.7 * 1e-2
        assert (found.gap > 0) == (counted > 0)


def test_layouts_are_sorted_by_cost_and_none_is_larger_than_asked():
    found = layouts(2**14)
    assert max(one.first for one in found) == 2**14
    assert [one.cost for one in found] == sorted(one.cost for one in found)
    assert Layout(2**13, 2**13, 1) == found[0]
    assert Layout(2**15, 2**13, 3).ratio == 32
    assert Layout(2**15, 2**13, 3).cost == 2**15 * 1.6 + 2 * 2**13


def test_small_groups_move_to_a_costlier_layout_that_serves_them_all():
    chosen = np.array([0, 0, 2, 2, 2, 5])
    good = np.zeros((6, len(lattice._LAYOUTS)), bool)
    good[np.arange(6), chosen] = True
    untouched = lattice._merged_choice(good, chosen, 1)
    np.testing.assert_array_equal(untouched, chosen)
    good[0, [2, 5]] = good[1, 5] = True
    np.testing.assert_array_equal(lattice._merged_choice(good, chosen, 1), [5, 5, 2, 2, 2, 5])
    good[1, 2] = True
    np.testing.assert_array_equal(lattice._merged_choice(good, chosen, 1), [2, 2, 2, 2, 2, 5])
    # Points that are worth more than a compilation stay where they are.
    np.testing.assert_array_equal(lattice._merged_choice(good, chosen, 2**20), chosen)
    np.testing.assert_array_equal(chosen, [0, 0, 2, 2, 2, 5])


def test_pairs_of_one_structure_are_stacked_with_their_counts():
    one, other, third = {"a": np.array([1.0, 2.0])}, {"b": np.array([3.0, 4.0])}, {"a": np.array([5.0, 6.0])}
    groups, counts = lattice.grouped([one, other, third], [np.array([7, 8]), np.array([9, 10]), np.array([11, 12])], np)
    np.testing.assert_array_equal(groups[0]["a"], [[1, 5], [2, 6]])
    np.testing.assert_array_equal(groups[1]["b"], [[3], [4]])
    np.testing.assert_array_equal(counts, [[7, 11, 9], [8, 12, 10]])


def test_a_traced_query_has_two_levels_where_its_steps_may_be_many(monkeypatch):
    seen = []
    monkeypatch.setattr(lattice, "_query", lambda kind, layout, *_: seen.append(layout) or (jnp.zeros(()),) * 2)
    monkeypatch.setattr(lattice, "capped", lambda kind, groups, counts, goal, bounds: bounds)
    for most in (1.0, 2000.0, 2001.0, None):
        lattice.traced_lattice_bounds("delta", ({"a": jnp.ones((2, 1))},), jnp.ones((2, 1)), jnp.ones(2), most)
    assert seen == [Layout(2**16, 2**16, levels) for levels in (1, 1, 2, 2)]


def test_batches_are_padded_to_a_power_of_2():
    leaf = np.arange(10) * 10
    for members, size in ((1, 1), (2, 2), (3, 4), (5, 8), (8, 8)):
        found = lattice.padded(leaf, np.arange(members), Spread())
        np.testing.assert_array_equal(found, 10 * (np.arange(size) % members))


def test_surveys_of_different_lengths_make_one_outline():
    def group(parts, atoms):
        row = lambda: Row(jnp.ones((parts, atoms)) / atoms)  # noqa: E731
        return TablePair(row(), row(), row(), jnp.zeros(parts), jnp.zeros(parts))

    with jax.enable_x64(True):
        plan = functools.partial(lattice._outline, "delta")
        found = jax.eval_shape(plan, (group(2, 3), group(1, 5)), jnp.ones(3), jnp.ones(()))
    assert found.means.shape == found.log_normalisers.shape == (3,)
    assert found.theta.shape == found.loose.shape == ()
