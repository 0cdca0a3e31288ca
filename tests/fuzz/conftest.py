"""Counts the hostile calls of every test, for ``--junitxml``; `verification.fuzzing.count_calls` adds them up."""

import pytest

from tests.fuzz.common import CALLS


@pytest.fixture(autouse=True)
def _counted(request):
    before = CALLS.copy()
    yield
    # Not by record_property, which warns of the format that pytest writes by default: warnings are errors here.
    request.node.user_properties += list((CALLS - before).items())
