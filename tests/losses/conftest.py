"""What the tests of formulas share: they are asked in float64, as the package's own functions ask them."""

import jax
import pytest


@pytest.fixture
def in_float64():
    with jax.enable_x64(True):
        yield
