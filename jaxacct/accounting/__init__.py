"""`epsilon`, `delta`, `calibrate` and `plan_noise`: questions about mechanisms, answered with bounds.

``queries`` checks and batches a question, ``question`` answers it on the host or inside a program (``traced``), and
``calibration`` and ``noise_planning`` search for parameters. Imports mechanisms, losses and numerics.
"""

from jaxacct.accounting.queries import Bounds, delta, epsilon

__all__ = ["Bounds", "delta", "epsilon"]
