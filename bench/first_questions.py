"""Questions of `first_answer.py`: what each side is asked in its own words, and what is wanted of the answer.

Questions are Python expressions: a fresh process evaluates them, and the table shows them. Names of jaxacct are there
if they are used. The peer's expressions have dp_accounting's privacy loss distributions as ``law``, its events as
``event``, and ``accounted``, its accountant after the given events; its lattice is the default one of 1e-4. Here are
the table of known slow answers, the jobs of `peers.py`, and compiled programs; `first_families.py` has the rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Question(NamedTuple):
    """One question.

    Attributes:
        ours: the expression that is timed.
        peer: the same for dp_accounting; empty where it has none.
        limits: the most that each measured number may be, the least for those of `AT_LEAST`.
        setup: statements before the question, not part of its time. A jitted ``program`` that is made here is
            compiled for its ``arguments``, stage by stage, before the question.
        eager: the same numbers without a program, for comparison.
        widths: the same mechanism at several deltas, for the width of the bounds only.
        values: what else the expressions use.
        scale: how often the peer would have to do what it is asked, where it is asked for a part.
        x64: whether all of it happens in a float64 program.
        alone: whether ``program`` holds the formulas, as it does for accelerators, and calls no host.
        quick: whether it is one of the few of ``--quick``.
    """

    ours: str
    peer: str = ""
    limits: dict[str, float] = {}  # noqa: RUF012
    setup: str = ""
    eager: str = ""
    widths: str = ""
    values: dict[str, Any] = {}  # noqa: RUF012
    scale: float = 1.0
    x64: bool = False
    alone: bool = False
    quick: bool = False


AT_LEAST = ("times peer", "first times peer")
ASKED = ".self_compose(T).get_epsilon_for_delta(1e-5)"  # of the peer's law of one run

_TABLE: dict[str, tuple[str, str]] = {
    "Laplace": ("epsilon(Laplace(10.0), 1e-5, steps=T)", "law.from_laplace_mechanism(10.0)" + ASKED),
    "DiscreteGaussian": (
        "epsilon(DiscreteGaussian(5.0), 1e-5, steps=T)",
        "law.from_discrete_gaussian_mechanism(5.0)" + ASKED,
    ),
    "DiscreteLaplace": (
        "epsilon(DiscreteLaplace(3.0), 1e-5, steps=T)",
        "law.from_discrete_laplace_mechanism(1 / 3.0)" + ASKED,
    ),
    "sampled Laplace": (
        "epsilon(PoissonSampled(Laplace(2.0), 0.01), 1e-5, steps=T)",
        "law.from_laplace_mechanism(2.0, sampling_prob=0.01)" + ASKED,
    ),
    "sampled DiscreteGaussian": (
        "epsilon(PoissonSampled(DiscreteGaussian(4.0), 0.02), 1e-5, steps=T)",
        "law.from_discrete_gaussian_mechanism(4.0, sampling_prob=0.02)" + ASKED,
    ),
    "composed": (
        "epsilon(Composed((PoissonSampled(Gaussian(1.0), 0.01), Laplace(20.0)), (500, 20)), 1e-5)",
        "accounted((event.PoissonSampledDpEvent(0.01, event.GaussianDpEvent(1.0)), 500),"
        " (event.LaplaceDpEvent(20.0), 20)).get_epsilon(1e-5)",
    ),
    "mixture": (
        "epsilon(RandomSensitivityGaussian(1.0, (0, 1, 2), (0.9, 0.09, 0.01)), 1e-5, steps=T)",
        "law.from_mixture_gaussian_mechanism(1.0, (0, 1, 2), (0.9, 0.09, 0.01))" + ASKED,
    ),
}
_TABLE_RUNS = {"Laplace": 100, "DiscreteGaussian": 100, "DiscreteLaplace": 40, "sampled DiscreteGaussian": 500}


def _table() -> dict[str, Question]:
    wanted = {"answer": 0.5, "whole over peer": 1.0, "times peer": 1.0}
    found = {}
    for name, (ours, peer) in _TABLE.items():
        query = ours.replace("1e-5", "numpy.array([1e-5, 1e-9, 1e-12])")
        values = {"T": _TABLE_RUNS.get(name, 1_000)}
        limits = wanted | {"width": 1e-6}
        found[f"table/{name}"] = Question(ours, peer, limits, widths=query, values=values, quick=name != "mixture")
    found["table/PLD"] = Question(
        "PLD.from_mechanism(PoissonSampled(Gaussian(1.0), 0.01)).self_compose(1000).hockey_stick(1.0)",
        "law.from_gaussian_mechanism(1.0, sampling_prob=0.01).self_compose(1000).get_delta_for_epsilon(1.0)",
        {"answer": 1.0, "warm": 0.05, "whole over peer": 1.0},
        quick=True,
    )
    return found


_SWEEP = """
rng = numpy.random.default_rng(0)
sigma, rate = numpy.exp(rng.uniform(numpy.log([[0.6], [1e-3]]), numpy.log([[5.0], [0.1]]), (2, 1000)))
steps = numpy.floor(numpy.exp(rng.uniform(numpy.log(100), numpy.log(20_000), 1000)))
delta_ = 10 ** rng.uniform(-7, -5, 1000)
"""
_TARGETS = """
rng = numpy.random.default_rng(1)
target = numpy.exp(rng.uniform(numpy.log(0.5), numpy.log(10.0), 100))
rate = numpy.exp(rng.uniform(numpy.log(2e-3), numpy.log(0.05), 100))
steps = numpy.floor(numpy.exp(rng.uniform(numpy.log(500), numpy.log(10_000), 100)))
"""
_SCHEDULE = """
wave = 1.5 + numpy.sin(numpy.pi / 3650 * 150 * numpy.ceil(numpy.arange(1, 3651) / 150))
sigmas, counts = numpy.unique(wave, return_counts=True)
"""


def _jobs() -> dict[str, Question]:
    """As in `peers.py`, whose numbers they must not fall behind."""
    return {
        "jobs/one sampled Gaussian": Question(
            "epsilon(PoissonSampled(Gaussian(1.0), 0.01), 1e-5, steps=1000)",
            'peer_epsilon("dp_accounting", 1.0, 0.01, 1000, 1e-5)',
            {"answer": 0.5, "times peer": 35.0},
            quick=True,
        ),
        "jobs/25 noise levels": Question(
            "epsilon(Composed([PoissonSampled(Gaussian(s), 0.01) for s in sigmas], [int(c) for c in counts]), 1e-5)",
            'peer_schedule("dp_accounting", 1e-5)',
            {"times peer": 53.0},
            _SCHEDULE,
        ),
        "jobs/100 calibrations": Question(
            "calibrate(lambda s: PoissonSampled(Gaussian(s), rate), target, 1e-5, steps=steps).parameter",
            "[peer_calibrate(rate[i], int(steps[i]), target[i], 1e-5) for i in range(2)]",
            {"times peer": 529.0},
            _TARGETS,
            scale=50.0,
        ),
        "jobs/sweep of 1,000": Question(
            "epsilon(PoissonSampled(Gaussian(sigma), rate), delta_, steps=steps)",
            '[peer_epsilon("dp_accounting", sigma[i], rate[i], int(steps[i]), delta_[i]) for i in range(20)]',
            {"answer": 2.0, "warm": 1.2, "first times peer": 95.0, "times peer": 150.0},
            _SWEEP,
            scale=50.0,
        ),
        "jobs/quickstart notebook": Question(
            "len(nbclient.NotebookClient(nbformat.read('notebooks/quickstart.ipynb', 4), timeout=600).execute().cells)",
            limits={"answer": 20.0},
        ),
    }


_STEP = "PoissonSampled(Gaussian({}), 0.01)"
_EPSILON, _DELTA = f"epsilon({_STEP}, 1e-5, steps=1000)", f"delta({_STEP}, 1.0, steps=1000)"
_SCAN = f"lambda x: jax.lax.scan(lambda c, s: (c, {_EPSILON.format('s')}), 0, x)[1]"
_ONE = "arguments = (1.0,)"
_HUNDRED = "arguments = (numpy.linspace(0.8, 4.0, 100, dtype=numpy.float32),)"


def _program(made: str, arguments: str, eager: str, limits: dict[str, float], x64: bool = False) -> Question:
    return Question("program(*arguments)", "", limits, f"program = {made}\n{arguments}", eager=eager, x64=x64)


# Mechanisms of one number, steps, and that number.
_ALONE = {
    "sampled Gaussian": (_STEP, 1000, 1.0),
    "Gaussian": ("Gaussian({})", 100, 10.0),
    "Laplace": ("Laplace({})", 100, 10.0),
    "sampled Laplace": ("PoissonSampled(Laplace({}), 0.01)", 1000, 2.0),
    "DiscreteGaussian": ("DiscreteGaussian({})", 100, 5.0),
    "DiscreteLaplace": ("DiscreteLaplace({})", 40, 3.0),
    "sampled DiscreteGaussian": ("PoissonSampled(DiscreteGaussian({}), 0.02)", 500, 4.0),
    "Skellam": ("Skellam({})", 100, 30.0),
    "RandomizedResponse": ("RandomizedResponse({})", 100, 0.4),
    "RandomSensitivityGaussian": ("RandomSensitivityGaussian({}, (0.0, 1.0, 2.0), (0.9, 0.09, 0.01))", 1000, 1.0),
    "composed": ("Composed([PoissonSampled(Gaussian({}), 0.01), Laplace(20.0)], [500, 20])", 1, 1.0),
}


def _alone() -> dict[str, Question]:
    """Programs that accelerators get, compiled for this CPU; float64, so that lines are those of the formulas."""
    light = {"compiling": 4.0, "lines": 2500.0}
    found = {}
    for name, (mechanism, steps, number) in _ALONE.items():
        asked = {
            "epsilon": f"epsilon({mechanism}, 1e-5, steps={steps})",
            "delta": f"delta({mechanism}, 1.0, steps={steps})",
        }
        arguments = f"arguments = ({number},)"
        for kind, query in (
            asked.items() if name in ("sampled Gaussian", "Laplace") else [("epsilon", asked["epsilon"])]
        ):
            made = f"jax.jit(lambda s: {query.format('s')})"
            found[f"alone/jit {kind}, {name}"] = _program(made, arguments, query.format("arguments[0]"), light, True)
        if name in ("sampled Gaussian", "Laplace"):
            upper = f"lambda s: {asked['epsilon'].format('s')}.upper"
            made, slope = f"jax.jit(jax.grad({upper}))", f"jax.grad({upper})(*arguments)"
            found[f"alone/jit grad epsilon, {name}"] = _program(made, arguments, slope, {"compiling": 4.0}, True)
    return {name: question._replace(alone=True) for name, question in found.items()}


def _programs() -> dict[str, Question]:
    epsilon, delta = (f"lambda s: {query.format('s')}" for query in (_EPSILON, _DELTA))
    upper = f"lambda s: ({epsilon})(s).upper"
    plain = _EPSILON.format("arguments[0]")
    light, batch = {"compiling": 4.0, "lines": 2500.0}, {"compiling": 4.0, "over eager": 2.0}
    slope = f"jax.grad({upper})(*arguments)"
    found = {
        "program/jit epsilon": _program(f"jax.jit({epsilon})", _ONE, plain, light)._replace(quick=True),
        "program/jit delta": _program(f"jax.jit({delta})", _ONE, _DELTA.format("arguments[0]"), light),
        "program/jit grad epsilon": _program(f"jax.jit(jax.grad({upper}))", _ONE, slope, {"compiling": 4.0}),
        "program/jit vmap epsilon": _program(f"jax.jit(jax.vmap({epsilon}))", _HUNDRED, plain, batch),
        "program/jit epsilon of a batch": _program(f"jax.jit({epsilon})", _HUNDRED, plain, batch),
    }
    for x64, kind in ((False, "float32"), (True, "float64")):
        few = f"arguments = (numpy.linspace(0.8, 4.0, 8, dtype=numpy.{kind}),)"
        orders = {
            "jit vmap": (f"jax.jit(jax.vmap({epsilon}))", plain),
            "vmap jit": (f"jax.vmap(jax.jit({epsilon}))", plain),
            "grad jit": (f"jax.vmap(jax.grad(jax.jit({upper})))", f"jax.vmap(jax.grad({upper}))(*arguments)"),
            "jit scan": (f"jax.jit({_SCAN})", plain),
        }
        for name, (made, eager) in orders.items():
            found[f"transformed/{name}, {kind}"] = _program(made, few, eager, {"away": 1e-6}, x64)
    return found


QUESTIONS: dict[str, Question] = {**_table(), **_jobs(), **_programs(), **_alone()}
