"""``jaxacct statement``: the privacy of a run, a ledger or a plan in words."""

from __future__ import annotations

import json
from typing import Any

import click

from jaxacct._types import Fields
from jaxacct.cli.output import Answer
from jaxacct.cli.page import question, under
from jaxacct.cli.run_options import option_of
from jaxacct.cli.values import WHOLE

_run = under("Plan")
_output = under("Output")
_PLAN = ("noise_multiplier", "batch", "records", "epochs")


@question(
    "statement --noise-multiplier 0.9 --batch 512 --records 60000 --epochs 30",
    "statement runs/2026-01-31T12-00-00 --json > runs/2026-01-31T12-00-00/statement.json",
    "statement team.db --registry",
)
@click.argument("path", required=False)
@_run("--noise-multiplier", type=float, help="Noise over the clip norm.")
@_run("--batch", type=WHOLE, help="Expected batch size.")
@_run("--records", type=WHOLE, help="Records in the training set.")
@_run("--epochs", type=float, help="Passes over the training set.")
@_run("--records-per-user", type=WHOLE, help="Also for all records of a user, at most so many.")
@_run("--certify", is_flag=True, help="Also certify epsilon in ball arithmetic (the extra certify).")
@under("Question")("--delta", type=float, help="[default: the run's or ledger's, or a power of ten up to .1 / records]")
@_output("--registry", is_flag=True, help="Print the fields of the registry of deployments and of NIST SP 800-226.")
@_output("--schema", is_flag=True, help="Print the JSON schema of what --json prints, and do nothing else.")
def statement(path: str | None, registry: bool, schema: bool, delta: float | None, **plan: Any) -> Answer:
    """Print what a run, a ledger or a plan guarantees, in paragraphs that say what is assumed.

    PATH is the folder of a run (jaxacct train, training.durable_run) or a ledger. Without it, the options describe a
    DP-SGD run whose noise, batches and number of steps are fixed in advance; the numbers are certified upper bounds,
    for Poisson samples, for random allocation, and for batches made in any other way.
    """
    from jaxacct import reports

    if schema:
        return _listed(reports.Statement.schema())
    given = [name for name, value in plan.items() if value is not None and value is not False]
    if path is not None:
        if given:
            raise ValueError(f"{option_of(given[0])} describes a plan: it does not go with PATH")
        found = reports.statement(path, delta=delta)
    else:
        if missing := [option_of(name) for name in _PLAN if plan[name] is None]:
            raise ValueError(f"give PATH, the folder of a run or a ledger; or, for a plan, {', '.join(missing)}")
        found = reports.dp_sgd_statement(delta=delta, **plan)
    return _listed(found.registry()) if registry else Answer([found.text], json.loads(found.to_json()))


def _listed(fields: Fields) -> Answer:
    return Answer([json.dumps(fields, indent=1)], fields)
