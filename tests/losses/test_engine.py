"""Which engine is asked what, with engines that only say what they were asked."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Laplace
from jaxacct.losses import engine
from jaxacct.losses.contour import Size
from jaxacct.losses.engine import Options
from jaxacct.losses.spread import Spread
from jaxacct.mechanisms._gaussian_pair import GaussianPair

SMALL, LARGE = Size(256, 256), Size(2048, 4096)


def gaussians(count, rate=0.1):
    return GaussianPair(np.linspace(1.0, 2.0, count), np.full(count, rate), np.zeros(count))


def test_what_is_tight_enough():
    lower, upper = np.array([0.0, 0.999, 0.99906, 0.99, 0.5, np.inf, 0.0, 0.0]), np.ones(8)
    upper[5:] = [np.inf, np.inf, 0.0]
    np.testing.assert_array_equal(
        engine._tight("delta", lower, upper), [False, False, True, False, False, True, False, True]
    )
    lower[2] = 0.99951
    np.testing.assert_array_equal(
        engine._tight("epsilon", lower, upper), [False, False, True, False, False, True, False, True]
    )
    assert not engine._tight("epsilon", 0.9994, 1.0)
    # A deep delta may be looser, one that is all but nothing anything; an epsilon of that size may not.
    for kind, found in (("delta", [True, False, False, True]), ("epsilon", [False] * 4)):
        low, high = np.array([0.996e-13, 0.99e-13, 0.996e-12, 0.0]), np.array([1e-13, 1e-13, 1e-12, 0.9e-280])
        np.testing.assert_array_equal(engine._tight(kind, low, high), found)
    assert not engine._tight("delta", 0.0, 1e-280)
    assert not engine._tight("delta", np.nan, np.nan)


def asked(func, *args):
    """An engine under another name, and what it was asked: it answers the first numbers of its query."""
    calls = []

    def run(*given):
        (goal,) = given[len(args) :]
        calls.append(np.asarray(goal))
        return np.asarray(goal) - 0.5, np.asarray(goal) + 0.5

    return calls, run


def chunked(run, each, count, spread=None):
    goal = np.arange(100.0, 100.0 + count)
    members = np.arange(count)
    got = list(engine._in_chunks(run, each, (goal,), members, spread or Spread()))
    np.testing.assert_array_equal(np.concatenate([some for some, _, _ in got]), members)
    for some, low, high in got:
        np.testing.assert_array_equal(low, goal[some] - 0.5)
        np.testing.assert_array_equal(high, goal[some] + 0.5)
    return [some.size for some, _, _ in got]


def test_numpys_formulas_take_tables_of_64_rows_that_fit(monkeypatch):
    calls, run = asked("numpy", "delta", SMALL)
    monkeypatch.setattr(engine, "_contour_numpy", run)
    rented = functools.partial(run, "delta", SMALL)
    assert chunked(rented, 1.0, 150) == [64, 64, 22]
    assert chunked(rented, 2.0**25 / 10, 25) == [10, 10, 5]
    assert chunked(rented, 2.0**30, 3) == [1, 1, 1]
    assert [c.size for c in calls[:3]] == [64, 64, 22]


def test_programs_take_batches_of_few_sizes(monkeypatch):
    calls, run = asked("program")
    plain = functools.partial(run)
    # Of 2, 16, 128: one that is filled to three quarters, or else the largest that the members fill.
    assert chunked(plain, 1.0, 150) == [128, 16, 2, 2, 2]
    assert [c.size for c in calls] == [128, 16, 2, 2, 2]
    assert chunked(plain, 1.0, 1100) == [128] * 8 + [16] * 4 + [12]
    assert chunked(plain, 1.0, 96) == [96]
    assert chunked(plain, 1.0, 95) == [16] * 5 + [15]
    assert chunked(plain, 1.0, 12) == [12]
    assert chunked(plain, 1.0, 11) == [2] * 5 + [1]
    assert {c.size for c in calls} == {128, 16, 2}
    calls.clear()
    # Work that does not fit is done in smaller batches, two at least.
    assert chunked(plain, 2.0**25 / 16, 33) == [16, 16, 1]
    assert chunked(plain, 2.0**25 / 15, 4) == [2, 2]
    assert chunked(plain, 2.0**30, 3) == [2, 1]
    calls.clear()
    # Over three devices every size is three times as large, and where it is an accelerator there is one more.
    devices = SimpleNamespace(shares=3, padded=Spread().padded, place=lambda x: x, gather=np.asarray)
    assert chunked(plain, 1.0, 400, devices) == [384, 6, 6, 4]
    assert [c.size for c in calls] == [384, 6, 6, 6]
    calls.clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert chunked(plain, 1.0, 1100) == [1024, 16, 16, 16, 16, 12]
    assert chunked(plain, 2.0**25 / 128, 300) == [128, 128, 16, 16, 12]


def test_a_program_that_was_bought_leaves_few_to_numpy(monkeypatch):
    programs, program = asked("program", "delta", SMALL)
    by_numpy, numpys = asked("numpy", "delta", SMALL)
    monkeypatch.setattr(engine, "_contour_batch", program)
    monkeypatch.setattr(engine, "_contour_numpy", numpys)
    bought = functools.partial(program, "delta", SMALL)
    assert chunked(bought, 1.0, 230) == [128, 102]
    assert chunked(bought, 1.0, 96) == [64, 32]
    assert chunked(bought, 1.0, 97) == [97]
    assert [c.size for c in programs] == [128, 128, 128]
    assert [c.size for c in by_numpy] == [64, 32]
    # Not on an accelerator, nor over devices.
    devices = SimpleNamespace(shares=2, padded=Spread().padded, place=lambda x: x, gather=np.asarray)
    assert chunked(bought, 1.0, 40, devices) == [32, 4, 4]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert chunked(bought, 1.0, 20) == [16, 2, 2]
    assert len(by_numpy) == 2


def test_a_program_is_bought_when_as_much_has_been_paid_in_rent(monkeypatch):
    monkeypatch.setattr(engine, "_answered", type(engine._answered)())
    ask = lambda number, options=Options(), size=SMALL: engine._contour("delta", size, number, options)  # noqa: B008, E731
    # 2^25 points times square roots of nodes are 8192 contours of 256 by 256.
    assert ask(97) is engine._contour_numpy
    assert ask(8192 - 97) is engine._contour_numpy
    assert ask(96) is engine._contour_numpy  # few are for nothing
    assert ask(8192, size=LARGE) is engine._contour_batch
    assert engine._contour("epsilon", SMALL, 8192, Options()) is engine._contour_numpy
    assert ask(97) is engine._contour_batch
    assert ask(96) is engine._contour_numpy
    assert ask(2, Options(precision="float32")) is engine._contour_float32
    assert ask(2, Options(devices=[None])) is engine._contour_batch
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert ask(2) is engine._contour_batch


@pytest.fixture
def engines(monkeypatch):
    """Engines that answer what ``answers`` says of a query's first number, and note who was asked."""
    seen, answers = [], {}

    def answered(name, goal):
        goal = np.asarray(goal)
        seen.append((name, goal.tolist()))
        rows = [answers.get((name, float(g)), answers.get(name, (0.0, 1.0))) for g in goal]
        return tuple(np.array(x) for x in zip(*rows, strict=True))

    def contour(kind, size, number, options):
        def run(kind, size, pairs, counts, goal):
            assert counts.shape == (goal.size, counts.shape[1])
            return answered(size, goal)

        seen.append((size, number))
        return run

    def lattice(kind, groups, counts, goal, spread, report, setting):
        report(goal.size)
        seen.append(("setting", np.asarray(setting).tolist()))
        return answered("lattice", goal)

    monkeypatch.setattr(engine, "_single_batch", lambda kind, groups, goal: answered("single", goal))
    monkeypatch.setattr(engine, "_contour", contour)
    monkeypatch.setattr(engine, "lattice_bounds", lattice)
    return seen, answers


def ask(pairs, counts, goal, kind="delta", sides=1, **options):
    return engine.bounds(kind, pairs, counts, np.asarray(goal, float), None, np, Options(**options), sides)


def test_one_run_is_read_off_its_tails_and_nothing_else(engines):
    seen, answers = engines
    answers["single"] = (0.25, 0.5)
    steps = []
    laplace = Laplace(np.ones(2))._dominating("remove")[0][0]
    lower, upper = ask([laplace], [np.array([1.0, 2.0])], [3.0, 4.0], progress=lambda *at: steps.append(at))
    np.testing.assert_array_equal(lower, [0.25, 0.0])
    np.testing.assert_array_equal(upper, [0.5, 1.0])
    names = [name for name, _ in seen]
    assert names == ["single", "setting", "lattice"]
    assert seen[0][1] in ([3.0], [3.0, 3.0])
    assert seen[2] == ("lattice", [4.0])
    assert steps == [(1, 2), (2, 2)]
    # Two parts that run once each are no one run.
    seen.clear()
    ask([laplace, laplace], [np.ones(2), np.ones(2)], [3.0, 4.0])
    assert [name for name, _ in seen] == ["setting", "lattice"]


def test_contours_grow_until_the_bounds_are_tight_and_both_enclosures_hold(engines):
    seen, answers = engines
    sizes = engine._SIZES
    assert [s.points * s.nodes**0.5 for s in sizes] == sorted(s.points * s.nodes**0.5 for s in sizes)
    answers[sizes[0], 1.0] = (0.3999, 0.4)
    answers[sizes[0], 2.0] = (0.1, 0.4)
    answers[sizes[1], 2.0] = (0.05, 0.1)
    answers[sizes[2], 3.0] = (0.2, 0.3)
    answers["lattice", 3.0] = (0.1, 0.25)
    steps = []
    lower, upper = ask([gaussians(3)], [np.full(3, 5.0)], [1.0, 2.0, 3.0], progress=lambda *at: steps.append(at))
    np.testing.assert_array_equal(lower, [0.3999, 0.1, 0.2])
    np.testing.assert_array_equal(upper, [0.4, 0.1, 0.25])
    assert [number for name, number in seen if name in sizes and isinstance(number, int)] == [3, 2, 1, 1]
    assert [goal for name, goal in seen if name == "lattice"] == [[3.0]]
    assert steps == [(1, 3), (2, 3), (3, 3)]
    answers.clear()
    lower, upper = ask([gaussians(3)], [np.full(3, 5.0)], [1.0, 2.0, 3.0], kind="epsilon")
    np.testing.assert_array_equal(upper, 1.0)


def test_what_nobody_answers_is_open_and_other_pairs_have_no_contour(engines, monkeypatch):
    seen, _ = engines
    nothing = lambda kind, groups, counts, goal, *_: (np.zeros(goal.size), np.full(goal.size, np.inf))  # noqa: E731
    monkeypatch.setattr(engine, "lattice_bounds", nothing)
    laplace = Laplace(np.ones(2))._dominating("remove")[0][0]
    for kind, top in (("delta", 1.0), ("epsilon", np.inf)):
        lower, upper = ask([laplace, gaussians(2)], [np.full(2, 3.0)] * 2, [3.0, 4.0], kind=kind)
        np.testing.assert_array_equal(lower, 0.0)
        np.testing.assert_array_equal(upper, top)
    assert not seen


def test_a_direction_that_another_one_surely_exceeds_is_left_alone(engines):
    """Two directions of two settings: 1 and 3 are those of the first one, 2 and 4 of the second."""
    seen, answers = engines
    first = engine._SIZES[0]
    answers[first, 1.0] = (0.4999, 0.5)
    answers[first, 3.0] = (0.1, 0.5)
    answers[first, 2.0] = (0.4999, 0.5)
    answers[first, 4.0] = (0.1, 0.51)
    ask([gaussians(4)], [np.full(4, 5.0)], [1.0, 2.0, 3.0, 4.0], sides=2)
    assert [goal for name, goal in seen if name == "lattice"] == [[4.0]]
    assert [setting for name, setting in seen if name == "setting"] == [[1]]
    seen.clear()
    ask([gaussians(4)], [np.full(4, 5.0)], [1.0, 2.0, 3.0, 4.0])
    assert [goal for name, goal in seen if name == "lattice"] == [[3.0, 4.0]]
    assert [setting for name, setting in seen if name == "setting"] == [[2, 3]]


def test_float32_pays_for_whole_transforms_and_keeps_the_rest_on_the_host(engines, monkeypatch):
    works, devices = [], []

    def chunks(run, each, query, members, spread):
        works.append(each)
        devices.append(jax.config.jax_default_device)
        yield members, np.zeros(members.size), np.ones(members.size)

    monkeypatch.setattr(engine, "_in_chunks", chunks)
    ask([gaussians(2)] * 2, [np.full(2, 3.0)] * 2, [1.0, 2.0])
    assert works == [2 * size.points * size.nodes**0.5 for size in engine._SIZES]
    assert devices == [None] * 4
    works.clear()
    ask([gaussians(2)] * 2, [np.full(2, 3.0)] * 2, [1.0, 2.0], precision="float32")
    assert works == [2 * size.points * size.nodes for size in engine._SIZES]
    assert devices[4:] == [jax.local_devices(backend="cpu")[0]] * 4


def test_inside_a_trace_a_wide_contour_asks_the_lattices(monkeypatch):
    calls = []
    wide = lambda kind, groups, goal, low, high: (jnp.full_like(goal, low), jnp.full_like(goal, high))  # noqa: E731
    with jax.enable_x64(True):
        goal, counts = jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])
        pair, other = gaussians(2), Laplace(np.ones(2))._dominating("remove")[0][0]
        monkeypatch.setattr(
            engine, "traced_lattice_bounds", lambda kind, groups, counts, goal, most: wide(kind, groups, goal, 0.2, 0.6)
        )
        monkeypatch.setattr(engine, "_single_batch", lambda kind, groups, goal: calls.append(kind) or ("single", goal))
        contour = {"delta": (0.1, 0.5)}
        monkeypatch.setattr(
            engine, "_contour_batch", lambda kind, size, pairs, counts, goal: wide(kind, pairs, goal, *contour["delta"])
        )
        ask = lambda pairs, most: engine.bounds("delta", pairs, [counts] * len(pairs), goal, most, jnp)  # noqa: E731
        lower, upper = ask([pair], 4.0)
        np.testing.assert_array_equal(lower, 0.2)
        np.testing.assert_array_equal(upper, 0.5)
        contour["delta"] = (0.4999, 0.5)
        np.testing.assert_array_equal(ask([pair], 4.0), [[0.4999] * 2, [0.5] * 2])
        np.testing.assert_array_equal(ask([other], 4.0), [[0.2] * 2, [0.6] * 2])
        np.testing.assert_array_equal(ask([pair, pair], 1.0), [[0.4999] * 2, [0.5] * 2])
        assert not calls
        assert ask([pair], 1.0)[0] == "single"
        assert ask([other], 1.0)[0] == "single"
