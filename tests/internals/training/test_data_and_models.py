"""Data prepared with public constants, and networks as pure functions."""

import numpy as np
import pytest

from jaxacct.training.demo import load_data
from jaxacct.training.demo.adult import encode
from tests.training.test_data_and_models import ROW, with_fields


def test_an_adult_row_is_encoded_without_looking_at_other_rows():
    rows = [ROW, with_fields(age="90", gain="99999"), with_fields(workclass="?"), with_fields(label=">50K.")]
    together, labels = encode(rows)
    for row, features in zip(rows, together, strict=True):
        assert np.array_equal(encode([row])[0][0], features)
    assert labels.tolist() == [0, 0, 0, 1]
    assert together.sum(axis=1).tolist() == [11, 11, 10, 11]  # one-hot: every row has the same small length


@pytest.mark.parametrize(
    ("row", "message"),
    [(ROW[:-1], "15 fields"), (with_fields(label="rich"), "labels"), (with_fields(age="old"), "column age")],
)
def test_a_broken_adult_row_raises(row, message):
    with pytest.raises(ValueError, match=message):
        encode([ROW, row])


def test_openml_rows_become_the_same_features(monkeypatch):
    names = "age workclass fnlwgt education education-num marital-status occupation relationship race sex"
    names = [*names.split(), "capital-gain", "capital-loss", "hours-per-week", "native-country"]
    categories = {name: [value] for name, value in zip(names, ROW, strict=False) if not value.isdigit()}

    class Bunch:
        feature_names = names
        data = np.array([[float(v) if v.isdigit() else 0.0 for v in ROW[:-1]]] * 16_284)
        target = np.array(["<=50K"] * 16_284)

    Bunch.categories = categories
    Bunch.data[0, 1] = np.nan  # a missing workclass
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *a, **k: Bunch)
    data = load_data("adult")
    assert (len(data.train_y), len(data.test_y)) == (3, 16_281)
    features = np.concatenate([data.train_x, data.test_x])
    assert (features == encode([ROW])[0]).all(axis=1).sum() == 16_283
    assert features.sum(axis=1).min() == 10
