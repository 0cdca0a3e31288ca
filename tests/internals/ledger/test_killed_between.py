"""Processes that are killed while they race for one budget; at full size: python -m verification.races."""

import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger import ledger as _ledger
from jaxacct.ledger.stores import base as _store


def test_a_process_that_dies_between_charge_and_answer_stays_charged(tmp_path, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    place = tmp_path / "budget.db"
    with Ledger(place, filters.pure_dp(1.0), create=True) as ledger, monkeypatch.context() as patch:
        patch.setattr(_ledger, "Entry", die)  # committed, and not yet told
        with pytest.raises(KeyboardInterrupt):
            ledger.request(0.75, "lost")
    again = Ledger(place)
    (entry,) = again.outstanding()
    assert (entry.label, entry.admitted) == ("lost", True)
    assert not again.request(0.5)
    assert again.verify().admitted == 1


def test_a_process_that_dies_before_the_commit_charges_nothing(tmp_path, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    place = tmp_path / "budget.db"
    with Ledger(place, filters.pure_dp(1.0), create=True) as ledger:
        append = _store.append
        with monkeypatch.context() as patch:
            patch.setattr(_store, "append", lambda *given: (append(*given), die()))  # written, and not yet committed
            with pytest.raises(KeyboardInterrupt):
                ledger.request(0.75)
        assert Ledger(place).spent() == 0
        assert ledger.request(0.75)
    assert Ledger(place).verify().admitted == 1
