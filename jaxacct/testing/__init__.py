"""Checks of a training step of one's own: is it the mechanism that it is charged for?

`check_step` replays a step on `neighbours` with the same randomness. It can refute that a step is private, and never
prove that it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand

if TYPE_CHECKING:
    from jaxacct.testing.check import check_step
    from jaxacct.testing.findings import Checked, Leak
    from jaxacct.testing.pairs import Neighbours, neighbours

__all__ = ["Checked", "Leak", "Neighbours", "check_step", "neighbours"]

__getattr__, __dir__ = on_demand(__name__)
