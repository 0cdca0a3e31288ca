"""Audits: a lower confidence bound of epsilon, from what an attack on an implementation finds.

An accountant bounds epsilon from above, for the mechanism that it is told of. An audit bounds it from below, for the
code that runs: `canaries` places examples in the data, each by a fair coin, and reads scores from what a training step
releases; `one_run` turns the guesses about them into a bound and compares them with the certified curve of a mechanism,
`many_runs` does so with the errors of an attack over many runs. What is refuted is wrong at the confidence stated; what
is not refuted may still be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand

if TYPE_CHECKING:
    from jaxacct.audit.error_rates import many_runs
    from jaxacct.audit.guesses import one_run
    from jaxacct.audit.placed import canaries

__all__ = ["canaries", "many_runs", "one_run"]

__getattr__, __dir__ = on_demand(__name__)
