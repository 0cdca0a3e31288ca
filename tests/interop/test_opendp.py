"""A measurement of OpenDP is charged in one call, by what its map says; OpenDP need not be there."""

import pytest

from jaxacct import ApproximateDP, Ledger, PureDP, RenyiDP, ZeroConcentratedDP, filters
from jaxacct.interop import opendp


class Measurement:
    """As OpenDP's: a measure, and a map from distances to losses."""

    def __init__(self, measure, loss):
        self.output_measure, self.map = measure, lambda d_in: loss(d_in)


PURE = Measurement("MaxDivergence()", lambda d: 0.25 * d)


@pytest.mark.parametrize(
    ("measure", "loss", "query"),
    [
        ("MaxDivergence", 0.5, PureDP(0.5)),
        ("MaxDivergence()", 0.5, PureDP(0.5)),
        ("ZeroConcentratedDivergence", 0.1, ZeroConcentratedDP(0.1)),
        ("Approximate(MaxDivergence)", (0.5, 1e-6), ApproximateDP(0.5, 1e-6)),
        ("FixedSmoothedMaxDivergence", (0.5, 1e-6), ApproximateDP(0.5, 1e-6)),
        ("Approximate<ZeroConcentratedDivergence>", (0.5, 1e-6), (0.5, 1e-6)),
        ("RenyiDivergence", lambda order: order / 8, RenyiDP(4.0, 0.5)),
    ],
)
def test_every_measure_is_read_as_what_a_filter_takes(measure, loss, query):
    found = opendp.query_of(Measurement(measure, lambda d: loss), 1, order=4.0)
    assert repr(found) == repr(query)


def test_a_ledger_and_a_filter_are_charged_until_the_budget_is_spent(tmp_path):
    with Ledger(tmp_path / "team.db", filters.pure_dp(1.0), create=True) as book:
        entries = [opendp.charge(book, PURE, 2, label="count") for _ in range(3)]
        assert [bool(entry) for entry in entries] == [True, True, False]
        assert entries[0].label == "count"
    budget, state, answers = filters.pure_dp(1.0), None, []
    for _ in range(3):
        admitted, state = opendp.charge(budget, PURE, 2, state=state)
        answers.append(bool(admitted))
    assert answers == [True, True, False]


def test_a_renyi_filter_reads_the_curve_at_its_order():
    budget = filters.renyi(8.0, 1e-5, order=4.0)
    admitted, _ = opendp.charge(budget, Measurement("RenyiDivergence", lambda d: lambda order: order * d / 8), 1)
    assert bool(admitted)


@pytest.mark.parametrize(
    ("measure", "loss", "words"),
    [
        ("SmoothedMaxDivergence", lambda epsilon: 1e-6, "make_fix_delta"),
        ("MaxDivergence", float("nan"), "loss must be"),
        ("MaxDivergence", -1.0, "loss must be"),
        ("Approximate(MaxDivergence)", 0.5, "a pair with delta"),
        ("RenyiDivergence", lambda order: order, "order must be given"),
    ],
)
def test_what_no_filter_adds_up_is_refused_by_name(measure, loss, words):
    with pytest.raises(ValueError, match=words):
        opendp.charge(filters.pure_dp(1.0), Measurement(measure, lambda d: loss), 1)
