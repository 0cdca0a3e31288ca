"""Which query runs where, and what is made of its answers: outlines, compositions and caps are given."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses import lattice
from jaxacct.losses.plan import Levels


class Seen(NamedTuple):
    cutoff: np.ndarray
    tolerance: np.ndarray


LAYOUTS = lattice._LAYOUTS
NEEDS = np.array([0, 0, 1, 3, 1, 99, 0])  # the first layout that serves a query; none serves the sixth
CUTOFFS = np.array([1.0, 1e4, 1.0, 1.1e4, 1.0, 1.0, 1.0])
SETTINGS = np.array([0, 0, 1, 2, 2, 3, 4])
GOALS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])


@pytest.fixture(name="asked")
def asked_fixture(monkeypatch):
    """Every call: its kind, layout and goals (repeated up to a power of 2)."""
    calls = []

    def gap(outline, layout, xp):
        assert xp is np
        i = LAYOUTS.index(layout)
        calls.append(("gap", i))
        gaps = np.where(i >= NEEDS, 0.0, 1.0 + abs(i - 5))
        return Levels(None, [], np.where(NEEDS == 3, np.where(i >= 3, 0.0, np.nan), gaps)[: outline.cutoff.size])

    def outline(kind, groups, counts, goal):
        return Seen(np.resize(CUTOFFS[: len(set(np.asarray(goal)))], goal.size), np.full(goal.size, 0.5))

    def composed(kind, layout, groups, counts, goal):
        calls.append((kind, LAYOUTS.index(layout), [round(float(x), 9) for x in goal]))
        assert groups[0].shape == counts.shape == (goal.size, 3)
        return goal, goal * np.where(np.round(goal * 10) % 2 == 0, 1.005, 1.02)

    def caps(kind, groups, counts, goal, bounds):
        calls.append(("cap", [round(float(x), 9) for x in goal]))
        return bounds[0] + 0.001, np.minimum(bounds[1], 9.0) - 0.001

    def merged(good, chosen, parts):
        calls.append(("merged", good.shape, chosen.tolist(), parts))
        return chosen

    monkeypatch.setattr(lattice, "levels_for", gap)
    monkeypatch.setattr(lattice, "_outline_batch", outline)
    monkeypatch.setattr(lattice, "_compose_batch", composed)
    monkeypatch.setattr(lattice, "capped", caps)
    monkeypatch.setattr(lattice, "_merged_choice", merged)
    return calls


def bounds(kind="delta", size=7, **named):
    counts = np.ones((size, 3))
    return lattice.lattice_bounds(kind, (np.zeros((size, 3)),), counts, GOALS[:size], **named)


def test_queries_run_together_where_they_need_one_layout(asked):
    done = []
    lower, upper = bounds(report=done.append, setting=SETTINGS)
    assert [x for x in asked if x[0] == "delta"] == [
        ("delta", 0, [0.1, 0.2, 0.7, 0.1]),
        ("delta", 1, [0.3]),  # the fifth is of a setting that has no hope
        ("delta", 5, [0.6]),  # the tightest
    ]
    assert ("merged", (7, len(LAYOUTS)), [0, 0, 1, 3, 1, 5, 0], 3) in asked
    assert done == [2, 3, 1, 1]
    wide = np.array([1, 0, 1, 1, 1, 0, 1], bool)  # more than a hundredth apart, or not answered
    assert asked[-1] == ("cap", [0.1, 0.3, 0.4, 0.5, 0.7])
    answered = np.array([1, 1, 1, 0, 0, 1, 1], bool)
    low, high = np.where(answered, GOALS, 0.0), np.where(answered, GOALS * np.where(wide, 1.02, 1.005), 1.0)
    np.testing.assert_allclose(lower, low + 0.001 * wide, rtol=1e-12)
    np.testing.assert_allclose(upper, high - 0.001 * wide, rtol=1e-12)
    lower, upper = bounds("epsilon")
    answered[4] = True  # by itself
    np.testing.assert_allclose(upper[~answered], 8.999)
    np.testing.assert_allclose(lower, np.where(answered, GOALS, 0.0) + 0.001 * wide, rtol=1e-12)


def test_no_more_layouts_are_looked_at_than_the_last_query_needs(asked):
    bounds(size=3)
    assert [i for name, i, *_ in asked if name == "gap"] == [0, 1]
    empty = lattice.lattice_bounds("delta", (np.zeros((0, 3)),), np.ones((0, 3)), np.ones(0))
    assert [x.shape for x in empty] == [(0,), (0,)]


@pytest.mark.parametrize(("points", "chunks"), [(3 * 2, [2, 1]), (3 * 3, [3]), (3, [1, 1, 1]), (1, [1, 1, 1])])
def test_as_many_queries_run_at_once_as_memory_is_meant_for(asked, points, chunks, monkeypatch):
    monkeypatch.setattr(lattice, "_CHUNK_POINTS", points * LAYOUTS[0].first)
    done = []
    bounds(report=done.append)
    assert done[: len(chunks) + 1] == [1, *chunks]
    assert sum(done) == 7


class Ended(NamedTuple):
    largest: jax.Array

    def max_loss(self):
        return self.largest


class Composed(NamedTuple):
    infinite: jax.Array


@pytest.mark.parametrize("kind", ["delta", "epsilon"])
def test_no_loss_exceeds_the_sum_of_the_largest(kind, monkeypatch):
    monkeypatch.setattr(lattice, "_outline", lambda *_: None)
    monkeypatch.setattr(lattice, "compose", lambda *_: Composed(jnp.asarray([0.5, 0.25])))
    monkeypatch.setattr(lattice, "delta_bounds", lambda *_: (jnp.asarray(0.3), jnp.asarray(0.4)))
    monkeypatch.setattr(lattice, "epsilon_bounds", lambda *_: (jnp.asarray(5.0), jnp.asarray(9.0)))
    with jax.enable_x64(True):
        counts = jnp.asarray([3.0, 2.0, 1.0])
        ask = lambda groups, goal: [  # noqa: E731
            float(x) for x in lattice._query(kind, LAYOUTS[0], groups, counts, jnp.asarray(goal))
        ]
        groups = Ended(jnp.asarray([1.0, 0.5])), Ended(jnp.asarray([2.0]))  # 3 + 1 + 2 = 6
        endless = Ended(jnp.asarray([1.0, 0.5])), Ended(jnp.asarray([jnp.inf]))
        unknown = Ended(jnp.asarray([1.0, 0.5])), Ended(jnp.asarray([jnp.nan]))
        if kind == "delta":
            assert ask(groups, 6.0) == ask(groups, 6.0 * (1 + 0.9e-9)) == [0.3, 0.4]
            assert ask(groups, 6.0 * (1 + 1.1e-9)) == [0.0, 0.0]
            assert ask(endless, 1e9) == ask(unknown, 1e9) == [0.3, 0.4]
            return
        lower, upper = ask(groups, 0.25)  # an infinite loss as likely as delta leaves an epsilon
        assert lower == 5.0
        assert upper == pytest.approx(6.0 * (1 + 1e-9), rel=1e-12)
        assert ask(endless, 0.25) == ask(unknown, 0.25) == [5.0, 9.0]
        assert ask(endless, 0.2) == [9.0, 9.0]  # no epsilon is left, but for what the other side says
        tight = Ended(jnp.asarray([0.5, 0.5])), Ended(jnp.asarray([1.0]))
        assert ask(tight, 0.25)[0] == ask(tight, 0.25)[1] == pytest.approx(3.5, rel=1e-8)


def test_layouts_cost_what_they_have_more_points():
    """What is worth a compilation: a million points between the two layouts, over all queries and parts."""
    good = np.zeros((4, len(LAYOUTS)), bool)
    good[:, 2:4] = True
    good[0, 0] = good[1, 0] = True
    chosen = np.array([0, 0, 3, 3])
    difference = LAYOUTS[3].cost - LAYOUTS[0].cost
    enough = int(2**20 / (2 * difference))
    np.testing.assert_array_equal(lattice._merged_choice(good, chosen, enough), [3, 3, 3, 3])
    np.testing.assert_array_equal(lattice._merged_choice(good, chosen, enough + 1), chosen)
