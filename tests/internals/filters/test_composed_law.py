"""A composed law on a fixed grid: against a plain convolution, with what falls off either end."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import LossGrid, filters
from jaxacct._numerics.pieces import join, split_up
from jaxacct.filters.marks import marked
from jaxacct.filters.residues import on_grid as _composed_law
from jaxacct.losses.curves.conversions import pld_excess
from tests import stored

natural = importlib.import_module("jaxacct.filters.residues.natural")
approximate = importlib.import_module("jaxacct.adversary.filters.natural_approximate_dp")
GRID = LossGrid(0.25, -5, 9)
RNG = np.random.default_rng(8)


@jax.enable_x64(True)
def test_what_composes_beyond_the_grid_is_infinite_above_and_at_its_end_below():
    lowest = -3
    step = LossGrid(0.25, lowest, 8)
    query = RNG.uniform(0.0, 1.0, 8)
    query *= 0.97 / query.sum()
    run = jax.jit(lambda state, masses, atom: _composed_law.after(state, stored.law(masses, atom, step), GRID))
    state = _composed_law.nothing(GRID)
    assert np.asarray(join(state.masses)).tolist() == [0.0] * 5 + [1.0] + [0.0] * 3
    assert (float(join(state.infinity)), int(state.rounds)) == (0.0, 0)
    masses, atom = np.eye(9)[5], 0.0
    for n in range(1, 5):
        whole = np.convolve(masses, query)  # from lowest - 5 on
        first = -lowest
        kept = whole[first : first + 9].copy()
        kept[0] += whole[:first].sum()
        atom = 1 - (1 - atom) * 0.97 + whole[first + 9 :].sum()
        state = run(state, query, 0.03)
        masses = kept
        found, infinite = np.asarray(join(state.masses)), float(join(state.infinity))
        assert np.all(found >= kept * (1 - 1e-15))
        np.testing.assert_allclose(found, kept, rtol=1e-11, atol=1e-12)
        assert atom * (1 - 1e-15) <= infinite <= atom * (1 + 1e-11)
        assert int(state.rounds) == n
    law = _composed_law.law_of(state, GRID)
    assert (law.bound, law.grid) == ("upper", GRID)
    for _ in range(60):
        state = run(state, query, 0.9)
    assert float(join(state.infinity)) <= 1 + 1e-14


@jax.enable_x64(True)
def test_what_remains_is_the_least_room_rounded_down_and_a_budgets_room_is_taken_from_below(monkeypatch):
    masses, atom = jnp.asarray(RNG.uniform(0.0, 0.1, 9)), jnp.float64(0.05)
    state = _composed_law.nothing(GRID)
    state = state._replace(masses=split_up(masses), infinity=split_up(atom))
    excess = np.asarray(pld_excess(stored.law(masses, atom, GRID), GRID))
    for least in (0.1, 1e-9, -0.3):
        room = excess + np.array([0.3, 0.2, 0.15, 0.25, least, 0.15, 0.3, 0.2, 0.11])
        made = natural.UndeclaredNaturalFilter(np.asarray(split_up(jnp.asarray(room))), GRID, "remove", None)
        wanted = max(least, 0.0)
        found = float(made.remaining(marked(made, state)))
        assert abs(found - wanted) <= 1e-14
        with jax.enable_x64(False):
            narrow = made.remaining(marked(made, state))
        assert narrow.dtype == np.float32
        assert found * (1 - 2.0**-22) <= float(narrow) <= found
    line = 10.0 ** RNG.uniform(-12, 0, 9)
    line[0] = 0.0
    monkeypatch.setattr(natural.families, "enclose", lambda budget, grid, one: SimpleNamespace(line=(line, one)[0]))
    room = np.asarray(join(filters.natural("budget", grid=GRID).room))
    assert np.all(room <= line * (1 - 2.0**-46))
    assert np.all(room >= line * (1 - 2.0**-43))


@jax.enable_x64(True)
def test_of_the_natural_approximate_filter_delta_is_spent_rounded_up_and_left_rounded_down():
    masses, atom = jnp.asarray(RNG.uniform(0.0, 0.1, 9)), jnp.float64(0.01)
    state = _composed_law.nothing(GRID)._replace(masses=split_up(masses), infinity=split_up(atom))
    exact = float(np.sum(masses * np.maximum(1 - np.exp(0.5 - GRID.losses), 0))) + 0.01
    for parameters in ((0.5, 0.9, 5), (0.5, exact / 2, 5), (0.5, 1 / 3, 5)):
        made = approximate.NaturalApproximateDPFilter(parameters, GRID)
        spent = float(made.spent(marked(made, state)))
        assert exact * (1 - 1e-15) <= spent <= exact * (1 + 1e-12)
        left = float(made.remaining(marked(made, state)))
        assert left == max(parameters[1] - spent, 0.0)
        with jax.enable_x64(False):
            more, less = made.spent(marked(made, state)), made.remaining(marked(made, state))
        assert more.dtype == less.dtype == np.float32
        assert spent <= float(more) <= spent * (1 + 2.0**-22)
        assert left * (1 - 2.0**-22) <= float(less) <= left
        assert float(more) > spent  # which no float32 is
