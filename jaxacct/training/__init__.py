"""DP-SGD with Flax and optax under a filter, as functions over pytrees that fit a user's own loop.

A step, from the outside in: :func:`make_step` asks the filter and runs :func:`noisy_gradient`, which is
:func:`poisson_sample`, :func:`clipped_gradient_sum` and :func:`add_gaussian_noise`. With :func:`shard_examples`
it runs on many devices, in a :func:`durable_run` its budget survives being killed, and
:func:`filtered_aggregate` is the same for a loop around an optax chain. Names load on first use; only the
networks need flax, only the step needs optax, only checkpoints need orbax, only the data sets scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxacct.filters.residues.levels import LevelsFilter, on_levels
    from jaxacct.training.accuracy_first import Rounds, fit_until_accurate, plan_rounds
    from jaxacct.training.budget import Budget, plan_budget
    from jaxacct.training.clipping import clipped_gradient_sum, per_example_gradients
    from jaxacct.training.demo.data import load
    from jaxacct.training.demo.models import build, functional
    from jaxacct.training.demo.report import make_report
    from jaxacct.training.durable_runs.run import DurableRun, durable_run
    from jaxacct.training.individual import IndividualTrainState, gradient_norms, init_individual, make_individual_step
    from jaxacct.training.keys import Keys, fresh_keys, seeded_keys, step_keys
    from jaxacct.training.loop import Outcome, StepRecord, accuracy, fit, stop_on_interrupt
    from jaxacct.training.noise import add_gaussian_noise
    from jaxacct.training.optax_chain import FilteredAggregateState, filtered_aggregate
    from jaxacct.training.sampled_budget import plan_sampled_budget
    from jaxacct.training.samplers import Sampler, gradient_sum_of_sample, make_sampled_step, sampler
    from jaxacct.training.sampling import Sample, poisson_sample
    from jaxacct.training.schedules import Released, Schedule, adaptive, constant, warmup_decay
    from jaxacct.training.sharding import ShardedExamples, shard_examples
    from jaxacct.training.step import (
        Proposal,
        SplitStep,
        StepReport,
        TrainState,
        init_state,
        make_split_step,
        make_step,
        noisy_gradient,
        with_accuracy,
    )

_MODULES = {
    "accuracy_first": ("Rounds", "divided", "fit_until_accurate", "plan_rounds"),
    "optax_chain": ("FilteredAggregateState", "filtered_aggregate"),
    "budget": ("FILTERS", "Budget", "plan_budget", "planned_mechanism"),
    "clipping": ("add_clipped", "clip_by_global_norm", "clipped_gradient_sum", "global_norm", "per_example_gradients"),
    "demo.data": ("DATASETS", "Dataset", "load"),
    "durable_runs.run": ("DurableRun", "durable_run"),
    "fixed_point": ("FixedPointSum", "empty_sum"),
    "individual": ("IndividualTrainState", "gradient_norms", "init_individual", "make_individual_step"),
    "durable_runs.journal": ("Journal",),
    "keys": ("Keys", "attempt_keys", "fresh_keys", "seeded_keys", "step_keys"),
    "loop": ("Outcome", "StepRecord", "accuracy", "fit", "stop_on_interrupt"),
    "demo.models": ("MODELS", "Functional", "build", "functional"),
    "noise": ("add_gaussian_noise", "gaussian_tree", "largest_sigma"),
    "demo.report": ("make_report", "privacy_rows", "realised_mechanism", "table", "write_report"),
    "samplers": ("Sampler", "gradient_sum_of_sample", "make_sampled_step", "sampler"),
    "sampled_budget": ("SAMPLINGS", "plan_sampled_budget"),
    "sampling": ("Sample", "poisson_sample", "sample_pieces", "take_piece"),
    "schedules": ("SCHEDULES", "Released", "Schedule", "adaptive", "constant", "warmup_decay"),
    "sharding": ("ShardedExamples", "replicate", "shard_examples"),
    "step": (
        "Filter", "Proposal", "SplitStep", "StepReport", "TrainState", "init_state", "make_split_step", "make_step",
        "noisy_gradient", "with_accuracy",
    ),
}  # fmt: skip
_HOME = {name: f"jaxacct.training.{module}" for module, names in _MODULES.items() for name in names}
_HOME |= {name: "jaxacct.filters.residues.levels" for name in ("LevelsFilter", "on_levels")}

__all__ = [
    "Budget",
    "DurableRun",
    "FilteredAggregateState",
    "IndividualTrainState",
    "Keys",
    "LevelsFilter",
    "Outcome",
    "Proposal",
    "Released",
    "Rounds",
    "Sample",
    "Sampler",
    "Schedule",
    "ShardedExamples",
    "SplitStep",
    "StepRecord",
    "StepReport",
    "TrainState",
    "accuracy",
    "adaptive",
    "add_gaussian_noise",
    "build",
    "clipped_gradient_sum",
    "constant",
    "durable_run",
    "filtered_aggregate",
    "fit",
    "fit_until_accurate",
    "fresh_keys",
    "functional",
    "gradient_norms",
    "gradient_sum_of_sample",
    "init_individual",
    "init_state",
    "load",
    "make_individual_step",
    "make_report",
    "make_sampled_step",
    "make_split_step",
    "make_step",
    "noisy_gradient",
    "on_levels",
    "per_example_gradients",
    "plan_budget",
    "plan_rounds",
    "plan_sampled_budget",
    "poisson_sample",
    "sampler",
    "seeded_keys",
    "shard_examples",
    "step_keys",
    "stop_on_interrupt",
    "warmup_decay",
    "with_accuracy",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jaxacct.training' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
