"""Bridges to dp_accounting, and through it to jax_privacy and TensorFlow Privacy: ``pip install 'jaxacct[interop]'``.

`from_dp_event` reads a ``DpEvent`` as a mechanism, `to_dp_event` writes a mechanism as one, and `Accountant` is a
``dp_accounting.PrivacyAccountant`` whose epsilon and delta are this library's upper bounds, so that whatever takes
such an accountant (``dp_accounting.calibrate_dp_mechanism``, jax_privacy's plans) calibrates with it::

    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent, calibrate_dp_mechanism
    from jaxacct import interop

    step = lambda sigma: PoissonSampledDpEvent(0.01, GaussianDpEvent(sigma))
    calibrate_dp_mechanism(interop.Accountant, lambda sigma: SelfComposedDpEvent(step(sigma), 1000), 1.0, 1e-5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand

if TYPE_CHECKING:
    from jaxacct.interop.accountant import Accountant
    from jaxacct.interop.batch_selection import mechanism_of_selection
    from jaxacct.interop.jax_privacy import AccountantConfig
    from jaxacct.interop.jax_privacy_plan import BudgetSpent, FilteredConfig, stop_when_spent
    from jaxacct.interop.read_events import UnreadableEvent, from_dp_event
    from jaxacct.interop.write_events import to_dp_event

__all__ = [
    "Accountant",
    "AccountantConfig",
    "BudgetSpent",
    "FilteredConfig",
    "UnreadableEvent",
    "from_dp_event",
    "mechanism_of_selection",
    "stop_when_spent",
    "to_dp_event",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "jax_privacy.accounting": "is for jax_privacy up to 2.1; later ones take interop.Accountant as it is: "
        "BandMFConfig.calibrate(accountant_fn=interop.Accountant)",
        "jax_privacy": "needs jax_privacy: pip install jax-privacy",
        "dp_accounting": "needs dp_accounting: pip install 'jaxacct[interop]'",
    },
)
