"""The picture of what samplers cost."""

import matplotlib
import numpy as np
import pytest

from jaxacct import plotting
from jaxacct.plotting.samplers import sampler_costs

matplotlib.use("Agg")


def test_every_sampler_has_a_line_and_its_bounds() -> None:
    found = sampler_costs([1.0, 2.0], batches=20, records=1000)
    assert set(found) == {"poisson", "truncated", "fixed", "allocation", "shuffled", "everyone knows"}
    for bounds in found.values():
        assert (bounds.lower <= bounds.upper).all()
        assert (bounds.upper <= 1.001 * found["fixed"].upper.clip(found["everyone knows"].upper)).all()
    assert (found["allocation"].upper < found["shuffled"].upper).all()
    ax = plotting.samplers(np.array([1.0, 2.0]), batches=20, records=1000, names=("poisson", "shuffled"))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["poisson", "shuffled"]


def test_a_sampler_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="names"):
        sampler_costs([1.0], batches=20, records=1000, names=("bernoulli",))
