"""Describes what runs: a mechanism, how it is sampled, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from jaxacct._types import Fields
from jaxacct.cli.page import WHOLE, under

if TYPE_CHECKING:
    from jaxacct.mechanisms.base import Mechanism


Number = float | np.ndarray
"""A number, or an array of them in a sweep."""


class Family(NamedTuple):
    """How a mechanism is called on the command line.

    Attributes:
        name: of the class in :mod:`jaxacct.mechanisms`.
        needs: its parameters.
        may: those that have a default.
        seeks: the parameter that `calibrate` looks for.
        bracket: where, if not among noise from 1e-3 to 1e6: then the largest value is looked for, not the smallest.
    """

    name: str
    needs: tuple[str, ...]
    may: tuple[str, ...]
    seeks: str
    bracket: tuple[float, float] | None = None


_LOSSES = (1e-6, 100.0)
FAMILIES = {
    "gaussian": Family("Gaussian", ("sigma",), ("sensitivity",), "sigma"),
    "laplace": Family("Laplace", ("scale",), ("sensitivity",), "scale"),
    "discrete-gaussian": Family("DiscreteGaussian", ("sigma",), ("sensitivity",), "sigma"),
    "discrete-laplace": Family("DiscreteLaplace", ("scale",), ("sensitivity",), "scale"),
    "skellam": Family("Skellam", ("mu",), ("sensitivity",), "mu"),
    "randomized-response": Family("RandomizedResponse", ("epsilon",), ("categories",), "epsilon", _LOSSES),
    "exponential": Family("Exponential", ("epsilon",), (), "epsilon", _LOSSES),
    "permute-and-flip": Family("PermuteAndFlip", ("epsilon",), (), "epsilon", _LOSSES),
    "pure-dp": Family("PureDP", ("epsilon",), (), "epsilon", _LOSSES),
    "approximate-dp": Family("ApproximateDP", ("epsilon", "delta"), (), "epsilon", _LOSSES),
    "gdp": Family("GDP", ("mu",), (), "mu", (1e-6, 1e3)),
    "zcdp": Family("ZeroConcentratedDP", ("rho",), (), "rho", (1e-12, 1e4)),
    "renyi-dp": Family("RenyiDP", ("order", "epsilon"), (), "epsilon", (1e-9, 1e4)),
}
_MOST_DELTA = 1e-3
_MOST_RECORDS = 100_000


class Run(NamedTuple):
    """A mechanism and how often it runs; values are numbers, or arrays in a sweep.

    Attributes:
        family: a key of `FAMILIES`.
        parameters: of the mechanism, by the library's names.
        rate: of Poisson sampling; 1 is none.
        sample: (sample size, data set size) of samples of a fixed size, or None.
        steps: how often.
        records: in the data set, where that was said.
        largest: to how many records a Poisson sample is cut, or None.
        replaced: whether samples of a fixed size are drawn with replacement.
        epoch: (batches, participations) of epochs drawn as a whole, which ``steps`` then counts; participations are
            None for a shuffle. Or None.
    """

    family: str
    parameters: Fields
    rate: Number = 1.0
    sample: tuple[Number, Number] | None = None
    steps: Any = 1
    records: int | None = None
    largest: Number | None = None
    replaced: bool = False
    epoch: tuple[Number, Number | None] | None = None

    def mechanism(self) -> Mechanism:
        """The mechanism of one step."""
        from jaxacct import mechanisms as m

        made = getattr(m, FAMILIES[self.family].name)(**self.parameters)
        if self.largest is not None:
            return m.TruncatedPoisson(made, self.rate, self.largest, self.records)  # pyright: ignore[reportArgumentType]
        if self.sample is not None:
            kind = m.SampledWithReplacement if self.replaced else m.SampledWithoutReplacement
            made = kind(made, *self.sample)
        if self.epoch is not None:
            batches, times = self.epoch
            return m.Shuffled(made, batches) if times is None else m.RandomAllocation(made, batches, times)
        # An array of rates is not 1, whatever is in it.
        none = isinstance(self.rate, (int, float)) and self.rate == 1
        return made if none else m.PoissonSampled(made, self.rate)

    def described(self) -> dict[str, object]:
        """What it is, for JSON; scalar values."""
        around: dict[str, object] = {"rate": self.rate}
        if self.sample is not None:
            around |= dict(zip(("sample_size", "dataset_size"), self.sample, strict=True))
        known: dict[str, object] = {} if self.records is None else {"records": self.records}
        if self.largest is not None:
            known["largest"] = self.largest
        if self.epoch is not None:
            known["batches"], times = self.epoch
            known |= {"shuffled": True} if times is None else {"participations": times}
        if self.replaced:
            known["with_replacement"] = True
        return {"mechanism": self.family, **self.parameters, **around, "steps": self.steps, **known}

    def sampler(self) -> str | None:
        """The way in which batches must be drawn for the answer to hold; None without sampling."""
        if self.sample is not None:
            how = "with" if self.replaced else "without"
            return f"batches of a fixed size drawn {how} replacement, anew and independently for each step"
        if self.epoch is not None:
            batches, times = self.epoch
            what = f"{float(np.max(batches)):g} batches" if np.size(batches) == 1 else "batches"
            if times is None:
                return f"epochs of shuffled records, cut into {what} of one size; a shuffle for each epoch"
            count = f"{float(np.max(times)):g}" if np.size(times) == 1 else "some"
            return f"epochs of {what}, of which each record draws {count} by itself; not for shuffled batches"
        if np.ndim(self.rate) == 0 and float(self.rate) == 1.0:
            return None
        rate = f" {float(self.rate):g}" if np.ndim(self.rate) == 0 else " rate"
        cut = "" if self.largest is None else f" (larger batches are cut at random to {np.max(self.largest)})"
        return (
            f"Poisson sampling: each record is in each batch with probability{rate}, independently of "
            f"everything{cut}; not for shuffled batches of a fixed size"
        )


def composed(runs: list[Run]) -> tuple[Mechanism, Any]:
    """(mechanism, steps) of all of them together."""
    if len(runs) == 1:
        return runs[0].mechanism(), runs[0].steps
    from jaxacct.mechanisms import Composed

    return Composed([run.mechanism() for run in runs], alike([run.steps for run in runs])), 1


users_option = under("Question")(
    "--records-per-user", type=WHOLE, help="Neighbours differ in all records of a user, who owns at most so many."
)


def check_users(records: int | None, relation: str) -> None:
    """Refuses relations under which users have no analysis."""
    if records is not None and relation not in ("add_or_remove", "add", "remove"):
        raise click.UsageError(f"--records-per-user goes with relation add_or_remove, add or remove, not {relation}")


def attained_group(mechanism: Mechanism, records: Any, steps: Any = 1) -> tuple[Mechanism, str]:
    """`group_of` where it is tight, and why; a usage error elsewhere."""
    from jaxacct.summaries.group import group_of

    if np.any(np.asarray(records) > _MOST_RECORDS) or np.any(np.asarray(records) < 1):
        raise click.UsageError(f"--records-per-user must be from 1 to {_MOST_RECORDS}, got {records}")
    found = group_of(mechanism, records, steps=steps)
    if not found.tight:
        raise click.UsageError(
            "--records-per-user goes with Gaussian and Laplace noise and with Poisson samples of Gaussian noise here; "
            "`jaxacct epsilon` and `delta` have group privacy for the rest"
        )
    return found.mechanism, found.why


def said_of_users(records: Any, why: str) -> list[str]:
    """Whose records neighbours differ in, and what the curve is."""
    return [] if records is None else [f"for all records of a user, who owns at most {records}: {why}"]


def warn_of_delta(delta: float, records: list[int]) -> None:
    """Warns where ``delta`` is above 1e-3, or above one over a number of records."""
    most = min([_MOST_DELTA, *(1.0 / count for count in records)])
    if delta > most:
        known = f"1 / records, {most:.3g}" if most < _MOST_DELTA else f"{_MOST_DELTA:g}"
        words = f"delta {delta:g} is above {known}: publishing a few whole records can be as private as that"
        click.echo(f"jaxacct: warning: {words}", err=True)


def said_of(runs: list[Run], delta: Number | None = None) -> list[str]:
    """What an answer about sampled runs holds for, a line for each sampler.

    Warns of a ``delta``, one number or several, that is too large.
    """
    if delta is not None:
        warn_of_delta(float(np.max(delta)), [run.records for run in runs if run.records is not None])
    return [f"holds for {one}" for one in dict.fromkeys(run.sampler() for run in runs) if one is not None]


def alike(steps: list[Number]) -> list[Number]:
    """Numbers of steps in one shape, as `Composed` wants them."""
    if all(isinstance(count, int) for count in steps):
        return steps
    return list(np.broadcast_arrays(*steps))
