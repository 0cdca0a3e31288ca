"""`KnownAttack`: the best attack known on a mechanism whose upper bound may be more than its worst case."""

from __future__ import annotations

from jaxacct._numerics.pytree import mechanism
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.base import Runs


@mechanism
class KnownAttack(Mechanism):
    """``mechanism`` with the pairs of its :meth:`Mechanism._attained`, which go one way in every step.

    Under `replace` the new record is one of the others in every step, or the old one is: what is run on differs as if
    the record had come or gone. This is a lower bound for the worst case, which may mix them. It stands in for the
    mechanism where a lower bound is wanted (``Mechanism._witness``), and has no public name.
    """

    mechanism: Mechanism

    @property
    def _name(self) -> str:
        return self.mechanism._name

    def _sides(self, relation: str) -> list[str]:
        return ["replace_out", "replace_in"] if relation == "replace" else super()._sides(relation)

    def _as(self, side: str) -> str:
        return side

    def _dominating(self, relation: str) -> Runs:
        direction = "add" if relation in ("add", "fill_in", "replace_in") else "remove"
        return self.mechanism._attained(direction, relation.startswith("replace_"))
