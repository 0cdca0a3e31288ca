"""The order's decisions on toy curves, against what a loop over their numbers says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Composed, Gaussian, Laplace, LossGrid, PoissonSampled, PrivacyProfile
from jaxacct.losses.compare import order

pytestmark = pytest.mark.usefixtures("in_float64")


def test_sampled_gaussians_that_are_ordered_in_closed_form():
    s = lambda sigma, rate=1.0: PoissonSampled(Gaussian(sigma), rate) if rate < 1 else Gaussian(sigma)  # noqa: E731
    known = lambda a, b, relation="add_or_remove": order.known_order(a, b, relation)  # noqa: E731
    assert known(s(1.0, 0.5), s(1.0, 0.5))
    assert known(s(1.0, 0.5), s(2.0, 0.5))
    assert known(s(1.0, 0.5), s(1.0, 0.25))
    assert not known(s(2.0, 0.5), s(1.0, 0.5))
    assert not known(s(1.0, 0.25), s(1.0, 0.5))
    assert not known(s(1.0, 0.25), s(2.0, 0.5))
    assert known(s(1.0), s(1.0, 0.5))  # one direction stands for both
    assert not known(s(1.0, 0.5), s(1.0))
    assert known(s(1.0, 0.5), s(1.0, 0.25), "remove")
    assert known(Composed([s(1.0, 0.5)], 3), Composed([s(1.0, 0.5)], 2))
    assert known(Composed([s(1.0, 0.5)], 3), Composed([s(1.0, 0.5)], 3))
    assert not known(Composed([s(1.0, 0.5)], 2), Composed([s(1.0, 0.5)], 3))
    two = Composed([s(1.0, 0.5), s(2.0, 0.25)], (2, 3))
    assert not known(two, s(1.0, 0.5))
    assert not known(s(1.0, 0.5), two)
    assert not known(Laplace(1.0), s(5.0, 0.5), "remove")
    assert not known(s(0.1, 0.5), Laplace(5.0), "remove")
    assert not known(s(np.array([1.0, 1.0]), 0.5), s(1.0, 0.5))  # a batch is no single answer
    assert not known(s(np.array([1.0]), 0.5), s(1.0, 0.5))
    grid = LossGrid(0.5, -2, 5)
    law = PrivacyProfile(np.zeros(5), grid)
    assert not known(law, s(1.0))
    assert not known(s(1.0), law)
    assert not jax.jit(lambda x: jnp.asarray(known(Gaussian(x), Gaussian(2 * x))))(1.0)
