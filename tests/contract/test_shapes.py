"""Arrays have the shapes and dtypes that annotations name: `Float[Array, "*settings edges"]`, checked call by call."""

import pytest

from tests.processes import printed

PROGRAM = """
from tests.contract import shapes
seen, broken = shapes.run()
print(*sorted(seen), sep="\\n")
print("--")
print(*broken, sep="\\n--\\n")
"""
CHECKED = {
    "LaplacePair.tails",
    "LaplacePair.survey",
    "NormalLine.log_moments",
    "NormalLine.quadrature",
    "PLD.hockey_stick",
    "PrivacyProfile.values",
    "TradeOff.points",
    "epsilon",
    "delta",
    "AdditiveFilter.update",
    "NaturalFilter.spent",
}


def test_arrays_have_the_shapes_that_annotations_name():
    pytest.importorskip("jaxtyping", reason="jaxtyping comes with the extra 'test'")
    seen, *broken = printed(PROGRAM).split("\n--\n")
    assert set(seen.split()) >= CHECKED
    assert len(broken) == 2
    assert "infinity_mass must be" in broken[0]
    assert "masses must be" in broken[1]
