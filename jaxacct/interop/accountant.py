"""A ``dp_accounting.PrivacyAccountant`` that answers with this library's upper bounds."""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import dp_event, privacy_accountant
from jax.typing import ArrayLike

from jaxacct import _validate, accounting
from jaxacct.filters.additive.costs import is_pure, pure_cost
from jaxacct.interop.composition import MOST, Reading
from jaxacct.interop.noise_events import OverSensitivity
from jaxacct.interop.read_events import UnreadableEvent, read
from jaxacct.mechanisms import ApproximateDP, FromProfile, FromTables, SampledWithReplacement
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions

_Details = privacy_accountant.PrivacyAccountant.CompositionErrorDetails
_Relation = privacy_accountant.NeighboringRelation
_NAMES = {
    _Relation.ADD_OR_REMOVE_ONE: "add_or_remove",
    _Relation.REPLACE_ONE: "replace",
    _Relation.REPLACE_SPECIAL: "replace_special",
}
_UP_RATE = 1.0 + 2.0**-40  # above the rounding of exp at up to 700
_DELTAS = np.concatenate([[0.0], np.geomspace(1e-13, 0.5, 120), 1.0 - np.geomspace(0.5, 1e-6, 80)])
_FAR = 640.0  # an epsilon that stands for infinity where some loss may be infinite


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
        self._read_under = OverSensitivity(self._relation) if over else self._relation
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
        spent = self._spent
        if not spent.private:
            return math.inf
        if spent.is_nothing or target_delta == 1.0:
            return 0.0
        if target_delta == 0.0:
            return _pure_epsilon(spent.mechanism(), self._relation)
        return float(self.bounds(target_delta).upper)

    def get_delta(self, target_epsilon: float) -> float:
        """The least delta that is certified at ``target_epsilon`` >= 0, which may be inf.

        Raises:
            ValueError: a ``target_epsilon`` that is no number, negative, or NaN.
        """
        _validate.scalar(_validate.epsilon, target_epsilon=target_epsilon)
        target_epsilon = float(target_epsilon)
        spent = self._spent
        if not spent.private:
            return 1.0
        finite = target_epsilon < math.inf
        if spent.is_nothing or not (finite or any(_may_be_infinite(part) for part, _ in spent.all_parts())):
            return 0.0
        whole = spent.mechanism()
        if target_epsilon >= _pure_epsilon(whole, self._relation):
            return 0.0
        return float(accounting.delta(whole, target_epsilon if finite else _FAR, relation=self._relation).upper)

    def get_true_positive_rates(
        self, false_positive_rates: ArrayLike, deltas: ArrayLike | None = None
    ) -> float | np.ndarray:
        """An upper bound on an attack's true positive rate at each false positive rate.

        Every certified (epsilon, delta) implies two (Kairouz, Oh, Viswanath 2015); the least of them is returned. As
        in dp_accounting the curve is the symmetric one of both directions.

        Args:
            false_positive_rates: in [0, 1]; a number or an array.
            deltas: where epsilon is asked for; by default 0 and 200 others, dense near 0 and near 1.

        Returns:
            A number or an array, as the rates.

        Raises:
            ValueError: rates or deltas outside [0, 1].
        """
        _validate.rate(false_positive_rates=false_positive_rates)
        tried = _DELTAS if deltas is None else np.atleast_1d(np.asarray(deltas, np.float64))
        rates = np.asarray(false_positive_rates, np.float64)
        found = np.ones_like(rates)
        for delta in tried.tolist():
            epsilon = self.get_epsilon(delta)
            if epsilon < 700.0:
                found = np.minimum(found, (np.exp(epsilon) * rates + delta) * _UP_RATE)
                # 1 - TPR >= e^-epsilon (1 - delta - FPR), rounded down.
                found = np.minimum(found, 1.0 - np.exp(-epsilon) * (1.0 - delta - rates) * (2.0 - _UP_RATE) + 2.0**-50)
        return float(found) if rates.ndim == 0 else np.minimum(found, 1.0)

    def get_gdp_parameter_estimate(
        self, false_positive_rates: ArrayLike | None = None, deltas: ArrayLike | None = None
    ) -> float:
        """The least mu whose Gaussian trade-off is below the bounds at all given false positive rates; inf if none.

        An estimate and no bound: between the rates nothing is checked. :func:`jaxacct.losses.compare.gaussian_order`
        has certified ones.

        Args:
            false_positive_rates: those up to 1/2 are used; by default 200 from 1e-12 to 1/2.
            deltas: as in `get_true_positive_rates`.
        """
        from scipy.stats import norm

        given = np.geomspace(1e-12, 0.5, 200) if false_positive_rates is None else np.atleast_1d(false_positive_rates)
        rates = np.asarray(given, np.float64)
        rates = rates[(rates <= 0.5) & (rates > 0)]
        if not rates.size:
            raise ValueError(f"false_positive_rates must hold one above 0 and up to 1/2, got {false_positive_rates}")
        if not self._spent.private:
            return math.inf
        powers = self.get_true_positive_rates(rates, deltas)
        return float(max(0.0, np.max(norm.ppf(np.minimum(powers, 1.0)) - norm.ppf(rates))))

    def bounds(self, target_delta: float) -> accounting.Bounds:
        """:func:`jaxacct.epsilon` of the composition: the upper bound, and how tight it is.

        Raises:
            ValueError: a ``target_delta`` that is not strictly between 0 and 1.
        """
        _validate.scalar(_validate.probability, target_delta=target_delta)
        return accounting.epsilon(self._spent.mechanism(), target_delta, relation=self._relation)


def _pure_epsilon(mechanism: Mechanism, relation: str) -> float:
    """The largest loss: of a closed form that holds for ``relation``, or else that of the pairs."""
    if is_pure(mechanism, relation):
        return float(pure_cost(mechanism))
    sides = directions(mechanism, relation)
    with np.errstate(all="ignore"):
        largest = [sum(float(pair.max_loss() * count) for pair, count in side) * (1.0 + 1e-12) for side in sides]
    return max(math.inf if math.isnan(loss) else loss for loss in largest)


def _may_be_infinite(mechanism: Mechanism) -> bool:
    inner = getattr(mechanism, "mechanism", None)
    return isinstance(mechanism, (ApproximateDP, FromProfile, FromTables, SampledWithReplacement)) or (
        inner is not None and _may_be_infinite(inner)
    )
