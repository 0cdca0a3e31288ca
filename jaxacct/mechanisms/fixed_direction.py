"""`FixedDirection`: the best attack known on replaced records in samples of a fixed size."""

from __future__ import annotations

from typing import Any

from jaxacct._numerics.pytree import mechanism
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.base import Runs


@mechanism
class FixedDirection(Mechanism):
    """``mechanism`` under `replace` where in every step the new record is one of the others, or the old one is.

    Then what it runs on differs as if the record had come or gone, and both of these go on for all steps: a lower bound
    for the worst case, which may mix them. It stands in for the mechanism where a lower bound is wanted
    (``Mechanism._witness``), and has no public name.

    Attributes:
        mechanism: one with pairs for `remove` and `add`.
    """

    mechanism: Any

    def _sides(self, relation: str) -> list[str]:
        return ["replace_out", "replace_in"] if relation == "replace" else self.mechanism._sides(relation)

    def _as(self, side: str) -> str:
        return {"replace_out": "remove", "replace_in": "add"}.get(side) or self.mechanism._as(side)

    def _dominating(self, relation: str) -> Runs:
        return getattr(self.mechanism, "_attained", self.mechanism._dominating)(relation)
