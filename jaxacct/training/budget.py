"""`plan_budget`: the filter for (epsilon, delta), and the least noise with which the planned steps fit it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxacct import _validate, accounting, filters
from jaxacct._numerics.rounding import deflated
from jaxacct.filters.additive.plan_order import ORDERS
from jaxacct.filters.names import canonical
from jaxacct.mechanisms import Composed, Gaussian, PoissonSampled
from jaxacct.training.batches_budget import plan_batches
from jaxacct.training.samplers import Sampler
from jaxacct.training.samplings import SAMPLINGS
from jaxacct.training.schedules import SCHEDULES, Schedule, check_plan, step_mechanism

Progress: TypeAlias = Callable[[int, int], object] | None

FILTERS = ("sampled_gaussian", "renyi", "gdp", "approximate_gdp", "menu")

_ROOM = 1.12  # of noise above what the plan, fixed in advance, would take
_LEAST_SIGMA, _MOST_SIGMA = 0.05, 1e4


class Budget(NamedTuple):
    """A filter and the schedule that was calibrated for it.

    Attributes:
        filter: from :mod:`jaxacct.filters`.
        schedule: its plan fits the filter; an adaptive schedule may leave the plan, never the filter.
        unit: the unit of the filter's ``spent``.
        sampler: for :func:`jaxacct.training.make_step`, whose mechanism the filter is asked with; None where the
            schedule says what is asked.
    """

    filter: Any
    schedule: Schedule
    unit: str
    sampler: Sampler | None = None


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
    progress: Progress = None,
) -> Budget:
    """The filter for (epsilon, delta) and the schedule with the least noise whose planned steps it admits.

    Everything here is decided before training and from public numbers, the Rényi order included. The filter "menu"
    comes with a sampler, and is asked with its mechanism.

    Args:
        filter: "sampled_gaussian" (a bound, whatever noise and rate a step of the schedule's range has), "renyi" (a
            looser bound), "gdp" (everyone in every step, rate 1), "approximate_gdp" (asymptotic only) or "menu" (a
            bound for ``sampling`` and constant noise). ``-`` may stand for ``_``, here and below.
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
    _validate.one_of(FILTERS, filter=filter)
    _validate.one_of(tuple(SCHEDULES), schedule=schedule)
    _validate.number(_validate.positive, epsilon=epsilon)
    _validate.number(_validate.probability, delta=delta)
    check_plan(1.0, rate, steps)
    _validate.one_of(tuple(SAMPLINGS), sampling=sampling)
    if filter == "menu":
        if schedule != "constant":
            raise ValueError(f"schedule must be 'constant' for the filter 'menu', got {schedule!r}")
        asked = float(epsilon), float(delta), int(steps), float(rate)
        sampler, least, count = plan_batches(sampling, *asked, size, largest, physical_batch)
        return Budget(least, sampler.schedule(count), "units", sampler)
    for name, value, only in (("sampling", sampling, "poisson"), ("size", size, None), ("largest", largest, None)):
        if value != only:
            raise ValueError(f"{name} is for the filter 'menu', got {value!r:.200} with {filter!r}")

    def planned(sigma: float) -> Schedule:
        return SCHEDULES[schedule](sigma, rate, steps)

    if filter == "sampled_gaussian":
        return _sampled_gaussian(planned, epsilon, delta, progress)
    if filter == "gdp":
        return _gdp(planned, epsilon, delta, rate)
    if filter == "approximate_gdp":
        return _approximate_gdp(planned, epsilon, delta)
    return _renyi(planned, epsilon, delta)


def planned_mechanism(schedule: Schedule) -> Composed:
    """The schedule's plan as one mechanism (noise multipliers for sensitivity 1)."""
    _validate.instance(Schedule, schedule=schedule)
    return Composed(
        [step_mechanism(sigma, rate) for sigma, rate, _ in schedule.planned],
        [steps for _, _, steps in schedule.planned],
    )


def _sampled_gaussian(planned: Callable[[float], Schedule], epsilon: float, delta: float, progress: Progress) -> Budget:
    def within(schedule: Schedule) -> bool:
        return bool(accounting.epsilon(planned_mechanism(schedule), delta).lower <= epsilon)

    # No filter admits a plan of which the cost, fixed in advance, is above its target.
    floor = _least_noise(planned, within, epsilon, precision=1e-3)
    base = floor.planned[0][0] / planned(1.0).planned[0][0]  # the multiplier that ``planned`` was given, about
    most = planned(base * _ROOM)
    sigmas, rates = ([pair[i] for plan in (floor, most) for pair in plan.levels] for i in range(2))
    box = filters.sampled_gaussian(
        sigma=(min(sigmas), max(sigmas)),
        rate=(min(rates), max(rates)),
        epsilon=epsilon,
        delta=delta,
        progress=progress,
    )

    def fits(schedule: Schedule) -> bool:
        inside = all(sigma >= min(sigmas) for sigma, _ in schedule.levels)
        return inside and bool(box.update(planned_mechanism(schedule), box.init())[0])

    return Budget(box, _least_noise(planned, fits, epsilon, precision=1e-5), "units")


def _gdp(planned: Callable[[float], Schedule], epsilon: float, delta: float, rate: float) -> Budget:
    if rate != 1:
        raise ValueError(
            f"rate must be 1 for the gdp filter (a sampled Gaussian has no GDP parameter), got {rate:g}: "
            "use --rate 1, or --filter sampled_gaussian"
        )
    budget = filters.for_target("gdp", epsilon, delta)
    # A little short of the budget: steps that are charged one by one round more often than their sum does.
    whole = deflated(float(budget.mu) ** 2, 1e-9)

    def fits(schedule: Schedule) -> bool:
        return sum(steps / sigma**2 for sigma, _, steps in schedule.planned) <= whole

    return Budget(budget, _least_noise(planned, fits, epsilon), "mu (GDP)")


def _approximate_gdp(planned: Callable[[float], Schedule], epsilon: float, delta: float) -> Budget:
    rates = [rate for _, rate, _ in planned(1.0).planned]
    if not (max(rates) < 0.2 or min(rates) > 0.8):
        wrong = next((rate for rate in rates if 0.2 <= rate <= 0.8), max(rates))
        raise ValueError(
            f"rate must stay below 0.2 or above 0.8 for the approximate_gdp filter, got {wrong:g} in the plan"
            ": use --filter sampled_gaussian between"
        )
    regime = "small" if max(rates) < 0.2 else "large"
    budget = filters.for_target("approximate_gdp", epsilon, delta, regime=regime)
    whole = deflated(float(budget.budget), 1e-9)  # as in `_gdp`: the last planned step is not to be clipped

    def fits(schedule: Schedule) -> bool:
        sigmas, rates, steps = np.transpose(schedule.planned)
        return np.dot(steps, budget._cost(PoissonSampled(Gaussian(sigmas), rates))) <= whole

    return Budget(budget, _least_noise(planned, fits, epsilon), "B")


def _renyi(planned: Callable[[float], Schedule], epsilon: float, delta: float) -> Budget:
    coarse = [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 63, 128, 256, 512]

    def within(orders: Sequence[float]) -> Callable[[Schedule], bool]:
        return lambda schedule: filters.plan_epsilon(planned_mechanism(schedule), delta, orders=orders) <= epsilon

    rough = _least_noise(planned, within(coarse), epsilon, precision=1e-2)
    # Whole orders: a finite sum instead of an integral, hence a cheaper update in every step, for hardly
    # more noise.
    whole = [order for order in ORDERS if order == int(order)]
    order = filters.plan_order(planned_mechanism(rough), delta, orders=whole)
    chosen = _least_noise(planned, within([order]), epsilon)
    return Budget(filters.renyi(epsilon, delta, order=order), chosen, f"Rényi divergence of order {order:g}")


def _least_noise(
    planned: Callable[[float], Schedule],
    fits: Callable[[Schedule], bool],
    epsilon: float,
    precision: float = 1e-6,
) -> Schedule:
    """The plan with the smallest base multiplier that fits, by bisection of its logarithm."""
    low, high = math.log(_LEAST_SIGMA), math.log(_MOST_SIGMA)
    if not fits(planned(math.exp(high))):
        raise ValueError(
            f"epsilon must be larger for this many steps, got {epsilon:g}: not even noise {_MOST_SIGMA:g} fits"
        )
    if fits(planned(math.exp(low))):
        return planned(math.exp(low))
    while high - low > precision:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(planned(math.exp(middle))) else (middle, high)
    return planned(math.exp(high))
