"""Data prepared with public constants, and networks as pure functions."""

import numpy as np

from jaxacct.training.demo.adult import encode
from tests.training.test_data_and_models import ROW, with_fields


def test_an_adult_row_is_encoded_without_looking_at_other_rows():
    rows = [ROW, with_fields(age="90", gain="99999"), with_fields(workclass="?"), with_fields(label=">50K.")]
    together, labels = encode(rows)
    for row, features in zip(rows, together, strict=True):
        assert np.array_equal(encode([row])[0][0], features)
    assert labels.tolist() == [0, 0, 0, 1]
    assert together.sum(axis=1).tolist() == [11, 11, 10, 11]  # one-hot: every row has the same small length
