"""The example programs run, tiny, and say what they promise."""

import ast
import importlib.util
import os
import pathlib
import subprocess
import sys

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("nnx_loop", {}),
        ("nnx_optimizer", {}),
        ("lora_transformer", {"width": 32, "layers": 1}),
        ("sampled_batches", {"kind": "allocation"}),
        ("sampled_batches", {"kind": "fixed"}),
        ("equinox_loop", {}),
    ],
)
def test_a_loop_of_ones_own_learns_under_a_filter(tmp_path, monkeypatch, name, arguments):
    if name == "equinox_loop":
        pytest.importorskip("equinox", reason="equinox is not installed")
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    found = load(name).main(most=120, **arguments)
    assert 20 < found["steps"] <= 120
    # Chance is a tenth; keys are fresh, and so small a transformer gets to about a half.
    assert found["accuracy"] > (0.3 if name == "lora_transformer" else 0.55)
    assert found["epsilon"] <= 3.0
    assert found["is_bound"]
    if name == "lora_transformer":
        assert found["trained"] < 0.25 * found["frozen"]
    if name == "sampled_batches":
        assert found["asked"] == (12 if arguments["kind"] == "allocation" else found["steps"])


def in_a_process(name, call, tmp_path):
    """What ``call`` of an example says, in a process of its own: it sets up JAX's devices."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    program = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import {name}; print({name}.{call})"
    environment = kept | {
        "JAX_PLATFORMS": "cpu",
        "JAXACCT_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(FOLDER.parents[1]),
    }
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    return ast.literal_eval(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_four_devices_train_to_the_bits_of_one(tmp_path):
    found = in_a_process("four_devices", "main(most=40)", tmp_path)
    assert (found["devices"], found["steps"], found["same_bits"]) == (4, 40, True)
    assert found["epsilon"] <= 3.0


@pytest.mark.slow
def test_two_processes_with_their_own_rows_end_where_one_does_to_the_bit(tmp_path):
    two = in_a_process("two_processes", "start(count=2, most=30)", tmp_path)
    one = in_a_process("two_processes", "start(count=1, most=30)", tmp_path)
    assert [found["rows"] for found in two] == [718, 719]
    assert {found["bits"] for found in two} == {one[0]["bits"]}
    assert all(found["admitted"] and found["of"] == one[0]["rows"] == 1437 for found in two)


@pytest.mark.slow
def test_a_killed_run_goes_on_with_every_charge(tmp_path):
    found = in_a_process("kill_and_resume", "main(after=40, most=60)", tmp_path)
    assert found["attempts"] == 2
    assert found["charged"] == found["steps"] + found["lost"] >= 60
    assert found["epsilon"] <= 3.0
