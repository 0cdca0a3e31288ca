"""The example programs run, tiny, and say what they promise."""

import ast
import importlib.util
import pathlib

import pytest

from tests.processes import printed

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks" / "examples"
pytestmark = pytest.mark.slow
THEIRS = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # jax_privacy's
NEEDED = {
    "equinox_loop": "equinox",
    "jax_privacy_under_filter": "jax_privacy",
    "jax_privacy_nnx": "jax_privacy.training",
}
FULL = {"epsilon": 4.0, "sigma": 2.0, "rate": 0.15}
FEW = {"most": 120}
# An example, its arguments, and the accuracy that it reaches: chance is a tenth, and keys are fresh.
LOOPS = [
    ("linen_loop", FULL, 0.7),
    pytest.param("jax_privacy_under_filter", FULL, 0.7, marks=THEIRS),
    pytest.param("jax_privacy_nnx", {"epsilon": 3.0}, 0.8, marks=THEIRS),
    ("nnx_loop", FEW, 0.55),
    ("nnx_optimizer", FEW, 0.55),
    ("lora_transformer", FEW | {"width": 32, "layers": 1}, 0.3),  # so small a one gets to about a half
    ("sampled_batches", FEW | {"kind": "allocation"}, 0.55),
    ("sampled_batches", FEW | {"kind": "fixed"}, 0.55),
    ("equinox_loop", FEW, 0.55),
]


@pytest.mark.parametrize(("name", "arguments", "accuracy"), LOOPS)
def test_an_example_learns_under_a_filter(tmp_path, monkeypatch, name, arguments, accuracy):
    needed = pytest.importorskip(NEEDED.get(name, "jaxacct"), reason=f"{NEEDED.get(name)} is not installed")
    if name == "jax_privacy_nnx" and not hasattr(needed, "DPTrainer"):
        pytest.skip("jax_privacy from 2.3 on has DPTrainer")
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.main(**arguments)
    assert 20 < found["steps"] <= arguments.get("most", 1000)
    assert found["accuracy"] > accuracy
    assert found["epsilon"] <= arguments.get("epsilon", 3.0)
    assert found["is_bound"]
    if name == "lora_transformer":
        assert found["trained"] < 0.25 * found["frozen"]
    if name == "sampled_batches":
        assert found["asked"] == (12 if arguments["kind"] == "allocation" else found["steps"])


def in_a_process(name, call, tmp_path):
    """What ``call`` of an example says, in a process of its own: it sets up JAX's devices."""
    program = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import {name}; print({name}.{call})"
    return ast.literal_eval(printed(program, JAXACCT_CACHE_DIR=str(tmp_path)).splitlines()[-1])


def test_four_devices_train_to_the_bits_of_one(tmp_path):
    found = in_a_process("four_devices", "main(most=40)", tmp_path)
    assert (found["devices"], found["steps"], found["same_bits"]) == (4, 40, True)
    assert found["epsilon"] <= 3.0


def test_two_processes_with_their_own_rows_end_where_one_does_to_the_bit(tmp_path):
    two = in_a_process("two_processes", "start(count=2, most=30)", tmp_path)
    one = in_a_process("two_processes", "start(count=1, most=30)", tmp_path)
    assert [found["rows"] for found in two] == [718, 719]
    assert {found["bits"] for found in two} == {one[0]["bits"]}
    assert all(found["admitted"] and found["of"] == one[0]["rows"] == 1437 for found in two)


def test_a_killed_run_goes_on_with_every_charge(tmp_path):
    found = in_a_process("kill_and_resume", "main(after=40, most=60)", tmp_path)
    assert found["attempts"] == 2
    assert found["charged"] == found["steps"] + found["lost"] >= 60
    assert found["epsilon"] <= 3.0
