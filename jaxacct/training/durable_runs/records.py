"""The records of a run's journal: its settings, and the steps that were charged."""

from __future__ import annotations

import math
import platform
import subprocess
import time
from pathlib import Path

import jax

from jaxacct._version import __version__
from jaxacct.training.durable_runs.journal import Record
from jaxacct.training.loop import StepRecord, charged_sigma

_NUMBER = int | float
_TYPES = {
    "filter": str, "settings": dict, "account": list, "made": dict, "attempt": int, "from_step": int, "step": int,
    "sigma": _NUMBER, "rate": _NUMBER, "clip_scale": _NUMBER, "budget_left": _NUMBER, "filter_state": list,
    "gradient_norm": _NUMBER | None, "value": _NUMBER | None, "digest": str, "seal": str,
}  # fmt: skip
_FIELDS = {
    "run": {"filter", "settings", "account", "made"},
    "attempt": {"attempt", "from_step"},
    "charge": {"step", "sigma", "rate", "clip_scale", "budget_left", "filter_state"},
    "done": {"step", "gradient_norm"},
    "accuracy": {"step", "value"},
    "checkpoint": {"step", "digest"},
    "report": {"seal"},
}


def made() -> dict[str, object]:
    """When, with what and from which commit of the user's repository something is made; JSON."""
    return {"date": time.strftime("%FT%T%z"), "commit": _commit(), **software()}


def software() -> dict[str, object]:
    """What decides the last bits of an account: versions, the processor, and whether JAX computes in 64 bits."""
    return {
        "jaxacct": __version__,
        "jax": jax.__version__,
        "platform": f"{jax.default_backend()}, {platform.machine()}",
        "x64": bool(jax.config.values["jax_enable_x64"]),
    }


def _commit() -> str | None:
    """The commit of the repository around the working directory, marked where files differ from it; None without."""
    words = ["git", "describe", "--always", "--abbrev=40", "--dirty=, with changes", "--exclude=*"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=10.0, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def check(path: Path, records: list[Record]) -> None:
    """Raises ValueError where a journal, whose seals are sound, holds something else than the records of a run."""
    for number, record in enumerate(records, 1):
        kind = record.get("kind") if isinstance(record, dict) else None
        fields = _FIELDS.get(kind) if isinstance(kind, str) else None
        if (
            fields is None
            or (kind == "run") != (number == 1)
            or not all(name in record and isinstance(record[name], _TYPES[name]) for name in fields)
        ):
            raise ValueError(f"journal {path} line {number}: not a valid run record: {record!r:.200}")


def agree(path: Path, found: Record, header: Record) -> None:
    """Raises ValueError where a run is resumed with another filter or other settings than ``found``, of its journal."""
    if found["filter"] != header["filter"]:
        raise ValueError(f"filter must be the one that journal {path} began with: its budget cannot change")
    for name, value in header["settings"].items():
        if found["settings"].get(name) != value:
            raise ValueError(f"{name} must stay {found['settings'].get(name)} when a run is resumed, got {value}")


def history(records: list[Record]) -> tuple[list[StepRecord], list[tuple[int, float]]]:
    """The steps charged and the evaluations in a journal; what an attempt did not start from is lost.

    Raises:
        ValueError: a step that is done and was never charged.
    """
    steps: list[StepRecord] = []
    evaluations: list[tuple[int, float]] = []
    for record in records:
        kind = record["kind"]
        if kind == "attempt":
            start = record["from_step"]
            steps = [one._replace(lost=one.lost or one.step > start) for one in steps]
            evaluations = [one for one in evaluations if one[0] <= start]
        elif kind == "charge":
            sigma = charged_sigma(record["sigma"], record["clip_scale"])
            charge = record["rate"], record["clip_scale"], math.nan, record["budget_left"]
            steps.append(StepRecord(record["step"], sigma, *charge))
        elif kind == "done" and record["gradient_norm"] is not None:
            place = next((i for i in reversed(range(len(steps))) if steps[i].step == record["step"]), None)
            if place is None:
                raise ValueError(f"the journal says that step {record['step']} is done, which it never charged")
            steps[place] = steps[place]._replace(gradient_norm=record["gradient_norm"])
        elif kind == "accuracy":
            evaluations.append((record["step"], math.nan if record["value"] is None else record["value"]))
    return steps, evaluations
