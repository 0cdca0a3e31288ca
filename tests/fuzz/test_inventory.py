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
RESULT = "what a function returns; nobody calls it"
PROTOCOL = "a protocol"
ERROR = "an exception"
SAMPLERS = "tests/training/test_samplers.py asks it for what makes no sense"
TABLE = "its table takes seconds; tests/filters/test_sampled_gaussian.py asks it for what makes no sense"
FILE = "test_damaged_files.py and verification/fuzzing damage what it reads"
VERIFIED = "reads files; tests/reports/test_verify.py damages what it reads"
CERTIFIED = "needs python-flint; tests/certificates/test_certificates.py asks what it refuses and damages what it reads"
EXCUSED = {
    "certify": CERTIFIED,
    "PrivateSelection": "tests/mechanisms/test_private_selection.py asks it for what makes no sense",
    "group_of": "tests/accounting/test_group.py asks it for what makes no sense",
    "gdp_summary": "tests/accounting/test_gdp_summary.py asks it for what makes no sense",
    "without_callbacks": "takes nothing",
    **{f"reports.{name}": VERIFIED for name in ("read_statement", "statement", "verify")},
    "reports.Statement": RESULT, "reports.Verdict": RESULT,
    "Bounds": RESULT, "Ledger": FILE,
    "accounting.calibration.Calibration": RESULT,
    "accounting.noise_planning.NoisePlan": RESULT,
    "filters.sampled_gaussian": TABLE,
    "filters.closed_form": "takes seconds; tests/filters/test_closed_form.py asks it for what makes no sense",
    "adversary.true_cost": "takes seconds; tests/adversary/test_true_cost.py asks it for what makes no sense",
    "filters.Reason": "numbers with names", "training.sampler": SAMPLERS,
    "plotting.samplers": "accounts for six samplers at every noise, for seconds",
    "filters.Filter": PROTOCOL, "filters.Guarantee": PROTOCOL,
    **{f"expost.{name}": "takes nothing" for name in ("GDPExPost", "PureExPost", "ZCDPExPost")},
    **{f"training.{name}": RESULT for name in ("RootKeys", "StepReport", "TrainState")},
    "training.durable_run": FILE,
    "training.best_of": "trains; tests/training/test_search.py asks it for what makes no sense",
    **{f"testing.{name}": RESULT for name in ("Checked", "Leak", "Neighbours")},
    "testing.check_step": "traces a step for seconds; tests/testing/test_check_step.py asks it for what makes no sense",
    "training.fresh_keys": "takes nothing",
    "training.secure_keys": "takes nothing",
    "ledger.Ledger": FILE, "ledger.register": "takes a class", "release.Released": RESULT,
    "interop.AccountantConfig": "a field, handed to Accountant; needs jax_privacy, which no extra brings",
    "interop.FilteredConfig": "for jax_privacy's trainer", "interop.stop_when_spent": "a callback",
    "interop.UnreadableEvent": ERROR, "interop.mechanism_of_selection": "takes a strategy of jax_privacy",
}  # fmt: skip


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
