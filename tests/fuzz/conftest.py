"""Counts the hostile calls of every test, for ``--junitxml``; bench/README.md says how many there were."""

import pytest

from tests.fuzz.common import CALLS


@pytest.fixture(autouse=True)
def _counted(record_property):
    before = CALLS.copy()
    yield
    for outcome, count in (CALLS - before).items():
        record_property(outcome, count)
