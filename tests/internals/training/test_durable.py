"""Journals and checkpoints: damage is refused and left alone; a resumed run has new keys and the old budget."""

import pytest

from jaxacct.training import Journal
from jaxacct.training.durable_runs import records as _records

pytest.importorskip("orbax.checkpoint", reason="durable runs need orbax-checkpoint")


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "attempt"},
        {"kind": "done", "step": 7},
        {"kind": "run", "filter": "x", "settings": {}, "account": []},
        {"kind": "unheard of"},
        [],
    ],
)  # fmt: skip
def test_a_journal_of_sound_seals_that_is_none_of_a_run_is_named(tmp_path, record):
    journal = Journal(tmp_path / "journal")
    journal.append({"kind": "run", "filter": "x", "settings": {}, "account": []})
    journal.append(record)
    journal.sync()
    journal.close()
    journal = Journal(tmp_path / "journal")
    with pytest.raises(ValueError, match="line 2: not a valid run record"):
        _records.check(journal)
    journal.close()
