"""What every store of a ledger keeps: add one to tests/ledger/stores.py and these run on it."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from jaxacct import Composed, Gaussian, Ledger, filters
from jaxacct.ledger import errors
from jaxacct.ledger.errors import LedgerCorrupted, LedgerError, LedgerMissing, LedgerTampered

LABEL = "first; :name %s größer ∞ 🙂"


def test_a_ledger_is_made_only_where_it_should_be_and_keeps_its_filter(store):
    for given in ({}, {"filter": filters.gdp(1.0)}, {"filter": filters.gdp(1.0), "create": False}):
        with pytest.raises(LedgerMissing, match=r"holds no ledger.*`create` makes it"):
            Ledger(store.place, **given)
    with pytest.raises(ValueError, match="filter must be given to create a ledger"):
        Ledger(store.place, create=True)
    made = Ledger(store.place, filters.zcdp(0.5), create=True)
    with pytest.raises(LedgerError, match="there already"):
        Ledger(store.place, filters.zcdp(0.5), create=True)
    assert Ledger(store.place, filters.zcdp(0.5), create=False).head == made.head
    for other in (filters.zcdp(0.5 + 2**-50), filters.gdp(1.0), filters.pure_dp(1.0)):
        with pytest.raises(errors.LedgerMismatch, match="filter must be the one"):
            Ledger(store.place, other)


def test_it_charges_refuses_and_keeps_everything_that_was_asked(store):
    ledger = Ledger(store.place, filters.gdp(1.0), create=True)
    assert ledger.request(Gaussian(2.0), LABEL)
    assert not ledger.request(Gaussian(0.5), "too dear")
    assert not ledger.request(math.nan)  # kept, as what is too dear
    assert ledger.request(Composed([Gaussian(4.0)], [2]), "twice")
    history = ledger.history()
    assert [entry.admitted for entry in history] == [True, False, False, True]
    assert [entry.label for entry in history] == [LABEL, "too dear", "", "twice"]
    assert (history[0].query.sigma, history[3].query.steps) == (2.0, (2,))
    assert [entry.at for entry in history] == sorted(entry.at for entry in history)
    assert ledger.verify().set_back == ()
    mu = math.sqrt(0.25 + 2 / 16)
    assert mu <= ledger.spent() <= mu * (1 + 1e-12)
    assert ledger.remaining() == pytest.approx(math.sqrt(1 - mu**2), rel=1e-12)
    assert ledger.fraction() == pytest.approx(mu**2, rel=1e-12)
    assert np.asarray(ledger.guarantee.mu) >= 1.0
    again = Ledger(store.place)
    assert repr(again.filter).startswith("gdp(")
    assert (again.spent(), again.head, again.export()) == (ledger.spent(), ledger.head, ledger.export())
    ledger.close()
    both = [again.request(Gaussian(1.5)), ledger.request(Gaussian(1.5))]  # a closed one opens again
    assert [entry.admitted for entry in both] == [True, False]
    assert (again.verify().requests, ledger.verify().admitted) == (6, 3)


def test_releases_are_written_down_once_and_a_charge_stands_without_them(store):
    ledger = Ledger(store.place, filters.pure_dp(1.0), create=True)
    one, two, refused = (ledger.request(x) for x in (0.4, 0.5, 0.3))
    assert [e.id for e in ledger.outstanding()] == [one.id, two.id]
    ledger.released(one.id)
    assert [e.id for e in ledger.outstanding()] == [two.id]
    assert ledger.history()[0].released is not None
    spent = ledger.spent()
    for wrong in (one.id, refused.id, 0, -1, 99, 4, 1.0, True, "1", None, math.nan):
        with pytest.raises(ValueError, match="id must be"):
            ledger.released(wrong)
    ledger.released(np.int64(two.id))
    assert ledger.spent() == spent
    report = ledger.verify()
    assert (report.requests, report.admitted, report.refused, report.released) == (3, 2, 1, 2)


def test_verify_takes_every_head_it_gave_and_no_other(store):
    ledger = Ledger(store.place, filters.pure_dp(1.0), create=True)
    heads = [ledger.verify().head]
    for cost in (0.1, 0.2, 5.0):
        entry = ledger.request(cost)
        assert ledger.head == entry.head
        heads.append(entry.head)
    for head in heads:
        assert ledger.verify(head).head == heads[-1]
    other = heads[1][:-1] + ("0" if heads[1][-1] != "0" else "1")
    with pytest.raises(LedgerTampered, match="record 1 is not the one that the head names"):
        ledger.verify(other)
    with pytest.raises(LedgerTampered, match="ends at record 3, and the head names record 4"):
        ledger.verify(heads[-1].replace("3:", "4:"))
    for wrong in ("", "1", 1, b"1:", "1:" + "g" * 64, heads[0] + "0", "-1:" + "0" * 64):
        with pytest.raises(ValueError, match="head must be"):
            ledger.verify(wrong)


def test_its_tables_are_append_only_and_who_gets_past_that_is_found(store):
    ledger = Ledger(store.place, filters.pure_dp(1.0), create=True)
    ledger.request(0.25)
    ledger.request(5.0, "too dear")
    head = ledger.verify().head
    for statement in ("UPDATE jaxacct_records SET body = ''", "DELETE FROM jaxacct_records"):
        with pytest.raises(store.refused, match="append-only"):
            store.run(statement)
    with store.unguarded():
        store.run("UPDATE jaxacct_records SET body = replace(body, 'too dear', 'too cheap') WHERE seq = 2")
        with pytest.raises(LedgerTampered):
            Ledger(store.place).verify()  # the guards are missing
    with pytest.raises(LedgerTampered, match="record 2"):
        Ledger(store.place).verify(head)


def test_a_store_that_was_set_back_is_found_by_whoever_was_there(store):
    """A copy of an earlier day, or a standby that had not seen the last charges."""
    ledger = Ledger(store.place, filters.pure_dp(1.0), create=True)
    assert ledger.request(0.25)
    store.run("CREATE TABLE kept AS SELECT * FROM jaxacct_head")
    assert ledger.request(0.5)
    head = ledger.head
    with store.unguarded():
        store.run("DELETE FROM jaxacct_records WHERE seq = 2")
        store.run("DELETE FROM jaxacct_head", "INSERT INTO jaxacct_head SELECT * FROM kept")
    with pytest.raises(LedgerTampered, match="no longer holds record 2"):
        ledger.request(0.5)
    assert Ledger(store.place).verify().admitted == 1  # nobody else can tell without a head
    with pytest.raises(LedgerTampered, match="ends at record 1, and the head names record 2"):
        Ledger(store.place).verify(head)


def test_a_trigger_or_rule_that_takes_charges_back_admits_nothing(store):
    ledger = Ledger(store.place, filters.pure_dp(1.0), create=True)
    store.takes_charges_back()
    with pytest.raises(LedgerTampered, match="did not keep record 1 as it was written"):
        ledger.request(0.5)
    assert not Ledger(store.place).history()


def test_a_lock_is_waited_for_and_then_given_up(store):
    ledger = Ledger(store.place, filters.pure_dp(1.0), timeout=0.3, create=True)
    ledger.request(0.25)
    with store.locked() as let_go:
        assert ledger.spent() == pytest.approx(0.25)  # readers go on
        with pytest.raises(errors.LedgerBusy):
            ledger.request(0.25)
        patient = Ledger(store.place, timeout=60.0)
        threading.Timer(0.3, let_go).start()
        assert patient.request(0.25)
    assert ledger.verify().admitted == 2


def test_a_newer_schema_is_refused_and_a_head_that_is_gone_is_named(store):
    ledger = Ledger(store.place, filters.pure_dp(1.0), create=True)
    ledger.request(0.25)
    store.run("UPDATE jaxacct_schema SET version = 4")
    for use in (lambda: Ledger(store.place), lambda: ledger.request(0.1), lambda: ledger.released(1), ledger.verify):
        with pytest.raises(errors.LedgerTooNew, match=r"has schema 4.*install a newer"):
            use()
    store.run("UPDATE jaxacct_schema SET version = 3")
    assert ledger.verify().admitted == 1
    store.run("DROP TABLE jaxacct_head")
    with pytest.raises(LedgerCorrupted):
        Ledger(store.place)


@pytest.mark.parametrize("shared", [False, True], ids=["objects of their own", "one object"])
def test_threads_race_for_the_last_of_a_budget(store, shared):
    """Four threads ask for forty parts of a budget of twenty."""
    one, answers, faults = Ledger(store.place, filters.pure_dp(20.0), create=True), [], []

    def ask():
        try:
            ledger = one if shared else Ledger(store.place)
            for _ in range(10):
                ledger.spent()
                answers.append(ledger.request(1.0))
        except BaseException as problem:
            faults.append(problem)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert (sum(map(bool, answers)), len(answers)) == (20, 40)
    assert Ledger(store.place).verify().admitted == 20
