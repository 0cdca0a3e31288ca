"""jaxacct: differential-privacy accounting in JAX."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxacct._version import __version__

if TYPE_CHECKING:
    from jaxacct import filters, losses, mechanisms, training
    from jaxacct.accounting import Bounds, delta, epsilon
    from jaxacct.losses.extremes import supremum
    from jaxacct.losses.grid import LossGrid
    from jaxacct.losses.order import dominates, is_chain
    from jaxacct.losses.pld import PLD
    from jaxacct.losses.profile import PrivacyProfile
    from jaxacct.losses.tradeoff import TradeOff
    from jaxacct.mechanisms import Composed, Gaussian, PoissonSampled

# Names load on first use, so that the command line pays only for what a command needs.
_HOME = {
    "Bounds": "jaxacct.accounting",
    "Composed": "jaxacct.mechanisms.composed",
    "LossGrid": "jaxacct.losses.grid",
    "PLD": "jaxacct.losses.pld",
    "PrivacyProfile": "jaxacct.losses.profile",
    "TradeOff": "jaxacct.losses.tradeoff",
    "delta": "jaxacct.accounting",
    "dominates": "jaxacct.losses.order",
    "epsilon": "jaxacct.accounting",
    "is_chain": "jaxacct.losses.order",
    "supremum": "jaxacct.losses.extremes",
    "Gaussian": "jaxacct.mechanisms.gaussian",
    "PoissonSampled": "jaxacct.mechanisms.sampling",
}
_ROOMS = ("filters", "losses", "mechanisms", "training")

__all__ = [
    "PLD",
    "Bounds",
    "Composed",
    "Gaussian",
    "LossGrid",
    "PoissonSampled",
    "PrivacyProfile",
    "TradeOff",
    "__version__",
    "delta",
    "dominates",
    "epsilon",
    "filters",
    "is_chain",
    "losses",
    "mechanisms",
    "supremum",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"jaxacct.{name}")
    else:
        raise AttributeError(f"module 'jaxacct' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
