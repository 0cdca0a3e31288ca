"""Journals and checkpoints: damage is refused and left alone; a resumed run has new keys and the old budget."""

import contextlib
import dataclasses
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import filters
from jaxacct.training import Journal, attempt_keys, durable_run, fit, init_state, make_step, seeded_keys, step_keys
from jaxacct.training.schedules import adaptive, constant
from tests.training.small import DATA, PARAMS, SGD, bits, loss

FILTER = filters.gdp(np.sqrt(30.5) / 2)  # room for thirty steps at sigma 2
SCHEDULE = constant(2.0, 1.0, 40)
STEP = make_step(loss, SGD, FILTER, SCHEDULE, clip_norm=1.0, physical_batch=20)


def fresh(params=PARAMS, filter=FILTER, schedule=SCHEDULE):
    return init_state(params, SGD, filter, schedule, seeded_keys(0))


def opened(folder, **options):
    options = {"resume": True, "every": 4, "keys": lambda attempt: attempt_keys(seeded_keys(5), attempt)} | options
    return durable_run(
        folder, options.pop("step", STEP), options.pop("state", fresh()), options.pop("filter", FILTER), **options
    )


def advance(run, state, steps):
    for _ in range(steps):
        state, report = run.step(state, DATA)
    return state, report


def watched(watch):
    """The step, with a look at the state before each release."""
    return dataclasses.replace(STEP, take=lambda state, *rest: (watch(state), STEP.take(state, *rest))[1])


def test_a_killed_run_resumes_with_the_checkpoints_parameters_and_the_journals_budget(tmp_path):
    with opened(tmp_path, resume=False) as run:
        state, _ = advance(run, run.state, 10)
        first_keys = run.state.keys
    # Nothing was saved after step 8: as if killed here.
    with opened(tmp_path) as run:
        assert (run.attempt, int(run.state.step)) == (1, 8)
        assert [record.step for record in run.records if record.lost] == [9, 10]
        assert len(run.records) == 10
        assert bits(run.state.filter_state) == bits(state.filter_state)
        assert bits(run.state.params) != bits(state.params)
        assert not np.array_equal(jax.random.key_data(run.state.keys.noise), jax.random.key_data(first_keys.noise))
        # Steps 9 and 10 run again, on other noise and at the budget's expense.
        again, _ = advance(run, run.state, 2)
        assert bits(again.params) != bits(state.params)
        assert float(FILTER.fraction(again.filter_state)) == pytest.approx(12 / 30.5)
        outcome = fit(run.step, again, DATA, steps=40, evaluate=lambda params: 0.5)
        assert outcome.stopped == "budget spent"
        assert int(outcome.state.step) == 28
        run.save(outcome.state)
    with opened(tmp_path) as run:
        assert (run.attempt, int(run.state.step), len(run.records)) == (2, 28, 30)
        assert bits(run.state.params) == bits(outcome.state.params)
        state, report = run.step(run.state, DATA)
        assert not bool(report.admitted)


def test_no_key_and_nothing_of_one_is_on_the_disk(tmp_path):
    with opened(tmp_path) as run:
        state, _ = advance(run, run.state, 2)
        run.save(state)
        words = [np.asarray(jax.random.key_data(key)) for key in state.keys]
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    for word in words:
        assert word.tobytes() not in written
        assert word.tobytes().hex().encode() not in written


@pytest.mark.parametrize(
    ("good", "keys"),
    [(1, lambda attempt: seeded_keys(5)), (2, lambda attempt: attempt_keys(seeded_keys(5), min(attempt, 1)))],
)
def test_a_resumed_run_refuses_the_roots_of_an_earlier_attempt(tmp_path, good, keys):
    for _ in range(good):
        with opened(tmp_path, keys=keys) as run:
            advance(run, run.state, 1)
    with pytest.raises(ValueError, match="keys must return other roots"), opened(tmp_path, keys=keys):
        pass
    with opened(tmp_path) as run:  # other roots go on
        advance(run, run.state, 1)


def test_attempts_steps_and_streams_all_have_keys_of_their_own():
    attempts = [attempt_keys(seeded_keys(3), attempt) for attempt in range(20)]
    held = [key for keys in attempts for key in (*keys, *(k for step in range(20) for k in step_keys(keys, step)[:2]))]
    assert len({tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in held}) == 20 * 2 * 21


def test_a_state_of_an_earlier_step_is_refused_because_its_keys_were_used(tmp_path):
    with opened(tmp_path) as run:
        old = run.state
        advance(run, old, 2)
        with pytest.raises(ValueError, match="keys serve one step once"):
            run.step(old, DATA)


def test_charges_are_on_the_disk_before_the_release_and_several_at_once_where_asked(tmp_path):
    seen = []
    watching = watched(lambda state: seen.append((tmp_path / "journal").read_text().count('"kind":"charge"')))
    with opened(tmp_path, step=watching, ahead=3) as run:
        advance(run, run.state, 7)
    assert seen == [3, 3, 3, 6, 6, 6, 9]
    with opened(tmp_path) as run:  # steps 8 and 9 were paid for and never ran
        assert [record.step for record in run.records if record.lost] == [5, 6, 7, 8, 9]
        assert float(FILTER.fraction(run.state.filter_state)) == pytest.approx(9 / 30.5)


def test_a_journal_that_cannot_be_written_releases_nothing_then_or_later(tmp_path, monkeypatch):
    taken = []
    with opened(tmp_path, step=watched(lambda state: taken.append(int(state.step)))) as run:
        state, _ = advance(run, run.state, 1)
        monkeypatch.setattr("os.fsync", _no_disk)
        with pytest.raises(OSError, match="full"):
            run.step(state, DATA)
        monkeypatch.undo()
        with pytest.raises(OSError, match="open it anew"):
            run.step(state, DATA)
    assert taken == [0]


def _no_disk(file):
    raise OSError(28, "disk full")


def written(folder):
    with opened(folder) as run:
        state, _ = advance(run, run.state, 6)
        run.save(state)
    return (folder / "journal").read_bytes()


ACKNOWLEDGED = [{"kind": "charge", "step": step, "state": "0123"} for step in range(4)]


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Of a journal whose syncs take no time: no power is cut here."""
    monkeypatch.setattr("os.fsync", lambda file: None)
    return tmp_path / "journal"


def charged(path):
    """A journal of four charges that reached the disk and half a line; how long it is without the half line."""
    with contextlib.closing(Journal(path)) as journal:
        for record in ACKNOWLEDGED:
            journal.append(record)
            journal.sync()
        whole = path.stat().st_size
        journal.append({"kind": "charge", "step": 4, "state": "0123"})
    path.write_bytes(path.read_bytes()[:-20])
    return whole


def begins(raw):
    """Where a journal's records begin, behind two lines that count them."""
    return raw.index(b"\n", raw.index(b"\n") + 1) + 1


def held(path):
    """What a journal holds; None for one that is refused, and then its file is as it was."""
    before = path.read_bytes()
    try:
        with contextlib.closing(Journal(path)) as journal:
            return journal.records
    except ValueError as problem:
        assert "is damaged" in str(problem)  # noqa: PT017
        assert path.read_bytes() == before
        return None


def test_no_truncation_takes_back_a_charge_that_reached_the_disk(path):
    whole = charged(path)
    raw = path.read_bytes()
    with contextlib.closing(Journal(path)) as journal:  # the half of a line is cut off, and what follows is kept
        assert journal.torn > 20
        assert path.stat().st_size == whole
        journal.append({"kind": "x"})
        journal.sync()
    assert held(path) == [*ACKNOWLEDGED, {"kind": "x"}]
    for length in range(len(raw) + 1):
        path.write_bytes(raw[:length])
        assert held(path) == (None if length < whole else ACKNOWLEDGED), length


def test_no_wrong_byte_takes_back_a_charge_that_reached_the_disk(path):
    """Also in the line's end, in the count at the beginning, and in the line that was half written."""
    whole = charged(path)
    raw = path.read_bytes()
    first = begins(raw)
    for place in range(len(raw)):
        for byte in {raw[place] ^ 1, raw[place] ^ 128, ord("\n")} - {raw[place]}:
            path.write_bytes(raw[:place] + bytes([byte]) + raw[place + 1 :])
            # In the count, and in what was half written, a byte may be wrong without a record being so.
            assert held(path) in ([None] if first <= place < whole else [None, ACKNOWLEDGED]), (place, byte)


def test_records_of_another_journal_under_the_counts_of_this_one_are_damage(tmp_path):
    paths = [tmp_path / name for name in ("one", "other")]
    for path in paths:
        with contextlib.closing(Journal(path)) as journal:
            journal.append({"kind": "charge", "step": 0, "state": path.name})
            journal.sync()
    one, other = (path.read_bytes() for path in paths)
    paths[0].write_bytes(one[: begins(one)] + other[begins(other) :])
    assert held(paths[0]) is None


@pytest.mark.parametrize("together", [1, 2, 3])
def test_a_count_that_a_power_cut_tore_leaves_the_one_of_the_sync_before(path, together):
    """However many records each sync brings: a run's step brings two, a charge and what became of it."""
    syncs = 5
    with contextlib.closing(Journal(path)) as journal:
        for step in range(syncs):
            before = path.read_bytes()
            for part in range(together):
                journal.append({"kind": "charge", "step": step, "part": part})
            journal.sync()
    raw = path.read_bytes()
    begin = begins(raw)
    (torn,) = {place * 2 // begin for place in range(begin) if raw[place] != before[place]}  # the slot written last
    place = torn * begin // 2 + 30
    torn_raw = raw[:place] + b"\0" + raw[place + 1 :]
    kept = (syncs - 1) * together
    ends = [begin + at + 1 for at, byte in enumerate(raw[begin:]) if byte == ord("\n")]
    for number, end in enumerate(ends, 1):
        path.write_bytes(torn_raw[:end])
        found = held(path)
        assert found is None if number < kept else len(found) == number, number


@pytest.mark.parametrize("byte", [b"x", b" ", b"\0", b"\x8a"])
def test_a_whole_record_with_a_wrong_byte_for_its_end_is_damage_even_where_it_was_not_counted(path, byte):
    with contextlib.closing(Journal(path)) as journal:
        journal.append({"kind": "x"})  # as after a power cut that came before the count
    raw = path.read_bytes()
    path.write_bytes(raw[:-1])
    assert held(path) == [{"kind": "x"}]
    path.write_bytes(raw[:-1] + byte)
    assert held(path) is None


@pytest.mark.parametrize("how", ["moved", "removed", "exchanged"])
def test_a_journal_that_others_no_longer_find_takes_no_charge(tmp_path, how):
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.append({"kind": "x"})
    journal.sync()
    path.rename(tmp_path / "elsewhere") if how != "removed" else path.unlink()
    if how == "exchanged":
        path.write_bytes(b"")
    journal.append({"kind": "y"})
    with pytest.raises(OSError, match="journal"):
        journal.sync()
    with pytest.raises(OSError, match="open it anew"):
        journal.append({"kind": "z"})
    journal.close()


def test_a_fork_may_not_spend_from_its_parent_s_journal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = Journal(Path("journal"))
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        for use in (lambda: journal.append({"kind": "x"}), journal.sync):
            with pytest.raises(OSError, match="is a fork of it"):
                use()
    monkeypatch.chdir("/")
    journal.append({"kind": "x"})
    journal.sync()
    journal.close()
    assert held(tmp_path / "journal") == [{"kind": "x"}]


def test_a_run_is_not_resumed_from_a_journal_with_other_or_fewer_charges_than_were_written(tmp_path):
    path = tmp_path / "journal"
    with opened(tmp_path):
        pass
    older, whole = path.read_bytes(), written(tmp_path)
    edited, cut = whole.replace(b'"sigma":2.0', b'"sigma":9.0', 1), whole[:-10]
    for broken, message in ((edited, "is damaged at"), (cut, "is damaged at"), (older, "is behind check")):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=message), opened(tmp_path):
            pass
        assert path.read_bytes() == broken
    path.unlink()
    with pytest.raises(ValueError, match="no journal"), opened(tmp_path):
        pass
    assert not path.exists()
    path.write_bytes(whole)  # the copy put back: all is well
    with opened(tmp_path) as run:
        assert len(run.records) == 6


def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_serves(tmp_path):
    written(tmp_path)
    newest, unknown = (tmp_path / "checkpoints" / name for name in ("6.npz", "7.npz"))
    sound = newest.read_bytes()
    edited = sound.replace(b'"seal"', b'"sea1"', 1)
    # A kill may come before the journal says which file it is: archives have sums of their own.
    damaged = [sound[: len(sound) // 2], edited]
    with np.load(newest) as kept:
        notes, *leaves = (kept[f"arr_{i}"] for i in range(len(kept.files)))
    others = []
    for arrays in (leaves[1:], [np.tile(leaf, 2) for leaf in leaves]):
        np.savez(unknown, np.frombuffer(notes.tobytes().replace(b'"step": 6', b'"step": 7'), np.uint8), *arrays)
        others.append(unknown.read_bytes())
    unknown.unlink()
    cases = [(newest, damaged, "is damaged"), (unknown, damaged, "cannot be read"), (unknown, [sound], "is that of")]
    cases.append((unknown, others, "is damaged, its arrays"))
    for path, contents, message in cases:
        for broken in contents:
            path.write_bytes(broken)
            with pytest.raises(ValueError, match=f"checkpoint {path.stem} in .* {message}"), opened(tmp_path):
                pass
        path.unlink()
    with opened(tmp_path) as run:
        assert int(run.state.step) == 4
        assert float(FILTER.fraction(run.state.filter_state)) == pytest.approx(6 / 30.5)


def test_what_does_not_belong_together_is_refused(tmp_path):
    written(tmp_path)
    cases = [
        ({"resume": False}, "holds a run: resume it"),
        ({"filter": filters.gdp(9.0)}, "its budget cannot change"),
        ({"state": fresh(PARAMS | {"w": jnp.zeros(4)})}, "another network, optimizer or schedule"),
        ({"state": fresh(filter=filters.gdp(2.0))}, "state must be one of this filter"),
        ({"every": 0}, "every must be"),
        ({"ahead": 2, "step": dataclasses.replace(STEP, adaptive=True)}, "ahead must be 1"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message), opened(tmp_path, **options):
            pass
    with opened(tmp_path), pytest.raises(ValueError, match="in use by another process"), opened(tmp_path):
        pass


def test_settings_must_stay_and_the_history_comes_back(tmp_path):
    schedule = adaptive(2.0, 1.0, 30)
    step = make_step(loss, SGD, FILTER, schedule, clip_norm=1.0, physical_batch=20)
    options = {"step": step, "state": fresh(schedule=schedule), "settings": {"delta": 1e-5}}
    with opened(tmp_path, **options) as run:
        state, first = run.step(run.state, DATA)
        state, _ = run.step(state.with_accuracy(0.25), DATA)
        run.save(state)
    with opened(tmp_path, **options) as run:
        assert run.evaluations == [(1, 0.25)]
        assert run.records[0].gradient_norm == float(first.gradient_norm)
        assert int(run.state.released.evaluations) == 1
        settings = json.loads((tmp_path / "journal").read_text().splitlines()[2])["record"]["settings"]
        assert settings["epsilon"] == float(FILTER.guarantee.epsilon(1e-5))
        assert (settings["delta"], settings["relation"], settings["filter"]) == (1e-5, "add_or_remove", repr(FILTER))
    with (
        pytest.raises(ValueError, match="delta must stay 1e-05"),
        opened(tmp_path, **options | {"settings": {"delta": 1e-3}}),
    ):
        pass
