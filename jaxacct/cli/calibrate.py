"""``jaxacct calibrate``: the noise multiplier that a privacy target asks for."""

from __future__ import annotations

import json
import warnings

import click

from jaxacct._printing import rounded_down, rounded_up
from jaxacct.cli import plain_errors
from jaxacct.cli.account import cache_compilations

__all__ = ["calibrate"]

_EXAMPLE = """\b
Example:
  jaxacct calibrate --epsilon 1 --delta 1e-5 --rate 0.01 --steps 1000
"""


@click.command(epilog=_EXAMPLE)
@click.option("--epsilon", type=float, required=True, help="Target privacy loss in nats.")
@click.option("--delta", type=float, required=True, help="Target failure probability, in (0, 1).")
@click.option("--rate", type=float, default=1.0, show_default=True, help="Poisson sampling rate; 1: none.")
@click.option("--steps", type=int, default=1, show_default=True, help="Number of runs, fixed in advance.")
@click.option(
    "--relation",
    type=click.Choice(["add_or_remove", "add", "remove", "replace"]),
    default="add_or_remove",
    show_default=True,
    help="What neighbouring data sets differ in.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with full precision.")
def calibrate(epsilon: float, delta: float, rate: float, steps: int, relation: str, as_json: bool) -> None:
    """Print the smallest certified noise multiplier (noise over sensitivity) that meets (epsilon, delta)."""
    import jax

    from jaxacct.calibration import calibrate as search
    from jaxacct.mechanisms import Gaussian, PoissonSampled

    cache_compilations(jax)

    def make(sigma):
        return Gaussian(sigma) if rate == 1.0 else PoissonSampled(Gaussian(sigma), rate)

    with plain_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the second line says how far off it may be
        found = search(make, epsilon, delta, steps=steps, relation=relation)
    sigma, refuted = float(found.parameter), float(found.refuted)
    known = refuted == refuted
    if as_json:
        query = {"epsilon": epsilon, "delta": delta, "rate": rate, "steps": steps, "relation": relation}
        there = {"lower": float(found.delta.lower), "upper": float(found.delta.upper)}
        answer = {"sigma": sigma, "delta_at_sigma": there, "refuted_sigma": refuted if known else None}
        click.echo(json.dumps({**query, **answer}))
        return
    # More noise is never less private, so that a sigma that is rounded up still meets the target.
    click.echo(f"sigma = {rounded_up(sigma)}   (meets the target: delta <= {rounded_up(float(found.delta.upper))})")
    if known:
        click.echo(f"sigma > {rounded_down(refuted)}   (that much provably fails it: how tight it is)")
    else:
        click.echo("no smaller sigma was shown to fail")
    click.echo(f"at epsilon {epsilon:g}, delta {delta:g}, relation {relation}, {steps} steps fixed in advance")
