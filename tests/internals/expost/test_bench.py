"""The experiment of bench/accuracy_first.py, on a table that is made here."""

import gzip
import importlib
import pathlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest

BENCH = pathlib.Path(__file__).resolve().parents[3] / "bench"
ROWS = 600
VALUES = {
    "workclass": ("Private", "State-gov"),
    "education": ("Bachelors", "HS-grad", "Masters"),
    "marital-status": ("Divorced", "Never-married"),
    "occupation": ("Sales", "Tech-support"),
    "relationship": ("Husband", "Unmarried"),
    "race": ("Black", "White"),
    "sex": ("Female", "Male"),
    "native-country": ("Ireland", "United-States"),
}


@pytest.fixture(scope="module")
def bench():
    pytest.importorskip("sklearn", reason="the experiment needs scikit-learn")
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module("accuracy_first")
    finally:
        sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def rows(bench):
    """Rows of fifteen strings; people with a Masters degree and long hours earn more."""
    rng = np.random.default_rng(0)
    names = list(importlib.import_module("jaxacct.training.demo.adult")._DOMAIN)
    made = []
    for _ in range(ROWS):
        row = {name: str(rng.choice(values)) for name, values in VALUES.items()}
        row["age"], row["hours-per-week"] = str(rng.integers(17, 91)), str(rng.integers(1, 100))
        row["capital-gain"], row["capital-loss"] = (str(rng.choice([0, 5000])) for _ in range(2))
        row["fnlwgt"], row["education-num"] = "1", "13"
        rich = (row["education"] == "Masters") + (int(row["hours-per-week"]) > 50) + rng.normal(0, 0.3) > 1
        made.append([*(row[name] for name in names), ">50K" if rich else "<=50K"])
    made[7][names.index("workclass")] = "?"
    return made


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("adult")
    for name, part, dot in (("adult.data.gz", rows[:400], ""), ("adult.test.gz", rows[400:], ".")):
        with gzip.open(path / name, "wt") as stream:
            stream.write("".join(", ".join(row) + dot + "\n" for row in part))
    return str(path)


def test_the_table_has_the_complete_rows_and_the_papers_categories(bench, rows, folder):
    columns = bench.table(folder)
    assert len(columns) == 13
    assert {len(column) for column in columns.values()} == {ROWS - 1}
    assert not {"fnlwgt", "education-num"} & set(columns)
    kept = rows[:7] + rows[8:]
    for i in range(30):
        assert columns["age"][i] == min(int(kept[i][0]) // 10 - 1, 7)
        assert columns["hours-per-week"][i] == min(int(kept[i][12]) // 10, 9)
        assert columns["capital-gain"][i] == (kept[i][10] != "0")
        assert columns["income"][i] == (kept[i][-1] == ">50K")


def test_without_a_folder_the_loader_asks_openml(bench, rows, folder, monkeypatch):
    datasets = pytest.importorskip("sklearn.datasets")
    names = list(importlib.import_module("jaxacct.training.demo.adult")._DOMAIN)
    categories = {name: list(values) for name, values in VALUES.items()}

    def code(name, text):
        if name not in categories:
            return float(text)
        return categories[name].index(text) if text in categories[name] else np.nan

    def fetch(name, version, **options):
        assert (name, version) == ("adult", 2)
        data = np.array([[code(n, row[i]) for i, n in enumerate(names)] for row in rows])
        labels = np.array([row[-1] for row in rows])
        return SimpleNamespace(feature_names=names, categories=categories, data=data, target=labels)

    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    loaded, read = bench.table(None), bench.table(folder)
    assert list(loaded) == list(read)
    assert all(np.array_equal(loaded[name], read[name]) for name in read)


def test_parts_are_disjoint_and_queries_are_a_tree_and_the_label_with_everything(bench, folder):
    columns = bench.table(folder)
    numbered = {**columns, "number": np.arange(ROWS - 1)}
    parts = bench.split(numbered)
    assert sorted(np.concatenate([part["number"] for part in parts])) == list(range(ROWS - 1))
    assert [len(part["number"]) for part in parts] == [239, 240, 120]
    assert abs(parts[1]["income"].mean() - parts[2]["income"].mean()) < 0.01
    sizes = {name: int(column.max()) + 1 for name, column in columns.items()}
    train = {name: parts[0][name] for name in columns}
    queries = bench.chosen_queries(train, sizes)
    assert {(name, "income") for name in columns if name != "income"} <= set(queries)
    group = {name: name for name in columns}
    for a, b in queries:
        group = {name: group[b] if value == group[a] else value for name, value in group.items()}
    assert len(set(group.values())) == 1
    # Twelve pairs with the label, and at most the twelve edges of a tree.
    assert len(queries) <= 24
    assert bench.chosen_queries(train, sizes) == queries
    assert bench.chosen_queries(train, sizes, seed=5) != queries, "the choice is noisy"


def test_a_repeat_stops_where_its_checks_say_and_is_summarised(bench, folder, monkeypatch):
    queries = [("age", "income"), ("education", "income"), ("education", "occupation")]  # few, to compile little
    experiment = bench.Experiment(folder, queries, threshold=0.7)
    # In place of a classifier: right answers that grow as the noise falls.
    sigmas = []

    def accuracies(self, marginals, sigma, seed):
        assert all(np.all(np.isfinite(leaf)) for leaf in marginals)
        assert len(marginals) == len(queries)
        sigmas.append(sigma)
        return 1.0 / (1.0 + sigma / 50), 0.5

    monkeypatch.setattr(bench.Experiment, "accuracies", accuracies)
    monkeypatch.setattr(bench, "CHECK", 100.0)  # 240 validation rows are few
    runs = [experiment.repeat(seed) for seed in (1, 2)]
    wanted = np.sqrt(len(queries)) * np.sqrt(20 / (2 * bench.BUDGETS))
    assert set(np.round(sigmas, 6)) <= set(np.round(wanted, 6))
    first = int(np.argmax(1 / (1 + wanted / 50) >= 0.7))
    for run in runs:
        for name in ("plain", "sparse"):
            part = run[name]
            assert part["passed"]
            assert abs(part["steps"] - 1 - first) <= 1
            assert part["epsilon"] == pytest.approx(max(bench.BUDGETS[part["steps"] - 1], 100.0), rel=1e-6)
        assert list(run["validation"]) == list(run["test"])
    found = bench.summary("plain", runs, 0.7)
    assert found["share_accepted_by_the_noisy_check"] == 1.0
    assert found["test_mean"] == 0.5


@pytest.mark.slow
def test_synthetic_rows_from_private_pgm_teach_the_classifier_something(bench, folder):
    pytest.importorskip("mbi", reason="Private-PGM: pip install 'jaxacct[mbi]'")
    experiment = bench.Experiment(folder, iterations=200)
    validation, test = experiment.accuracies(experiment.marginals(), 1.0, 0)
    majority = max(experiment.check["income"].mean(), 1 - experiment.check["income"].mean())
    assert min(validation, test) > majority + 0.05
