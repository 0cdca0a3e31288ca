"""The charge covers every neighbour, answers are exact apart from their noise, and errors show no data."""

import functools
import itertools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest

import jaxacct
from jaxacct import Ledger, filters, release

ROOMY = filters.pure_dp(1e9)
# Noise of this scale is 0, but for once in 10^27 draws.
SILENT = {"scale": 1 / 64}


def answer(query, rows, **options):
    return query(rows, ROOMY, state=ROOMY.init(), **options).value


def law(scale=None, sigma=None):
    loss = (lambda x: abs(x) / scale) if scale else (lambda x: x**2 / (2 * sigma**2))
    weights = {x: math.exp(-loss(x)) for x in (range(-90, 91) if scale else range(-36, 37))}
    total = math.fsum(weights.values())
    return {x: weight / total for x, weight in weights.items()}


def hockey_stick(shift, noise, epsilon):
    """delta(epsilon) of independent noise that is shifted by the vector ``shift``, by enumeration."""
    weights = law(**noise)
    losses = {0.0: 1.0}
    for gap in shift:
        if gap:
            one = [(p, math.log(p / weights[x - gap])) for x, p in weights.items() if x - gap in weights]
            sums = {}
            for (loss, p), (q, more) in itertools.product(losses.items(), one):
                at = round(loss + more, 9)
                sums[at] = sums.get(at, 0.0) + p * q
            losses = sums
    return math.fsum(p * -math.expm1(epsilon - loss) for loss, p in losses.items() if loss > epsilon)


def neighbours(values, rows, relation):
    """Data sets that differ in one person of at most ``rows`` rows."""
    base = [values[0], values[-1]]
    own = [list(some) for size in range(rows + 1) for some in itertools.product(values, repeat=size)]
    if relation == "add_or_remove":
        return [(base + some, base) for some in own]
    return [(base + one, base + other) for one, other in itertools.product(own, repeat=2) if len(one) == len(other)]


QUERIES = {
    "count": (release.count, [False, True], {}),
    "histogram": (release.histogram, ["a", "b", "c"], {"bins": ["a", "b"]}),
    "bounded_sum": (release.bounded_sum, [-9.0, -1.0, 0.4, 3.0], {"lower": -1, "upper": 2}),
    "a sum above 0": (release.bounded_sum, [0, 1, 2.2, math.inf], {"lower": 1, "upper": 2.4}),
}


@pytest.mark.parametrize("noise", [{"scale": 2.5}, {"sigma": 1.5}])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
@pytest.mark.parametrize("name", QUERIES)
def test_what_is_charged_covers_every_neighbour_and_is_no_more_than_the_worst(name, relation, rows, noise):
    query, values, options = QUERIES[name]
    people = {"relation": relation, "max_rows": rows}
    shifts, known = set(), {}
    for one, other in neighbours(values, rows, relation):
        for data in (one, other):
            if str(data) not in known:
                found = answer(query, data, **SILENT, **options)
                known[str(data)] = list(found.values()) if isinstance(found, dict) else [found]
        shifts.add(tuple(a - b for a, b in zip(known[str(one)], known[str(other)], strict=True)))
    budget = filters.zcdp(1e6)
    charged = query(values[:1], budget, state=budget.init(), **noise, **people, **options)
    for epsilon in (0.0, 0.3, 0.9):
        worst = max(hockey_stick(shift, noise, epsilon) for shift in shifts)
        upper = float(jaxacct.delta(charged.mechanism, epsilon).upper)
        assert upper >= worst - 1e-9
        if rows == 1 or name != "histogram":  # of several rows the worst histograms are charged by an upper bound
            assert upper <= worst + 1e-4


@pytest.mark.parametrize("ratio", [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("parts", [(1, 1), (1, 2), (2, 2), (1, 1, 1), (1, 3), (1, 2, 2), (3, 4)])
def test_a_shift_along_one_axis_dominates_those_of_its_l1_norm(parts, ratio):
    # Laws of the clipped losses, exact: docs/proofs/counts-and-sums.md.
    def clipped(gap):
        inner = [(1 - ratio) * ratio**j for j in range(1, gap)]
        return [mass / (1 + ratio) for mass in (1, *inner, ratio**gap)]

    gap, spread = sum(parts), functools.reduce(np.convolve, map(clipped, parts))
    ratios = [ratio ** (gap - 2 * j) for j in range(gap + 1)]  # of the shifted law to the other
    for threshold in ratios:
        axis, apart = (
            sum(p * max(r - threshold, 0) for p, r in zip(law, ratios, strict=True)) for law in (clipped(gap), spread)
        )
        assert axis >= apart


def test_sums_are_exact_on_the_grid_whatever_order_floats_add_up_in():
    rows = [0.1] * 10 + [1e300, -1e300, math.inf, -math.inf, 0.249]
    bounds = {"lower": -3, "upper": 3, **SILENT}
    assert answer(release.bounded_sum, rows, grid=Fraction("0.1"), **bounds | {"scale": 1 / 1024}) == 1.2
    assert answer(release.bounded_sum, rows, **bounds) == 0
    many = np.full(100_000, 2**20, np.int64)
    assert answer(release.bounded_sum, many, lower=0, upper=2**21, **SILENT) == 100_000 * 2**20
    assert isinstance(answer(release.bounded_sum, [1], grid=1.0, **bounds), int)


def test_counts_and_histograms_count():
    assert answer(release.count, np.array([True, False, True]), **SILENT) == 2
    assert answer(release.count, [], **SILENT) == 0
    found = answer(release.histogram, np.array([3, 1, 3, 7]), bins=[1, 2, 3], **SILENT)
    assert found == {1: 1, 2: 0, 3: 2}
    assert answer(release.histogram, ["x", "y"], bins=("y", "z"), **SILENT) == {"y": 1, "z": 0}


def test_means_are_those_of_clamped_rows_within_the_bounds():
    rows = [10, 20, 90, 1000]
    options = {"lower": 18, "upper": 91}
    assert answer(release.mean, rows, scale=(1 / 64, 1 / 64), **options) == (18 + 20 + 90 + 91) / 4
    assert answer(release.mean, rows, scale=1 / 64, relation="replace", **options) == (18 + 20 + 90 + 91) / 4
    assert answer(release.mean, [], scale=(1 / 64, 1 / 64), **options) == 54
    for scale in (5.0, 500.0):
        assert 18 <= answer(release.mean, rows[:1], scale=(scale, scale), **options) <= 91


def test_a_mean_is_one_request_of_both_parts(tmp_path):
    ledger = Ledger(tmp_path / "budget.db", filters.pure_dp(1.0), create=True)
    found = release.mean([20, 30], ledger, lower=0, upper=100, scale=(500, 10), label="age")
    (entry,) = ledger.history()
    assert entry.label == "age"
    assert entry.released
    assert [(part.scale, part.sensitivity) for part in found.mechanism.mechanisms] == [(500, 50), (10, 1)]
    assert float(ledger.spent()) == pytest.approx(0.2)
    assert found.left.parameter["epsilon"] == pytest.approx(0.8)
    assert found.cost.parameter["epsilon"] == pytest.approx(0.2)
    refused = release.mean([20, 30], ledger, lower=0, upper=100, scale=(60, 10))
    assert (refused.admitted, refused.value) == (False, None)
    assert float(ledger.spent()) == pytest.approx(0.2)
    assert not ledger.outstanding()


@pytest.mark.parametrize("number", [3, 0.1, np.float32(0.1), Fraction(1, 3), Fraction(10, 3), np.int64(7)])
@pytest.mark.parametrize("grid", [1, 0.01, Fraction("0.01"), 4])
def test_the_noise_that_is_charged_is_the_least_float_that_is_no_less_than_what_was_asked_for(number, grid):
    found = release.bounded_sum([1], ROOMY, lower=-40, upper=40, scale=number, grid=grid, state=ROOMY.init())
    wanted = (number if isinstance(number, Fraction) else Fraction(float(number))) / Fraction(grid)
    assert Fraction(found.mechanism.scale) >= wanted > Fraction(math.nextafter(found.mechanism.scale, 0))
    assert found.mechanism.sensitivity == round(40 / Fraction(grid))


def test_a_filters_state_goes_on_from_release_to_release():
    budget = filters.pure_dp(1.0)
    state, admitted = budget.init(), 0
    for _ in range(5):
        found = release.count([True], budget, scale=4, state=state)
        state, admitted = found.state, admitted + found.admitted
        assert (found.value is not None) == found.admitted
    assert admitted == 4
    assert float(budget.remaining(state)) == pytest.approx(0.0, abs=1e-6)
    assert "value" in str(release.count([True], budget, scale=4, state=budget.init()))


BAD_ROWS = {
    "NaN": [1.0, 987.25, math.nan],
    "a text": [1.0, "987.25"],
    "None": [987.25, None],
    "complex numbers": [987.25j, 1],
    "a table": [[987.25, 1]],
    "one number": 987.25,
    "ragged": [[1, 2], [987.25]],
    "masked": np.ma.masked_array([987.25, 1.0], [False, True]),
    "keys": jax.random.key(98725),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_refused_before_a_charge_and_no_error_shows_one(name, tmp_path):
    ledger = Ledger(tmp_path / "budget.db", filters.pure_dp(1.0), create=True)
    queries = {
        "flags": lambda rows: release.count(rows, ledger, scale=4),
        "values": lambda rows: release.bounded_sum(rows, ledger, lower=0, upper=1, scale=4),
        "values ": lambda rows: release.mean(rows, ledger, lower=0, upper=1, scale=(4, 4)),
    }
    if name not in ("a text", "complex numbers"):
        queries["values  "] = lambda rows: release.histogram(rows, ledger, bins=[1], scale=4)
    for column, query in queries.items():
        with pytest.raises(ValueError, match=f"{column.strip()} must be one column of") as caught:
            query(BAD_ROWS[name])
        assert "987" not in str(caught.value)
    with pytest.raises(ValueError, match="flags must be one column of"):
        jax.jit(lambda rows: (queries["flags"](rows), 0)[1])(np.array([True]))
    assert not ledger.history()


def test_the_type_of_one_row_changes_no_other_row():
    budget = filters.pure_dp(200.0)
    for other in ("a", 0.5, None):
        rows = [1] * 50 + [2**53 + 1] * 50 + ([] if other is None else [other])
        found = release.histogram(rows, budget, bins=[1, 2**53 + 1], scale=0.02, state=budget.init())
        assert found.value == {1: 50, 2**53 + 1: 50}


def test_a_mean_of_negative_numbers_costs_what_that_of_positive_ones_does():
    options = {"scale": (5, 5), "state": ROOMY.init()}
    charged = [release.mean([low], ROOMY, lower=low, upper=low + 2, **options).mechanism for low in (-10, 8)]
    assert jaxacct.epsilon(charged[0], 0.0).upper == jaxacct.epsilon(charged[1], 0.0).upper
