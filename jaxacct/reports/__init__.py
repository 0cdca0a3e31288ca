"""Reports for people and checks for strangers: what a run, a ledger or a plan guarantees, and whether that holds.

`statement` puts a run's folder or a ledger into paragraphs to sign, `dp_sgd_statement` a DP-SGD run that was fixed in
advance, and `verify` replays what is on the disk. ``jaxacct statement`` and ``jaxacct verify`` are the same in the
shell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand

if TYPE_CHECKING:
    from jaxacct.reports.about import statement
    from jaxacct.reports.document import Statement, read_statement
    from jaxacct.reports.dp_sgd import dp_sgd_statement
    from jaxacct.reports.verdict import Verdict, verify

__all__ = ["Statement", "Verdict", "dp_sgd_statement", "read_statement", "statement", "verify"]

__getattr__, __dir__ = on_demand(__name__)
