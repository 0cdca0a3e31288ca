"""``jaxacct plot``: pictures from :mod:`jaxacct.plotting`."""

from __future__ import annotations

import os

import click

from jaxacct._types import Fields
from jaxacct.cli.output import Answer
from jaxacct.cli.page import examples, output_file, question, relation_option, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import composed

_drawn = under("Picture")
_FILE = output_file("The picture: .png, .svg or .pdf.", required=True)


@click.group(epilog=examples("plot profile --sigma 1 --rate 0.01 --steps 1000 -o a.svg"))
def plot() -> None:
    """Draw a privacy profile, a trade-off curve or the law of a privacy loss.

    Needs matplotlib: pip install 'jaxacct[plot]'.
    """


@question("plot profile --sigma 1 --rate 0.01 --steps 1000 -o profile.png")
@relation_option
@mechanism_options()
@_FILE
def profile(**arguments: object) -> Answer:
    """Draw delta against epsilon.

    The guarantee is a line, with a band down to the lower bound.
    """
    return _written("privacy_profile", arguments)


@question("plot trade-off --sigma 2 --steps 10 --log -o attack.svg")
@_drawn("--log", is_flag=True, help="True against false positive rate, on logarithmic axes.")
@relation_option
@mechanism_options()
@_FILE
def trade_off(log: bool, **arguments: object) -> Answer:
    """Draw the errors of the best attack.

    The least type II error of every attack against its type I error.
    """
    return _written("trade_off", arguments, log=log)


@question("plot loss --mechanism laplace --scale 1 --steps 5 -o loss.png")
@_drawn("--log", is_flag=True, help="A logarithmic axis of probability.")
@_drawn(
    "--relation",
    type=click.Choice(["remove", "add", "replace", "zero_out", "fill_in"]),
    default="remove",
    show_default=True,
    help="Which direction's loss.",
)
@mechanism_options()
@_FILE
def loss(log: bool, **arguments: object) -> Answer:
    """Draw the law of the privacy loss.

    Where it has its probability, as a histogram.
    """
    return _written("pld", arguments, log=log)


for _one in (profile, trade_off, loss):
    plot.add_command(_one)


def _written(name: str, arguments: Fields, **options: object) -> Answer:
    """Draws by the function ``name`` of :mod:`jaxacct.plotting`, and saves the picture."""
    relation, output = arguments.pop("relation"), arguments.pop("output")
    if output.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise click.UsageError(f"--output must end in .png, .svg or .pdf, got {str(output)!r}")
    os.environ.setdefault("MPLBACKEND", "agg")  # a file needs no display
    from jaxacct import plotting

    mechanism, steps = composed(runs_of(arguments))
    ax = getattr(plotting, name)(mechanism, steps=steps, relation=relation, **options)
    ax.figure.savefig(output, dpi=200, bbox_inches="tight")
    return Answer([f"wrote {click.format_filename(output)}"], {"wrote": str(output)})
