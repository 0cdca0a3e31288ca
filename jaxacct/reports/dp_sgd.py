"""Writes a privacy statement for a DP-SGD run from certified bounds, in the manner of TensorFlow Privacy's."""

from __future__ import annotations

import dataclasses
import json
import math

from jaxacct import _validate, accounting
from jaxacct._printing import rounded_up
from jaxacct.mechanisms import Gaussian, PoissonSampled, RandomAllocation, UserLevel
from jaxacct.reports.document import Statement, least_mu
from jaxacct.reports.words import filled

_THEOREM = (
    "Composition of Poisson-sampled Gaussians that were fixed in advance, by their dominating pairs: a certified upper "
    "bound of the exact value, with discretisation, truncation and rounding counted."
)
_MOST_GROUP = 1000
_NOISE = (0.05, 1e4)  # beyond there is no epsilon worth a statement, or no noise that anybody adds


def dp_sgd_statement(
    *,
    records: int,
    batch: int,
    epochs: float,
    noise_multiplier: float,
    delta: float | None = None,
    records_per_user: int | None = None,
    certify: bool = False,
) -> Statement:
    """A privacy statement, in words, for a DP-SGD run that was fixed in advance, under the common samplers.

    It takes the place of TensorFlow Privacy's ``compute_dp_sgd_privacy_statement(number_of_examples, batch_size,
    num_epochs, noise_multiplier, delta, ..., max_examples_per_user)``. Microbatches are not covered.

    Args:
        records: number of training records, treated as public.
        batch: (expected) number of records in a batch.
        epochs: passes; the number of steps is epochs * records / batch, rounded up.
        noise_multiplier: standard deviation of the noise on the sum of clipped gradients, over the clip norm; from
            0.05 to 10,000.
        delta: by default the largest power of ten that is at most 1 / (10 records).
        records_per_user: if given, also the privacy of all records of a user, at most so many (`UserLevel`).
        certify: also a certificate of ``epsilon`` in ball arithmetic (the extra ``certify``).

    Returns:
        A `Statement`. Its ``epsilon`` is for Poisson samples, one record added or removed; its ``others`` hold
        "allocation", where every record draws one batch of each epoch at random; "no_sampling", where every record is
        in one batch of each epoch, however batches are made, and a record becomes one that counts as nothing; and with
        ``records_per_user`` "user", of all records of a user, for Poisson samples. All are certified upper bounds.

    Raises:
        ValueError: a bad value (named), or a batch that is larger than the data.
    """
    _validate.integer(1, 2**53, records=records, batch=batch)
    _validate.number(_validate.positive, epochs=epochs)
    _validate.number(noise_multiplier=noise_multiplier)
    _validate.at_least(_NOISE[0], noise_multiplier=noise_multiplier)
    _validate.at_most(_NOISE[1], noise_multiplier=noise_multiplier)
    records, batch, epochs, noise_multiplier = int(records), int(batch), float(epochs), float(noise_multiplier)
    if not epochs * (records / batch) <= 2.0**53:
        raise ValueError(f"epochs must come to at most 2**53 steps, got {epochs:g}")
    if batch > records:
        raise ValueError(f"batch must be at most records, {records}, got {batch}")
    if delta is None:
        delta = 10.0 ** -len(str(10 * records - 1))
    _validate.number(_validate.probability, delta=delta)
    if records_per_user is not None:
        _validate.integer(1, _MOST_GROUP, records_per_user=records_per_user)
    # A larger rate is less private.
    rate = min(math.nextafter(batch / records, 2.0), 1.0)
    steps = max(math.ceil(epochs * records / batch * (1 - 2.0**-45)), 1)
    noise, passes = Gaussian(noise_multiplier), math.ceil(epochs)
    step = PoissonSampled(noise, rate)
    epsilon = lambda mechanism, steps: float(accounting.epsilon(mechanism, delta, steps=steps).upper)  # noqa: E731
    batches = max(records // batch, 1)  # fewer batches are less private
    others = {
        "allocation": epsilon(RandomAllocation(noise, batches), passes), "no_sampling": epsilon(noise, passes),
    }  # fmt: skip
    if records_per_user is not None:
        others["user"] = epsilon(UserLevel(noise, rate, int(records_per_user)), steps)
    arguments = {
        "records": records, "batch": batch, "epochs": epochs, "noise_multiplier": noise_multiplier,
        "delta": float(delta), "records_per_user": records_per_user,
    }  # fmt: skip
    certificate = None
    if certify:
        from jaxacct import certificates

        certificate = json.loads(certificates.certify(step, delta=float(delta), steps=steps).to_json())
    found = Statement(
        unit="one training record",
        relation="add_or_remove",
        sampler=f"Poisson: every record is in each batch with probability {rate:.6g}, independently",
        theorem=_THEOREM,
        adaptive=False,
        is_bound=True,
        epsilon=epsilon(step, steps),
        delta=float(delta),
        mu=least_mu(step, steps),
        steps=steps,
        records=records,
        noise=[noise_multiplier, noise_multiplier],
        rate=[rate, rate],
        others=others,
        public=["the number of records"],
        source={"kind": "dp-sgd", "arguments": arguments},
        certificate=certificate,
    )
    return dataclasses.replace(found, text=_text(found, batch, epochs, noise_multiplier, records_per_user))


def _text(found: Statement, batch: int, epochs: float, noise: float, group: int | None) -> str:
    private = lambda found: f"differentially private with epsilon {rounded_up(found, 4)}, delta {delta}"  # noqa: E731
    delta, records, rate = f"{found.delta:g}", found.records or 0, (found.rate or [0.0])[0]
    passes = "1 epoch" if epochs == 1 else f"{epochs:g} epochs"
    parts = [
        f"DP-SGD on {records:,} training records: {found.steps:,} steps ({passes} of batches of {batch:,}), "
        f"each the sum of clipped per-record gradients with Gaussian noise of {noise:g} clip norms. Whoever sees all "
        "intermediate models and the final one learns about any single record at most what the following allow. The "
        f"numbers are proven upper bounds at delta = {delta}; the unit of privacy is one training record.",
        f"If each batch is a Poisson sample (every record is in it with probability {rate:.6g}, independently), "
        f"the run is {private(found.epsilon or 0.0)} for adding or removing a record.",
        'If every record draws, independently, one batch of each epoch at random ("balls in bins"), it is '
        f"{private(found.others['allocation'])} for adding or removing a record.",
        "If batches are made in any other way that does not look at the records' values, with every record in one "
        f"batch of each epoch (shuffled or in order), it is {private(found.others['no_sampling'])} "
        "for replacing a record by one whose gradient is zero. Shuffling may give more than that; none is claimed.",
    ]
    if group is not None:
        parts.append(
            f"For all records of one user, at most {group:,}, the run of Poisson samples is "
            f"{private(found.others['user'])} for adding or removing the user."
        )
    parts.append(
        "Assumed: noise, batch size and number of steps were fixed before any training record was used; the number of "
        "records is public; each record's gradient is clipped by itself (no batch normalisation, no microbatches); "
        "noise and samples are what they are said to be, in real arithmetic. Not covered: earlier runs on these "
        "records, such as those that chose hyperparameters; statistics of them that were published otherwise."
    )
    if found.delta >= 1.0 / records:
        parts.append(f"Warning: delta is not below 1 / records, {1.0 / records:.3g}: choose a smaller one.")
    return filled(parts)
