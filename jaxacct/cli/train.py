"""``jaxacct train``: trains a network with :mod:`jaxacct.training`."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import click

from jaxacct._types import Fields
from jaxacct.cli import plain_errors
from jaxacct.cli.page import AnySpelling, Page, question
from jaxacct.cli.runs import warn_of_delta

_NEEDED = ("flax", "optax", "sklearn", "matplotlib")
_INTERRUPTED = 130  # what a shell expects of a program that Ctrl-C ended


# What a data set is trained with unless options say otherwise; tuned on held-out data (public).
_RECIPES = {
    "digits": {"model": "mlp", "rate": 0.15, "steps": 300, "learning_rate": 0.15, "physical_batch": 256},
    "adult": {"model": "linear", "rate": 0.15, "steps": 300, "learning_rate": 1.0, "physical_batch": 2048},
    "mnist": {"model": "linear", "rate": 0.15, "steps": 300, "learning_rate": 0.1, "physical_batch": 512},
}
# The options that a report lists, and that a resumed run must agree in.
_SETTINGS = (
    "model", "filter", "schedule", "sampling", "largest", "epsilon", "delta", "steps", "rate", "clip", "clip_quantile",
    "learning_rate", "physical_batch", "evaluate_every",
)  # fmt: skip


@question(
    "train --filter renyi --epsilon 3",
    "train --sampling allocation --epochs 40 --epsilon 3",
    "train --data adult --path adult.zip --epochs 40 --seed 1 --json --quiet",
    kind=Page,
)
@click.option("--data", type=click.Choice(["digits", "adult", "mnist"]), default="digits", show_default=True)
@click.option("--path", type=click.Path(path_type=Path), help="Folder with the data's files (adult, mnist).")
@click.option(
    "--filter",
    type=AnySpelling(["sampled_gaussian", "closed_form", "renyi", "gdp", "approximate_gdp"]),
    help="What enforces the budget: approximate_gdp is asymptotic, the others (gdp at rate 1 only) are rigorous.  "
    "[default: sampled_gaussian]",
)
@click.option(
    "--schedule",
    type=AnySpelling(["constant", "warmup_decay", "adaptive"]),
    default="constant",
    show_default=True,
    help="How noise and rate move; adaptive reacts to released quantities only.",
)
@click.option(
    "--sampling",
    type=click.Choice(["poisson", "truncated", "fixed", "replacement", "allocation", "shuffled"]),
    default="poisson",
    show_default=True,
    help="How batches are drawn; what is drawn is what the filter is charged. All but poisson have a filter of their "
    "own and a constant schedule.",
)
@click.option("--largest", type=int, help="Most examples in a batch of --sampling truncated.")
@click.option("--epsilon", type=float, default=8.0, show_default=True)
@click.option("--delta", type=float, default=1e-5, show_default=True)
@click.option("--steps", type=int, help="Planned steps (default: depends on the data).")
@click.option("--epochs", type=float, help="Planned steps as expected passes over the data: steps = epochs / rate.")
@click.option("--rate", type=float, help="Poisson sampling rate (default: depends on the data; 1 with --filter gdp).")
@click.option("--model", type=click.Choice(["linear", "mlp", "conv"]), help="Default: depends on the data.")
@click.option("--clip", type=float, default=1.0, show_default=True, help="L2 bound of each example's gradient.")
@click.option(
    "--clip-quantile",
    type=float,
    help="Let the bound move from --clip towards this quantile of the gradients' norms, such as .5: how many were "
    "clipped is released with each step, at no further charge.",
)
@click.option("--learning-rate", type=float, help="Default: depends on the data.")
@click.option("--physical-batch", type=int, help="Most per-example gradients in memory at once.")
@click.option("--seed", type=int, help="Reproducible run: not private to anyone who knows the seed.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for report.md, report.json, history.csv and budget.png [default: that of --checkpoint, or "
    "runs/<time>]; `jaxacct verify` checks them",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="Folder for a journal of what is spent, written before every step, and for checkpoints of the network.",
)
@click.option("--checkpoint-every", type=int, default=25, show_default=True, help="Steps between checkpoints.")
@click.option("--resume", is_flag=True, help="Go on with the run in --checkpoint (or begin it, if there is none).")
@click.option("--evaluate-every", type=int, default=10, show_default=True, help="Steps between held-out evaluations.")
@click.option("--verbose", is_flag=True, help="Also print the epsilons that are not to be reported, and why.")
def train(**given: Any) -> None:
    """Train a network with DP-SGD until the plan is done or a privacy filter says stop.

    The training examples are private, their number and the whole held-out set are treated as public. Nothing
    that is printed or written is a statistic of the training examples without noise. Ctrl-C ends the run
    after the step at hand, with its report written and exit status 130. With --checkpoint a run may be killed at any
    moment: --resume goes on with what is left of the budget, on new random keys, and the report covers all of it; the
    steps since the last checkpoint stay paid for.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise click.UsageError(f"training needs {', '.join(missing)}: pip install 'jaxacct[train]'")
    from jaxacct import _validate
    from jaxacct.cli.train_run import run

    sampling, epochs, checkpoint = given["sampling"], given["epochs"], given["checkpoint"]
    with plain_errors():
        if given["steps"] is not None and epochs is not None:
            raise ValueError("steps and epochs are two ways to say the same: give one of them")
        if given["resume"] and checkpoint is None:
            raise ValueError("resume needs checkpoint, the folder of the run to go on with")
        if sampling != "poisson" and given["filter"] is not None:
            raise ValueError(
                f"filter goes with sampling poisson: {sampling} batches have their own, leave --filter out"
            )
        if sampling != "poisson" and checkpoint is not None:
            raise ValueError(
                f"checkpoint goes with sampling poisson, got {sampling}: a resumed run would draw the batches of an "
                "epoch that was begun a second time"
            )
        if sampling != "truncated" and given["largest"] is not None:
            raise ValueError(f"largest goes with sampling truncated, got sampling {sampling}")
        own = {"filter": "sampled_gaussian" if sampling == "poisson" else "menu"}
        own |= _RECIPES[given["data"]] | ({"rate": 1.0} if given["filter"] == "gdp" else {})
        settings: Fields = {name: own.get(name) if given[name] is None else given[name] for name in _SETTINGS}
        if epochs is not None:
            _validate.positive(epochs=epochs, rate=settings["rate"])
            settings["steps"] = math.ceil(epochs / settings["rate"])
        _validate.count(checkpoint_every=given["checkpoint_every"], physical_batch=settings["physical_batch"])
        _validate.at_most(2**18, physical_batch=settings["physical_batch"])
        _validate.positive(**{name: settings[name] for name in ("clip", "learning_rate", "evaluate_every")})
        warn_of_delta(settings["delta"], [])
        stopped = run(given, settings)
    if stopped:
        click.get_current_context().exit(_INTERRUPTED)
