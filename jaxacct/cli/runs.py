"""Describes what runs: a mechanism, how it is sampled, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np

from jaxacct._types import Fields
from jaxacct.cli import warn
from jaxacct.cli.page import under
from jaxacct.cli.values import WHOLE

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
OPTIONS = {"epsilon": "each_epsilon", "delta": "each_delta"}
"""What a run's own epsilon and delta are called among the options, where they must not be taken for the question's."""
_NO_SETTINGS = ("records", "with_replacement", "shuffled")
_MOST_DELTA = 1e-3
_MOST_RECORDS = 100_000


class Run(NamedTuple):
    """A mechanism and how often it runs; values are numbers, or arrays in a sweep.

    Attributes:
        family: a key of `FAMILIES`.
        parameters: of the mechanism, by the library's names.
        sampling: how batches are drawn, by the names of the options, as far as that was said; always with a ``rate``,
            where 1 is no Poisson sampling.
        steps: how often; epochs, where these are drawn as a whole.
    """

    family: str
    parameters: Fields
    sampling: Fields
    steps: Number = 1

    def mechanism(self) -> Mechanism:
        """The mechanism of one step."""
        from jaxacct import mechanisms as m

        made, how = getattr(m, FAMILIES[self.family].name)(**self.parameters), self.sampling
        if "sample_size" in how:
            kind = m.SampledWithReplacement if "with_replacement" in how else m.SampledWithoutReplacement
            return kind(made, how["sample_size"], how["dataset_size"])
        if "shuffled" in how:
            return m.Shuffled(made, how["batches"])
        if "batches" in how:
            return m.RandomAllocation(made, how["batches"], how["participations"])
        rate = how["rate"]
        if "largest" in how:
            return m.TruncatedPoisson(made, rate, how["largest"], how["records"])
        # An array of rates is not 1, whatever is in it.
        return made if isinstance(rate, int | float) and rate == 1 else m.PoissonSampled(made, rate)

    def described(self) -> dict[str, object]:
        """What it is, for JSON; scalar values."""
        return {"mechanism": self.family, **self.parameters, **self.sampling, "steps": self.steps}

    def settings(self) -> dict[str, Number]:
        """Its numbers, by the names of the options."""
        own = {OPTIONS.get(name, name): value for name, value in self.parameters.items()}
        around = {name: value for name, value in self.sampling.items() if name not in _NO_SETTINGS}
        return {**own, **around, "steps": self.steps}

    def at(self, settings: Mapping[str, Number]) -> Run:
        """The same with other numbers in place of `settings`."""
        parameters = {name: settings[OPTIONS.get(name, name)] for name in self.parameters}
        sampling = {name: settings.get(name, value) for name, value in self.sampling.items()}
        if np.all(sampling["rate"] == 1.0):
            sampling["rate"] = 1.0
        return Run(self.family, parameters, sampling, settings["steps"])

    def sampler(self) -> str | None:
        """The way in which batches must be drawn for the answer to hold; None without sampling."""
        how = self.sampling
        if "sample_size" in how:
            with_or = "with" if "with_replacement" in how else "without"
            return f"batches of a fixed size drawn {with_or} replacement, anew and independently for each step"
        if "batches" in how:
            what = " ".join([*_one(how["batches"]), "batches"])
            if "shuffled" in how:
                return f"epochs of shuffled records, cut into {what} of one size; a shuffle for each epoch"
            count = "".join(_one(how["participations"])) or "some"
            return f"epochs of {what}, of which each record draws {count} by itself; not for shuffled batches"
        if np.all(how["rate"] == 1.0):
            return None
        rate = "".join(_one(how["rate"])) or "rate"
        cut = f" (larger batches are cut at random to {np.max(how['largest'])})" if "largest" in how else ""
        return (
            f"Poisson sampling: each record is in each batch with probability {rate}, independently of "
            f"everything{cut}; not for shuffled batches of a fixed size"
        )


def _one(value: Number) -> list[str]:
    """A number in words; nothing for several."""
    return [f"{float(np.max(value)):g}"] if np.size(value) == 1 else []


def composed(runs: list[Run]) -> tuple[Mechanism, Number]:
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


def attained_group(mechanism: Mechanism, records: Number, steps: Number = 1) -> tuple[Mechanism, str]:
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


def said_of_users(records: Number | None, why: str) -> list[str]:
    """Whose records neighbours differ in, and what the curve is."""
    return [] if records is None else [f"for all records of a user, who owns at most {records}: {why}"]


def warn_of_delta(delta: float, records: list[int]) -> None:
    """Warns where ``delta`` is above 1e-3, or above one over a number of records."""
    most = min([_MOST_DELTA, *(1.0 / count for count in records)])
    if delta > most:
        known = f"1 / records, {most:.3g}" if most < _MOST_DELTA else f"{_MOST_DELTA:g}"
        warn(f"delta {delta:g} is above {known}: publishing a few whole records can be as private as that")


def said_of(runs: list[Run], delta: Number | None = None) -> list[str]:
    """What an answer about sampled runs holds for, a line for each sampler.

    Warns of a ``delta``, one number or several, that is too large.
    """
    if delta is not None:
        warn_of_delta(float(np.max(delta)), [run.sampling["records"] for run in runs if "records" in run.sampling])
    return [f"holds for {one}" for one in dict.fromkeys(run.sampler() for run in runs) if one is not None]


def alike(steps: list[Number]) -> list[Number]:
    """Numbers of steps in one shape, as `Composed` wants them."""
    if all(isinstance(count, int) for count in steps):
        return steps
    return list(np.broadcast_arrays(*steps))
