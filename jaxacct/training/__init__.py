"""DP-SGD with Flax and optax under a filter, as functions over pytrees that fit a user's own loop.

A step, from the outside in: :func:`make_step` asks the filter and runs :func:`noisy_gradient`, which is a draw (by
coins, or by a :func:`sampler`), :func:`clipped_gradient_sum` and :func:`add_gaussian_noise`. With
:func:`shard_examples` it runs on many devices, in a :func:`durable_run` its budget survives being killed, and
:func:`filtered_aggregate` is the same for a loop around an optax chain. Names load on first use; only the
networks need flax, only the step needs optax, only the data sets scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand

if TYPE_CHECKING:
    from jaxacct.filters.residues.levels import on_levels
    from jaxacct.training import demo, schedules
    from jaxacct.training.accuracy_first import fit_until_accurate, plan_rounds
    from jaxacct.training.budget import plan_budget
    from jaxacct.training.demo.models import from_flax
    from jaxacct.training.demo.report import make_report
    from jaxacct.training.durable_runs.run import durable_run
    from jaxacct.training.gradients.clipping import clipped_gradient_sum, per_example_gradients
    from jaxacct.training.gradients.noise import add_gaussian_noise
    from jaxacct.training.gradients.quantile_clip import adaptive_clip
    from jaxacct.training.keys import RootKeys, fresh_keys, secure_keys, seeded_keys, step_keys
    from jaxacct.training.loop import accuracy, fit
    from jaxacct.training.optax_chain import filtered_aggregate
    from jaxacct.training.release import noisy_gradient
    from jaxacct.training.samplers import sampler
    from jaxacct.training.sampling import poisson_sample
    from jaxacct.training.search import best_of
    from jaxacct.training.selection import select
    from jaxacct.training.sharding import replicate, shard_examples
    from jaxacct.training.state import StepReport, TrainState, init_state
    from jaxacct.training.step import make_step

if TYPE_CHECKING:  # what these take and return, and their parts
    from jaxacct.filters.residues.levels import LevelsFilter as LevelsFilter
    from jaxacct.training.accounts import gradient_norms as gradient_norms
    from jaxacct.training.accuracy_first import Rounds as Rounds
    from jaxacct.training.accuracy_first import divided as divided
    from jaxacct.training.budget import Budget as Budget
    from jaxacct.training.budget import planned_mechanism as planned_mechanism
    from jaxacct.training.demo.models import Network as Network
    from jaxacct.training.demo.report import realised_mechanism as realised_mechanism
    from jaxacct.training.demo.report import table as table
    from jaxacct.training.demo.report import write_report as write_report
    from jaxacct.training.durable_runs.journal import Journal as Journal
    from jaxacct.training.durable_runs.run import DurableRun as DurableRun
    from jaxacct.training.gradients.clipping import add_clipped as add_clipped
    from jaxacct.training.gradients.clipping import global_norm as global_norm
    from jaxacct.training.gradients.clipping import gradient_sum_of_sample as gradient_sum_of_sample
    from jaxacct.training.gradients.fixed_point import empty_sum as empty_sum
    from jaxacct.training.gradients.noise import gaussian_tree as gaussian_tree
    from jaxacct.training.gradients.noise import largest_sigma as largest_sigma
    from jaxacct.training.gradients.quantile_clip import AdaptiveClip as AdaptiveClip
    from jaxacct.training.keys import StepKeys as StepKeys
    from jaxacct.training.keys import attempt_keys as attempt_keys
    from jaxacct.training.loop import FitResult as FitResult
    from jaxacct.training.loop import StepRecord as StepRecord
    from jaxacct.training.loop import stop_on_interrupt as stop_on_interrupt
    from jaxacct.training.optax_chain import FilteredAggregateState as FilteredAggregateState
    from jaxacct.training.samplers import Sampler as Sampler
    from jaxacct.training.sampling import Sample as Sample
    from jaxacct.training.sampling import sample_pieces as sample_pieces
    from jaxacct.training.sampling import take_piece as take_piece
    from jaxacct.training.search import Best as Best
    from jaxacct.training.sharding import ShardedExamples as ShardedExamples
    from jaxacct.training.state import Proposal as Proposal
    from jaxacct.training.step import Step as Step

__all__ = [
    "RootKeys",
    "StepReport",
    "TrainState",
    "accuracy",
    "adaptive_clip",
    "add_gaussian_noise",
    "best_of",
    "clipped_gradient_sum",
    "demo",
    "durable_run",
    "filtered_aggregate",
    "fit",
    "fit_until_accurate",
    "fresh_keys",
    "from_flax",
    "init_state",
    "make_report",
    "make_step",
    "noisy_gradient",
    "on_levels",
    "per_example_gradients",
    "plan_budget",
    "plan_rounds",
    "poisson_sample",
    "replicate",
    "sampler",
    "schedules",
    "secure_keys",
    "seeded_keys",
    "select",
    "shard_examples",
    "step_keys",
]

__getattr__, __dir__ = on_demand(__name__)
