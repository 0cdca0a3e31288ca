"""Hostile arguments and damaged files: a ValueError or TypeError that names the argument, or an answer that is sound.

Small by default; `pytest -m slow tests/test_fuzz.py` draws some thousands. bench/README.md says how many were drawn.
"""

from __future__ import annotations

import io
import math
import shutil
import sqlite3
import zipfile

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxacct
from jaxacct import Gaussian, Ledger, filters, mechanisms
from jaxacct.filters import _table_cache
from jaxacct.ledger import LedgerError, canonical

WORDS = [None, True, "x", "", b"x", 1j, {}, {"a": 1}, (), [], [[1.0], [2.0, 3.0]], object, len, 10**400, -(10**400)]
ARRAYS = [
    np.array([1.0, math.nan]),
    np.zeros((0,)),
    np.array("x"),
    np.array([None, 1.0], object),
    np.ones((2, 3, 4)),
    np.array([2, -1]),
    np.array(1 + 1j),
]
hostile = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True),
    st.integers(-(2**70), 2**70),
    st.sampled_from(WORDS),
    st.sampled_from(ARRAYS),
    st.text(max_size=5),
    st.builds(np.float32, st.floats(width=32)),
    st.just(Gaussian(1.0)),
)
few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
many = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))

# Each with arguments that make sense; one at a time is replaced.
MECHANISMS = {
    "ApproximateDP": {"epsilon": 1.0, "delta": 1e-5},
    "Composed": {"mechanisms": [Gaussian(1.0)], "steps": 2},
    "DiscreteGaussian": {"sigma": 1.0, "sensitivity": 1},
    "DiscreteLaplace": {"scale": 1.0, "sensitivity": 1},
    "Exponential": {"epsilon": 1.0},
    "FromProfile": {"epsilons": [0.0, 1.0], "deltas": [0.5, 0.1]},
    "FromTables": {"p": [0.5, 0.5], "q": [0.6, 0.4]},
    "GDP": {"mu": 1.0},
    "Gaussian": {"sigma": 1.0, "sensitivity": 1.0},
    "Laplace": {"scale": 1.0, "sensitivity": 1.0},
    "MixtureOfGaussians": {"sigma": 1.0, "sensitivities": (0.0, 1.0), "weights": (0.5, 0.5)},
    "PermuteAndFlip": {"epsilon": 1.0},
    "PoissonSampled": {"mechanism": Gaussian(1.0), "rate": 0.1},
    "PureDP": {"epsilon": 1.0},
    "RandomizedResponse": {"epsilon": 1.0, "categories": 2},
    "RenyiDP": {"order": 2.0, "epsilon": 0.5},
    "SampledWithoutReplacement": {"mechanism": Gaussian(1.0), "sample_size": 10, "dataset_size": 100},
    "ZeroConcentratedDP": {"rho": 0.5},
}
FILTERS = {
    "approximate_dp": {"epsilon": 1.0, "delta": 1e-5, "share": 0.5},
    "approximate_gdp": {"budget": 1.0, "regime": "small"},
    "approximate_zcdp": {"rho": 1.0, "delta": 1e-5},
    "gdp": {"mu": 1.0},
    "pure_dp": {"epsilon": 1.0},
    "zcdp": {"rho": 1.0},
}
RELATION = {"SampledWithoutReplacement": "replace"}
QUESTIONS = {
    "delta": {"mechanism": Gaussian(1.0), "epsilon": 1.0, "steps": 2, "relation": "remove"},
    "epsilon": {"mechanism": Gaussian(1.0), "delta": 1e-5, "steps": 2, "relation": "remove"},
}


def test_every_mechanism_is_fuzzed():
    assert set(MECHANISMS) == set(mechanisms.__all__)


def called(function, arguments, name, value):
    """The result, or None where it raised as it should: the argument named, or the thing that it is a part of."""
    try:
        return function(**{**arguments, name: value})
    except (ValueError, TypeError) as problem:
        said = str(problem)
        assert any(word in said for word in (*arguments, "mechanism", "parameters")), f"{name}={value!r}: {said}"
        return None


def fuzz_mechanism(name, value):
    for argument in MECHANISMS[name]:
        made = called(getattr(mechanisms, name), MECHANISMS[name], argument, value)
        if made is not None and value is None and argument != "mechanism":
            # A placeholder, as trees have them while they are built: it proves nothing.
            upper = np.asarray(jaxacct.delta(made, 1.0, relation=RELATION.get(name, "add_or_remove")).upper)
            assert np.all(upper == 1.0)


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_name_what_is_wrong(name):
    few(given(hostile.filter(lambda value: value is not None))(lambda value: fuzz_mechanism(name, value)))()
    for value in (*WORDS[1:], *ARRAYS, math.nan, math.inf, -math.inf, -1.0):
        fuzz_mechanism(name, value)


@pytest.mark.slow  # bounds for every placeholder compile
@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_name_what_is_wrong_at_length(name):
    many(given(hostile)(lambda value: fuzz_mechanism(name, value)))()


def fuzz_filter(name, value):
    for argument in FILTERS[name]:
        called(getattr(filters, name), FILTERS[name], argument, value)


@pytest.mark.parametrize("name", FILTERS)
def test_filters_name_what_is_wrong(name):
    for value in (*WORDS, *ARRAYS[2:4], math.nan, math.inf, -math.inf, -1.0, 0.0, 5e-324, 1e308):
        fuzz_filter(name, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILTERS)
def test_filters_name_what_is_wrong_at_length(name):
    many(given(hostile)(lambda value: fuzz_filter(name, value)))()


def fuzz_update(budget, state, value):
    """A hostile query raises, is refused, or is charged; NaN, negative and infinite numbers are refused."""
    said = ""
    try:
        admitted, after = budget.update(value, state)
    except (ValueError, TypeError) as problem:
        said = str(problem)
        admitted, after = None, state
    if admitted is None:
        assert any(word in said for word in ("query", "mechanism", "rate")), f"{value!r}: {said}"
        return
    answer = np.asarray(admitted)
    if isinstance(value, int | float | np.floating) and not 0 <= value < math.inf:
        assert not answer.any()
    if not answer.any():
        for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
            np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("make", [lambda: filters.gdp(1.0), lambda: filters.pure_dp(1.0), lambda: filters.zcdp(1.0)])
def test_queries_are_refused_charged_or_named(make):
    budget = make()
    state = budget.init()
    for value in (*WORDS, *ARRAYS, math.nan, math.inf, -1.0, 5e-324, 1e308, np.float32(-1), np.int64(3)):
        fuzz_update(budget, state, value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["pure_dp", "zcdp", "gdp", "gdp_residue", "renyi", "approximate_zcdp", "approximate_gdp"]
)
def test_queries_are_refused_charged_or_named_at_length(name):
    arguments = {"gdp_residue": {"mu": 1.0}, "renyi": {"epsilon": 3.0, "delta": 1e-5, "order": 8.0}}
    budget = getattr(filters, name)(**{**arguments, **FILTERS}[name])
    state = budget.init()
    many(given(hostile)(lambda value: fuzz_update(budget, state, value)))()


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_name_what_is_wrong(name):
    for value in (*WORDS[2:], np.array("x"), math.nan, math.inf, -math.inf, -1.0):
        for argument in QUESTIONS[name]:
            found = called(getattr(jaxacct, name), QUESTIONS[name], argument, value)
            if found is not None and np.size(found.upper):
                lower, upper = np.asarray(found.lower), np.asarray(found.upper)
                assert np.all(lower <= upper)
                assert np.all(lower >= 0)


# --- files


@pytest.fixture(scope="module")
def ledger_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "budget.db"
    with Ledger(path, filters.pure_dp(1.0)) as ledger:
        for cost in (0.25, 0.5, 0.75):
            ledger.request(cost, "a label")
        ledger.released(1)
        return path, ledger.verify().head, ledger.history(), float(ledger.spent())


def read_after(path, offset, byte, raw):
    """One byte of the file is another one: it reads as it did, or a `LedgerError` says that it does not."""
    path, head, history, spent = path
    damaged = bytearray(raw)
    if damaged[offset] == byte:
        return False
    damaged[offset] = byte
    copy = path.with_name("damaged.db")
    for end in ("-wal", "-shm"):
        copy.with_name(copy.name + end).unlink(missing_ok=True)
    copy.write_bytes(bytes(damaged))
    try:
        with Ledger(copy, create=False, timeout=0.5) as ledger:
            report = ledger.verify(head)
            found, now = ledger.history(), float(ledger.spent())
    except LedgerError:
        return True
    assert report.head == head
    assert [(e.id, e.label, e.admitted) for e in found] == [(e.id, e.label, e.admitted) for e in history]
    assert now == spent
    return False


def test_a_flipped_byte_in_a_ledger_is_harmless_or_an_error_with_a_name(ledger_file):
    raw = ledger_file[0].read_bytes()
    dice = np.random.default_rng(3)
    errors = sum(
        read_after(ledger_file, int(offset), int(byte), raw)
        for offset, byte in zip(dice.integers(len(raw), size=60), dice.integers(256, size=60), strict=True)
    )
    # Where the records themselves are, every byte counts.
    start = raw.index(b'{"at":')
    assert all(read_after(ledger_file, start + n, raw[start + n] ^ 1, raw) for n in range(0, 100, 10))
    assert errors > 0


@pytest.mark.slow
def test_any_json_is_a_value_or_an_error_with_a_name_at_length():
    settings(max_examples=5000, deadline=None)(given(json_trees)(fuzz_tree))()


@pytest.mark.slow  # thousands of files
def test_flipped_bytes_in_a_ledger_at_length(ledger_file):
    raw = ledger_file[0].read_bytes()
    dice = np.random.default_rng(4)
    for offset, byte in zip(dice.integers(len(raw), size=3000), dice.integers(256, size=3000), strict=True):
        read_after(ledger_file, int(offset), int(byte), raw)
    for offset in range(150):  # the header and the schema
        read_after(ledger_file, offset, 255, raw)


json_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "fields", "float", "array", "tuple", "data", "dtype", "shape", "sigma"]),
            inner | st.sampled_from(["Gaussian", "Ledger", "os", "<f8", "|O", "AAAA", "0x1p+0", "nan"]),
            max_size=3,
        )
    ),
    max_leaves=8,
)


def fuzz_tree(tree):
    from jaxacct.ledger import LedgerCorrupted

    try:
        value = canonical.decoded(tree)
        text = canonical.dumps(canonical.encoded(value, "x"))
    except LedgerCorrupted:
        return
    except ValueError as problem:
        assert "x must" in str(problem)  # noqa: PT017
        return
    assert canonical.dumps(canonical.encoded(canonical.decoded(canonical.loads(text)), "x")) == text


def test_any_json_is_a_value_or_an_error_with_a_name():
    settings(max_examples=60, deadline=None, derandomize=True)(given(json_trees)(fuzz_tree))()
    for text in ("", "[", "NaN", '{"a":1,"a":2}', " 1", "1e5", "[" * 5000 + "]" * 5000, "\ud800"):
        with pytest.raises(LedgerError):
            canonical.loads(text)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    arrays = {"excess": np.linspace(1.0, 0.0, 64), "prices": np.arange(3)}
    _table_cache.store("key", arrays)
    return tmp_path / "key.npz", arrays


def test_a_flipped_byte_in_a_table_is_the_table_or_none(table):
    path, arrays = table
    raw = path.read_bytes()
    dice = np.random.default_rng(5)
    for offset in [*range(40), *dice.integers(len(raw), size=60)]:
        damaged = bytearray(raw)
        damaged[offset] ^= int(dice.integers(1, 256))
        path.write_bytes(bytes(damaged))
        found = _table_cache.load("key")
        if found is not None:
            for name, array in arrays.items():
                np.testing.assert_array_equal(found[name], array)
    path.write_bytes(raw)
    assert _table_cache.load("key") is not None
    assert _table_cache.load("other") is None


def test_a_table_with_a_pickle_in_it_is_none_and_is_not_unpickled(table):
    path, _ = table

    class Bomb:
        def __reduce__(self):
            return (shutil.rmtree, (str(path.parent),))

    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb()], object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("excess.npy", buffer.getvalue())
        archive.writestr("digest.npy", buffer.getvalue())
    assert _table_cache.load("key") is None
    assert path.exists()


def test_a_ledger_of_blobs_is_an_error_with_a_name(tmp_path):
    path = tmp_path / "blobs.db"
    Ledger(path, filters.pure_dp(1.0)).close()
    for column, table in (
        ("body", "records"),
        ("hash", "records"),
        ("state", "head"),
        ("seq", "head"),
        ("hash", "head"),
    ):
        for value in ("x'00ff'", "1", "'x'", "1e300", "CAST(x'ff' AS TEXT)"):
            copy = tmp_path / "copy.db"
            shutil.copy(path, copy)
            connection = sqlite3.connect(copy)
            connection.execute("DROP TRIGGER jaxacct_no_UPDATE")
            connection.execute(f"UPDATE jaxacct_{table} SET {column} = {value}")
            connection.commit()
            connection.close()
            with pytest.raises(LedgerError):
                Ledger(copy).verify()
