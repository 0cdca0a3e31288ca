"""Products of segments in exact arithmetic: rounded to their side, and no more."""

from fractions import Fraction as F

import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses.curves import segments
from jaxacct.losses.curves.segments import Segments

pytestmark = pytest.mark.usefixtures("in_float64")


@pytest.mark.parametrize("leakier", [True, False])
def test_products_are_rounded_to_their_side_and_no_more(leakier):
    rng = np.random.default_rng(0)
    one, other = (Segments(rng.random(4), rng.random(4)) for _ in range(2))
    one.widths[0] = one.drops[1] = other.drops[3] = 0.0  # which is no underflow
    found = segments.product(one, other, leakier)
    inner = slice(1, -1) if leakier else slice(None)
    for x, a, b in zip(found, one, other, strict=True):
        exact = [F(float(u)) * F(float(v)) for u in a for v in b]
        assert all(v == 0 for v, e in zip(np.asarray(x)[inner], exact, strict=True) if not e)
        ratios = [float(F(float(v)) / e - 1) for v, e in zip(np.asarray(x)[inner], exact, strict=True) if e]
        sign = 1 if leakier else -1
        assert all(2.0**-52 <= sign * r <= 6 * 2.0**-52 for r in ratios)
    if leakier:
        assert [float(x[k]) for x in found for k in (0, -1)] == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("which", ["widths", "drops"])
def test_mass_that_underflows_in_a_product_is_charged_at_both_ends(which):
    normal, tiny = np.array([0.5, 0.0]), np.array([1e-160, 0.0])
    one = Segments(tiny, normal) if which == "widths" else Segments(normal, tiny)
    found = segments.product(one, one, True)
    assert float(found.widths[0]) == float(found.drops[-1]) == 0.0
    assert float(found.drops[0]) == float(found.widths[-1]) >= 4 * 1e-300
    less = segments.product(one, one, False)
    assert float(jnp.max(getattr(less, which))) <= 1e-320
