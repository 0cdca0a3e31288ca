"""The example programs run, tiny, and say what they promise."""

import importlib.util
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks" / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_linen_network_learns_in_a_loop_of_its_own_until_the_filter_refuses(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    found = load("linen_loop").main(epsilon=4.0, sigma=2.0, rate=0.15)
    assert 20 < found["steps"] < 1000
    assert found["accuracy"] > 0.7
    assert found["epsilon"] <= 4.0
    assert found["is_bound"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning")  # jax_privacy calls it
def test_jax_privacys_modules_train_under_a_filter(tmp_path, monkeypatch):
    pytest.importorskip("jax_privacy", reason="jax_privacy is not installed")
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    found = load("jax_privacy_under_filter").main(epsilon=4.0, sigma=2.0, rate=0.15)
    assert 20 < found["steps"] < 1000
    assert found["accuracy"] > 0.7
    assert found["epsilon"] <= 4.0
    assert found["is_bound"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # jax_privacy's
def test_an_nnx_network_trains_in_jax_privacys_trainer_under_a_filter(tmp_path, monkeypatch):
    theirs = pytest.importorskip("jax_privacy.training", reason="jax_privacy is not installed, or older than 2.3")
    if not hasattr(theirs, "DPTrainer"):
        pytest.skip("jax_privacy from 2.3 on has DPTrainer")
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    found = load("jax_privacy_nnx").main(epsilon=3.0)
    assert 20 < found["steps"] < 1000
    assert found["accuracy"] > 0.8
    assert found["epsilon"] <= 3.0
    assert found["is_bound"]
