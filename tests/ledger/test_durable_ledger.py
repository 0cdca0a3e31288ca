"""What a ledger promises when nothing goes wrong."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Composed, Gaussian, Laplace, Ledger, PoissonSampled, ZeroConcentratedDP, epsilon, filters
from jaxacct.ledger.errors import LedgerMismatch
from tests.contract import filter_cases as cases
from tests.refusals import all_refused


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


NO_QUERIES = (
    None, True, "0.1", object(), {"a": 1}, Gaussian, 2**70, jnp.zeros(3), np.array("x"), np.ma.masked,
    np.ma.array(0.1, mask=True),
)  # fmt: skip


def test_queries_that_are_none_raise_and_leave_no_trace_and_costs_that_are_none_are_refused_and_kept(path):
    ledger = Ledger(path, filters.pure_dp(1.0), create=True)
    head = ledger.head
    all_refused(
        *(("query must", lambda bad=bad: ledger.request(bad)) for bad in NO_QUERIES),
        ("query must be concrete", lambda: jax.jit(ledger.request)(0.1)),
        ("query must be asked for outside jit", lambda: jax.jit(lambda: ledger.request(0.1))()),
    )
    assert ledger.head == head
    assert not any(ledger.request(bad) for bad in (math.nan, -1.0, math.inf, -math.inf))
    assert ledger.spent() == 0
    assert ledger.verify().refused == 4


def test_labels_and_arguments_that_are_none_raise(path):
    ledger = Ledger(path, filters.pure_dp(1.0), create=True)
    make = lambda place=path, **given: Ledger(place, filters.pure_dp(1.0), **given)  # noqa: E731
    labels, durations = (None, 1, b"x", "a\x00b", "\ud800", "x" * 10_001), (math.nan, -1, "1", None, math.inf)
    all_refused(
        *(("label must", lambda bad=bad: ledger.request(0.1, bad)) for bad in labels),
        *(("timeout must", lambda bad=bad: make(timeout=bad)) for bad in durations),
        *(("create must", lambda bad=bad: make(create=bad)) for bad in (None, 1, "yes")),
        ("format must", lambda: ledger.export("pickle")),
    )
    assert ledger.request(0.1, "größer als ∞; DROP TABLE jaxacct_records; -- \n🙂")
    assert ledger.history()[0].label.endswith("🙂")
    pytest.importorskip("sqlalchemy", reason="the extra jaxacct[ledger] is not installed")
    places = (None, 1, b"x", "", ":memory:", "a\x00", "sqlite:///x.db", "mysql://x/y", "http://x", "://")
    all_refused(*(("path_or_url must", lambda bad=bad: make(bad, create=True)) for bad in places))


RESIDUE = filters.residue(cases.response, cases.honest, 40.0, rounds=3, grid=cases.GRID)
EACH = [filters.per_example(one, examples=3) for one in (filters.pure_dp(1.0), filters.approximate_gdp(1.0))]
NO_FILTERS = (1.0, "gdp", Gaussian(1.0), filters.gdp, object(), filters.gdp(np.ones(3)), filters.zcdp(np.ones((1, 1))))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        *((bad, "filter must") for bad in NO_FILTERS),
        *((bad, "filter must have one budget, charged without a look at the data") for bad in EACH),
        (RESIDUE, r"write down.*make the ledger for filters\."),
    ],
    ids=lambda bad: type(bad).__name__,
)
def test_filters_that_are_none_many_private_or_no_file_s_raise(path, bad, words):
    with pytest.raises(ValueError, match=words):
        Ledger(path, bad, create=True)
    assert not path.exists()


def test_numbers_count_bit_for_bit_whatever_the_program_s_settings(path):
    ledger = Ledger(path, filters.gdp(1.0), create=True)
    query = PoissonSampled(Gaussian(np.float32(3.1), 0.1 + 0.2), 1)
    ledger.request(query)
    with jax.enable_x64(True):
        ledger.request(query)
        assert Ledger(path).verify().admitted == 2  # decides every request again, bit for bit
    with jax.disable_jit(), jax.numpy_dtype_promotion("strict"), jax.default_device(jax.devices("cpu")[0]):
        assert ledger.verify().admitted == 2
    kept = ledger.history()[0].query
    assert kept.mechanism.sigma.dtype == np.float32
    assert kept.mechanism.sensitivity == 0.1 + 0.2
    # The filter outside, played by hand, is in the same state.
    plain = filters.gdp(1.0)
    now = plain.init()
    for _ in range(2):
        _, now = plain.update(query, now)
    assert float(plain.spent(now)) == pytest.approx(float(ledger.spent()), rel=1e-7)


def test_events_are_those_of_the_admitted_requests(path):
    dp_accounting = pytest.importorskip("dp_accounting", reason="dp_accounting is not installed")
    ledger = Ledger(path, filters.gdp(1.0), create=True)
    ledger.request(Gaussian(2.0))
    ledger.request(Gaussian(0.1))
    ledger.request(0.5)
    event = ledger.export("dp_events")
    assert isinstance(event, dp_accounting.ComposedDpEvent)
    assert len(event.events) == 2


def test_a_step_that_would_have_to_be_clipped_is_refused(path):
    ledger = Ledger(path, filters.approximate_gdp(1e-3), create=True)
    step = PoissonSampled(Gaussian(1.0), 0.02)  # costs 0.02^2 (e - 1) / 2 = 3.4e-4
    assert [bool(ledger.request(step)) for _ in range(4)] == [True, True, False, False]
    assert ledger.verify().admitted == 2


def test_the_reading_of_a_charge_is_of_that_moment_and_the_delta_is_the_ledger_s(tmp_path):
    ledger = Ledger(tmp_path / "team.db", filters.zcdp(0.1), delta=1e-6, create=True)
    first = ledger.request(ZeroConcentratedDP(0.04))
    ledger.request(ZeroConcentratedDP(0.04))
    reading = first.reading()
    assert reading.spent.parameter["rho"] == pytest.approx(0.04)
    assert reading.cost.epsilon == pytest.approx(float(filters.zcdp(0.04).guarantee.epsilon(1e-6)))
    assert ledger.reading().left.parameter["rho"] == pytest.approx(0.02)
    refused = ledger.request(ZeroConcentratedDP(0.04)).reading()
    (other,) = refused.alternatives
    assert other.rho == pytest.approx(0.02, rel=1e-3)
    assert refused.epsilon == float(ledger.guarantee.epsilon(1e-6))
    with pytest.raises(LedgerMismatch, match="delta must be"):
        Ledger(tmp_path / "team.db", delta=1e-5)
    assert ledger.request(other)


def test_a_request_at_a_price_is_quoted_with_the_epsilon_that_it_has_by_itself(tmp_path):
    query = PoissonSampled(Gaussian(2.0), 0.1)
    ledger = Ledger(tmp_path / "menu.db", filters.menu([query], epsilon=1.0, delta=1e-5), delta=1e-5, create=True)
    reading = ledger.request(query).reading()
    assert reading.cost.epsilon == pytest.approx(float(epsilon(query, 1e-5).upper), rel=1e-9)
    assert reading.spent.epsilon is reading.left.epsilon is None
    assert reading.epsilon == pytest.approx(1.0, abs=0.05)
    assert "no part of this budget has an epsilon of its own" in str(reading)
    assert "(epsilon " in str(reading)


def test_a_box_is_a_ledger_s_filter_with_the_same_answers_and_no_online_prices(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path / "tables"))
    box = filters.sampled_gaussian(sigma=(2.0, 2.5), rate=0.1, epsilon=1.0, delta=1e-5, extra=[Laplace(20.0)])
    with Ledger(tmp_path / "box.db", box, create=True) as ledger:
        assert repr(ledger.filter) == repr(box)
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path / "nothing here"))
    ledger, state = Ledger(tmp_path / "box.db"), box.init()
    queries = [PoissonSampled(Gaussian(2.2), 0.1), 0, Composed([PoissonSampled(Gaussian(2.5), 0.1)], [6])]
    while ledger.request(queries[-1]):
        for query in queries[:2]:
            ledger.request(query)
    with jax.enable_x64(True):
        for entry in ledger.history():
            admitted, state = box.update(entry.query, state)
            assert admitted == entry.admitted
    assert int(ledger.spent()) == int(state.spent) > 0.5 * int(box.budget)
    assert ledger.verify().admitted > 3
    assert float(ledger.guarantee.epsilon(1e-5)) == float(box.guarantee.epsilon(1e-5)) <= 1.0
    spent = ledger.spent()
    assert "costs more than" in ledger.request(queries[-1]).reading().refusal
    louder = ledger.request(PoissonSampled(Gaussian(1.9), 0.1))
    assert not louder.admitted
    assert "noise 1.9 is below the least, 2" in louder.reading().refusal
    assert louder.reading().alternatives == () or louder.reading().alternatives[0].mechanism.sigma >= 2.0
    with pytest.raises(ValueError, match="extra="):
        ledger.request(Laplace(20.0))
    assert ledger.spent() == spent
