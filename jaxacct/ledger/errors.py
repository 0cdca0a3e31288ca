"""Exceptions of a ledger, one for each thing that can go wrong.

An exception out of :meth:`jaxacct.Ledger.request` means: do not release. Nothing was charged, but for a disk or
connection that failed in the moment of the commit, after which :meth:`jaxacct.Ledger.history` tells. Arguments that
make no sense are plain ValueErrors.
"""

from __future__ import annotations

__all__ = [
    "LedgerBusy",
    "LedgerCorrupted",
    "LedgerError",
    "LedgerFull",
    "LedgerMismatch",
    "LedgerMissing",
    "LedgerTampered",
    "LedgerTooNew",
    "LedgerUnavailable",
]


class LedgerError(RuntimeError):
    """The base class of all errors of a ledger."""


class LedgerMissing(LedgerError):
    """There is no ledger at this place, and the call was not to create one."""


class LedgerUnavailable(LedgerError):
    """The ledger cannot be opened, read or written: permissions, a read-only disk, a server that does not answer."""


class LedgerBusy(LedgerError):
    """Another process held the lock for longer than the timeout."""


class LedgerFull(LedgerError):
    """The disk is full; the request was not charged, and everything before it is kept."""


class LedgerCorrupted(LedgerError):
    """The file is not a database, or is damaged, or holds no ledger."""


class LedgerTampered(LedgerCorrupted):
    """The ledger can be read, but its chain of hashes is broken or cut short, or its decisions do not replay."""


class LedgerTooNew(LedgerError):
    """A later version of jaxacct wrote the ledger."""


class LedgerMismatch(LedgerError, ValueError):
    """The ledger was made for another filter than the one it was opened with."""
