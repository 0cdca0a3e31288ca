"""Schedules: which noise multiplier and sampling rate each step asks for, from released quantities only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float32 import no_less
from jaxacct._types import PyTree
from jaxacct.mechanisms import Gaussian, PoissonSampled

__all__ = ["ReleasedValues", "Schedule", "adaptive", "constant", "warmup_decay"]

_STAIRS = 16
_LOWEST, _HIGHEST = -2, 4  # levels of adaptive noise, four an octave
_GAIN = 0.002  # of accuracy, that counts as progress


class ReleasedValues(NamedTuple):
    """What a schedule may look at: nothing here depends on private data except through a release.

    Attributes:
        gradient_norm: () float32, norm of the last noisy, averaged gradient (0 before the first step).
        noise_norm: () float32, what that norm would be of the noise alone (0 before the first step).
        accuracy: () float32, accuracy of the parameters on held-out data declared public; -1 before the first
            evaluation.
        evaluations: () int32, how often the accuracy has been measured.
        clip_norm: () float32, the clip norm of the next step where it moves with releases, else 0.
    """

    gradient_norm: jax.Array
    noise_norm: jax.Array
    accuracy: jax.Array
    evaluations: jax.Array
    clip_norm: jax.Array

    @classmethod
    def nothing(cls) -> ReleasedValues:
        """Before the first step."""
        return cls(jnp.float32(0.0), jnp.float32(0.0), jnp.float32(-1.0), jnp.int32(0), jnp.float32(0.0))

    def with_accuracy(self, accuracy: ArrayLike) -> ReleasedValues:
        """After one more evaluation."""
        return self._replace(accuracy=jnp.asarray(accuracy, jnp.float32), evaluations=self.evaluations + 1)


class Schedule(NamedTuple):
    """A schedule as a pair of pure functions, beside its plan.

    Attributes:
        init: () -> state.
        propose: (step, state, released) -> (sigma, rate, state), scalars float32, jittable. ``step`` counts
            admitted steps from 0.
        planned: (sigma, rate, steps) triples of the plan, in order; float32 values held as Python floats.
            For an adaptive schedule it is the plan that the noise was calibrated for, not a promise.
        is_adaptive: whether what is proposed depends on releases, so that the realised path is random.
        full_batch: whether every step uses everyone (rate exactly 1), which needs no coins.
        levels: every (sigma, rate) pair that it may ever propose; empty where that is no finite list.
    """

    init: Callable[[], PyTree]
    propose: Callable[[jax.Array, PyTree, ReleasedValues], tuple[jax.Array, jax.Array, PyTree]]
    planned: tuple[tuple[float, float, int], ...]
    is_adaptive: bool
    full_batch: bool
    levels: tuple[tuple[float, float], ...] = ()

    def menu(self) -> list[Gaussian | PoissonSampled]:
        """Every query that the schedule may make: for `filters.menu`, or for :func:`jaxacct.training.on_levels`.

        Raises:
            ValueError: a schedule whose levels are not listed.
        """
        if not self.levels:
            raise ValueError("schedule must list its levels to have a menu, got none")
        return [self.query(sigma, rate) for sigma, rate in self.levels]

    def query(self, sigma: ArrayLike, rate: ArrayLike) -> Gaussian | PoissonSampled:
        """What a step that asks for ``sigma`` and ``rate`` is charged for."""
        return Gaussian(sigma) if self.full_batch else PoissonSampled(Gaussian(sigma), rate)

    @property
    def steps(self) -> int:
        """How many steps the plan holds."""
        return sum(steps for _, _, steps in self.planned)


def step_mechanism(sigma: ArrayLike, rate: float) -> Gaussian | PoissonSampled:
    """A step of planned numbers as a mechanism: at rate 1 there is no sampling."""
    return Gaussian(sigma) if rate == 1 else PoissonSampled(Gaussian(sigma), rate)


def constant(sigma: float, rate: float, steps: int) -> Schedule:
    """The same noise multiplier and sampling rate at every step.

    Raises:
        ValueError: sigma not above 0, rate not in (0, 1], or steps not a whole number above 0.
    """
    check_plan(sigma, rate, steps)
    return _fixed([(sigma, rate, steps)])


def warmup_decay(sigma: float, rate: float, steps: int) -> Schedule:
    """Small samples first, then less and less noise: fixed in advance, in sixteen stairs.

    The rate climbs from rate / 2 to ``rate`` over the first eighth of the steps, where gradients agree and
    little data shows the way; the noise multiplier falls on a half cosine from 1.25 sigma to 0.85 sigma,
    because late, small gradients drown in noise that early ones bear. At rate 1 the rate stays 1 and only
    the noise moves.

    Raises:
        ValueError: as :func:`constant`.
    """
    check_plan(sigma, rate, steps)
    edges = [round(steps * stair / _STAIRS) for stair in range(_STAIRS + 1)]
    parts = []
    for stair, (first, end) in enumerate(itertools.pairwise(edges)):
        noise = sigma * (1.05 + 0.20 * math.cos(math.pi * stair / (_STAIRS - 1)))
        share = 1.0 if rate == 1 else min(1.0, 0.5 + 0.25 * stair)
        if end > first:
            parts.append((noise, rate * share, end - first))
    return _fixed(parts)


def adaptive(sigma: float, rate: float, steps: int) -> Schedule:
    """Noise that reacts to releases: more of it while held-out accuracy climbs, less when progress stalls.

    The multiplier is sigma * 2^(level / 4) with a whole level from -2 to 4, starting at 2: from 0.7 to 2 times
    ``sigma``. After each evaluation of the (public) held-out accuracy the level goes up by one if the best accuracy so
    far was beaten by more than 0.002, down by one if not; it also goes down when the noisy gradient is no longer than
    its noise alone would be (within 5 %), because such a step learns nothing. The number of steps is the filter's to
    decide.

    Raises:
        ValueError: as :func:`constant`.
    """
    check_plan(sigma, rate, steps)
    table = np.asarray(no_less(sigma * 2.0 ** (np.arange(_LOWEST, _HIGHEST + 1) / 4)))
    share = np.float32(rate)

    def init() -> tuple[jax.Array, jax.Array, jax.Array]:
        return jnp.int32(2), jnp.float32(-jnp.inf), jnp.int32(0)

    def propose(step: jax.Array, state: PyTree, released: ReleasedValues) -> tuple[jax.Array, jax.Array, PyTree]:
        del step
        level, best, seen = state
        fresh = released.evaluations > seen
        better = released.accuracy > best + jnp.float32(_GAIN)
        drowned = released.gradient_norm <= jnp.float32(1.05) * released.noise_norm
        move = jnp.where(better, 1, -1) - jnp.where(drowned & better, 1, 0)
        level = jnp.where(fresh, jnp.clip(level + move, _LOWEST, _HIGHEST), level).astype(jnp.int32)
        best = jnp.where(fresh & (released.accuracy > best), released.accuracy, best)
        return jnp.asarray(table)[level - _LOWEST], jnp.asarray(share), (level, best, released.evaluations)

    planned = ((float(table[-_LOWEST]), float(share), steps),)
    levels = tuple((float(sigma), float(share)) for sigma in table)
    return Schedule(init, propose, planned, is_adaptive=True, full_batch=rate == 1, levels=levels)


def _fixed(parts: list[tuple[float, float, int]]) -> Schedule:
    # Noise is rounded up, so that a calibrated plan still fits its budget.
    planned = tuple((float(no_less(sigma)), float(np.float32(rate)), count) for sigma, rate, count in parts)
    ends = np.cumsum([count for _, _, count in planned]).astype(np.int32)
    sigmas = np.array([sigma for sigma, _, _ in planned], np.float32)
    rates = np.array([rate for _, rate, _ in planned], np.float32)

    def propose(step: jax.Array, state: PyTree, released: ReleasedValues) -> tuple[jax.Array, jax.Array, PyTree]:
        del released
        stair = jnp.sum(jnp.asarray(ends)[:-1] <= step)
        return jnp.asarray(sigmas)[stair], jnp.asarray(rates)[stair], state

    levels = tuple(sorted({(sigma, rate) for sigma, rate, _ in planned}))
    return Schedule(lambda: (), propose, planned, False, bool(np.all(rates == 1)), levels)


def check_plan(sigma: float, rate: float, steps: int) -> None:
    """Raises ValueError where a schedule of these numbers makes no sense."""
    _validate.number(_validate.positive, sigma=sigma, rate=rate)
    _validate.at_most(1e30, sigma=sigma)  # and some octaves more are float32 numbers
    _validate.rate(rate=rate)
    _validate.number(_validate.count, steps=steps)


SCHEDULES = {"constant": constant, "warmup_decay": warmup_decay, "adaptive": adaptive}
