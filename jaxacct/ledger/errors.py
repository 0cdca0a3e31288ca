"""Exceptions of a ledger, one for each thing that can go wrong.

An exception out of :meth:`jaxacct.Ledger.request` means: do not release. Nothing was charged, but for a connection that
broke while a server was committing, after which :meth:`jaxacct.Ledger.history` tells. Arguments that make no sense are
plain ValueErrors.
"""

from __future__ import annotations


class LedgerError(RuntimeError):
    """Base of what follows."""


class LedgerMissing(LedgerError):
    """There is no ledger at this place, and none was to be made."""


class LedgerUnavailable(LedgerError):
    """It cannot be opened, read or written: permissions, a read-only disk, a server that does not answer."""


class LedgerBusy(LedgerError):
    """Another process held the lock for longer than the timeout."""


class LedgerFull(LedgerError):
    """The disk is full; the request was not charged, and everything before it is kept."""


class LedgerCorrupted(LedgerError):
    """The file is no database, or a damaged one, or what it holds is no ledger."""


class LedgerTampered(LedgerCorrupted):
    """It reads well, but the chain of hashes is broken, cut short, or does not replay."""


class LedgerTooNew(LedgerError):
    """A later version of jaxacct wrote it."""


class LedgerMismatch(LedgerError, ValueError):
    """It was made for another filter than the one it was opened with."""


class LedgerClock(LedgerError):
    """This machine's clock is behind the last record by more than the tolerance."""
