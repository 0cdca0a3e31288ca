"""``jaxacct statement``: the privacy of a run, a ledger or a plan in words."""

from __future__ import annotations

import json
from typing import Any

import click

from jaxacct._progress import progress
from jaxacct.cli import plain_errors
from jaxacct.cli.page import WHOLE, Page, examples, under
from jaxacct.cli.start import without_collection

_run = under("Plan")
_output = under("Output")
_PLAN = ("noise_multiplier", "batch", "records", "epochs")


@click.command(
    cls=Page,
    epilog=examples(
        "statement --noise-multiplier 0.9 --batch 512 --records 60000 --epochs 30",
        "statement runs/2026-01-31T12-00-00 --json > runs/2026-01-31T12-00-00/statement.json",
        "statement team.db --registry",
    ),
)
@click.argument("path", required=False)
@_run("--noise-multiplier", type=float, help="Noise over the clip norm.")
@_run("--batch", type=WHOLE, help="Expected batch size.")
@_run("--records", type=WHOLE, help="Records in the training set.")
@_run("--epochs", type=float, help="Passes over the training set.")
@_run("--records-per-user", type=WHOLE, help="Also for all records of a user, at most so many.")
@_run("--certify", is_flag=True, help="Also certify epsilon in ball arithmetic (the extra certify).")
@under("Question")("--delta", type=float, help="[default: the run's or ledger's, or a power of ten up to .1 / records]")
@_output("--json", "as_json", is_flag=True, help="Print a file for `jaxacct verify` and `jaxacct certify --check`.")
@_output("--registry", is_flag=True, help="Print the fields of the registry of deployments and of NIST SP 800-226.")
@_output("--schema", is_flag=True, help="Print the JSON schema of that file, and do nothing else.")
@_output("-q", "--quiet", is_flag=True, help="No progress bar.")
def statement(
    path: str | None, as_json: bool, registry: bool, schema: bool, quiet: bool, delta: float | None, **plan: Any
) -> None:
    """Print what a run, a ledger or a plan guarantees, in paragraphs that say what is assumed.

    PATH is the folder of a run (jaxacct train, training.durable_run) or a ledger. Without it, the options describe a
    DP-SGD run whose noise, batches and number of steps are fixed in advance; the numbers are certified upper bounds,
    for Poisson samples, for random allocation, and for batches made in any other way.
    """
    with without_collection(), plain_errors(), progress("statement", quiet):
        from jaxacct import reports

        if schema:
            click.echo(json.dumps(reports.Statement.schema(), indent=1))
            return
        given = [name for name, value in plan.items() if value is not None and value is not False]
        if path is not None:
            if given:
                raise ValueError(f"--{given[0].replace('_', '-')} describes a plan: it does not go with PATH")
            found = reports.statement(path, delta=delta)
        else:
            missing = [f"--{name.replace('_', '-')}" for name in _PLAN if plan[name] is None]
            if missing:
                raise ValueError(f"give PATH, the folder of a run or a ledger; or, for a plan, {', '.join(missing)}")
            found = reports.dp_sgd_statement(delta=delta, **plan)
    if as_json:
        click.echo(found.to_json())
    elif registry:
        click.echo(json.dumps(found.registry(), indent=1))
    else:
        click.echo(found.text)
