"""Questions of `first_answer.py`: every public mechanism, filter, order and calibration, and rare samples."""

from __future__ import annotations

from typing import Any

from first_questions import ASKED, Question

RUNS = (1, 10, 1_000, 100_000)

# A mechanism of noise n, its privacy loss distribution of the peer's (with `s`, the rest of the arguments where the
# peer samples it), and the width asked for. n grows with the square root of the runs, or is 2 on samples.
FAMILIES: dict[str, tuple[str, str, float | None]] = {
    "Gaussian": ("Gaussian(n)", "law.from_gaussian_mechanism(n, **s)", 1e-6),
    "Laplace": ("Laplace(n)", "law.from_laplace_mechanism(n, **s)", 1e-6),
    "DiscreteGaussian": ("DiscreteGaussian(n)", "law.from_discrete_gaussian_mechanism(n, **s)", 1e-6),
    "DiscreteLaplace": ("DiscreteLaplace(n)", "law.from_discrete_laplace_mechanism(1 / n, **s)", 1e-6),
    "RandomSensitivityGaussian": (
        "RandomSensitivityGaussian(n, (0, 1, 2), (0.9, 0.09, 0.01))",
        "law.from_mixture_gaussian_mechanism(n, (0, 1, 2), (0.9, 0.09, 0.01))",
        1e-6,
    ),
    "RandomizedResponse": (
        "RandomizedResponse(1 / n, 4)",
        "law.from_randomized_response(4 / (numpy.exp(1 / n) + 3), 4)",
        1e-6,
    ),
    "PureDP": ("PureDP(1 / n)", "law.from_privacy_parameters(claim(1 / n, 0.0))", 1e-6),
    "ApproximateDP": ("ApproximateDP(1 / n, 1e-6 / T)", "law.from_privacy_parameters(claim(1 / n, 1e-6 / T))", 1e-6),
    "FromTables": (
        "FromTables((0.35 + 0.2 / n, 0.3, 0.35 - 0.2 / n), (0.35 - 0.2 / n, 0.3, 0.35 + 0.2 / n))",
        "law.from_two_probability_mass_functions("
        "*(dict(enumerate(numpy.log([0.35 - d / n, 0.3, 0.35 + d / n]))) for d in (0.2, -0.2)))",
        1e-6,
    ),
    "GDP": ("GDP(1 / n)", "", 1e-6),
    "FromProfile": ("FromProfile((0.0, 1 / n), (0.2 / n, 1e-8 / T))", "", 1e-6),
    "Exponential": ("Exponential(1 / n)", "", 1e-3),
    "PermuteAndFlip": ("PermuteAndFlip(1 / n)", "", 1e-6),
    "ZeroConcentratedDP": ("ZeroConcentratedDP(0.5 / n**2)", "", None),  # its bounds do not meet
    "RenyiDP": ("RenyiDP(8.0, 4.0 / n**2)", "", None),
}
_SAMPLED_BY_PEER = ("Gaussian", "Laplace", "DiscreteGaussian", "DiscreteLaplace")


def _one(mechanism: str, peer: str, width: float | None, runs: int, values: dict[str, Any], relation: str = ""):
    limits = {"answer": 1.0} | ({"times peer": 1.0} if peer else {}) | ({} if width is None else {"width": width})
    query = f"epsilon({mechanism}, {{}}, steps=T{relation})"
    return Question(
        query.format("1e-5"),
        peer + ASKED if peer else "",
        limits,
        widths=query.format("numpy.array([1e-5, 1e-9, 1e-12])"),
        values={"T": runs, **values},
    )


def _alone() -> dict[str, Question]:
    found = {
        f"alone/{name}/{runs}": _one(ours, peer, width, runs, {"n": 2.0 * runs**0.5, "s": {}})
        for name, (ours, peer, width) in FAMILIES.items()
        for runs in RUNS
    }
    for runs in RUNS:  # the peer's accountant composes Gaussians in closed form
        whole = "accounted((event.GaussianDpEvent(n), T)).get_epsilon(1e-5)"
        found[f"alone/Gaussian/{runs}"] = found[f"alone/Gaussian/{runs}"]._replace(peer=whole)
    return found


def _sampled() -> dict[str, Question]:
    found = {}
    for runs in RUNS:
        for name, (ours, peer, width) in FAMILIES.items():
            theirs = peer if name in _SAMPLED_BY_PEER else ""
            values = {"n": 2.0, "s": {"sampling_prob": 0.01}}
            found[f"sampled/{name}/{runs}"] = _one(f"PoissonSampled({ours}, 0.01)", theirs, width, runs, values)
        fixed = "SampledWithoutReplacement(Gaussian(2.0), 100, 10_000)"
        found[f"sampled/WithoutReplacement/{runs}"] = _one(fixed, "", 1e-3, runs, {}, ', relation="replace"')
    return found


_GRID = "grid = LossGrid(0.125, -64, 129)\n"
_RESIDUE = (
    _GRID
    + """
def response(steps):
    loss, spent = jax.numpy.asarray(grid.losses), jax.numpy.asarray(steps, "float64") * 0.125
    p = jax.nn.sigmoid(spent)
    masses = jax.numpy.where(abs(loss - spent) < 0.0625, p, 0.0)
    masses = masses + jax.numpy.where(abs(loss + spent) < 0.0625, 1.0 - p, 0.0)
    return PLD(jax.numpy.where(steps >= 0, masses, jax.numpy.nan), jax.numpy.zeros(()), grid, "upper")
def honest(left, law):
    largest = jax.numpy.max(jax.numpy.where(law.masses > 1e-9, jax.numpy.asarray(law.grid.losses), -jax.numpy.inf))
    return left - jax.numpy.round(largest / 0.125)
"""
)
_MENU = "menu = [PoissonSampled(Gaussian(sigma), 0.1) for sigma in (2.0, 4.0)]\n"
_SIZES = "epsilon=1.5, delta=1e-3, points=256, cache=False"
_SAMPLE = "PoissonSampled(Gaussian(2.0), 0.1)"
# The filter, its first query, and what both need.
FILTERS: dict[str, tuple[str, str, str]] = {
    "pure_dp": ("filters.pure_dp(1.0)", "Laplace(50.0)", ""),
    "zcdp": ("filters.zcdp(0.5)", "Composed([Gaussian(10.0), Laplace(20.0)], [1, 2])", ""),
    "approximate_zcdp": ("filters.approximate_zcdp(0.5, 1e-6)", "ApproximateDP(0.01, 1e-8)", ""),
    "approximate_dp": ("filters.approximate_dp(2.0, 1e-5)", "Gaussian(25.0)", ""),
    "renyi": ("filters.renyi(3.0, 1e-5, order=8)", _SAMPLE, ""),
    "renyi, fractional": ("filters.renyi(3.0, 1e-5, order=6.5)", _SAMPLE, ""),
    "renyi_any": ("filters.renyi_any(3.0, 1e-5, (8, 12.5))", "Gaussian(12.0)", ""),
    "gdp": ("filters.gdp(1.0)", "Gaussian(10.0)", ""),
    "gdp_residue": ("filters.gdp_residue(1.0)", "Laplace(20.0)", ""),
    "gdp_residue, Gaussian": ("filters.gdp_residue(1.0)", "Gaussian(10.0)", ""),
    "gdp_residue, sampled": ("filters.gdp_residue(1.0, 1e-6)", "PoissonSampled(Gaussian(1.5), 0.01)", ""),
    "residue": (
        "filters.residue(response, honest, 40.0, rounds=300, grid=grid)",
        "RandomizedResponse(0.125)",
        _RESIDUE,
    ),
    "additive_profile": ("adversary.additive_profile(1.0, 1e-6, rounds=100)", "RandomizedResponse(0.02)", ""),
    "natural_approximate_dp": (
        "adversary.natural_approximate_dp(1.0, 1e-4, rounds=300, grid=LossGrid(0.02, -100, 201))",
        "RandomizedResponse(0.02)",
        "",
    ),
    "natural": ("filters.natural(Gaussian(1.0), (Gaussian(10.0),), 120)", "Gaussian(10.0)", ""),
    "natural, undeclared": (
        'filters.natural(RandomizedResponse(4.0), grid=grid, relation="replace")',
        "RandomizedResponse(0.125)",
        _GRID,
    ),
    "menu": (f"filters.menu(menu, {_SIZES})", _SAMPLE, _MENU),
    "online_menu": (f"filters.menu(menu, {_SIZES}, online=True)", "PoissonSampled(Gaussian(3.0), 0.1)", _MENU),
    "approximate_gdp": ("filters.approximate_gdp(0.5)", _SAMPLE, ""),
    "odometer": ("filters.odometer(filters.renyi(3.0, 1e-5, order=8))", "Gaussian(12.0)", ""),
    "per_example": ("filters.per_example(filters.renyi(3.0, 1e-5, order=8), examples=1000)", f"{_SAMPLE}, norms", ""),
    "per_example of approximate_gdp": (
        "filters.per_example(filters.approximate_gdp(0.5), examples=1000)",
        f"{_SAMPLE}, norms",
        "",
    ),
    "per_example of a menu": (
        f"filters.per_example(filters.menu(menu, {_SIZES}, unit=32), examples=1000)",
        f"{_SAMPLE}, norms",
        _MENU,
    ),
}


def _filters() -> dict[str, Question]:
    norms = "norms = numpy.linspace(0.1, 1.0, 1000)\n"
    return {
        f"filter/{name}": Question(
            f"made.update({query}, made.init())",
            limits={"answer": 2.0},
            setup=f"{norms if 'norms' in query else ''}{before}made = {made}",
            quick=name == "gdp_residue",
        )
        for name, (made, query, before) in FILTERS.items()
    }


# A family by one parameter x that makes it more private, or the largest that does ("largest" has a bracket).
_CALIBRATED = {
    "Gaussian": "Gaussian(x)",
    "Laplace": "Laplace(x)",
    "DiscreteGaussian": "DiscreteGaussian(x)",
    "DiscreteLaplace": "DiscreteLaplace(x)",
    "RandomSensitivityGaussian": "RandomSensitivityGaussian(x, (0, 1, 2), (0.9, 0.09, 0.01))",
    "RandomizedResponse": "RandomizedResponse(1 / x, 4)",
    "PureDP": "PureDP(1 / x)",
    "ApproximateDP": "ApproximateDP(1 / x, 1e-7)",
    "GDP": "GDP(1 / x)",
    "Exponential": "Exponential(1 / x)",
    "PermuteAndFlip": "PermuteAndFlip(1 / x)",
    "ZeroConcentratedDP": "ZeroConcentratedDP(1 / x)",
    "RenyiDP": "RenyiDP(16.0, 1 / x)",
    "sampled Gaussian": "PoissonSampled(Gaussian(x), 0.1)",
    "sampled Laplace": "PoissonSampled(Laplace(x), 0.1)",
    "sampled DiscreteGaussian": "PoissonSampled(DiscreteGaussian(x), 0.1)",
}


def _others() -> dict[str, Question]:
    chain = "[PoissonSampled(Gaussian(sigma), 0.1) for sigma in (1.0, 2.0, 4.0)]"
    return {
        "order/dominates": Question("dominates(Gaussian(1.0), Laplace(1.0))", limits={"answer": 1.0}, quick=True),
        "order/dominates, sampled": Question(
            "dominates(PoissonSampled(Gaussian(1.0), 0.1), PoissonSampled(Laplace(2.0), 0.1))", limits={"answer": 1.0}
        ),
        "order/is_chain": Question(f"is_chain({chain})", limits={"answer": 1.0}),
        "order/plan_order": Question(
            "filters.plan_order(PoissonSampled(Gaussian(1.0), 0.01), 1e-5, steps=1000)",
            limits={"answer": 1.0},
            quick=True,
        ),
    } | {
        f"calibrate/{name}": Question(
            f"calibrate(lambda x: {made}, epsilon=1.0, delta=1e-5, steps=10).parameter",
            limits={"answer": 2.0},
            quick=name == "Laplace",
        )
        for name, made in _CALIBRATED.items()
    }


def _rare() -> dict[str, Question]:
    alone = {
        f"rare/{name}, rate {rate:g}/{runs}": Question(
            f"epsilon(PoissonSampled({made}, rate), rate / 10, steps=T)",
            limits={"warm": 0.05, "width": 1e-6},
            values={"T": runs, "rate": rate},
            quick=(name, rate, runs) == ("Gaussian", 1e-3, 2),
        )
        for name, made in (("Gaussian", "Gaussian(1.0)"), ("Laplace", "Laplace(1.0)"))
        for rate in (1e-3, 1e-5, 1e-7, 1e-9)
        for runs in (1, 2, 5, 10)
    }
    # A grid of rates and numbers of runs in one call: as long as 25 single answers.
    grid = "rate = numpy.repeat([1e-2, 1e-3, 1e-5, 1e-7, 1e-9], 5); T = numpy.tile([1, 2, 3, 5, 10], 5)"
    return alone | {
        f"rare/grid, noise {noise:g}, delta {delta}": Question(
            f"epsilon(PoissonSampled(Gaussian({noise}), rate), {delta}, steps=T)",
            limits={"warm": 25 * 0.05, "width": 1e-6},
            setup=grid,
        )
        for noise in (0.5, 1.0, 2.0, 5.0)
        for delta in ("rate / 1000", "1e-5", "1e-9")
    }


QUESTIONS: dict[str, Question] = {**_others(), **_filters(), **_rare(), **_alone(), **_sampled()}
