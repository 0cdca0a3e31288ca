"""Words of a box's curves: rounding down keeps zeros and the order, and words give back what they were made of."""

from __future__ import annotations

import numpy as np
import pytest

from jaxacct.filters.prices.packed import least_of, packed, rounded_down, unpacked


@pytest.mark.parametrize(("slack", "far"), [(1e-9, 1e-3), (1e-14, 1e-6), (0.5, 0.5)])
def test_words_round_down_by_a_little_and_keep_the_order(slack, far):
    least = least_of(slack, far)
    rng = np.random.default_rng(3)
    values = np.sort(np.concatenate([[0.0, least, 1.0], np.exp(rng.uniform(np.log(least) - 5.0, 0.0, 20_000))]))
    values = np.concatenate([values, np.nextafter(values, 2.0), np.nextafter(values, -1.0).clip(0.0)])
    values = np.sort(values.clip(0.0, 1.0))
    rounded = rounded_down(values, least)
    assert (rounded <= values).all()
    assert (np.diff(rounded) >= 0).all()
    assert (rounded[values < least] == 0).all()
    kept = values >= least
    assert (values[kept] - rounded[kept] <= 2.0**-24 * values[kept]).all()
    words = packed(rounded, least)
    assert words.dtype == np.uint32
    assert (unpacked(words, least) == rounded).all()
    assert (rounded_down(rounded, least) == rounded).all()
