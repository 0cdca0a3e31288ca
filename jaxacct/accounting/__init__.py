"""`epsilon`, `delta`, `calibrate` and `plan_noise`: questions about mechanisms, answered with bounds.

``queries`` checks what is asked. An eager query goes to ``enclosure``; inside ``jit`` it is a primitive (``traced``),
which asks a ``question`` of the host (``on_host``) or holds the formulas (``compiled``). ``calibration`` and
``noise_planning`` search for parameters. Imports mechanisms, losses and numerics.
"""

from jaxacct.accounting.queries import Bounds, delta, epsilon

__all__ = ["Bounds", "delta", "epsilon"]
