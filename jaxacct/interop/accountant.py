"""A ``dp_accounting.PrivacyAccountant`` that answers with this library's upper bounds."""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import dp_event, privacy_accountant
from jax.typing import ArrayLike

from jaxacct import _validate, accounting
from jaxacct.interop.composition import MOST, Reading
from jaxacct.interop.noise_events import Under
from jaxacct.interop.read_events import UnreadableEvent, read

_Details = privacy_accountant.PrivacyAccountant.CompositionErrorDetails
_Relation = privacy_accountant.NeighboringRelation
_NAMES = {
    _Relation.ADD_OR_REMOVE_ONE: "add_or_remove",
    _Relation.REPLACE_ONE: "replace",
    _Relation.REPLACE_SPECIAL: "replace_special",
}
_FAR = 640.0  # an epsilon that stands for those that are larger


class Accountant(privacy_accountant.PrivacyAccountant):
    """Certified upper bounds of epsilon and delta for composed ``DpEvent``\\ s, fixed in advance.

    It supports the events of :func:`jaxacct.interop.from_dp_event`, read as the same mechanisms; ``compose``
    raises dp_accounting's ``UnsupportedEventError`` for others, and ``supports`` says so beforehand. Events with
    invalid parameters count as unsupported. A composition with a part that is not private has epsilon inf and delta 1.

    dp_accounting lets applications be adaptive in that each query may depend on earlier outputs; the *parameters* of
    the events, and when to stop, must not (for that there are :mod:`jaxacct.filters`).

    Args:
        neighboring_relation: as for dp_accounting's own accountants.
        noise_over: what noise multipliers are relative to; it matters under ``REPLACE_ONE`` only. ``"bound"``: the
            bound C on one record's value, as dp_accounting defines its events, so that sums move by 2 C.
            ``"sensitivity"``: the sum's sensitivity, for callers that have doubled C already, as jax_privacy's
            ``clipping.sensitivity`` does.

    Raises:
        ValueError: no relation, or another ``noise_over``.
    """

    def __init__(self, neighboring_relation: _Relation = _Relation.ADD_OR_REMOVE_ONE, *, noise_over: str = "bound"):
        _validate.instance(_Relation, neighboring_relation=neighboring_relation)
        _validate.one_of(("bound", "sensitivity"), noise_over=noise_over)
        super().__init__(neighboring_relation)
        self._relation = _NAMES[neighboring_relation]
        over = noise_over == "sensitivity" and self._relation == "replace"
        self._read_under = Under(self._relation, 2.0 if over else 1.0)
        self._spent = Reading()

    def _maybe_compose(self, event: dp_event.DpEvent, count: int, do_compose: bool) -> _Details | None:
        _validate.integer(0, 2**63, count=count)
        count = int(count)
        try:
            found = read(event, self._read_under)
            # Before the product: a longer number is none that a float could hold.
            total = self._spent + found * min(count, MOST + 1) if count else self._spent
            if count > MOST or any(part.count > MOST for part in total.parts.values()):
                raise UnreadableEvent(event, "counts must come to at most 2**53 runs of one mechanism")
        except UnreadableEvent as problem:
            return _Details(problem.event, str(problem))
        if do_compose:
            self._spent = total
        return None

    def get_epsilon(self, target_delta: float) -> float:
        """The least epsilon that is certified at ``target_delta``, in [0, 1]; inf where none is.

        Raises:
            ValueError: a ``target_delta`` that is no number in [0, 1].
        """
        _validate.scalar(_validate.rate, target_delta=target_delta)
        if not self._spent.private:  # at delta 1 too, as dp_accounting has it
            return math.inf
        return float(accounting.epsilon(self._spent.mechanism(), target_delta, relation=self._relation).upper)

    def get_delta(self, target_epsilon: float) -> float:
        """The least delta that is certified at ``target_epsilon`` >= 0, which may be inf.

        Raises:
            ValueError: a ``target_epsilon`` that is no number, negative, or NaN.
        """
        _validate.scalar(_validate.epsilon, target_epsilon=target_epsilon)
        at = min(float(target_epsilon), _FAR)
        return float(accounting.delta(self._spent.mechanism(), at, relation=self._relation).upper)

    def get_true_positive_rates(
        self, false_positive_rates: ArrayLike, deltas: ArrayLike | None = None
    ) -> float | np.ndarray:
        """An upper bound on an attack's true positive rate at each false positive rate: `jaxacct.attacks.power`.

        As in dp_accounting the curve is the greater one of both directions.

        Args:
            false_positive_rates: in [0, 1]; a number or an array.
            deltas: where dp_accounting would ask for epsilon; the curve is certified without them.

        Returns:
            A number or an array, as the rates.

        Raises:
            ValueError: rates outside [0, 1].
        """
        from jaxacct import attacks

        _validate.rate(false_positive_rates=false_positive_rates)
        found = np.asarray(attacks.power(self._spent.mechanism(), false_positive_rates, relation=self._relation).upper)
        return found if found.ndim else float(found)

    def bounds(self, target_delta: float) -> accounting.Bounds:
        """:func:`jaxacct.epsilon` of the composition: the upper bound, and how tight it is.

        Raises:
            ValueError: a ``target_delta`` that is not strictly between 0 and 1.
        """
        _validate.scalar(_validate.probability, target_delta=target_delta)
        return accounting.epsilon(self._spent.mechanism(), target_delta, relation=self._relation)
