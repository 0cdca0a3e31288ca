"""The arguments of ``jaxacct ledger``: filters with their parameters, and queries."""

from __future__ import annotations

from collections.abc import Mapping

from jaxacct._types import Fields
from jaxacct.cli.run_options import runs_of
from jaxacct.cli.runs import composed, said_of

# What `create` makes, and which of its parameters take several numbers.
FILTERS = {
    "approximate_dp": "epsilon delta [share]",
    "approximate_gdp": "budget [regime]",
    "approximate_zcdp": "rho delta",
    "gdp": "mu",
    "gdp_residue": "mu [delta] [steps] [relation]",
    "pure_dp": "epsilon",
    "renyi": "epsilon delta order",
    "renyi_any": "epsilon delta orders",
    "sampled_gaussian": "sigma rate epsilon delta",
    "zcdp": "rho",
}
_TARGETS = ("approximate_gdp", "approximate_zcdp", "gdp", "gdp_residue", "pure_dp", "renyi", "renyi_any", "zcdp")
_WORDS = ("regime", "relation")
_LISTS = ("orders",)
_RANGES = ("sigma", "rate")  # one number, or the smallest and the largest
PARAMETERS = (
    "\b\nWhich FILTER, by what you run:\n"
    "  counts and histograms with Laplace noise           pure_dp, or zcdp for many of them\n"
    "  sums and means with Gaussian noise                 gdp\n"
    "  both, or with exponential mechanisms               zcdp\n"
    "  both, and (epsilon, delta) of other programs       approximate_dp\n"
    "  anything on samples (DP-SGD), next to the above    renyi, gdp_residue\n"
    "  DP-SGD with noise and rate in known ranges         sampled_gaussian\n"
    "\n\b\nFILTER and its parameters ([...]: may be left out):\n"
    + "\n".join(f"  {name:<23}{wanted}" for name, wanted in FILTERS.items())
    + "\n\n\b\nInstead of those, epsilon=... delta=... (the budget is the largest that they allow):\n  "
    + " ".join(_TARGETS)
)


def parameters_of(name: str, parameters: tuple[str, ...]) -> Fields:
    """The arguments of filter ``name`` in words like ``rho=0.5``."""
    wanted = FILTERS[name].split()
    targets = ["epsilon", "delta"] if name in _TARGETS else []
    found: Fields = {}
    for parameter in parameters:
        key, _, text = parameter.partition("=")
        known = [word.strip("[]") for word in wanted] + targets
        if not text or key not in known or key in found:
            instead = ", or epsilon=... delta=..." if targets else ""
            raise ValueError(f"parameters must be {' '.join(f'{w}=...' for w in wanted)}{instead}, got {parameter}")
        found[key] = text if key in _WORDS else _number(key, text)
    if is_target(name, found):
        own = [word for word in ("mu", "rho", "budget") if word in found]
        if own:
            raise ValueError(f"parameters must be {own[0]} or (epsilon, delta), got both")
        return found
    missing = [word for word in wanted if not word.startswith("[") and word not in found]
    if missing:
        raise ValueError(f"parameters must hold {', '.join(missing)} for {name}, got {' '.join(parameters) or 'none'}")
    if not set(found) <= {word.strip("[]") for word in wanted}:
        got = " ".join(parameters)
        raise ValueError(f"parameters must be {wanted[0]} or (epsilon, delta), got {got} (epsilons are at --delta)")
    return found


def is_target(name: str, found: Mapping[str, object]) -> bool:
    """Whether the budget is given as an (epsilon, delta) that the filter's own parameters are to be worked out from."""
    own = [word.strip("[]") for word in FILTERS[name].split()]
    needed = {word for word in FILTERS[name].split() if not word.startswith("[")}
    complete = "epsilon" in own and needed <= set(found) <= set(own)
    return name in _TARGETS and {"epsilon", "delta"} <= set(found) and not complete


def _number(key: str, text: str) -> float | list[float] | tuple[float, ...]:
    try:
        numbers = [int(part) if part.strip().lstrip("+-").isdigit() else float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{key} must be a number, got {text}") from None
    if key in _LISTS:
        return numbers
    if key in _RANGES and len(numbers) == 2:
        return tuple(numbers)
    if len(numbers) > 1:
        raise ValueError(f"{key} must be one number, got {text}")
    return numbers[0]


# What a request is where only a parameter is given.
_IMPLIED = {
    "sigma": "gaussian",
    "noise_multiplier": "gaussian",
    "scale": "laplace",
    "rho": "zcdp",
    "order": "renyi-dp",
    "each_delta": "approximate-dp",
    "each_epsilon": "pure-dp",
}


def query_of(cost: float | None, arguments: dict[str, object]) -> tuple[object, list[str]]:
    """The query that the options of a request describe, and what its cost assumes of the sampling."""
    from jaxacct import mechanisms

    given = [name for name, value in arguments.items() if not (value is None or value is False or value == ())]
    if cost is not None:
        if given:
            raise ValueError("--cost is what the whole query costs: it goes with no option of a mechanism")
        return cost, []
    if arguments["mechanism"] is None:
        family = next((family for name, family in _IMPLIED.items() if name in given), None)
        if family is None and not arguments["runs"]:
            raise ValueError("say what runs: --sigma, --scale, --epsilon, --rho, --mechanism, --run or --cost")
        arguments["mechanism"] = family
    runs = runs_of(arguments)
    mechanism, steps = composed(runs)
    return (mechanism if steps == 1 else mechanisms.Composed([mechanism], [steps])), said_of(runs)
