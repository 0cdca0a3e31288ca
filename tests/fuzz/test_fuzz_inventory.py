"""Everything public is fuzzed, or says here why not."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tests.fuzz import test_fuzz_curves, test_fuzz_filters, test_fuzz_mechanisms, test_fuzz_rooms

TABLES = (test_fuzz_mechanisms, test_fuzz_filters, test_fuzz_curves, test_fuzz_rooms)
FUZZED = {name for table in TABLES for name in table.CASES}
ROOMS = (
    "", "mechanisms", "filters", "adversary", "expost", "training", "ledger", "calibration", "planning", "interop",
    "plotting",
)  # fmt: skip
RESULT = "what a function returns; nobody calls it"
STATE = "a state; hostile ones are handed to the methods of its filter"
PROTOCOL = "a protocol"
ERROR = "an exception"
OPEN = "takes functions, trees or a model; its checks are in its own tests, and nothing hostile was drawn for it yet"
FILE = "test_fuzz_files.py and bench/fuzz_files.py damage what it reads"
EXCUSED = {
    "Bounds": RESULT, "Calibration": RESULT, "NoisePlan": RESULT, "Ledger": FILE, "calibration.Calibration": RESULT,
    "planning.NoisePlan": RESULT,
    "filters.Filter": PROTOCOL, "filters.Guarantee": PROTOCOL, "training.Filter": PROTOCOL,
    "expost.Check": PROTOCOL, "expost.Source": PROTOCOL,
    **{f"filters.{name}": STATE for name in ("ApproximateZCDPState", "LedgerState", "MenuState", "ResidueState")},
    **{f"filters.{name}": RESULT for name in ("Halted", "Prepared")},
    **{f"filters.{name}": OPEN for name in ("check_residue", "constant_schedules", "halting_scan", "residue")},
    **{
        f"adversary.{name}": RESULT
        for name in (
            "Closure", "Counterexample", "Freeness", "GeneralizedResponse", "NaturalFilterCost", "Rule", "Simulation",
            "Strategy", "WorstCase",
        )
    },
    **{
        f"adversary.{name}": OPEN
        for name in (
            "adaptive_choice", "counterexample", "is_free", "multisets", "natural_filter_cost", "residue_condition",
            "totally_ordered_closure", "worst_case",
        )
    },
    "expost.Definition": "the base of the definitions", "expost.ImmunityWarning": "a warning",
    "expost.OdometerState": STATE, "expost.PureExPost": "takes nothing", "expost.Released": RESULT,
    **{
        f"expost.{name}": OPEN
        for name in (
            "brownian_step", "compose", "compose_until", "from_odometer", "post_process", "post_processed_table",
            "release_until",
        )
    },
    **{
        f"training.{name}": RESULT
        for name in (
            "Budget", "Dataset", "FilteredAggregateState", "FixedPointSum", "Functional", "IndividualTrainState",
            "Keys", "LevelsFilter", "Outcome", "Proposal", "Released", "Rounds", "Sample", "Schedule",
            "ShardedExamples", "SplitStep", "StepRecord", "StepReport", "TrainState",
        )
    },
    **{f"training.{name}": FILE for name in ("DurableRun", "Journal", "durable_run", "load")},
    "training.fresh_keys": "takes nothing", "training.stop_on_interrupt": "takes nothing",
    **{
        f"training.{name}": OPEN
        for name in (
            "accuracy", "add_clipped", "add_gaussian_noise", "attempt_keys", "build", "clip_by_global_norm",
            "clipped_gradient_sum", "divided", "empty_sum", "filtered_aggregate", "fit", "fit_until_accurate",
            "functional", "gaussian_tree", "global_norm", "gradient_norms", "init_individual", "init_state",
            "make_individual_step", "make_report", "make_split_step", "make_step", "noisy_gradient", "on_levels",
            "per_example_gradients", "planned_mechanism", "privacy_rows", "realised_mechanism", "replicate",
            "sample_pieces", "shard_examples", "step_keys", "table", "take_piece", "with_accuracy", "write_report",
        )
    },
    **{f"ledger.{name}": RESULT for name in ("Entry", "Verification")},
    "ledger.Ledger": FILE, "ledger.register": "takes a class",
    "interop.Accountant": OPEN, "interop.AccountantConfig": OPEN, "interop.UnreadableEvent": ERROR,
    "interop.from_dp_event": OPEN, "interop.to_dp_event": OPEN,
    **{
        f"plotting.{name}": OPEN
        for name in ("budget", "filter_comparison", "pld", "privacy_profile", "sweep", "trade_off")
    },
}  # fmt: skip


def known(room: str, name: str, value: object) -> bool:
    """Whether a public thing is in a table, under its room or the one that it comes from, or a method of it is."""
    full = f"{room}.{name}" if room else name
    if full in EXCUSED:
        return True
    if inspect.isclass(value) and issubclass(value, BaseException):
        return True
    names = {full, name, *(f"{home}.{name}" for home in ROOMS[1:] if not room)}
    return any(one in FUZZED or any(key.startswith(f"{one}.") for key in FUZZED) for one in names)


@pytest.mark.parametrize("room", ROOMS)
def test_everything_public_is_fuzzed_or_excused(room):
    module = importlib.import_module(f"jaxacct.{room}" if room else "jaxacct")
    missing = []
    for name in module.__all__:
        try:
            value = getattr(module, name)
        except ImportError:  # made when asked for, of a package that is not installed
            assert f"{room}.{name}" in EXCUSED
            continue
        if callable(value) and not known(room, name, value):
            missing.append(name)
    assert not missing


def test_no_excuse_is_out_of_date():
    for full in EXCUSED:
        room, _, name = full.rpartition(".")
        assert name in importlib.import_module(f"jaxacct.{room}" if room else "jaxacct").__all__
        assert full not in FUZZED
