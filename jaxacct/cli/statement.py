"""``jaxacct statement``: the privacy of a DP-SGD run in words."""

from __future__ import annotations

from typing import Any

import click

from jaxacct.cli import plain_errors
from jaxacct.cli.output import say_json
from jaxacct.cli.page import WHOLE, Page, examples, under
from jaxacct.cli.start import without_collection

_run = under("Run")


@click.command(
    cls=Page,
    epilog=examples(
        "statement --noise-multiplier 0.9 --batch 512 --records 60000 --epochs 30",
        "statement --noise-multiplier 1.1 --batch 256 --records 60000 --epochs 60 --delta 1e-6 --records-per-user 3",
    ),
)
@_run("--noise-multiplier", type=float, required=True, help="Noise over the clip norm.")
@_run("--batch", type=WHOLE, required=True, help="Expected batch size.")
@_run("--records", type=WHOLE, required=True, help="Records in the training set.")
@_run("--epochs", type=float, required=True, help="Passes over the training set.")
@_run("--delta", type=float, help="[default: the largest power of ten below 1 / records]")
@_run("--records-per-user", type=WHOLE, help="Also for all records of a user, at most so many.")
@under("Output")("--json", "as_json", is_flag=True, help="Print one JSON object.")
def statement(as_json: bool, **arguments: Any) -> None:
    """Print what a DP-SGD run guarantees, in paragraphs that say what is assumed.

    For runs whose noise, batches and number of steps were fixed in advance; the numbers are certified upper bounds, for
    Poisson samples, for random allocation, and for batches made in any other way.
    """
    with without_collection(), plain_errors():
        from jaxacct.interop.statement import dp_sgd_statement

        found = dp_sgd_statement(**arguments)
    if as_json:
        say_json(found._asdict())
    else:
        click.echo(found.text)
