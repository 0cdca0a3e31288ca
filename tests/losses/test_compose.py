"""Parts of a composition by themselves, against NumPy."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses import compose as module
from jaxacct.losses.compose import (
    _compounded,
    _last_level,
    _level,
    _Measures,
    _rounded,
    _supports,
    _tilt_sums,
    _unroll,
    _weighted,
    _within,
    _wrapped,
    compose,
)
from jaxacct.losses.discretize import Step
from jaxacct.losses.plan import Layout, Levels, Outline
from jaxacct.mechanisms._gaussian_pair import GaussianPair


def test_exponential_moments_of_measures_that_may_be_empty():
    rng = np.random.default_rng(0)
    steps, rest = rng.random((2, 2, 8)), rng.random((2, 8))
    steps[1, 0] = rest[1] = 0.0  # nothing is left below
    spacing, means, lowest = 0.5, np.array([0.3, -1.0]), np.array([-3.0, 2.0])
    losses = (lowest[:, None] + np.arange(8)) * spacing - means[:, None]
    with jax.enable_x64(True):
        given = (jnp.asarray(x) for x in (steps, rest, np.zeros((2, 2)), np.zeros(2), lowest, -1.0))
        for s in (2.0, -3.0, 400.0):
            found = _tilt_sums(_Measures(*given), spacing, jnp.asarray(means), jnp.asarray(0.1), jnp.asarray(s))
            given = (jnp.asarray(x) for x in (steps, rest, np.zeros((2, 2)), np.zeros(2), lowest, -1.0))
            for masses, at, value in ((steps, losses, found[0]), (rest, (np.arange(8) - 1) * spacing - 0.1, found[1])):
                value, empty = np.asarray(value), masses.sum(-1) == 0
                with np.errstate(divide="ignore"):
                    truth = np.logaddexp.reduce(np.log(masses) + s * at, -1)
                np.testing.assert_allclose(value[~empty], truth[~empty], rtol=1e-13)
                assert np.all(value[~empty] >= truth[~empty] - 1e-12 * np.abs(truth[~empty]))
                assert np.all((value[empty] < -600) & np.isfinite(value[empty]))


@pytest.mark.slow
def test_entries_keep_their_errors_and_mostly_errors_are_missing_mass():
    value = np.array([[0.0, 1.0, 1e-3, -1e-6, 0.5], [0.2, 1.0, 1e-3, 8.1e-4, 7.9e-4]])
    error = np.array([1e-3, 1e-4])
    within = np.array([True, True, True, True, False])
    with jax.enable_x64(True):
        kept, dropped = (np.asarray(x) for x in _rounded(jnp.asarray(value), jnp.asarray(error), jnp.asarray(within)))
    np.testing.assert_allclose(kept, [[0, 1.001, 0, 0, 0], [0.1999, 0.9999, 9e-4, 7.1e-4, 0]], rtol=1e-12)
    np.testing.assert_allclose(dropped, [1e-3 + 2e-3 + 1e-3, 0.0], rtol=2e-9)
    assert dropped[0] >= 4e-3
    first, last = (np.asarray(x) for x in _supports(jnp.asarray(kept)))
    np.testing.assert_array_equal(first, [1, 0])
    np.testing.assert_array_equal(last, [1, 3])
    nothing = [int(x) for x in _supports(jnp.zeros(5))]
    assert nothing == [5, -1]
    with jax.enable_x64(True):
        inside = _within(jnp.asarray(3.0), jnp.asarray(5.0), jnp.asarray(2.0), 6)
        np.testing.assert_array_equal(inside, [False, True, True, True, False, False])
        turned = _unroll(jnp.arange(8.0).reshape(1, 1, 8), jnp.asarray([-3.0]))
    np.testing.assert_array_equal(np.asarray(turned)[0, 0], np.roll(np.arange(8.0), 3))


H, N = 0.1, 64  # spacing and points
LOWEST, REST_LOWEST = np.array([-20.0, -31.0]), -5.0
MISSING, REST_MISSING = np.array([[1e-4, 3e-4], [2e-4, 5e-5]]), np.array([4e-4, 1e-4])


LEVEL, LAST = jax.jit(_level, static_argnums=(7, 8, 9)), jax.jit(_last_level, static_argnums=4)


def measures(missing):
    """Two parts and a rest, above and a little less below."""
    rng, i = np.random.default_rng(1), np.arange(N)
    laws = np.stack([np.exp(-0.5 * ((i - c) / w) ** 2) * rng.uniform(0.5, 1.5, N) for c, w in ((31, 5.0), (24, 3.0))])
    laws[laws < 1e-9] = 0.0
    laws /= laws.sum(-1, keepdims=True)
    rest = np.exp(-0.5 * ((i - 12) / 2.0) ** 2)
    rest[rest < 1e-9] = 0.0
    less = np.array([1.0, 0.99])
    both = less[:, None, None] * laws, less[:, None] * rest / rest.sum()
    return _Measures(*both, missing * MISSING, missing * REST_MISSING, LOWEST, np.array(REST_LOWEST))


def powered(laws, counts):
    """The sum of so many runs of each, without any window: masses and the lattice index of the first."""
    found, first = np.ones(1, np.longdouble), 0.0
    for (masses, lowest), count in zip(laws, counts, strict=True):
        for _ in range(int(count)):
            found, first = np.convolve(found, masses.astype(np.longdouble)), first + lowest
    return found, first


def hockey_stick(masses, first, spacing, at):
    losses = (first + np.arange(len(masses))) * spacing
    return (masses * -np.expm1(np.minimum(at[:, None] - losses, 0.0))).sum(-1)


def chernoff(laws, means, counts, shift, end):
    """What a window of end ``end`` beyond the mean misses at most, doubled."""
    logs = 0.0
    for (masses, lowest), mean, count in zip(laws, means, counts, strict=True):
        logs += count * np.log((masses * np.exp(shift * ((lowest + np.arange(N)) * H - mean))).sum()) if count else 0.0
    return 2 * np.exp(logs - abs(shift) * end)


@pytest.fixture(scope="module")
def outline():
    fields = dict.fromkeys(Outline._fields, 0.0)
    fields |= {"rounds": [1.0, 2.0, 4.0, 9.0, 30.0], "up": [1.0, 1.5, 2.2, 3.0, 4.0], "down": [0.9, 1.4, 1.2, 2.0, 3.1]}
    fields |= {"shift_up": [9.0, 7.0, 2.5, 4.0, 1.6], "shift_down": [8.0, 6.0, 2.2, 3.0, 1.9]}
    with jax.enable_x64(True):
        return Outline(**{name: jnp.asarray(value, jnp.float64) for name, value in fields.items()})


@pytest.mark.parametrize("missing", [0.0, 1.0])
@pytest.mark.parametrize("counts", [(2.0, 3.0), (5.0, 0.0)])
def test_the_last_level_is_the_sum_of_all_runs_but_for_what_it_says_is_missing(outline, missing, counts):
    given, counts = measures(missing), np.array(counts)
    with jax.enable_x64(True):
        found = jax.tree.map(np.asarray, LAST(given, counts, outline, H, N))
    parts = [[*zip(given.steps[side], LOWEST, strict=True), (given.rest[side], REST_LOWEST)] for side in range(2)]
    means = [((low + np.arange(N)) * H * m).sum() / m.sum() for m, low in parts[0]]
    after = (counts * means[:2]).sum() + means[2]
    begin = float(found.rest_lowest)
    assert abs(begin * H - (after + (4.0 - 3.1) / 2 - N / 2 * H)) <= H / 2 * (1 + 1e-9)
    at = np.linspace(-12.0, 8.0, 101)
    for side, sign in ((0, 1), (1, -1)):
        exact = hockey_stick(*powered(parts[side], [*counts, 1]), H, at)
        lost = found.rest_missing[side]
        assert np.all(sign * (hockey_stick(found.rest[side], begin, H, at) - exact) >= -lost)
        up = chernoff(parts[side], means, [*counts, 1], 1.6, (begin + N) * H - after)
        down = chernoff(parts[side], means, [*counts, 1], -1.9, after - begin * H)
        held = np.array([m.sum() for m, _ in parts[0]]) + (
            missing * np.append(MISSING[0], REST_MISSING[0]) if side else 0
        )
        more = missing * np.append(MISSING[side], REST_MISSING[side])
        compounded = ((held + more) ** [*counts, 1]).prod() - (held ** [*counts, 1]).prod()
        assert min(up, down) > 1e-9
        share = (lost - up - down) / compounded - 1 if missing else 0.0
        assert not missing or abs(share - 1e-9) <= 4e-10
        assert abs(lost - up - down - compounded) <= 2e-9 * compounded + 1e-12


@pytest.mark.slow
def test_a_level_is_powers_and_leftovers_on_a_coarser_lattice(outline):
    ratio, later, count = 8, 16, 4.0
    for missing, quotient in ((0.0, (3.0, 1.0)), (1.0, (3.0, 0.0))):
        given, leftover = measures(missing), np.array([1.0, 2.0])
        with jax.enable_x64(True):
            found = LEVEL(given, count, np.array(quotient), leftover, 4.0, outline, jnp.asarray(H), N, ratio, later)
            found = jax.tree.map(np.asarray, found)
        assert found.steps.shape == (2, 2, later)
        runs = np.where(np.array(quotient) > 0, count, 0.0)
        at = np.linspace(-12.0, 8.0, 101)
        means = [((low + np.arange(N)) * H * m).sum() / m.sum() for m, low in zip(given.steps[0], LOWEST, strict=True)]
        rest_mean = ((REST_LOWEST + np.arange(N)) * H * given.rest[0]).sum() / given.rest[0].sum()
        everything = [
            (found.steps[:, k], found.step_missing[:, k], found.step_lowest[k], runs * (np.arange(2) == k), 0)
            for k in range(2)
        ]
        for masses, lost, lowest, counts, once in [
            *everything, (found.rest, found.rest_missing, found.rest_lowest, leftover, 1)
        ]:  # fmt: skip
            begin, after = float(lowest) * ratio, (counts * means).sum() + once * rest_mean
            assert begin == round(begin)
            assert begin % ratio == 0
            assert abs(begin * H - (after + (2.2 - 1.2) / 2 - N / 2 * H)) <= ratio * H / 2 * (1 + 1e-9)
            for side, sign in ((0, 1), (1, -1)):
                parts = [*zip(given.steps[side], LOWEST, strict=True), (given.rest[side], REST_LOWEST)]
                exact = hockey_stick(*powered(parts, [*counts, once]), H, at)
                ours = hockey_stick(masses[side], float(lowest), ratio * H, at)
                assert np.all(sign * (ours - exact) >= -lost[side])
                assert np.all(sign * (ours - exact) <= 0.1)
                up = chernoff(parts, [*means, rest_mean], [*counts, once], 2.5, (begin + N) * H - after)
                down = chernoff(parts, [*means, rest_mean], [*counts, once], -2.2, after - begin * H)
                held = np.append(given.steps[0].sum(-1), given.rest[0].sum())
                held = held + (missing * np.append(MISSING[0], REST_MISSING[0]) if side else 0)
                more = missing * np.append(MISSING[side], REST_MISSING[side])
                compounded = ((held + more) ** [*counts, once]).prod() - (held ** [*counts, once]).prod()
                if side == 0:
                    share = (lost[side] - up - down) / compounded - 1 if missing and compounded else 1e-9
                    assert abs(share - 1e-9) <= 4e-10
                    assert abs(lost[side] - up - down - compounded) <= 2e-9 * compounded + 1e-12
                else:  # and what the lines from below could not pay for
                    assert compounded + (up + down) * (1 - 1e-9) <= lost[side] <= compounded + up + down + 0.3


def test_missing_mass_grows_like_a_union_and_what_is_no_number_is_everything():
    totals, missing = np.array([1.1, 0.7, 0.0, 1.0]), np.array([1e-9, 0.3, 0.0, np.inf])
    with jax.enable_x64(True):
        for exponents in (np.array([3.0, 7.0, 2.0, 0.0]), np.array([1e6, 1.0, 1.0, 0.0])):
            size, share = (np.asarray(x) for x in _compounded(*(jnp.asarray(x) for x in (totals, missing, exponents))))
            np.testing.assert_allclose(size[:2], exponents[:2] * np.log((totals + missing)[:2]), rtol=1e-15)
            np.testing.assert_allclose(share[:2], exponents[:2] * np.log1p(missing[:2] / totals[:2]), rtol=1e-15)
            assert size[2] < -600
            assert size[3] == share[2] == share[3] == 0
        found = _wrapped(jnp.asarray([-1.0, 800.0, np.nan]), jnp.asarray([-2.0, -np.inf, 0.0]))
        np.testing.assert_allclose(found, [2 * np.exp(-3.0), 0.0, np.inf], rtol=1e-15)
        assert float(_weighted(jnp.asarray([2.0, 0.0]), jnp.asarray([0.25, np.inf]))) == 0.5


@pytest.mark.parametrize("layout", [Layout(1024, 256, 3)])
def test_levels_have_the_sizes_of_their_layout(layout, outline, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "jaxacct.losses.compose._level",
        lambda *x: seen.append((x[0].steps.shape[-1], *x[7:])) or _level(*x),
    )
    with jax.enable_x64(True):
        two = jnp.ones(2)
        pairs = GaussianPair(two, 0.5 * two, 0.0 * two)
        plan = outline._replace(means=two, log_normalisers=two, rounds=outline.rounds)
        found = jax.eval_shape(lambda p, n, o: compose([p], n, o, layout), pairs, 9.0 * two, plan)
    assert found.masses.shape == (2, layout.later if layout.levels > 1 else layout.first)
    points = [layout.first] + [layout.later] * (layout.levels - 2)
    ratios = [layout.ratio] + [8] * (layout.levels - 2)
    expected = [(n, n, r, layout.later) for n, r in zip(points, ratios, strict=True)] if layout.levels > 1 else []
    assert seen == expected


def test_entries_that_are_mostly_error_are_missing_where_nothing_else_is(outline):
    steep = outline._replace(shift_up=np.full(5, 30.0), shift_down=np.full(5, 30.0))
    given = measures(0.0)
    narrow = np.zeros((2, N))
    narrow[0, 30:34], narrow[1, 22:26] = [0.1, 0.4, 0.3, 0.2], [0.3, 0.3, 1e-20, 0.4]
    point = np.zeros(N)
    point[12] = 1.0
    given = given._replace(steps=np.stack([narrow, narrow]), rest=np.stack([point, point]))
    with jax.enable_x64(True):
        level = LEVEL(given, 4.0, np.array([3.0, 1.0]), np.array([1.0, 2.0]), 4.0, steep, jnp.asarray(H), N, 8, 16)
        last = LAST(given, np.array([2.0, 3.0]), steep, H, N)
    for lost in (level.step_missing[0], level.rest_missing[0], last.rest_missing[0]):
        assert np.all((np.asarray(lost) > 0) & (np.asarray(lost) < 1e-13))


class Part(NamedTuple):
    """A pair of which only its loss's error is asked here."""

    error: jax.Array

    def loss_error(self):
        return self.error


def test_what_all_runs_add_up_to_and_may_be_off_by(outline, monkeypatch):
    """Lattices, levels and rounding of a composition whose steps and powers are made by others."""
    origins, means, steps = np.array([2.0**44, 0.5, -3.0]), np.array([2.0**44 + 9.3, 1.7, 40.2]), np.array([50.0, 7, 1])
    normalisers, errors, h, asked, levels, lowests = (
        np.array([0.3, -0.2, 1.5]),
        np.array([1e-3, 0.0, 2e-3]),
        0.5,
        [],
        [],
        [],
    )

    def step_masses(pair, theta, normaliser, origin, spacing, lowest, size, centre, near, cutoff):
        asked.append((float(spacing), size, centre, near))
        zero = jnp.zeros(size)
        return Step(
            zero + normaliser, zero + origin, lowest, origin, 1e-3 * (1 + pair.error), 2e-3 * pair.error, cutoff + theta
        )

    def level(measures, *given):
        lowests.append(np.asarray(measures.step_lowest))
        levels.append([float(x) for x in (*given[:1], *given[3:4], *given[5:])] + [np.asarray(x) for x in given[1:3]])
        return measures

    def last_level(measures, left, _, spacing, size):
        levels.append((float(spacing), size, np.asarray(left)))
        return measures._replace(rest_missing=jnp.asarray([0.25, 0.5]), rest_lowest=jnp.asarray(-17.0))

    counts = [jnp.asarray(4.0), jnp.asarray(3.0)]
    monkeypatch.setattr(module, "levels_for", lambda *_: Levels(jnp.asarray(h), counts, jnp.zeros(())))
    monkeypatch.setattr(module, "lattice_origin", lambda pair, mean, spacing, near: jnp.round(mean - 9.3) + 0 * near)
    monkeypatch.setattr(module, "step_masses", step_masses)
    monkeypatch.setattr(module, "_level", level)
    monkeypatch.setattr(module, "_last_level", last_level)
    with jax.enable_x64(True):
        plan = outline._replace(
            means=jnp.asarray(means), log_normalisers=jnp.asarray(normalisers), theta=jnp.asarray(3.0)
        )
        groups = [Part(jnp.asarray(errors[:2])), Part(jnp.asarray(errors[2:]))]
        found = jax.tree.map(np.asarray, compose(groups, jnp.asarray(steps), plan, Layout(1024, 256, 3)))
    origins = np.round(means - 9.3)
    assert asked == [(h, 1024, 256, 128)] * 2
    lowest = np.round((means - origins) / (8 * h)) * 8 - 256
    np.testing.assert_array_equal(lowests[0], lowest)
    assert found.masses.shape == (2, 1024)
    np.testing.assert_array_equal(found.masses.sum(-1), [1.0, 1.0])
    first, second, third = levels
    assert first[:6] == [4.0, 4.0, h, 1024, 32, 256]
    np.testing.assert_array_equal(first[6:], [[12, 1, 0], [2, 3, 1]])
    assert second[:6] == [3.0, 12.0, 32 * h, 256, 8, 256]
    np.testing.assert_array_equal(second[6:], [[4, 0, 0], [0, 1, 0]])
    assert third[:2] == (32 * 8 * h, 256)
    np.testing.assert_array_equal(third[2], [4, 0, 0])
    above, below = 1e-3 * (1 + errors), 2e-3 * errors
    failing = [-np.expm1((steps * np.log1p(-p)).sum()) for p in (above, below)]
    np.testing.assert_allclose(found.infinite / failing - 1, [1e-12, -1e-12], atol=1e-14)
    np.testing.assert_array_equal(found.missing, [0.25, 0.5])
    assert (found.lowest, found.origin, found.spacing) == (-17.0, (steps * origins).sum(), 256 * h)
    assert found.theta == 3.0
    terms = steps * normalisers
    assert found.log_normaliser == terms.sum()
    assert found.log_error == pytest.approx(2.0**-50 * (np.abs(terms).sum() + 1) * 3, rel=1e-14, abs=0)
    ends = np.abs(origins) + np.maximum(np.abs(lowest), np.abs(lowest + 1024)) * h
    error = (steps * 2 * (errors + 2.0**-51 * ends)).sum() * (1 + 1e-9)
    error += 2.0**-51 * 3 * np.abs(steps * origins).sum()
    assert found.loss_error == pytest.approx(error, rel=1e-13)


def test_a_first_level_starts_from_single_steps_and_no_rest(outline, monkeypatch):
    seen = []

    def step_masses(pair, theta, normaliser, origin, spacing, lowest, size, centre, near, cutoff):
        zero = jnp.zeros(size)
        return Step(zero + normaliser, zero + origin, lowest, 5.0 * pair.error, pair.error, pair.error, cutoff + theta)

    monkeypatch.setattr(module, "levels_for", lambda *_: Levels(jnp.asarray(0.5), [], jnp.zeros(())))
    monkeypatch.setattr(module, "lattice_origin", lambda pair, mean, spacing, near: mean + 0.25)
    monkeypatch.setattr(module, "step_masses", step_masses)
    monkeypatch.setattr(module, "_last_level", lambda measures, *_: seen.append(measures) or measures)
    with jax.enable_x64(True):
        two = jnp.asarray([1.0, 2.0])
        compose([Part(two)], two, outline._replace(means=two, log_normalisers=-two), Layout(64, 64, 1))
        (given,) = jax.tree.map(np.asarray, seen)
    np.testing.assert_array_equal(given.steps[..., 7], [[-1.0, -2.0], [1.25, 2.25]])
    np.testing.assert_array_equal(given.step_missing, [[-16.0, -16.0], [5.0, 10.0]])
    np.testing.assert_array_equal(given.step_lowest, [-16.0, -16.0])
    np.testing.assert_array_equal(given.rest, [np.eye(64)[0]] * 2)
    np.testing.assert_array_equal(given.rest_missing, [0.0, 0.0])
    assert given.rest_lowest == 0
