"""``jaxacct plot``: pictures from :mod:`jaxacct.plotting`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from jaxacct._progress import progress
from jaxacct._types import Fields, PyTree
from jaxacct.cli import LazyGroup, plain_errors
from jaxacct.cli.output import say_json
from jaxacct.cli.page import Page, examples, output_file, relation_option, shared, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import composed
from jaxacct.cli.sweep import Sweep, sweep_options, swept

_HERE = "jaxacct.cli.plot"
_PICTURES = {
    "heat-map": (_HERE, "heat_map", "Draw a sweep over two parameters."),
    "loss": (_HERE, "loss", "Draw the law of the privacy loss."),
    "profile": (_HERE, "profile", "Draw delta against epsilon."),
    "trade-off": (_HERE, "trade_off", "Draw the errors of the best attack."),
}
_drawn = under("Picture")
_FILE = output_file("The picture: .png, .svg or .pdf.", required=True)


@click.group(cls=LazyGroup, lazy=_PICTURES, epilog=examples("plot profile --sigma 1 --rate 0.01 --steps 1000 -o a.svg"))
def plot() -> None:
    """Draw a privacy profile, a trade-off curve, the law of a privacy loss, or a sweep.

    Needs matplotlib: pip install 'jaxacct[plot]'.
    """


@click.command(cls=Page, epilog=examples("plot profile --sigma 1 --rate 0.01 --steps 1000 -o profile.png"))
@relation_option
@mechanism_options()
@_FILE
@shared
def profile(**arguments: object) -> None:
    """Draw delta against epsilon: the guarantee as a line, and a band down to the lower bound."""
    _draw("privacy_profile", arguments)


@click.command(cls=Page, epilog=examples("plot trade-off --sigma 2 --steps 10 --log -o attack.svg"))
@_drawn("--log", is_flag=True, help="True against false positive rate, on logarithmic axes.")
@relation_option
@mechanism_options()
@_FILE
@shared
def trade_off(log: bool, **arguments: object) -> None:
    """Draw the least type II error of every attack against its type I error."""
    _draw("trade_off", arguments, log=log)


@click.command("loss", cls=Page, epilog=examples("plot loss --mechanism laplace --scale 1 --steps 5 -o loss.png"))
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
@shared
def loss(log: bool, **arguments: object) -> None:
    """Draw where the privacy loss has its probability, as a histogram."""
    _draw("pld", arguments, log=log)


@click.command(
    "heat-map",
    cls=Page,
    epilog=examples("plot heat-map --sigma 0.8:4:16 --steps 100:10000:12:log --rate 0.01 --delta 1e-5 -o map.png"),
)
@sweep_options
@_FILE
@shared
def heat_map(output: Path, as_json: bool, quiet: bool, **arguments: object) -> None:
    """Draw epsilon, delta or noise over two parameters that are lists or ranges; see jaxacct sweep."""
    _named(output)
    found = swept(arguments, quiet)
    axes = {name: np.unique(axis) for name, axis in found.axes.items() if len(axis) > 1}
    if len(axes) != 2:
        raise click.UsageError(f"exactly two parameters must be lists or ranges, got {', '.join(axes) or 'none'}")

    def drawn(plotting: Any) -> Any:
        (xlabel, x), (ylabel, y) = axes.items()
        ax = plotting.sweep(_table(found, axes), x, y, xlabel=xlabel, ylabel=ylabel, label=found.wanted)
        ax.set(xscale=_scale(x), yscale=_scale(y))
        return ax

    _written(drawn, output, as_json)


def _scale(axis: np.ndarray) -> str:
    """Logarithmic for a range of nearly equal ratios, none so large that its first cell would reach to 0."""
    if len(axis) < 3 or axis[0] <= 0 or np.max(axis[1:] / axis[:-1]) >= 2.5:
        return "linear"
    uneven = [np.ptp(gaps) / gaps.mean() for gaps in (np.diff(axis), np.diff(np.log(axis)))]
    return "linear" if uneven[0] <= uneven[1] else "log"


def _table(found: Sweep, axes: dict[str, np.ndarray]) -> Any:
    """The answers with shape (y, x); bounds where there are two."""
    from jaxacct.accounting import Bounds

    (x, along), (y, up) = axes.items()
    across, above = (np.searchsorted(axis, found.columns[name]) for name, axis in ((x, along), (y, up)))

    def laid(column: np.ndarray) -> np.ndarray:
        values = np.full((len(up), len(along)), np.nan)
        values[above, across] = column
        return values

    if found.wanted in found.columns:
        return laid(found.columns[found.wanted])
    return Bounds(*(laid(found.columns[f"{found.wanted}_{side}"]) for side in ("lower", "upper")))


def _draw(name: str, arguments: Fields, **options: object) -> None:
    output, as_json, quiet, relation = (arguments.pop(key) for key in ("output", "as_json", "quiet", "relation"))
    _named(output)
    runs = runs_of(arguments)
    with plain_errors(), progress("plot", quiet):
        mechanism, steps = composed(runs)
        _written(
            lambda plotting: getattr(plotting, name)(mechanism, steps=steps, relation=relation, **options),
            output,
            as_json,
        )


def _named(output: Path) -> None:
    if output.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise click.UsageError(f"--output must end in .png, .svg or .pdf, got {str(output)!r}")


def _written(draw: Callable[[PyTree], PyTree], output: Path, as_json: bool) -> None:
    with plain_errors():
        try:
            import matplotlib
        except ImportError:
            raise ImportError("plotting needs matplotlib: pip install 'jaxacct[plot]'") from None
        matplotlib.use("Agg")  # a file needs no display
        from jaxacct import plotting

        figure = draw(plotting).figure
        figure.savefig(output, dpi=200, bbox_inches="tight")
    if as_json:
        say_json({"wrote": str(output)})
    else:
        click.echo(f"wrote {click.format_filename(output)}")
