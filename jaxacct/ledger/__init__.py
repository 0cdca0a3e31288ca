"""A privacy budget on disk that several processes share.

    from jaxacct import Ledger, filters, Gaussian

    ledger = Ledger("team.db", filters.gdp(1.0), create=True)
    entry = ledger.request(Gaussian(5.0), label="mean age, for the report")
    if entry.admitted:
        publish(mean + noise)
        ledger.released(entry.id)

`Ledger` holds any filter's state in one SQLite file, or in PostgreSQL for a team on several machines. It is charged
before anything is released, in one transaction; every question and answer is kept in a chain of hashes; what goes wrong
has a name in :mod:`.errors`, all of them kinds of `LedgerError`. ``jaxacct ledger`` is the same on the command line.
"""

from jaxacct.ledger import errors
from jaxacct.ledger.errors import LedgerError
from jaxacct.ledger.ledger import Ledger
from jaxacct.ledger.registry import register

__all__ = ["Ledger", "LedgerError", "errors", "register"]
