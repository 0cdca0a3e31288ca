"""`Runs`: how the steps of a sampler are runs of its mechanism, and what a filter is asked of them."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxacct._types import Array, Fields
from jaxacct.filters.prices.table import TableFilter
from jaxacct.ledger import canonical
from jaxacct.mechanisms.base import Mechanism


@dataclasses.dataclass(frozen=True, eq=False)
class Runs:
    """A mechanism of which one run takes some steps, and is paid for as a whole at the first of them.

    Attributes:
        mechanism: the mechanism that one run is accounted for as.
        steps: training steps in one run of the mechanism: the batches of an epoch, or 1.
    """

    mechanism: Mechanism
    steps: int

    def begins(self, step: Array | int) -> Array | bool:
        """Whether step ``step``, from 0, is the first of a run."""
        return step % self.steps == 0

    def begun(self, steps: int) -> int:
        """How many runs so many steps begin: one that was stopped within counts as a whole one."""
        return -(-steps // self.steps)

    def query(self, filter: object) -> Mechanism | int:
        """What ``filter`` is asked of a run: position 0 of a menu that holds the mechanism alone, or the mechanism.

        Raises:
            ValueError: a menu of several entries.
        """
        if not (isinstance(filter, TableFilter) and filter.fixed):
            return self.mechanism
        if np.shape(filter.prices)[-1:] != (1,):
            raise ValueError("filter must have the sampler's mechanism alone on its menu: sampler.filter(...)")
        return 0

    def to_json(self) -> Fields:
        """What a report keeps."""
        return {"mechanism": canonical.encoded(self.mechanism, "mechanism"), "steps": self.steps}


def from_json(kept: Fields | None) -> Runs | None:
    """What `Runs.to_json` wrote; None, of a report without a sampler, stays None."""
    return None if kept is None else Runs(canonical.decoded(kept["mechanism"]), kept["steps"])
