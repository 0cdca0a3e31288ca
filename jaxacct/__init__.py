"""jaxacct: differential-privacy accounting in JAX."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxacct._version import __version__

if TYPE_CHECKING:
    from jaxacct import filters, losses, mechanisms, training
    from jaxacct.accounting import Bounds, delta, epsilon
    from jaxacct.calibration import Calibration, calibrate
    from jaxacct.losses.grid import LossGrid
    from jaxacct.losses.pld import PLD
    from jaxacct.mechanisms import Composed, Gaussian, PoissonSampled
    from jaxacct.planning import NoisePlan, plan_noise

# Names load on first use, so that the command line pays only for what a command needs.
_HOME = {
    "Bounds": "jaxacct.accounting",
    "Calibration": "jaxacct.calibration",
    "Composed": "jaxacct.mechanisms.composed",
    "LossGrid": "jaxacct.losses.grid",
    "NoisePlan": "jaxacct.planning",
    "PLD": "jaxacct.losses.pld",
    "calibrate": "jaxacct.calibration",
    "delta": "jaxacct.accounting",
    "epsilon": "jaxacct.accounting",
    "Gaussian": "jaxacct.mechanisms.gaussian",
    "PoissonSampled": "jaxacct.mechanisms.sampling",
    "plan_noise": "jaxacct.planning",
}
_ROOMS = ("filters", "losses", "mechanisms", "training")

__all__ = [
    "PLD",
    "Bounds",
    "Calibration",
    "Composed",
    "Gaussian",
    "LossGrid",
    "NoisePlan",
    "PoissonSampled",
    "__version__",
    "calibrate",
    "delta",
    "epsilon",
    "filters",
    "losses",
    "mechanisms",
    "plan_noise",
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
