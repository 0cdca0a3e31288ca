"""``jaxacct epsilon`` and ``jaxacct delta``: one query of :mod:`jaxacct.accounting`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from jaxacct._printing import rounded_down, rounded_up
from jaxacct.cli import plain_errors

__all__ = ["cache_compilations", "delta", "epsilon"]

_EXAMPLE = """\b
Example:
  jaxacct {name} --sigma 1 --rate 0.01 --steps 1000 {target}
"""


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    options = [
        click.option("--sigma", type=float, required=True, help="Noise multiplier: noise over sensitivity."),
        click.option("--rate", type=float, default=1.0, show_default=True, help="Poisson sampling rate; 1: none."),
        click.option("--steps", type=int, default=1, show_default=True, help="Number of runs, fixed in advance."),
        click.option(
            "--relation",
            type=click.Choice(["add_or_remove", "add", "remove", "replace"]),
            default="add_or_remove",
            show_default=True,
            help="What neighbouring data sets differ in.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with full precision."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command(epilog=_EXAMPLE.format(name="epsilon", target="--delta 1e-5"))
@_shared
@click.option("--delta", "target", type=float, required=True, help="Failure probability, in (0, 1).")
def epsilon(**arguments: Any) -> None:
    """Print certified bounds of epsilon for the (Poisson-sampled) Gaussian mechanism."""
    _answer("epsilon", "delta", **arguments)


@click.command(epilog=_EXAMPLE.format(name="delta", target="--epsilon 1"))
@_shared
@click.option("--epsilon", "target", type=float, required=True, help="Privacy loss in nats.")
def delta(**arguments: Any) -> None:
    """Print certified bounds of delta for the (Poisson-sampled) Gaussian mechanism."""
    _answer("delta", "epsilon", **arguments)


def _answer(
    wanted: str,
    given: str,
    *,
    sigma: float,
    rate: float,
    steps: int,
    relation: str,
    target: float,
    as_json: bool,
) -> None:
    import jax

    from jaxacct import accounting
    from jaxacct.mechanisms import Gaussian, PoissonSampled

    cache_compilations(jax)
    with plain_errors():
        gaussian = Gaussian(sigma)
        mechanism = gaussian if rate == 1.0 else PoissonSampled(gaussian, rate)
        bounds = getattr(accounting, wanted)(mechanism, target, steps=steps, relation=relation)
    lower, upper = float(bounds.lower), float(bounds.upper)
    if as_json:
        query = {"sigma": sigma, "rate": rate, "steps": steps, "relation": relation, given: target}
        # JSON has no infinity: an epsilon that nothing certifies is null.
        ends = {"lower": lower, "upper": upper if upper != float("inf") else None}
        click.echo(json.dumps({**query, wanted: ends}))
        return
    click.echo(f"{wanted} <= {rounded_up(upper)}   (upper bound: the guarantee)")
    click.echo(f"{wanted} >= {rounded_down(lower)}   (lower bound: how tight it is)")
    click.echo(f"at {given} {target:g}, relation {relation}, {steps} steps fixed in advance")


def cache_compilations(jax: Any) -> None:
    """Keeps compiled programs in the user's cache folder, where JAX was not told of one: later calls start fast."""
    if jax.config.jax_compilation_cache_dir is None:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(base / "jaxacct" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
