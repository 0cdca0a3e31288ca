"""The order's decisions on toy curves, against what a loop over their numbers says."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian, LossGrid, PoissonSampled
from jaxacct.losses.compare import chain, order
from jaxacct.losses.compare.enclose import Enclosed
from jaxacct.losses.compare.order import NO, UNDECIDED, YES

pytestmark = pytest.mark.usefixtures("in_float64")

INF = math.inf


def enclosed(rng, points, members=None, width=0.4):
    """Multiples of 1/4, so that there are ties: line <= point <= upper."""
    shape = (points,) if members is None else (members, points)
    point = rng.integers(0, 9, shape) / 4
    return Enclosed(
        *(
            jnp.asarray(x)
            for x in (point - rng.integers(0, 2, shape) / 4, point, point + rng.integers(0, 2, shape) * width)
        )
    )


def test_a_comparison_is_a_maximum_of_differences():
    rng, points = np.random.default_rng(0), np.array([-1.0, 0.0, 0.5, 2.0])
    seen = set()
    for trial in range(120):
        a, b = (enclosed(rng, 4, width=0.25) for _ in range(2))
        tolerance = 0.25 * (trial % 2)
        found = order._compare(a, b, jnp.asarray(points), tolerance)
        slack = max(float(x) for x in b.upper - a.line)
        gaps = [float(x) for x in b.point - a.upper]
        assert float(found.slack) == slack
        assert float(found.gap) == max(gaps)
        assert float(found.epsilon) == max(p for p, g in zip(points, gaps, strict=True) if g == max(gaps))
        verdict = NO if max(gaps) > 0 else YES if slack <= tolerance else UNDECIDED
        assert int(found.verdict) == verdict
        assert found.word == {1: "yes", 0: "undecided", -1: "no"}[verdict]
        seen.add((verdict, slack == tolerance, max(gaps) == 0))
    assert {v for v, _, _ in seen} == {YES, NO, UNDECIDED}
    assert {(YES, True), (YES, False)} <= {(v, tie) for v, tie, _ in seen}
    assert (UNDECIDED, True) in {(v, zero) for v, _, zero in seen}


def test_a_comparison_with_nan_says_neither():
    one = jnp.array([0.5, 0.5])
    broken = jnp.array([jnp.nan, 0.5])
    points = jnp.array([0.0, 1.0])
    for a, b in (
        (Enclosed(broken, one, one), Enclosed(one, one, one)),
        (Enclosed(one, one, one), Enclosed(one, one, broken)),
    ):
        assert int(order._compare(a, b, points, 1.0).verdict) == UNDECIDED


def changes(a, b):
    sign = [1 if p > u else -1 if q > v else 0 for p, u, q, v in zip(a.point, b.upper, b.point, a.upper, strict=True)]
    known = [i for i, s in enumerate(sign) if s]
    return [(i, j) for i, j in itertools.pairwise(known) if sign[i] == -sign[j]]


def test_crossings_are_certain_changes_of_sign():
    rng, points = np.random.default_rng(1), np.array([-2.0, -1.5, 0.0, 0.25, 1.0, 3.0, 3.5])
    counts = set()
    for _ in range(60):
        a, b = (enclosed(rng, 7, width=0.25) for _ in range(2))
        found = order._crossings(a, b, jnp.asarray(points), 3)
        truth = changes(a, b)
        counts.add(len(truth))
        assert int(found.count) == len(truth)
        middle = np.asarray((a.point + a.upper) / 2 - (b.point + b.upper) / 2)
        for k in range(3):
            if k >= len(truth):
                assert np.isnan([found.lower[k], found.upper[k], found.estimate[k]]).all()
                continue
            i, j = truth[k]
            assert (float(found.lower[k]), float(found.upper[k])) == (points[i], points[j])
            here = (points[i] + points[j]) / 2
            if j == i + 1:  # where the two lines in e^epsilon meet
                share = middle[i] / (middle[i] - middle[j])
                here = math.log((1 - share) * math.exp(points[i]) + share * math.exp(points[j]))
            assert float(found.estimate[k]) == pytest.approx(here, rel=1e-12)
    assert counts >= {0, 1, 2, 3, 4}


def chain_of(family, keys, known, tolerance):
    """The verdict and pair of a chain, by loops."""
    ranks = sorted(range(len(keys)), key=lambda i: keys[i])
    line, point, upper = (np.asarray(x)[ranks] for x in family)
    slack = [-INF if known[i] else (upper[i] - line[i + 1]).max() for i in range(len(ranks) - 1)]
    excess = {
        (i, j): min((point[i] - upper[j]).max(), (point[j] - upper[i]).max())
        for i, j in itertools.combinations(range(len(ranks)), 2)
    }
    best = max(excess, key=lambda ij: excess[ij])
    if excess[best] > 0:
        return NO, [ranks[i] for i in best], best
    if all(s <= tolerance for s in slack):
        return YES, [-1, -1], None
    worst = int(np.argmax(slack))
    return UNDECIDED, [ranks[worst], ranks[worst + 1]], (worst, worst + 1)


def test_chains_are_what_all_pairs_say():
    rng, points = np.random.default_rng(2), np.array([-1.0, 0.0, 0.5, 2.0])
    verdicts = []
    for trial in range(90):
        # Members that grow, but for a little noise: all verdicts occur.
        base = np.cumsum(rng.integers(0, 3, (4, 1)) / 2, 0) + np.zeros(4)
        point = (base + rng.integers(0, 2, (4, 4)) / 4 * (trial % 3))[rng.permutation(4)]
        family = Enclosed(
            *(np.asarray(x) for x in (point - (trial % 3) / 16, point, point + rng.integers(0, 2, (4, 4)) / 16))
        )
        keys = rng.permutation(4) if trial % 5 == 0 else np.asarray(family.upper.sum(-1))
        known = rng.random(3) < 0.2
        tolerance = 0.125 * (trial % 2)
        verdict, pair, at = chain_of(family, keys, known, tolerance)
        found = chain._chain(family, jnp.asarray(points), np.argsort(keys, kind="stable"), np.asarray(known), tolerance)
        verdicts.append(verdict)
        assert int(found.verdict) == verdict
        assert found.word == {1: "yes", 0: "undecided", -1: "no"}[verdict]
        np.testing.assert_array_equal(found.pair, pair)
        if verdict != YES:
            ranks = sorted(range(4), key=lambda i: keys[i])
            i, j = (ranks[k] for k in at)
            point_, upper = np.asarray(family.point), np.asarray(family.upper)
            for end, d in zip(found.epsilon, (point_[i] - upper[j], point_[j] - upper[i]), strict=True):
                assert (float(end) == points[np.argmax(d)]) if d.max() > 0 else np.isnan(end)
        else:
            assert np.isnan(found.epsilon).all()
    assert min(verdicts.count(v) for v in (YES, NO, UNDECIDED)) >= 8


def test_of_more_than_64_members_only_neighbours_are_compared():
    """A member that is out of order among neighbours is found; the worst neighbours are named otherwise."""
    count, points = 66, jnp.array([0.0, 1.0])
    base = np.arange(count)[:, None] + np.zeros(2)
    rows = base.copy()
    rows[40] += [-1.5, 1.0]  # crosses its predecessor
    for point, verdict, pair in ((base, YES, [-1, -1]), (rows, NO, [39, 40])):
        family = Enclosed(*(jnp.asarray(point),) * 3)
        found = chain._chain(family, points, jnp.arange(count), jnp.zeros(count - 1, bool), 0.0)
        assert int(found.verdict) == verdict
        np.testing.assert_array_equal(found.pair, pair)
    wide = Enclosed(jnp.asarray(base - 1.5 * (np.arange(count) == 50)[:, None]), jnp.asarray(base), jnp.asarray(base))
    found = chain._chain(wide, points, jnp.arange(count), jnp.zeros(count - 1, bool), 0.0)
    assert int(found.verdict) == UNDECIDED
    np.testing.assert_array_equal(found.pair, [49, 50])


def test_a_known_order_needs_no_slack(monkeypatch):
    """The enclosures of a grid that is too coarse to see anything say nothing against what is known."""
    grid = LossGrid(1.0, -2, 5)
    wide = lambda member, grid, relation: Enclosed(*(np.full((*np.shape(member.rate), 5), x) for x in (0.0, 0.0, 0.5)))  # noqa: E731
    monkeypatch.setattr(order.families, "enclose", wide)
    s = lambda sigma, rate: PoissonSampled(Gaussian(sigma), rate)  # noqa: E731
    ask = lambda *pair: order.dominates(*pair, grid=grid, relation="remove")  # noqa: E731
    assert ask(s(1.0, 0.5), s(1.0, 0.5)).word == "yes"
    assert ask(s(1.0, 0.5), s(1.0, 0.5)).slack == 0
    assert ask(s(1.0, 0.5), s(0.999, 0.4)).word == "undecided"
    assert ask(s(1.0, 0.5), s(0.999, 0.4)).slack == 0.5
    chained = lambda family: chain.is_chain(family, grid=grid, relation="remove").word  # noqa: E731
    ordered = [s(1.0, rate) for rate in (0.5, 0.501, 0.502)]
    assert chained(ordered) == "yes"
    assert chained([ordered[1], ordered[2], ordered[0]]) == "yes"  # equal keys do not say which is first
    assert chained([*ordered, s(0.999, 0.4)]) == "undecided"
    assert chained(s(np.array([1.0, 0.999]), np.array([0.5, 0.4]))) == "undecided"
