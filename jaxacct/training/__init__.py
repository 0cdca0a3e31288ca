"""DP-SGD with Flax and optax under a filter: small functions over pytrees that fit a user's own loop.

A step, from the outside in: :func:`make_step` asks the filter and runs :func:`noisy_gradient`, which is
:func:`poisson_sample`, :func:`clipped_gradient_sum` and :func:`add_gaussian_noise`. Names load on first
use; only the networks need flax, only the step needs optax, only the data sets need scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxacct.training.accuracy_first import Rounds, divided, fit_until_accurate, plan_rounds
    from jaxacct.training.budget import FILTERS, Budget, plan_budget, planned_mechanism
    from jaxacct.training.clipping import (
        clip_by_global_norm,
        clipped_gradient_sum,
        global_norm,
        per_example_gradients,
    )
    from jaxacct.training.data import DATASETS, Dataset, load
    from jaxacct.training.fixed_point import FixedPointSum
    from jaxacct.training.keys import Keys, fresh_keys, seeded_keys, step_keys
    from jaxacct.training.loop import Outcome, StepRecord, accuracy, fit, stop_on_interrupt
    from jaxacct.training.models import MODELS, Functional, build, functional
    from jaxacct.training.noise import add_gaussian_noise, gaussian_tree, largest_sigma
    from jaxacct.training.report import make_report, privacy_rows, realised_mechanism, table, write_report
    from jaxacct.training.sampling import Sample, poisson_sample, sample_pieces, take_piece
    from jaxacct.training.schedules import SCHEDULES, Released, Schedule, adaptive, constant, warmup_decay
    from jaxacct.training.step import (
        Filter,
        StepReport,
        TrainState,
        init_state,
        make_step,
        noisy_gradient,
        with_accuracy,
    )

_MODULES = {
    "accuracy_first": ("Rounds", "divided", "fit_until_accurate", "plan_rounds"),
    "budget": ("FILTERS", "Budget", "plan_budget", "planned_mechanism"),
    "clipping": ("clip_by_global_norm", "clipped_gradient_sum", "global_norm", "per_example_gradients"),
    "data": ("DATASETS", "Dataset", "load"),
    "fixed_point": ("FixedPointSum",),
    "keys": ("Keys", "fresh_keys", "seeded_keys", "step_keys"),
    "loop": ("Outcome", "StepRecord", "accuracy", "fit", "stop_on_interrupt"),
    "models": ("MODELS", "Functional", "build", "functional"),
    "noise": ("add_gaussian_noise", "gaussian_tree", "largest_sigma"),
    "report": ("make_report", "privacy_rows", "realised_mechanism", "table", "write_report"),
    "sampling": ("Sample", "poisson_sample", "sample_pieces", "take_piece"),
    "schedules": ("SCHEDULES", "Released", "Schedule", "adaptive", "constant", "warmup_decay"),
    "step": (
        "Filter", "StepReport", "TrainState", "init_state", "make_step", "noisy_gradient", "with_accuracy",
    ),
}  # fmt: skip
_HOME = {name: f"jaxacct.training.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "DATASETS",
    "FILTERS",
    "MODELS",
    "SCHEDULES",
    "Budget",
    "Dataset",
    "Filter",
    "FixedPointSum",
    "Functional",
    "Keys",
    "Outcome",
    "Released",
    "Rounds",
    "Sample",
    "Schedule",
    "StepRecord",
    "StepReport",
    "TrainState",
    "accuracy",
    "adaptive",
    "add_gaussian_noise",
    "build",
    "clip_by_global_norm",
    "clipped_gradient_sum",
    "constant",
    "divided",
    "fit",
    "fit_until_accurate",
    "fresh_keys",
    "functional",
    "gaussian_tree",
    "global_norm",
    "init_state",
    "largest_sigma",
    "load",
    "make_report",
    "make_step",
    "noisy_gradient",
    "per_example_gradients",
    "plan_budget",
    "plan_rounds",
    "planned_mechanism",
    "poisson_sample",
    "privacy_rows",
    "realised_mechanism",
    "sample_pieces",
    "seeded_keys",
    "step_keys",
    "stop_on_interrupt",
    "table",
    "take_piece",
    "warmup_decay",
    "with_accuracy",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jaxacct.training' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
