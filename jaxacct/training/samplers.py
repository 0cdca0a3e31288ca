"""Samplers: they draw what a mechanism was accounted for.

`sampler` reads everything off the mechanism that the filter is asked with: who is in a batch, how often a batch is
drawn anew, and how large noise is. So the draw and the account cannot disagree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float32 import no_less
from jaxacct.filters.prices.menu import menu
from jaxacct.filters.prices.table import TableFilter
from jaxacct.mechanisms.base import as_mechanism, shapes_of_settings
from jaxacct.training.runs import Runs
from jaxacct.training.sampling import Sample, draw_lanes, in_lanes, lanes_of
from jaxacct.training.samplings import SAMPLINGS, steps_of_run
from jaxacct.training.schedules import Schedule, constant

if TYPE_CHECKING:
    from jaxacct.mechanisms.base import Mechanism


@dataclasses.dataclass(frozen=True, eq=False)
class Sampler(Runs):
    """Draws the batches of a mechanism; make it with `sampler`. Static: a program holds it as a constant.

    Attributes:
        mechanism, steps: as in `Runs`: what one run is accounted for as, and how many training steps it takes.
        size: number of examples, public.
        capacity: places of a sample, static; no sample has more examples.
        expected: the public number that sums are divided by.
        noise_multiplier: standard deviation of the noise, in clip norms; a float32, rounded up.
        draw: ``draw(key, step) -> Sample`` of step ``step`` (from 0) of a run whose root of coins is ``key``; jittable.
    """

    size: int
    capacity: int
    expected: float
    noise_multiplier: float
    draw: Callable[[jax.Array, ArrayLike], Sample]

    def filter(self, epsilon: float, delta: float) -> TableFilter:
        """A filter whose menu is this mechanism alone, at position 0: a query is one run of it.

        Raises:
            ValueError: see :func:`jaxacct.filters.menu`.
        """
        return menu([self.mechanism], epsilon=epsilon, delta=delta)

    def schedule(self, steps: int) -> Schedule:
        """The schedule of ``steps`` steps with this sampler's noise and rate, the only one that goes with it.

        Raises:
            ValueError: steps not a whole number above 0.
        """
        return constant(self.noise_multiplier, min(self.expected / self.size, 1.0), steps)


def sampler(mechanism: Mechanism, size: int, *, piece: int = 256) -> Sampler:
    """The sampler of a `PoissonSampled`, `TruncatedPoisson`, `SampledWithoutReplacement`, `SampledWithReplacement`,
    `RandomAllocation` or `Shuffled` Gaussian.

    Args:
        mechanism: with concrete scalar parameters. A fixed-size sample has the sensitivity of *replaced* records, twice
            the clip norm, and so has its noise.
        size: number of examples, public; the ``records`` or ``dataset_size`` of mechanisms that have one.
        piece: most examples in a piece of a sample, see :func:`jaxacct.training.take_piece`; 8 on a CPU.

    Raises:
        ValueError: another mechanism, parameters that are not concrete scalars, or another number of examples.
    """
    _validate.whole(size=size, piece=piece)
    size, piece = int(size), int(piece)
    mechanism = as_mechanism(mechanism)
    draws = {one.kind: one.draw for one in SAMPLINGS.values()}
    if type(mechanism) not in draws:
        names = ", ".join(kind.__name__ for kind in draws)
        raise ValueError(f"mechanism must be one of {names}, got {type(mechanism).__name__}")
    if any(shapes_of_settings(mechanism)) or _validate.is_traced(mechanism):
        raise ValueError("mechanism must have concrete scalar parameters to draw from")
    inner: Any = getattr(mechanism, "mechanism")  # noqa: B009
    noise = as_mechanism(inner)._gaussian_noise()
    if noise is None:
        raise ValueError(f"mechanism must sample a Gaussian, got {type(inner).__name__}")
    drawn, run_steps = draws[type(mechanism)](mechanism, size), steps_of_run(mechanism)
    piece = lanes_of(piece, drawn.places)

    def draw(key: jax.Array, step: ArrayLike) -> Sample:
        number, steps = jnp.asarray(step, jnp.uint32), jnp.uint32(run_steps)
        # One key for each run of the mechanism: an epoch's batches are parts of one draw. Lanes are new in each batch.
        run, places = jax.random.split(jax.random.fold_in(key, number // steps))
        indices, valid = drawn.who(run, number % steps)
        lanes = draw_lanes(jax.random.fold_in(places, number % steps), drawn.places, piece)
        sample = in_lanes(valid, lanes, piece)
        return sample if indices is None else dataclasses.replace(sample, indices=indices[sample.indices])

    least_noise = float(no_less(drawn.moved * noise))
    return Sampler(mechanism, run_steps, size, drawn.places, float(drawn.expected), least_noise, draw)
