"""What an example adds to a sum is clipped to what that example was charged for."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct.training import clipped_gradient_sum
from jaxacct.training.gradients.fixed_point import released
from tests.training.test_per_example import DATA, PARAMS, RNG, X, Y, loss

SIZE, CLIP, SIGMA, RATE = 40, 0.5, 2.0, 0.15


X[0] = 0.0  # learns nothing, ever
Y[1] = 50.0  # always at the clip norm


def test_contributions_are_clipped_to_what_was_charged_example_by_example():
    bounds = np.float32(RNG.uniform(0, 1, SIZE))
    bounds[:3] = [0.0, np.nan, -1.0]
    sums = jax.jit(lambda mask: clipped_gradient_sum(loss, PARAMS, DATA, mask, CLIP, clip_scale=bounds))
    for i in (0, 1, 2, 7, 8, 9):
        vector = np.asarray(released(sums(jnp.arange(SIZE) == i), 1.0)["w"], np.float64)
        gradient = (X[i] @ np.asarray(PARAMS["w"]) - Y[i]) * X[i] / CLIP
        bound = max(np.nan_to_num(bounds[i]), 0)
        alone = gradient * min(1.0, bound / max(np.linalg.norm(gradient), 1e-30))
        assert np.linalg.norm(vector) <= bound
        np.testing.assert_allclose(vector, alone, rtol=1e-5, atol=2.0**-22)
