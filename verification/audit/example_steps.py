"""The training steps of the example programs and the notebooks, as `check_step` takes them.

A program runs as it stands, on a few records, up to its first step; that step is then called again and again with
other records and keys in the places where the program had its own.
"""

import importlib.util
import inspect
import json
import pathlib
import types
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxacct import Gaussian, PoissonSampled, RandomAllocation, SampledWithoutReplacement, training
from verification.audit.library_steps import Case

NOTEBOOKS = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
COUNT, SIGMA, RATE = 12, 3.0, 0.5
COINS = PoissonSampled(Gaussian(SIGMA), RATE)
FIXED = SampledWithoutReplacement(Gaussian(SIGMA / 2), COUNT // 3, COUNT)
SETTINGS = dict(sigma=SIGMA, rate=RATE)
_LOADED = training.demo.load_data("digits")
FEW = _LOADED._replace(train_x=_LOADED.train_x[:COUNT], train_y=np.asarray(_LOADED.train_y[:COUNT], np.int32))


class _Reached(Exception):
    """A program has come to its first step."""


def _callers_names():
    """The local names of the program that called the function that asks."""
    frame = inspect.currentframe()
    return frame.f_back.f_back.f_locals


class _Found:
    """The function of a step, and what it was called with."""

    def compiled(self, real, module):
        """``real`` (`jax.jit`, say), but that the program's own ``step`` is caught at its first call."""

        def jit(function=None, *args, **kwargs):
            if getattr(function, "__module__", "") != module or function.__name__ not in ("step", "release"):
                return real(function, *args, **kwargs)

            def reached(*args):
                self.function, self.arguments, self.names = function, args, _callers_names()
                raise _Reached

            return reached

        return jit

    def begun(self, real):
        """`init_state`, after which a program with `make_step` is at its first step."""

        def init_state(*args):
            self.state, self.names = real(*args), _callers_names()
            raise _Reached

        return init_state

    def made(self, real):
        def make_step(*args, **kwargs):
            self.step = real(*args, **kwargs)
            return self.step

        return make_step

    def run(self, program, module):
        patches = [
            mock.patch.object(jax, "jit", self.compiled(jax.jit, module)),
            mock.patch.object(nnx, "jit", self.compiled(nnx.jit, module)),
            mock.patch.object(training, "make_step", self.made(training.make_step)),
            mock.patch.object(training, "init_state", self.begun(training.init_state)),
            mock.patch.object(training.demo, "load_data", return_value=FEW),
            mock.patch.object(type(jax.config), "update"),  # devices, of which one is enough here
            mock.patch.object(jax.distributed, "initialize"),
        ]
        try:
            for patch in patches:
                patch.start()
            program()
        except _Reached:
            return self
        finally:
            for patch in reversed(patches):
                patch.stop()
        raise AssertionError(f"{module} took no step")


def _rebound(function, new, seen=None):
    """``function`` with other values in the places of its closure that ``new`` names, and of functions in it."""
    cells = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        value = cell.cell_contents
        if name in new:
            value = new[name]
        elif isinstance(value, types.FunctionType) and value.__module__ == function.__module__:
            value = _rebound(value, new)
        cells.append(types.CellType(value))
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, closure=tuple(cells))
    copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return copy


def _with_keys(tree, keys):
    return jax.tree.map(
        lambda leaf: keys if isinstance(leaf, training.RootKeys) else leaf,
        tree,
        is_leaf=lambda leaf: isinstance(leaf, training.RootKeys),
    )


def loaded(name):
    """An example as a module of its own name."""
    spec = importlib.util.spec_from_file_location(name, NOTEBOOKS / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def own_loop(name, mechanism=COINS, relation="replace", **settings):
    """A loop of one's own: its jitted ``step`` holds ``x``, ``y`` and the roots of keys in its closure."""
    module = loaded(name)
    found = _Found().run(lambda: module.main(**settings), name)
    objects, rest = zip(
        *((one, None) if isinstance(one, nnx.Module | nnx.Optimizer) else (None, one) for one in found.arguments),
        strict=True,
    )
    graph, held = nnx.split(objects)

    def step(data, keys):
        x, y = data
        here = nnx.merge(graph, held, copy=True)
        given = [other if one is None else one for one, other in zip(here, _with_keys(rest, keys), strict=True)]
        answer = _rebound(found.function, {"x": x, "y": y, "roots": keys, "keys": keys})(*given)
        return answer, nnx.state(here)

    x = np.asarray(FEW.train_x)
    x = x if name == "linen_loop" else x.reshape(-1, 64)
    private = ("[0].opt_state[0].keys",) if name == "linen_loop" else ()
    return Case(step, mechanism, relation, data=(x, np.asarray(FEW.train_y)), private=private)


def given_batch():
    """jax_privacy's clipping and noise, on a batch that its sampler drew elsewhere."""
    name = "jax_privacy_under_filter"
    module = loaded(name)
    found = _Found().run(lambda: module.main(**SETTINGS), name)
    params, opt_state, noise_state, _, level = found.arguments

    def step(data, key):
        padding = jnp.zeros(len(data[1]), bool)
        total = found.names["clipped"](params, data, is_padding_example=padding)
        return found.function(params, opt_state, (key, noise_state[1]), total, level)

    return Case(
        step, Gaussian(float(level)), "add_or_remove", keys=jax.random.key, data=(FEW.train_x, np.asarray(FEW.train_y))
    )


def _made(name, program, mechanism=COINS, relation="replace"):
    """A program with `make_step`; its records stand in its own ``x`` and ``y``, or ``examples``."""
    found = _Found().run(program, name)
    places = found.names
    x, y = places["examples"] if isinstance(places.get("examples"), tuple) else (places["x"], places["y"])

    def step(data, keys):
        state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), found.state)  # a step may donate it
        return found.step(state._replace(keys=keys), data)

    return Case(step, mechanism, relation, data=(np.asarray(x), np.asarray(y)))


def made(name, **settings):
    """An example whose ``main`` has a step of `make_step`."""
    module = loaded(name)
    return _made(name, lambda: module.main(**settings))


def durable():
    """The example that is killed and resumed."""
    module = loaded("kill_and_resume")
    return _made("kill_and_resume", lambda: module.train("unused", most=60, **SETTINGS))


def processes():
    """The example of several processes, as one of them sees it."""
    module = loaded("two_processes")
    return _made("two_processes", lambda: module.main("", 1, 0, 60, **SETTINGS))


def notebook(name):
    """The first run of a notebook; its noise and rate are what its schedule begins with."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    spaces = {"__name__": name}

    def program():
        for cell in cells:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), name, "exec"), spaces)

    case = _made(name, program)
    report = case.step(case.data, training.seeded_keys(0))[1]
    return case._replace(mechanism=PoissonSampled(Gaussian(float(report.sigma)), float(report.rate)))


CASES = {
    "nnx_loop": lambda: own_loop("nnx_loop", PoissonSampled(Gaussian(1.5 * SIGMA), RATE), **SETTINGS),
    "nnx_optimizer": lambda: own_loop("nnx_optimizer", **SETTINGS),
    "linen_loop": lambda: own_loop("linen_loop", PoissonSampled(Gaussian(2**0.5 * SIGMA), RATE), **SETTINGS),
    "sampled_batches, allocation": lambda: own_loop(
        "sampled_batches", RandomAllocation(Gaussian(SIGMA), 3), kind="allocation", sigma=SIGMA, batches=3
    ),
    "sampled_batches, fixed": lambda: own_loop(
        "sampled_batches",
        SampledWithoutReplacement(Gaussian(SIGMA / 2), 4, COUNT),
        kind="fixed",
        sigma=SIGMA,
        batches=3,
    ),
    "lora_transformer": lambda: made("lora_transformer", width=8, layers=1, most=60, **SETTINGS),
    "four_devices": lambda: made("four_devices", most=60, **SETTINGS),
    "kill_and_resume": durable,
    "two_processes": processes,
    "dpsgd_filters": lambda: notebook("dpsgd_filters"),
}
# With packages that need not be installed.
OPTIONAL = {"equinox_loop": lambda: own_loop("equinox_loop", **SETTINGS), "jax_privacy_under_filter": given_batch}
