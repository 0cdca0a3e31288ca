"""``jaxacct plot``: pictures from :mod:`jaxacct.plotting`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from jaxacct._types import Fields
from jaxacct.cli.output import Answer
from jaxacct.cli.page import examples, output_file, question, relation_option, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import composed
from jaxacct.cli.sweep import Sweep, sweep_options, swept

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from jaxacct.accounting import Bounds

_drawn = under("Picture")
_FILE = output_file("The picture: .png, .svg or .pdf.", required=True)


@click.group(epilog=examples("plot profile --sigma 1 --rate 0.01 --steps 1000 -o a.svg"))
def plot() -> None:
    """Draw a privacy profile, a trade-off curve, the law of a privacy loss, or a sweep.

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
    return _of_runs("privacy_profile", arguments)


@question("plot trade-off --sigma 2 --steps 10 --log -o attack.svg")
@_drawn("--log", is_flag=True, help="True against false positive rate, on logarithmic axes.")
@relation_option
@mechanism_options()
@_FILE
def trade_off(log: bool, **arguments: object) -> Answer:
    """Draw the errors of the best attack.

    The least type II error of every attack against its type I error.
    """
    return _of_runs("trade_off", arguments, log=log)


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
    return _of_runs("pld", arguments, log=log)


@question("plot heat-map --sigma 0.8:4:16 --steps 100:10000:12:log --rate 0.01 --delta 1e-5 -o map.png")
@sweep_options
@_FILE
def heat_map(output: Path, **arguments: object) -> Answer:
    """Draw a sweep over two parameters.

    Epsilon, delta or noise over two parameters that are lists or ranges; see jaxacct sweep.
    """

    def draw() -> Axes:
        found = swept(arguments)
        axes = {name: np.sort(axis) for name, axis in found.axes.items() if len(axis) > 1}
        if len(axes) != 2:
            raise click.UsageError(f"exactly two parameters must be lists or ranges, got {', '.join(axes) or 'none'}")
        from jaxacct import plotting

        (xlabel, x), (ylabel, y) = axes.items()
        ax = plotting.sweep(_table(found, axes), x, y, xlabel=xlabel, ylabel=ylabel, label=found.wanted)
        ax.set(xscale=_scale(x), yscale=_scale(y))
        return ax

    return _written(draw, output)


for _one in (profile, trade_off, loss, heat_map):
    plot.add_command(_one)


def _scale(axis: np.ndarray) -> str:
    """Logarithmic for a range of nearly equal ratios, none so large that its first cell would reach to 0."""
    if len(axis) < 3 or axis[0] <= 0 or np.max(axis[1:] / axis[:-1]) >= 2.5:
        return "linear"
    uneven = [np.ptp(gaps) / gaps.mean() for gaps in (np.diff(axis), np.diff(np.log(axis)))]
    return "linear" if uneven[0] <= uneven[1] else "log"


def _table(found: Sweep, axes: dict[str, np.ndarray]) -> Bounds | np.ndarray:
    """The answers with shape (y, x); bounds where there are two."""
    from jaxacct.accounting import Bounds

    order = np.ix_(*(np.argsort(found.axes[name]) for name in axes))
    sizes = [len(axis) for axis in found.axes.values() if len(axis) > 1]
    laid = lambda name: found.columns[name].reshape(sizes)[order].T  # noqa: E731
    if found.wanted in found.columns:
        return laid(found.wanted)
    return Bounds(laid(f"{found.wanted}_lower"), laid(f"{found.wanted}_upper"))


def _of_runs(name: str, arguments: Fields, **options: object) -> Answer:
    def draw() -> Axes:
        mechanism, steps = composed(runs_of(arguments))
        from jaxacct import plotting

        return getattr(plotting, name)(mechanism, steps=steps, relation=relation, **options)

    relation = arguments.pop("relation")
    return _written(draw, arguments.pop("output"))


def _written(draw: Callable[[], Axes], output: Path) -> Answer:
    if output.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise click.UsageError(f"--output must end in .png, .svg or .pdf, got {str(output)!r}")
    try:
        import matplotlib
    except ImportError:
        raise ImportError("plotting needs matplotlib: pip install 'jaxacct[plot]'") from None
    matplotlib.use("Agg")  # a file needs no display
    figure: Figure = draw().figure  # pyright: ignore[reportAssignmentType]  # no part of another one
    figure.savefig(output, dpi=200, bbox_inches="tight")
    return Answer([f"wrote {click.format_filename(output)}"], {"wrote": str(output)})
