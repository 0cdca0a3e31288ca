"""`plan_budget`: the filter for (epsilon, delta), and the least noise with which the planned steps fit it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxacct import _validate, accounting, filters
from jaxacct._numerics.rounding import deflated
from jaxacct._printing import rounded_down, rounded_up
from jaxacct.accounting.calibration import calibrate
from jaxacct.filters.additive.plan_order import ORDERS
from jaxacct.filters.names import canonical
from jaxacct.mechanisms import Composed, Gaussian, PoissonSampled
from jaxacct.training.batches_budget import least_noise, plan_batches
from jaxacct.training.samplers import Sampler
from jaxacct.training.samplings import SAMPLINGS
from jaxacct.training.schedules import SCHEDULES, Schedule, check_plan, step_mechanism

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter

_ROOM = 1.12  # of noise above what the plan, fixed in advance, would take
_NEAR = 1.2  # of that noise: where a table asks for more, another filter is tried
_LEAST_SIGMA, _MOST_SIGMA = 0.05, 1e8
_COARSE = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 63, 128, 256, 512)  # orders of a divergence
_LOW = 3.0


class Budget(NamedTuple):
    """A filter and the schedule that was calibrated for it.

    Attributes:
        filter: from :mod:`jaxacct.filters`.
        schedule: its plan fits the filter; an adaptive schedule may leave the plan, never the filter.
        sampler: for :func:`jaxacct.training.make_step`, whose mechanism the filter is asked with; None where the
            schedule says what is asked.
        note: one sentence on what the plan is not, or why it has another filter than was asked for; "" as a rule.
    """

    filter: Any
    schedule: Schedule
    sampler: Sampler | None = None
    note: str = ""


def plan_budget(
    filter: str,
    schedule: str,
    *,
    epsilon: float,
    delta: float,
    steps: int,
    rate: float,
    sampling: str = "poisson",
    size: int | None = None,
    largest: int | None = None,
    physical_batch: int = 256,
    progress: Callable[[int, int], object] | None = None,
) -> Budget:
    """The filter for (epsilon, delta) and the schedule with the least noise whose planned steps it admits.

    Everything here is decided before training and from public numbers, the Rényi order included. The filter "menu"
    comes with a sampler, and is asked with its mechanism.

    Args:
        filter: "sampled_gaussian" (a bound, whatever noise and rate a step of the schedule's range has), "closed_form"
            (the same with one closed-form price), "renyi" (a looser bound), "gdp" (everyone in every step, rate 1),
            "approximate_gdp" (asymptotic only: `adversary.true_cost` of it and ``schedule.menu()`` bounds its worst
            case), or "menu" (a bound for ``sampling`` and constant noise). ``-`` may stand for ``_``, here and below.
            Where no table of "sampled_gaussian" holds the target, the plan is that of the best other bound, and
            ``note`` says so.
        schedule: "constant", "warmup_decay" or "adaptive".
        epsilon: target, > 0, for `add_or_remove`.
        delta: in (0, 1).
        steps: planned number of steps; rounded up to whole epochs where batches are drawn by the epoch.
        rate: sampling rate, or expected batch size over ``size``, in (0, 1].
        sampling: how batches are drawn, one of `training.samplings.SAMPLINGS`; all but "poisson" are for "menu".
        size: number of examples, public; for "menu" only.
        largest: most examples in a batch of "truncated"; without it 6 standard deviations above the expected size.
        physical_batch: most examples of a sampler's batch in memory at once.
        progress: called as ``progress(done, total)`` while the table of "sampled_gaussian" is computed: seconds, once.

    Raises:
        ValueError: bad values, or a combination that no filter serves; the message is one line.
    """
    filter, schedule = canonical(filter), canonical(schedule)
    _validate.one_of((*_PLANS, "menu"), filter=filter)
    _validate.one_of(tuple(SCHEDULES), schedule=schedule)
    _validate.number(_validate.positive, epsilon=epsilon)
    _validate.number(_validate.probability, delta=delta)
    check_plan(1.0, rate, steps)
    _validate.one_of(tuple(SAMPLINGS), sampling=sampling)
    if filter == "menu":
        if schedule != "constant":
            raise ValueError(f"schedule must be 'constant' for the filter 'menu', got {schedule!r}")
        asked = float(epsilon), float(delta), int(steps), float(rate)
        sampler, least, count = plan_batches(sampling, asked, size, largest, physical_batch)
        return Budget(least, sampler.schedule(count), sampler)
    for name, value, only in (("sampling", sampling, "poisson"), ("size", size, None), ("largest", largest, None)):
        if value != only:
            raise ValueError(f"{name} is for the filter 'menu', got {value!r:.200} with {filter!r}")

    target = _Target(
        lambda sigma: SCHEDULES[schedule](sigma, rate, steps), float(epsilon), float(delta), float(rate), progress
    )
    return _PLANS[filter](target)


def planned_mechanism(schedule: Schedule) -> Composed:
    """The schedule's plan as one mechanism (noise multipliers for sensitivity 1)."""
    _validate.instance(Schedule, schedule=schedule)
    return Composed(
        [step_mechanism(sigma, rate) for sigma, rate, _ in schedule.planned],
        [steps for _, _, steps in schedule.planned],
    )


class _Target(NamedTuple):
    """What a plan has to meet.

    Attributes:
        planned: from the base multiplier to a schedule.
        epsilon, delta, rate, progress: as in `plan_budget`.
    """

    planned: Callable[[float], Schedule]
    epsilon: float
    delta: float
    rate: float
    progress: Callable[[int, int], object] | None

    def in_advance(self) -> float:
        """The base multiplier with which the plan, fixed in advance, meets the target; no filter admits it with less.

        Raises:
            ValueError: not even the most noise fits.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # wide bounds: this only steers
            try:
                found = calibrate(
                    lambda sigma: planned_mechanism(self.planned(float(sigma))),
                    *(self.epsilon, self.delta),
                    bracket=(_LEAST_SIGMA, _MOST_SIGMA),
                    tolerance=1e-3,
                )
            except ValueError:
                raise self.too_small() from None
        return float(found.parameter)

    def least_noise(
        self,
        fits: Callable[[Schedule], bool],
        precision: float = 1e-6,
        ends: tuple[float, float] = (_LEAST_SIGMA, _MOST_SIGMA),
    ) -> Schedule:
        """The plan with the smallest base multiplier between ``ends`` that fits."""

        def fitting(sigma: float) -> Schedule | None:
            schedule = self.planned(sigma)
            return schedule if fits(schedule) else None

        found = least_noise(fitting, ends[0], 2.0, ends[1], precision)
        if found is None:
            raise self.too_small()
        return found

    def too_small(self) -> ValueError:
        """The error of a target that no noise meets."""
        return ValueError(
            f"epsilon must be larger for this many steps at delta {self.delta:g}, got {self.epsilon:g}: not even noise "
            f"{_MOST_SIGMA:g} fits"
        )


def _sampled_gaussian(target: _Target) -> Budget:
    floor = target.in_advance()
    found, least = None, target.planned(floor).planned[0][0]
    try:
        found = _of_a_range(filters.sampled_gaussian, target, floor)
        if found.schedule.planned[0][0] <= _NEAR * least:
            return found
    except (ValueError, ArithmeticError):  # the table cannot hold such a target
        pass
    name, plan = ("gdp", _gdp) if target.rate == 1 else ("renyi", _renyi)
    try:
        other = plan(target)
    except ValueError:  # no order holds it
        other = None
    best = min((one for one in (found, other) if one), key=lambda one: one.schedule.planned[0][0], default=None)
    if best is None:
        raise ValueError(
            f"epsilon {target.epsilon:g} at delta {target.delta:g} has no plan for {target.planned(1.0).steps} steps "
            f"that a filter holds: fixed in advance they take noise {floor:.4g}; take a larger delta, or constant "
            "noise and jaxacct.calibrate, without a filter"
        )
    more = f"{100 * (best.schedule.planned[0][0] / least - 1):.2g} % more noise than the plan fixed in advance"
    if best is found:
        return best._replace(note=f"the table of sampled_gaussian takes {more}: other filters take no less")
    return best._replace(
        note=f"no table of sampled_gaussian is as good at epsilon {target.epsilon:g} and delta {target.delta:g}: the "
        f"filter is {name}, which takes {more}"
    )


def _closed_form(target: _Target) -> Budget:
    return _of_a_range(filters.closed_form, target, target.in_advance())


def _of_a_range(make: Callable[..., Filter], target: _Target, floor: float) -> Budget:
    plans = [target.planned(floor / 1.003), target.planned(floor * _ROOM)]
    sigmas, rates = ([pair[i] for plan in plans for pair in plan.levels] for i in range(2))
    ranges = {"sigma": (min(sigmas), max(sigmas)), "rate": (min(rates), max(rates))}
    box = make(**ranges, epsilon=target.epsilon, delta=target.delta, progress=target.progress)

    def fits(schedule: Schedule) -> bool:  # below the range a concrete query would be priced by itself
        inside = all(sigma >= min(sigmas) for sigma, _ in schedule.levels)
        return inside and bool(box.update(planned_mechanism(schedule), box.init())[0])

    return Budget(box, target.least_noise(fits, 1e-5, (floor / 1.01, 1.5 * floor)))


def _gdp(target: _Target) -> Budget:
    if target.rate != 1:
        raise ValueError(
            f"rate must be 1 for the gdp filter (a sampled Gaussian has no GDP parameter), got {target.rate:g}: "
            "use --rate 1, or --filter sampled_gaussian"
        )
    budget = filters.for_target("gdp", target.epsilon, target.delta)
    # A little short of the budget: steps that are charged one by one round more often than their sum does.
    whole = deflated(float(budget.mu) ** 2, 1e-9)

    def fits(schedule: Schedule) -> bool:
        return sum(steps / sigma**2 for sigma, _, steps in schedule.planned) <= whole

    return Budget(budget, target.least_noise(fits))


def _approximate_gdp(target: _Target) -> Budget:
    rates = [rate for _, rate, _ in target.planned(1.0).planned]
    if not (max(rates) < 0.2 or min(rates) > 0.8):
        wrong = next((rate for rate in rates if 0.2 <= rate <= 0.8), max(rates))
        raise ValueError(
            f"rate must stay below 0.2 or above 0.8 for the approximate_gdp filter, got {wrong:g} in the plan"
            ": use --filter sampled_gaussian between"
        )
    regime = "small" if max(rates) < 0.2 else "large"
    budget = filters.for_target("approximate_gdp", target.epsilon, target.delta, regime=regime)
    whole = deflated(float(budget.budget), 1e-9)  # as in `_gdp`: the last planned step is not to be clipped

    def fits(schedule: Schedule) -> bool:
        sigmas, rates, steps = np.transpose(schedule.planned)
        return np.dot(steps, budget._cost(PoissonSampled(Gaussian(sigmas), rates))) <= whole

    plan = target.least_noise(fits)
    least, most = (float(end) for end in accounting.epsilon(planned_mechanism(plan), target.delta))
    note = f"the plan itself, fixed in advance, spends epsilon {rounded_down(least)} to {rounded_up(most)} (certified)"
    if least > target.epsilon:
        note += (
            f", above the target of {target.epsilon:g}: approximate_gdp is asymptotic, not a bound, and its "
            "approximation is poor here"
        )
    return Budget(budget, plan, note=note)


def _renyi(target: _Target) -> Budget:
    def least(orders: Sequence[float], precision: float = 1e-6) -> Schedule:
        def fits(schedule: Schedule) -> bool:
            return filters.plan_epsilon(planned_mechanism(schedule), target.delta, orders=orders) <= target.epsilon

        return target.least_noise(fits, precision)

    def best(orders: Sequence[float], rough: Schedule) -> float:
        return filters.plan_order(planned_mechanism(rough), target.delta, orders=orders)

    # Whole orders: a finite sum instead of an integral, hence a cheaper update in every step, for hardly
    # more noise.
    order = best([order for order in ORDERS if order == int(order)], least(_COARSE, 1e-2))
    if order <= _LOW:  # of a large epsilon, where fractions near 1 take up to a third less noise
        low = [order for order in ORDERS if order <= _LOW]
        order = best(low, least(low, 1e-2))
    budget = filters.renyi(target.epsilon, target.delta, order=order)
    return Budget(budget, least([order]))


_PLANS = {
    "sampled_gaussian": _sampled_gaussian,
    "closed_form": _closed_form,
    "renyi": _renyi,
    "gdp": _gdp,
    "approximate_gdp": _approximate_gdp,
}
