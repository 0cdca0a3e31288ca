"""DP-SGD with Flax and optax under a filter, as functions over pytrees that fit a user's own loop.

A step, from the outside in: :func:`make_step` asks the filter and runs :func:`noisy_gradient`, which is
:func:`poisson_sample`, :func:`clipped_gradient_sum` and :func:`add_gaussian_noise`. With :func:`shard_examples`
it runs on many devices, in a :func:`durable_run` its budget survives being killed, and
:func:`filtered_aggregate` is the same for a loop around an optax chain. Names load on first use; only the
networks need flax, only the step needs optax, only checkpoints need orbax, only the data sets scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand

if TYPE_CHECKING:
    from jaxacct.filters.residues.levels import LevelsFilter, on_levels
    from jaxacct.training.accuracy_first import Rounds, fit_until_accurate, plan_rounds
    from jaxacct.training.budget import Budget, plan_budget
    from jaxacct.training.clipping import clipped_gradient_sum, per_example_gradients
    from jaxacct.training.demo.data import load
    from jaxacct.training.demo.models import build, functional
    from jaxacct.training.demo.report import make_report
    from jaxacct.training.durable_runs.run import DurableRun, durable_run
    from jaxacct.training.individual import IndividualTrainState, init_individual, make_individual_step
    from jaxacct.training.keys import RootKeys, StepKeys, fresh_keys, secure_keys, seeded_keys, step_keys
    from jaxacct.training.loop import Outcome, StepRecord, accuracy, fit
    from jaxacct.training.noise import add_gaussian_noise
    from jaxacct.training.optax_chain import FilteredAggregateState, filtered_aggregate
    from jaxacct.training.sampled_budget import plan_sampled_budget
    from jaxacct.training.samplers import Sampler, make_sampled_step, sampler
    from jaxacct.training.sampling import Sample, poisson_sample
    from jaxacct.training.schedules import ReleasedValues, Schedule, adaptive, constant, warmup_decay
    from jaxacct.training.sharding import ShardedExamples, shard_examples
    from jaxacct.training.state import SplitStep, StepReport, TrainState, init_state, with_accuracy
    from jaxacct.training.step import make_split_step, make_step, noisy_gradient

if TYPE_CHECKING:  # parts of steps and reports, for notebooks and tests
    from jaxacct.training.accuracy_first import divided as divided
    from jaxacct.training.budget import planned_mechanism as planned_mechanism
    from jaxacct.training.clipping import add_clipped as add_clipped
    from jaxacct.training.clipping import global_norm as global_norm
    from jaxacct.training.demo.models import Functional as Functional
    from jaxacct.training.demo.report import privacy_rows as privacy_rows
    from jaxacct.training.demo.report import realised_mechanism as realised_mechanism
    from jaxacct.training.demo.report import table as table
    from jaxacct.training.demo.report import write_report as write_report
    from jaxacct.training.durable_runs.journal import Journal as Journal
    from jaxacct.training.fixed_point import empty_sum as empty_sum
    from jaxacct.training.individual import gradient_norms as gradient_norms
    from jaxacct.training.keys import attempt_keys as attempt_keys
    from jaxacct.training.loop import stop_on_interrupt as stop_on_interrupt
    from jaxacct.training.noise import gaussian_tree as gaussian_tree
    from jaxacct.training.noise import largest_sigma as largest_sigma
    from jaxacct.training.samplers import gradient_sum_of_sample as gradient_sum_of_sample
    from jaxacct.training.sampling import sample_pieces as sample_pieces
    from jaxacct.training.sampling import take_piece as take_piece
    from jaxacct.training.sharding import replicate as replicate
    from jaxacct.training.state import Proposal as Proposal

__all__ = [
    "Budget",
    "DurableRun",
    "FilteredAggregateState",
    "IndividualTrainState",
    "LevelsFilter",
    "Outcome",
    "ReleasedValues",
    "RootKeys",
    "Rounds",
    "Sample",
    "Sampler",
    "Schedule",
    "ShardedExamples",
    "SplitStep",
    "StepKeys",
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
    "secure_keys",
    "seeded_keys",
    "shard_examples",
    "step_keys",
    "warmup_decay",
    "with_accuracy",
]

__getattr__, __dir__ = on_demand(__name__)
