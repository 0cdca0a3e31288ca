"""jax_privacy's training accountants up to its version 2.1, with this library underneath.

From 2.2 on its plans take `Accountant` itself: ``BandMFConfig(...).calibrate(epsilon=1.0, delta=1e-5,
accountant_fn=interop.Accountant)``.
"""

from __future__ import annotations

import dataclasses

from dp_accounting.privacy_accountant import NeighboringRelation
from jax_privacy.accounting import accountants  # pyright: ignore[reportMissingImports]  # in no extra of ours

from jaxacct.interop.accountant import Accountant


@dataclasses.dataclass(kw_only=True)
class AccountantConfig(accountants.DpAccountantConfig):
    """A jax_privacy accountant configuration whose numbers are this library's upper bounds::

        from jax_privacy.accounting import analysis, calibrate

        accountant = analysis.DpsgdTrainingAccountant(interop.AccountantConfig())
        calibrate.calibrate_noise_multiplier(accountant=accountant, target_epsilon=2.0, ...)

    Attributes:
        neighboring_relation: of dp_accounting.
    """

    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE

    def create_accountant(self) -> Accountant:
        """An accountant with nothing spent."""
        return Accountant(self.neighboring_relation)
