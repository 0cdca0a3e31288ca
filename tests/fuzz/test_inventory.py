"""Everything public is fuzzed, or says here why not."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tests.fuzz.test_fuzz import CASES

FUZZED = set(CASES)
ROOMS = (
    "", "mechanisms", "filters", "adversary", "audit", "expost", "training", "testing", "ledger",
    "accounting.calibration", "accounting.noise_planning", "interop", "plotting", "release", "reports",
)  # fmt: skip
SENSELESS = "asks it for what makes no sense"
EXCUSES = {
    "what a function returns; nobody calls it": (
        "Bounds", "reports.Statement", "reports.Verdict", "accounting.calibration.Calibration",
        "accounting.noise_planning.NoisePlan", "training.RootKeys", "training.StepReport", "training.TrainState",
        "testing.Checked", "testing.Leak", "testing.Neighbours", "release.Released",
    ),
    "takes nothing": (
        "without_callbacks", "expost.GDPExPost", "expost.PureExPost", "expost.ZCDPExPost", "training.fresh_keys",
        "training.secure_keys",
    ),
    "a protocol": ("filters.Filter", "filters.Guarantee"),
    "numbers with names": ("filters.Reason",),
    "takes a class": ("ledger.register",),
    "an exception": ("interop.UnreadableEvent",),
    "test_damaged_files.py and verification/fuzzing damage what it reads": (
        "Ledger", "ledger.Ledger", "training.durable_run"
    ),
    "reads files; tests/reports/test_verify.py damages what it reads": (
        "reports.read_statement", "reports.statement", "reports.verify"
    ),
    f"needs python-flint; tests/certificates/test_certificates.py {SENSELESS} and damages what it reads": ("certify",),
    f"tests/mechanisms/test_private_selection.py {SENSELESS}": ("PrivateSelection",),
    f"tests/accounting/test_group.py {SENSELESS}": ("group_of",),
    f"tests/accounting/test_gdp_summary.py {SENSELESS}": ("gdp_summary",),
    f"its table takes seconds; tests/filters/test_sampled_gaussian.py {SENSELESS}": ("filters.sampled_gaussian",),
    f"takes seconds; tests/filters/test_closed_form.py {SENSELESS}": ("filters.closed_form",),
    f"takes seconds; tests/adversary/test_true_cost.py {SENSELESS}": ("adversary.true_cost",),
    f"tests/training/test_samplers.py {SENSELESS}": ("training.sampler",),
    f"trains; tests/training/test_search.py {SENSELESS}": ("training.best_of",),
    f"traces a step for seconds; tests/testing/test_check_step.py {SENSELESS}": ("testing.check_step",),
    "accounts for six samplers at every noise, for seconds": ("plotting.samplers",),
    "of jax_privacy, which no extra brings": (
        "interop.AccountantConfig", "interop.FilteredConfig", "interop.mechanism_of_selection",
        "interop.stop_when_spent",
    ),
}  # fmt: skip
EXCUSED = {name for names in EXCUSES.values() for name in names}


def known(room: str, name: str, value: object) -> bool:
    """Whether a public thing is in a table, under its room or the one that it comes from, or a method of it is."""
    full = f"{room}.{name}" if room else name
    if full in EXCUSED:
        return True
    if inspect.isclass(value) and issubclass(value, BaseException):
        return True
    names = {full, name, *(f"{home}.{name}" for home in ROOMS[1:] if room in ("", "adversary"))}
    return any(one in FUZZED or any(key.startswith(f"{one}.") for key in FUZZED) for one in names)


@pytest.mark.parametrize("room", ROOMS)
def test_everything_public_is_fuzzed_or_excused(room):
    module = importlib.import_module(f"jaxacct.{room}" if room else "jaxacct")
    missing = []
    for name in module.__all__:
        try:
            value = getattr(module, name)
        except ImportError:  # made when asked for, of a package that is not installed
            assert f"{room}.{name}" in EXCUSED or f"{room}.{name}" in FUZZED
            continue
        if callable(value) and not known(room, name, value):
            missing.append(name)
    assert not missing


def test_no_excuse_is_out_of_date():
    for full in EXCUSED:
        room, _, name = full.rpartition(".")
        assert name in importlib.import_module(f"jaxacct.{room}" if room else "jaxacct").__all__
        assert full not in FUZZED
