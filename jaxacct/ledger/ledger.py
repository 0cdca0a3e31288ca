"""The durable ledger: a filter's budget that several processes draw on, and that a crash cannot lose."""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.filters.base import Filter, Guarantee
from jaxacct.ledger import canonical
from jaxacct.ledger import export as _export
from jaxacct.ledger.chain import Chain, Place
from jaxacct.ledger.errors import LedgerError, LedgerMismatch, LedgerMissing
from jaxacct.ledger.policy import Policy, reproducible
from jaxacct.ledger.reading import Reading, read
from jaxacct.ledger.records import Entry, as_head, head_of, parsed, when
from jaxacct.ledger.stores import base as _store
from jaxacct.ledger.stores import file_at, store_at
from jaxacct.ledger.stores.base import Row, Sql, Store
from jaxacct.ledger.verify import Verification, entries, verified, walked


class Ledger:
    """A privacy budget on disk, with a durable record of every request: admitted, refused, released.

    ``request`` charges before it answers, in one transaction: when its answer is true the charge is on the disk, and
    no two processes can take the same part of the budget. Release only then. A process that dies between the charge
    and the release leaves the charge standing (`outstanding` lists those): a budget errs on the side of privacy.
    An exception means: do not release.

    Everything that was asked is kept, in records that are only ever appended, each with the hash of the one before it.
    `verify` checks the hashes and replays every decision. To find a history that was cut short or rewritten as a whole,
    keep a head outside (``print(ledger.verify().head)``) and hand it in again: ``ledger.verify(head)``.

    The filter decides what was written down: a query is serialised to text, and the filter gets what is read back. So
    a `natural` filter takes the index of a member, and numbers and arrays count by their bits, not as objects.

    Objects may be used from several threads, and after ``os.fork`` in the child. A call inside ``jax.vmap`` or
    ``jax.grad`` is made once, however many results come out; inside ``jit`` and ``scan`` it raises.
    """

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        filter: Filter | None = None,
        *,
        create: bool = False,
        delta: float | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Opens a ledger, or makes one with ``create=True``.

        Args:
            path_or_url: of an SQLite file, on a disk of this machine; or ``postgresql://user@host/database`` (extra
                ``ledger``), in the schema ``public``, or in another with ``?options=-csearch_path%3Dname``.
            filter: from `jaxacct.filters`, with one budget; a `register`-ed one of your own. May be left out for a
                ledger that exists, which knows its filter; if it is given, it must be the ledger's.
            create: make the ledger, and fail if there is one. Without it none is ever made: a wrong path, or a role
                that does not see the ledger, is an error and not a fresh budget.
            delta: at which the ledger quotes epsilons (`reading`), written down when it is made; it decides nothing.
                Without it, 1e-5. May be left out for a ledger that exists.
            timeout: seconds to wait for other processes' transactions.

        Raises:
            ValueError: a bad argument; a filter that is no filter, or cannot be written down (`residue` holds
                functions); as `LedgerMismatch`, another filter than the ledger's.
            LedgerError: its kinds say what is wrong with the file or the server.
            ImportError: a URL without SQLAlchemy or psycopg.
        """
        _validate.instance(bool, create=create)
        if delta is not None:
            _validate.number(_validate.probability, delta=delta)
            delta = float(delta)
        _validate.scalar(_validate.nonnegative, timeout=timeout)
        _validate.at_most(1e6, timeout=timeout)
        self._store = store_at(path_or_url, float(timeout))
        weakref.finalize(self, _given_back, self._store)
        self._chain = Chain(self._store)
        wanted = None if filter is None else Policy.of(filter)
        if create:
            if wanted is None:
                raise ValueError("filter must be given to create a ledger, got None")
            if self._store.exists() or not self._store.create(*self._chain.first(wanted, delta)):
                raise LedgerError(f"{self._store} is there already: open it, without `create`")
        elif not self._store.exists():
            raise LedgerMissing(
                f"{self._store} holds no ledger{self._store.elsewhere()}; where one is to begin, `create` makes it"
            )
        self._delta: float | None
        with self._reading() as sql:
            self._chain.policy, self._delta = self._chain.stated(sql)
            self._chain.place(sql)
        if wanted is not None and wanted.digest != self._chain.policy.digest:
            raise LedgerMismatch(
                f"filter must be the one that {self._store} was made for, {_brief(self._chain.policy)}, got "
                f"{_brief(wanted)}; leave it out to go on with the ledger's own"
            )
        if delta is not None and delta != self._delta:
            stated = "none" if self._delta is None else f"{self._delta:g}"
            raise LedgerMismatch(f"delta must be the one that {self._store} was made with, {stated}, got {delta:g}")

    @property
    def filter(self) -> Filter:
        """The filter, as the ledger's first record states it."""
        return self._chain.policy.filter

    @property
    def guarantee(self) -> Guarantee:
        """What the whole interaction satisfies: the filter's guarantee."""
        return self._chain.policy.filter.guarantee

    def request(self, query: object, label: str = "") -> Entry:
        """Asks for ``query``, writes down the question and the answer, and charges it if it is admitted.

        Args:
            query: what the filter's ``update`` takes, in concrete numbers: a mechanism or a number.
            label: who asks, and what for; at most 10,000 characters.

        Returns:
            The `Entry`, true if the query was admitted; ``print(entry.reading())`` says what it cost and what is
            left, or why it was refused and what would have fitted.

        Raises:
            ValueError: a query that the filter does not take, or that cannot be written down; a label that is no text.
            LedgerError: nothing was charged, unless a server's connection broke during the commit.
        """
        _validate.instance(str, label=label)
        tree, words = canonical.encoded(query, "query"), canonical.encoded(label, "label")
        ready = canonical.decoded(tree)
        # Worked out in advance, so that nobody waits for a compilation with the lock held; and once more if somebody
        # else was faster.
        guess = self._chain.last or self._place()
        answer = self._chain.policy.decide(ready, guess.state)
        with self._writing() as (sql, place):
            if place.hash != guess.hash:
                answer = self._chain.policy.decide(ready, place.state)
            admitted, state = answer
            after = self._chain.append(sql, place, "request", state, query=tree, label=words, admitted=admitted)
        self._chain.last = after
        reading = functools.cache(
            lambda: read(self._chain.policy, self._delta, after.state, ready, place.state, admitted)
        )
        return Entry(after.seq, when(after.at), label, ready, admitted, None, after.hash, reading)

    def released(self, id: int) -> None:
        """Writes down that the output of an admitted request was released; the charge is the same without it.

        Raises:
            ValueError: an id that is no admitted request's, or one whose release was written down before.
        """
        _validate.integer(1, 2**53 - 1, id=id)
        number = int(id)
        with self._writing() as (sql, place):
            found = [parsed(*row[:3]) for row in _store.read_records(sql, number - 1, number)]
            if not found or found[0]["kind"] != "request" or not found[0]["admitted"]:
                raise ValueError(f"id must be the number of an admitted request, got {number}")
            if _store.is_released(sql, number):
                raise ValueError(f"id must be of a request that was not released before, got {number}")
            after = self._chain.append(sql, place, "release", place.state, of=number)
        self._chain.last = after

    def reading(self) -> Reading:
        """What is spent and left, in the filter's parameter and as epsilons at the ledger's delta; ``print`` it.

        What a request cost, or why it was refused and what would have fitted, is in the `Entry` that `request` returns.
        """
        return read(self._chain.policy, self._delta, self._place().state)

    def spent(self) -> PyTree:
        """What has been spent, in the filter's own parameter, rounded up (float64)."""
        return self._told("spent")

    def remaining(self) -> PyTree:
        """What is left, in the filter's own parameter, rounded down (float64)."""
        return self._told("remaining")

    def fraction(self) -> np.float64:
        """The share of the budget that is spent, rounded up (float64)."""
        return self._told("fraction")

    def history(self) -> list[Entry]:
        """All that was asked, in order; the hashes are checked on the way, the decisions are not (see `verify`)."""
        return entries(walked(self._read, self._place().seq))

    def outstanding(self) -> list[Entry]:
        """What was admitted and not said to have been released: under way, or lost to a crash; charged either way."""
        return [entry for entry in self.history() if entry.admitted and entry.released is None]

    @property
    def head(self) -> str:
        """Number and hash of the last record, ``"17:3f..."``; it is checked only by `verify`."""
        place = self._place()
        return head_of(place.seq, place.hash)

    def verify(self, head: str | None = None) -> Verification:
        """Checks every hash, replays every decision, compares states bit for bit.

        Args:
            head: what an earlier `verify` found, kept elsewhere: the history up to it must still be there, unchanged.

        Returns:
            The new head, and counts.

        Raises:
            ValueError: ``head`` is no head.
            LedgerTampered: the history was changed, cut short, or does not replay.
            LedgerCorrupted: the file is damaged.
        """
        known = None if head is None else as_head(head)
        with self._reading() as sql:
            self._store.check(sql)
            place = self._chain.place(sql)
        return verified(walked(self._read, place.seq), self._chain.policy, place, known)

    def export(self, format: str = "json") -> Any:
        """The whole ledger, for other programs.

        Args:
            format: ``"json"``: a text, the same for the same history, with all that the hashes are over. Or
                ``"dp_events"``: a ``ComposedDpEvent`` of dp_accounting with the admitted requests. What dp_accounting
                makes of it treats them as fixed in advance, which they were not: the guarantee is the filter's.

        Raises:
            ValueError: another format; a request that has no event.
            ImportError: events were asked for, and dp_accounting is not installed.
        """
        _validate.one_of(("json", "dp_events"), format=format)
        if format == "dp_events":
            return _export.as_events([entry.query for entry in self.history() if entry.admitted], self.filter)
        return _export.as_json(walked(self._read, self._place().seq))

    def backup(self, target: str | os.PathLike[str]) -> Verification:
        """Copies the ledger into a new file, through SQLite and under the ledger's lock, and verifies the copy.

        Charges may go on meanwhile; those made after the copy began are not in it. ``target`` appears when the copy is
        whole, verified and on the disk.

        Args:
            target: where nothing is yet.

        Returns:
            What `verify` found in the copy. Its head is the one to ask for after restoring it.

        Raises:
            ValueError: something is at ``target``; the ledger is on a server, which has backups of its own (pg_dump).
            LedgerError: the ledger cannot be read, or does not verify; nothing is left at ``target``.
        """
        path, head = file_at(target, "target"), self.head
        with self._store.copied(path) as part:
            return Ledger(part, timeout=self._store.timeout).verify(head)

    def close(self) -> None:
        """Gives a server's connection back; the next call opens another."""
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self._store)!r}, {_brief(self._chain.policy)})"

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Sql]:
        with self._store.transaction(write=False) as sql:
            self._chain.check_schema(sql)
            yield sql

    @contextlib.contextmanager
    def _writing(self) -> Iterator[tuple[Sql, Place]]:
        with self._store.transaction(write=True) as sql:
            _store.lock(sql, self._store)
            self._chain.check_schema(sql)
            yield sql, self._chain.place(sql)

    def _read(self, statement: str, **parameters: int | str | None) -> list[Row]:
        """Rows, in a transaction of their own: records only ever get more, and nobody waits for a long reading."""
        with self._store.transaction(write=False) as sql:
            return sql(statement, **parameters)

    def _place(self) -> Place:
        """Where the chain stands now."""
        with self._reading() as sql:
            return self._chain.place(sql)

    def _told(self, which: str) -> PyTree:
        state = self._place().state
        with reproducible():
            found = getattr(self._chain.policy.filter, which)(state.value)
            return jax.tree.map(lambda leaf: np.asarray(leaf)[()], found)


def _given_back(store: Store) -> None:
    """When a ledger is collected, or the program ends: drivers warn of connections that nobody closed."""
    with contextlib.suppress(Exception):
        store.close()


def _brief(policy: Policy) -> str:
    return f"{type(policy.filter).__name__} {policy.digest[:12]}"
