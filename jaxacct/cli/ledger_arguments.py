"""The arguments of ``jaxacct ledger``: filters with their parameters, and queries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from jaxacct._types import Fields
from jaxacct.cli.run_options import runs_of
from jaxacct.cli.runs import composed, said_of

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter

# What `create` makes, by the names of its parameters, of which [...] may be left out; and, where there is a second
# form, by an (epsilon, delta) from which the filter's own parameters are worked out.
FILTERS = {
    "approximate_dp": ("epsilon delta [share]",),
    "approximate_gdp": ("budget [regime]", "epsilon delta [regime]"),
    "approximate_zcdp": ("rho delta", "epsilon delta"),
    "gdp": ("mu", "epsilon delta"),
    "gdp_residue": ("mu [delta] [steps] [relation]", "epsilon delta [steps] [relation]"),
    "pure_dp": ("epsilon", "epsilon delta"),
    "renyi": ("epsilon delta order", "epsilon delta"),
    "renyi_any": ("epsilon delta orders", "epsilon delta"),
    "sampled_gaussian": ("sigma rate epsilon delta",),
    "zcdp": ("rho", "epsilon delta"),
}
_WORDS = ("regime", "relation")
_LISTS = ("orders",)
_RANGES = ("sigma", "rate")  # one number, or the smallest and the largest
PARAMETERS = (
    "\b\nFILTER and its parameters ([...]: may be left out):\n"
    + "\n".join(f"  {name:<23}{own}" for name, (own, *_) in FILTERS.items())
    + "\n\n\b\nInstead of those, epsilon=... delta=... (the budget is the largest that they allow):\n  "
    + " ".join(name for name, forms in FILTERS.items() if len(forms) > 1)
)


def maker_of(name: str, parameters: tuple[str, ...]) -> tuple[Callable[..., Filter], Fields]:
    """What makes the filter ``name``, and its arguments, in words like ``rho=0.5``."""
    from jaxacct import filters

    found: Fields = {}
    for parameter in parameters:
        key, _, text = parameter.partition("=")
        if not text or key in found:
            break
        found[key] = text if key in _WORDS else _number(key, text)
    for number, form in enumerate(FILTERS[name]):
        needed = {word for word in form.split() if not word.startswith("[")}
        if len(found) == len(parameters) and needed <= set(found) <= {word.strip("[]") for word in form.split()}:
            return partial(filters.for_target, name) if number else getattr(filters, name), found
    forms = ", or ".join(" ".join(f"{word}=..." for word in form.split()) for form in FILTERS[name])
    got = " ".join(parameters) or "none"
    raise ValueError(f"parameters of {name} must be {forms}, each once, got {got} (epsilons are quoted at --delta)")


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
