"""Loads the UCI Adult income data, encoded by its documented domain."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from jaxacct.training.demo.dataset import Dataset, from_openml, unpacked

# Columns in file order: the categories as adult.names lists them, or the edges of bins for the continuous
# ones. Edges are round numbers chosen from the meaning of the column (years, hours a week, dollars), not
# from anybody's row.
_DOMAIN: dict[str, tuple[str, ...] | tuple[float, ...] | None] = {
    "age": (20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70),
    "workclass": (
        "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay",
        "Never-worked",
    ),
    "fnlwgt": None,  # the census' sampling weight: says nothing about a person
    "education": (
        "Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th",
        "7th-8th", "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool",
    ),
    "education-num": None,  # the same information as education
    "marital-status": (
        "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
        "Married-AF-spouse",
    ),
    "occupation": (
        "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
        "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
        "Priv-house-serv", "Protective-serv", "Armed-Forces",
    ),
    "relationship": ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": ("Female", "Male"),
    "capital-gain": (1, 1000, 2000, 3000, 5000, 7000, 10000, 20000),
    "capital-loss": (1, 1000, 1500, 1750, 2000, 2250, 2500),
    "hours-per-week": (15, 25, 35, 40, 41, 46, 51, 61),
    "native-country": None,  # 42 columns for less than 0.1 % of accuracy
}  # fmt: skip
_LABELS = ("<=50K", ">50K")


def adult(folder: Path | None) -> Dataset:
    """Adult: does a person earn more than 50,000 dollars; one-hot categories and bins, rows of equal length.

    With ``folder``: ``adult.data.gz`` (32,561 rows, private) and ``adult.test.gz`` (16,281 rows, held out).
    Without: scikit-learn's OpenML loader (a download), the last 16,281 rows of a fixed permutation held
    out.
    """
    if folder is None:
        rows = list(_from_openml())
        order = np.random.default_rng(0).permutation(len(rows))
        train = [rows[i] for i in order[:-16_281]]
        test = [rows[i] for i in order[-16_281:]]
        source = "OpenML adult, version 2"
    else:
        train, test = (_read(folder / name) for name in ("adult.data.gz", "adult.test.gz"))
        source = str(folder)
    return Dataset("adult", *encode(train), *encode(test), 2, source)


def encode(rows: Iterable[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of fifteen strings as features (rows, columns) float32 and labels (rows,) int32.

    A row's encoding depends on that row and on public constants alone. A value outside the documented
    categories ("?" for missing) leaves its columns at zero. Every row then has the same small length, which
    suits a common clip norm.
    """
    rows = list(rows)
    for row in rows:
        if len(row) != len(_DOMAIN) + 1:
            raise ValueError(f"adult rows must have {len(_DOMAIN) + 1} fields, got {len(row)}")
    blocks = []
    for column, (name, domain) in enumerate(_DOMAIN.items()):
        if domain is None:
            continue
        values = [row[column] for row in rows]
        if isinstance(domain[0], str):
            codes = {category: code for code, category in enumerate(domain)}
            places = np.array([codes.get(value, -1) for value in values])
            width = len(domain)
        else:
            places = np.searchsorted(np.array(domain, float), _numbers(name, values), side="right")
            width = len(domain) + 1
        blocks.append((places[:, None] == np.arange(width)).astype(np.float32))
    labels = [row[-1].rstrip(".") for row in rows]
    for label in labels:
        if label not in _LABELS:
            raise ValueError(f"adult labels must be one of {', '.join(_LABELS)}, got {label!r}")
    y = np.array([_LABELS.index(label) for label in labels], np.int32)
    return np.concatenate(blocks, axis=1), y


def _numbers(name: str, values: list[str]) -> np.ndarray:
    try:
        return np.array([float(value) for value in values])
    except ValueError:
        raise ValueError(f"adult column {name} must hold numbers, got a value that is none") from None


def _read(file: Path) -> list[list[str]]:
    try:
        lines = unpacked(file, "text").decode("ascii").splitlines()
    except UnicodeDecodeError as problem:
        raise ValueError(f"path must hold gzipped text files, got {file}: {problem}") from None
    return [[field.strip() for field in line.split(",")] for line in lines if line.strip() and line[0] != "|"]


def _from_openml() -> Iterable[list[str]]:
    bunch = from_openml("adult", 2, "adult.data.gz and adult.test.gz")
    names = list(bunch.feature_names)
    columns = []
    for name in _DOMAIN:
        raw = np.asarray(bunch.data)[:, names.index(name)]
        categories = (bunch.categories or {}).get(name)
        if categories is None:
            columns.append(["nan" if value is None else str(value) for value in raw])
        else:  # the loader turns categories into numbers, and missing ones into NaN
            columns.append([categories[int(v)] if v == v and v is not None else "?" for v in raw])
    for *fields, label in zip(*columns, np.asarray(bunch.target), strict=True):
        yield [*fields, str(label)]
