"""The saddle-point approximation of delta(epsilon): an estimate that guides searches, not a bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import array_module
from jaxacct._numerics.log1p import log1p


def saddle_log_delta(t: Any, k0: Any, k2: Any, epsilon: Any) -> Any:
    """Saddle-point approximation of log delta(epsilon) with K = k0 and K'' = k2 at the saddle t."""
    xp = array_module(t)
    spread = k2 + 1.0 / t**2 + 1.0 / (t + 1.0) ** 2
    return k0 - t * epsilon - xp.log(t) - log1p(t) - 0.5 * xp.log(2 * np.pi * spread)
