"""A row of the Adult data is encoded by public constants alone."""

import numpy as np

from jaxacct.training.demo.adult import encode
from tests.training.test_data_and_models import ROW


def with_fields(**fields):
    places = {"age": 0, "workclass": 1, "gain": 10, "label": 14}
    row = list(ROW)
    for name, value in fields.items():
        row[places[name]] = value
    return row


def test_an_adult_row_is_encoded_without_looking_at_other_rows():
    rows = [ROW, with_fields(age="90", gain="99999"), with_fields(workclass="?"), with_fields(label=">50K.")]
    together, labels = encode(rows)
    for row, features in zip(rows, together, strict=True):
        assert np.array_equal(encode([row])[0][0], features)
    assert labels.tolist() == [0, 0, 0, 1]
    assert together.sum(axis=1).tolist() == [11, 11, 10, 11]  # one-hot: every row has the same small length
