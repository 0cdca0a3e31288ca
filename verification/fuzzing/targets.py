"""What is fuzzed: for each format a function of bytes, seeds, and the errors it may raise."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import pathlib
import re
import tempfile

import atheris
import click
from dp_accounting import dp_event

with atheris.instrument_imports(include=["jaxacct.ledger", "jaxacct.training", "jaxacct.filters.prices.kept",
                                         "jaxacct.cli", "jaxacct.interop"]):  # fmt: skip
    import numpy as np

    from jaxacct import Gaussian, Ledger, PoissonSampled, filters
    from jaxacct.cli import run_options as _runs
    from jaxacct.cli import values as _values
    from jaxacct.filters.prices import kept as _table_cache
    from jaxacct.interop import UnreadableEvent, from_dp_event
    from jaxacct.ledger import canonical, records
    from jaxacct.ledger.errors import LedgerCorrupted, LedgerError
    from jaxacct.ledger.policy import Policy
    from jaxacct.training.demo import adult, data
    from jaxacct.training.durable_runs import checkpoints, journal
    from jaxacct.training.durable_runs import records as _records
    from jaxacct.training.durable_runs import run as durable

FOLDER = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None))


def patched(raw: bytes, patch: bytes) -> bytes:
    """``raw`` with bytes changed at places that ``patch`` names, four bytes each; an odd rest cuts the end off."""
    found = bytearray(raw)
    for at in range(0, len(patch) - 3, 4):
        found[int.from_bytes(patch[at : at + 3], "little") % len(found)] = patch[at + 3]
    return bytes(found[: len(found) - sum(patch[len(patch) // 4 * 4 :])])


def text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def json_text(raw: bytes) -> str:
    """Canonical JSON of what the bytes say, if they say any; else the text itself."""
    with contextlib.suppress(ValueError, RecursionError):
        return canonical.dumps(json.loads(raw))
    return text_of(raw)


def values():
    """Values in a ledger's records: bytes to a value and back to the same text."""
    queries = [Gaussian(1.5), PoissonSampled(Gaussian(np.float32(2.0)), 0.1), (1, None, "x"), np.arange(3.0), True]

    def one(raw: bytes) -> None:
        text = json_text(raw)
        try:
            value = canonical.decoded(canonical.loads(text))
        except LedgerCorrupted:
            return
        with contextlib.suppress(ValueError):  # what decodes may be longer than what is encoded
            again = canonical.dumps(canonical.encoded(value, "x"))
            assert canonical.dumps(canonical.encoded(canonical.decoded(canonical.loads(again)), "x")) == again

    return one, [canonical.dumps(canonical.encoded(query, "x")).encode() for query in queries], LedgerCorrupted


def record():
    """Records, filters and states behind a hash that agrees."""
    policy = Policy.of(filters.pure_dp(1.0))
    with Ledger(FOLDER / "record.db", filters.pure_dp(1.0), create=True) as ledger:
        ledger.request(0.5, "label")
        ledger.released(1)
        bodies = [canonical.dumps({k: v for k, v in one.items() if k != "hash"})
                  for one in json.loads(ledger.export())["records"]]  # fmt: skip
    states = [policy.start.text, canonical.dumps(policy.identity)]

    def one(raw: bytes) -> None:
        text = json_text(raw)
        with contextlib.suppress(LedgerError, UnicodeEncodeError):
            number = re.search(r'"seq":(\d{1,9})', text)
            found = records.parsed(int(number[1]) if number else 0, text, records.hash_of(text))
            assert canonical.dumps(found) == text
        with contextlib.suppress(LedgerError):
            policy.state(text)

    return one, [text.encode() for text in [*bodies, *states]], LedgerError


def ledger():
    """A ledger's SQLite file with bytes changed, or beside a journal or write-ahead log of the fuzzer's."""
    path, copy = FOLDER / "whole.db", FOLDER / "damaged.db"
    with Ledger(path, filters.pure_dp(1.0), create=True) as book:
        for cost in (0.25, 0.5, 0.75):
            book.request(cost, "a label")
        book.released(1)
        head, spent = book.verify().head, float(book.spent())
        told = [(entry.id, entry.label, entry.admitted) for entry in book.history()]
    whole = path.read_bytes()

    def one(raw: bytes) -> None:
        for end in ("", "-journal", "-wal", "-shm"):
            copy.with_name(copy.name + end).unlink(missing_ok=True)
        beside = {b"w": "-wal", b"j": "-journal"}.get(raw[:1])
        copy.write_bytes(whole if beside else patched(whole, raw))
        if beside:
            copy.with_name(copy.name + beside).write_bytes(raw[1:])
        with Ledger(copy, timeout=0.2) as book:
            assert book.verify(head).head == head
            assert [(entry.id, entry.label, entry.admitted) for entry in book.history()] == told
            assert float(book.spent()) == spent

    start = whole.index(b'{"at":').to_bytes(3, "little")
    return one, [b"\0\0\0\xff", b"\x14\0\0\1", start + b"x", b"w" + bytes.fromhex("377f0682002de218"),
                 b"j" + bytes.fromhex("d9d505f920a163d7")], LedgerError  # fmt: skip


def a_journal(name: str) -> tuple[pathlib.Path, list[dict]]:
    path = FOLDER / name
    book = journal.Journal(path)
    charge = {"kind": "charge", "attempt": 0, "step": 1, "sigma": 1.0, "rate": 0.1, "clip_scale": 1.0,
              "budget_left": 0.5, "filter_state": ["000000010000000000000000"]}  # fmt: skip
    held = [
        {"kind": "run", "filter": "f", "settings": {}},
        {"kind": "attempt", "attempt": 0, "from_step": 0, "time": "now"},
        charge,
        {"kind": "done", "step": 1, "gradient_norm": 0.5},
        {"kind": "accuracy", "step": 1, "value": None},
    ]
    for line in held:
        book.append(line)
    book.sync()
    book.close()
    return path, held


def journal_file():
    """A journal with bytes changed: a part of it from its beginning, or an error."""
    path, held = a_journal("journal")
    whole = path.read_bytes()

    def one(raw: bytes) -> None:
        path.write_bytes(patched(whole, raw[1:]) if raw[:1] == b"p" else raw)
        book = journal.Journal(path)
        book.close()
        assert book.records == held[: len(book.records)]

    return one, [whole, b"p\0\0\0\0", b"p\0", whole[:-1], b""], ValueError


def sealed_journal():
    """A journal of lines that the fuzzer made and somebody sealed."""
    path, held = a_journal("sealed")
    words = ["00" * 12]
    like = filters.pure_dp(1.0).init()

    def one(raw: bytes) -> None:
        seal, lines = "", [2 * journal._marked(journal.Mark(0, ""))]
        for line in raw.split(b"\n"):
            with contextlib.suppress(ValueError, RecursionError):
                sealed, seal = journal._sealed(json.loads(line), seal)
                lines.append(sealed + b"\n")
        path.write_bytes(b"".join(lines))
        book = journal.Journal(path)
        book.close()
        _records.check(path, book.records)
        _records.history(book.records)
        for entry in book.records:
            if entry["kind"] == "charge":
                durable.unpacked(entry["filter_state"], like)

    return one, ["\n".join(map(json.dumps, held)).encode(), json.dumps(words).encode()], ValueError


def table():
    """A table of prices in the cache: itself or None."""
    arrays = {"excess": np.linspace(1.0, 0.0, 64), "prices": np.arange(3)}
    _table_cache.directory = lambda: FOLDER
    _table_cache.store("key", arrays)
    whole = (FOLDER / "key.npz").read_bytes()

    def one(raw: bytes) -> None:
        (FOLDER / "key.npz").write_bytes(patched(whole, raw[1:]) if raw[:1] == b"p" else raw)
        found = _table_cache.load("key")
        if found is not None:
            for name, array in arrays.items():
                np.testing.assert_array_equal(found[name], array)

    return one, [whole, b"p\0\0\0\0", b"p\0"], ()


def checkpoint():
    """A checkpoint with bytes changed, of which the journal has no digest: itself, or an error that is a ValueError."""
    tree = {"w": np.arange(3.0), "n": np.asarray(2)}
    checkpoints.save(FOLDER, 1, tree, "s")
    whole = checkpoints.place_of(FOLDER, 1).read_bytes()

    def one(raw: bytes) -> None:
        checkpoints.place_of(FOLDER, 1).write_bytes(patched(whole, raw[1:]) if raw[:1] == b"p" else raw)
        found, _ = checkpoints.restore(FOLDER, 1, tree, None)  # the seal is for whoever keeps a journal to judge
        assert all(np.array_equal(found[name], tree[name]) for name in tree)

    return one, [whole, b"p\0\0\0\0", b"p\0"], ValueError


def events():
    """Nested events of dp_accounting with hostile numbers: a mechanism, or an error that is a ValueError."""
    numbers = [0, 1, 3, 0.5, 1.0, 1e-9, 1e-300, 1e300, math.nan, math.inf, -math.inf, -1, 2**53, 2**70, -(2**70), True,
               None, "x", b"", 1j, [1.0], [3, 4], [0.0, 1.0], [0.5, 0.5], [], np.float32(0.1), np.ones(2)]  # fmt: skip
    leaves = [(dp_event.NoOpDpEvent, 0), (dp_event.NonPrivateDpEvent, 0), (dp_event.UnsupportedDpEvent, 0),
              (dp_event.GaussianDpEvent, 1), (dp_event.LaplaceDpEvent, 1), (dp_event.DiscreteLaplaceDpEvent, 2),
              (dp_event.RandomizedResponseDpEvent, 2), (dp_event.ZCDpEvent, 2),
              (dp_event.MixtureOfGaussiansDpEvent, 3), (dp_event.SingleEpochTreeAggregationDpEvent, 2),
              (dp_event.TruncatedSubsampledGaussianDpEvent, 4)]  # fmt: skip

    once = dp_event.ZCDpEvent(0.5, 0.1)
    for shape in (1.0, math.inf):  # what compiles, before the clock runs
        for inner in (once, dp_event.GaussianDpEvent(1.0), dp_event.LaplaceDpEvent(1.0)):
            from_dp_event(dp_event.RepeatAndSelectDpEvent(inner, 3.0, shape))
    from_dp_event(once)

    def one(raw: bytes) -> None:
        data = atheris.FuzzedDataProvider(raw)

        def number():
            kind = data.ConsumeIntInRange(0, 3)
            if kind == 0:
                return data.ConsumeFloat()
            return data.ConsumeInt(8) if kind == 1 else data.PickValueInList(numbers)

        def event(depth: int):
            kind = data.ConsumeIntInRange(0, 7) if depth else 0
            if kind == 1:
                return dp_event.ComposedDpEvent([event(depth - 1) for _ in range(data.ConsumeIntInRange(0, 3))])
            if kind == 2:
                return dp_event.SelfComposedDpEvent(event(depth - 1), number())
            if kind == 3:
                return dp_event.PoissonSampledDpEvent(number(), event(depth - 1))
            if kind == 4:
                return dp_event.SampledWithoutReplacementDpEvent(number(), number(), event(depth - 1))
            if kind == 5:
                return dp_event.RepeatAndSelectDpEvent(event(depth - 1), number(), number())
            if kind == 6:
                return number()  # no event
            make, arguments = data.PickValueInList(leaves)
            return make(*(number() for _ in range(arguments)))

        with contextlib.suppress(ValueError, TypeError):
            made = event(data.ConsumeIntInRange(0, 4))  # what dp_accounting itself refuses
            if isinstance(made, dp_event.DpEvent):
                relation = data.PickValueInList(["add_or_remove", "replace", "replace_special"])
                read(made, relation)

    def read(made, relation: str) -> None:
        try:
            found = from_dp_event(made, relation)
        except UnreadableEvent:
            return
        except Exception as problem:
            raise AssertionError(f"{made!r}: {problem!r}") from problem
        assert type(found).__module__.startswith("jaxacct.mechanisms")

    return one, [bytes(range(at, at + 48)) for at in range(0, 200, 20)], ()


def datasets():
    """Downloaded data: IDX images and rows of the census."""
    row = b"39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    images = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4])

    def one(raw: bytes) -> None:
        file = FOLDER / "data.gz"
        plain, packed = raw[:1] in (b"i", b"a"), raw[1:]
        file.write_bytes(gzip.compress(packed, 1) if plain else packed)
        if raw[:1] in (b"i", b"I"):
            assert data._read_idx(file, 3).ndim == 3
        else:
            x, y = adult.encode(adult._read(file))
            assert len(x) == len(y)

    whole = row + b"United-States, <=50K\n"
    return one, [b"i" + images, b"a" + whole, b"I" + gzip.compress(images), b"A" + gzip.compress(whole)], ValueError


def command_line():
    """Lists of numbers and descriptions of runs."""

    def one(raw: bytes) -> None:
        text = text_of(raw)
        with contextlib.suppress(click.UsageError):
            _runs._parsed(text)
        assert _values.VALUES.convert(text, None, None).size <= 1_000_000

    return one, [b"1,2,4", b"0.5:4:8", b"1e-3:1:20:log", b"laplace:scale=2,rate=0.1,steps=50"], click.UsageError


TARGETS = {
    "checkpoint": checkpoint, "command_line": command_line, "datasets": datasets, "events": events,
    "journal": journal_file, "ledger": ledger, "record": record, "sealed_journal": sealed_journal, "table": table,
    "values": values,
}  # fmt: skip
