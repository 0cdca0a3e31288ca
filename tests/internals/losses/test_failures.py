"""What fails with some probability is split off exactly: against closed forms in many digits."""

import mpmath
import numpy as np
import pytest

from jaxacct.losses.engines import split_failures as failures
from jaxacct.losses.engines.narrowing import Options
from jaxacct.mechanisms.pairs.response import ResponsePair


class _Table:
    """A pair that fails with some probability and is ``left`` otherwise."""

    def __init__(self, failing, left="rest"):
        self.failing, self.left = failing, left

    def split(self):
        return self.left, self.failing


def test_what_is_left_is_asked_and_failures_are_added_to_the_last_units(monkeypatch):
    """The engine is taken to be right to the last bit: what is between its answer and ours is ours."""
    rng, count = np.random.default_rng(0), 300
    failing, runs = 10.0 ** rng.uniform(-20, -0.3, count), np.round(10.0 ** rng.uniform(0, 4, count))
    others = np.where(rng.random(count) < 0.5, 0.0, 10.0 ** rng.uniform(-12, -3, count))
    with mpmath.workdps(50):
        logs = [
            mpmath.mpf(float(t)) * mpmath.log1p(-mpmath.mpf(float(d))) + 3 * mpmath.log1p(-mpmath.mpf(float(o)))
            for t, d, o in zip(runs, failing, others, strict=True)
        ]
        failed, none = [-mpmath.expm1(x) for x in logs], [mpmath.exp(x) for x in logs]
    asked, left = [], 10.0 ** rng.uniform(-12, -0.5, count)

    def engine(kind, pairs, counts, goal, most, xp, options, sides):
        assert pairs == ["rest", "rest", 7]
        np.testing.assert_array_equal(counts, [runs, np.full(count, 3.0), runs])
        assert (most, xp, sides) == (9.0, np, 2)
        asked.append(goal)
        return (left, left) if kind == "delta" else (goal, goal)

    monkeypatch.setattr(failures, "bounds", engine)
    pairs, counts = [_Table(failing), _Table(others), 7], [runs, np.full(count, 3.0), runs]
    ask = lambda kind, goal: failures.bounds_with_failures(kind, pairs, counts, goal, 9.0, Options(), 2)  # noqa: E731
    units = 2.0**-53 * (12 + 4 * 3)
    lower, upper = ask("delta", np.full(count, 0.7))
    for low, high, x, f, s, d in zip(lower, upper, logs, failed, none, left, strict=True):
        truth = f + s * mpmath.mpf(float(d))
        room = float(2 * units * f + s * d * (2 * units - units * x))
        assert low <= truth <= high
        assert upper.max() <= 1
        assert truth - low <= 1.2 * room
        assert high - truth <= 1.2 * room
        assert high == 1 or high - truth >= 0.7 * room
        assert truth - low >= 0.7 * room
    np.testing.assert_array_equal(asked[0], 0.7)
    goal = np.array([float(f + s * mpmath.mpf(float(d))) for f, s, d in zip(failed, none, left, strict=True)])
    goal[:3] = np.array([float(f) for f in failed[:3]]) * 0.99  # failing alone is more
    lower, upper = ask("epsilon", goal)
    assert np.isinf(lower[:3]).all()
    assert np.isinf(upper[:3]).all()
    for low, high, g, x, f, s in zip(lower[3:], upper[3:], goal[3:], logs[3:], failed[3:], none[3:], strict=True):
        # More delta is asked of what is left for the lower bound, less for the upper one.
        truth = (mpmath.mpf(float(g)) - f) / s
        room = float(units * f / s + truth * (2 * units - units * x))
        assert high <= truth <= low or np.isinf(high)
        assert low - truth <= 1.2 * room + 1e-300
        assert np.isinf(high) or truth - high <= 1.2 * room
        assert low == 1 - 2.0**-53 or low - truth >= 0.6 * room
        assert np.isinf(high) == (truth <= 1.2 * room) or abs(truth - room) < 0.3 * room


@pytest.mark.parametrize("kind", ["delta", "epsilon"])
def test_a_failure_of_unknown_probability_proves_nothing(kind, monkeypatch):
    monkeypatch.setattr(failures, "bounds", lambda *_: (np.full(2, 0.1), np.full(2, 0.2)))
    pair = ResponsePair(np.full(2, 0.5), np.full(2, 2.0), np.array([1e-3, np.nan]))
    lower, upper = failures.bounds_with_failures(kind, [pair], [np.full(2, 3.0)], np.full(2, 0.3), 3.0, Options(), 1)
    assert 0 < lower[0] < upper[0] < 0.21
    assert (lower[1], upper[1]) == (0.0, 1.0 if kind == "delta" else np.inf)
