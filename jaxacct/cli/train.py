"""``jaxacct train``: trains a network with :mod:`jaxacct.training`."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from jaxacct.cli import plain_errors
from jaxacct.cli.output import say_json
from jaxacct.cli.page import Page, examples, printing, wanted

_NEEDED = {
    "flax": "flax",
    "optax": "optax",
    "sklearn": "scikit-learn",
    "tqdm": "tqdm",
    "matplotlib": "matplotlib",
    "orbax": "orbax-checkpoint",
}


# Errata to the f-DP filters paper, item 6: the moment approximations are good from here on.
_TRUSTED_SIGMA = 2.0
_INTERRUPTED = 130  # what a shell expects of a program that Ctrl-C ended


class _Recipe(NamedTuple):
    """What a data set is trained with unless options say otherwise; tuned on held-out data (public)."""

    model: str
    rate: float
    steps: int
    learning_rate: float
    physical_batch: int


_RECIPES = {
    "digits": _Recipe("mlp", 0.15, 300, 0.15, 256),
    "adult": _Recipe("linear", 0.15, 300, 1.0, 2048),
    "mnist": _Recipe("linear", 0.15, 300, 0.1, 512),
}


@click.command(
    cls=Page,
    epilog=examples(
        "train --filter renyi --epsilon 3",
        "train --sampling allocation --epochs 40 --epsilon 3",
        "train --data adult --path adult.zip --epochs 40 --seed 1 --json --quiet",
    ),
)
@printing
@click.option("--data", type=click.Choice(["digits", "adult", "mnist"]), default="digits", show_default=True)
@click.option("--path", type=click.Path(path_type=Path), help="Folder with the data's files (adult, mnist).")
@click.option(
    "--filter",
    "filter_name",
    type=click.Choice(["priced-box", "renyi", "gdp", "approximate-gdp"]),
    default="priced-box",
    show_default=True,
    help="What enforces the budget: approximate-gdp is asymptotic, the others (gdp at rate 1 only) are rigorous.",
)
@click.option(
    "--schedule",
    type=click.Choice(["constant", "warmup-decay", "adaptive"]),
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
@click.option("--learning-rate", type=float, help="Default: depends on the data.")
@click.option("--physical-batch", type=int, help="Most per-example gradients in memory at once.")
@click.option("--seed", type=int, help="Reproducible run: not private to anyone who knows the seed.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for report.json and budget.png [default: that of --checkpoint, or runs/<time>]",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="Folder for a journal of what is spent, written before every step, and for checkpoints of the network.",
)
@click.option("--checkpoint-every", type=int, default=25, show_default=True, help="Steps between checkpoints.")
@click.option("--resume", is_flag=True, help="Go on with the run in --checkpoint (or begin it, if there is none).")
@click.option("--evaluate-every", type=int, default=10, show_default=True, help="Steps between held-out evaluations.")
def train(
    data: str,
    path: Path | None,
    filter_name: str,
    schedule: str,
    sampling: str,
    largest: int | None,
    epsilon: float,
    delta: float,
    steps: int | None,
    epochs: float | None,
    rate: float | None,
    model: str | None,
    clip: float,
    learning_rate: float | None,
    physical_batch: int | None,
    seed: int | None,
    output: Path | None,
    evaluate_every: int,
    checkpoint: Path | None,
    checkpoint_every: int,
    resume: bool,
) -> None:
    """Train a network with DP-SGD until the plan is done or a privacy filter says stop.

    The training examples are private, their number and the whole held-out set are treated as public. Nothing
    that is printed or written is a statistic of the training examples without noise. Ctrl-C ends the run
    after the step at hand, with its report written and exit status 130. With --checkpoint a run may be killed at any
    moment: --resume goes on with what is left of the budget, on new random keys, and the report covers all of it; the
    steps since the last checkpoint stay paid for.
    """
    missing = [name for module, name in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise click.UsageError(f"training needs {', '.join(missing)}: pip install 'jaxacct[train]'")
    from jaxacct import _validate
    from jaxacct.training import stop_on_interrupt

    recipe = _RECIPES[data]
    if rate is None:
        rate = 1.0 if filter_name == "gdp" else recipe.rate
    with plain_errors():
        if steps is not None and epochs is not None:
            raise ValueError("steps and epochs are two ways to say the same: give one of them")
        if resume and checkpoint is None:
            raise ValueError("resume needs checkpoint, the folder of the run to go on with")
        if sampling != "poisson":
            filter_name = _own_filter(sampling, schedule, checkpoint)
        if largest is not None and sampling != "truncated":
            raise ValueError(f"largest goes with sampling truncated, got sampling {sampling}")
        _validate.count(checkpoint_every=checkpoint_every)
        _validate.positive(epsilon=epsilon, rate=rate, clip=clip, evaluate_every=evaluate_every)
        _validate.rate(rate=rate)
        _validate.probability(delta=delta)
        if epochs is not None:
            _validate.positive(epochs=epochs)
            steps = math.ceil(epochs / rate)
        settings = {
            "model": model or recipe.model,
            "filter": filter_name,
            "schedule": schedule,
            "sampling": sampling,
            "largest": largest,
            "epsilon": epsilon,
            "delta": delta,
            "steps": recipe.steps if steps is None else steps,
            "rate": rate,
            "clip": clip,
            "learning_rate": recipe.learning_rate if learning_rate is None else learning_rate,
            "physical_batch": recipe.physical_batch if physical_batch is None else physical_batch,
            "evaluate_every": evaluate_every,
        }
        _validate.count(steps=settings["steps"], physical_batch=settings["physical_batch"])
        _validate.positive(learning_rate=settings["learning_rate"])
        if settings["physical_batch"] > 2**18:
            raise ValueError(f"physical_batch must be at most {2**18}, got {settings['physical_batch']}")
        folder = output or checkpoint or Path("runs") / time.strftime("%Y-%m-%dT%H-%M-%S")
    durable = None if checkpoint is None else {"folder": checkpoint, "every": checkpoint_every, "resume": resume}
    with stop_on_interrupt() as interrupted:
        _run(data, path, settings, seed, folder, interrupted, durable)
        stopped = interrupted()
    if stopped:
        click.get_current_context().exit(_INTERRUPTED)


def _run(
    data: str,
    path: Path | None,
    settings: dict[str, Any],
    seed: int | None,
    folder: Path,
    interrupted: Any,
    durable: dict[str, Any] | None,
) -> None:
    import jax.numpy as jnp
    import optax

    from jaxacct import training
    from jaxacct.cli.output import tqdm

    _keep_compiled()
    with plain_errors():
        dataset = training.load(data, path)
        keys = training.fresh_keys() if seed is None else training.seeded_keys(seed)
        # The first parameters are public: a fixed seed unless the run is one of several reproducible ones.
        network = training.build(
            settings["model"], dataset.train_x.shape[1:], dataset.classes, 0 if seed is None else seed % 2**32
        )
        budget = _planned(settings, len(dataset.train_y))
        folder.mkdir(parents=True, exist_ok=True)
    schedule = budget.schedule
    if budget.sampler is not None:
        settings["steps"] = schedule.steps  # whole epochs
    description = {
        "name": dataset.name,
        "source": dataset.source,
        "training_examples": len(dataset.train_y),
        "held_out_examples": len(dataset.test_y),
        "held_out_is_public": True,
    }
    _introduce(description, settings, budget, seed)
    optimizer = optax.sgd(
        optax.cosine_decay_schedule(settings["learning_rate"], settings["steps"], alpha=0.05), momentum=0.9
    )
    step: Any
    if budget.sampler is not None:
        step = training.make_sampled_step(
            network.loss, optimizer, budget.filter, budget.sampler, clip_norm=settings["clip"], donate=True
        )
    else:
        make = training.make_step if durable is None else training.make_split_step
        step = make(
            network.loss,
            optimizer,
            budget.filter,
            schedule,
            clip_norm=settings["clip"],
            physical_batch=settings["physical_batch"],
            donate=True,
        )
    state = training.init_state(network.params, optimizer, budget.filter, schedule, keys)
    # An adaptive run may find that it can afford more steps than planned.
    most = settings["steps"] * (4 if schedule.is_adaptive else 1)
    with contextlib.ExitStack() as open_run, plain_errors() if durable else contextlib.nullcontext():
        run = None
        if durable is not None:
            agreed = settings | {"data": data, "seed": seed}
            roots = (lambda _: training.fresh_keys()) if seed is None else partial(training.attempt_keys, keys)
            run = open_run.enter_context(
                training.durable_run(
                    split=step, state=state, filter=budget.filter, keys=roots, settings=agreed, **durable
                )
            )
            step, state = run.step, run.state
        bar = open_run.enter_context(
            tqdm(initial=int(state.step), total=settings["steps"], unit="step", dynamic_ncols=True, mininterval=0.2)
        )

        def show(record: training.StepRecord, accuracy: float) -> None:
            if record.step > settings["steps"]:
                bar.total = record.step
            bar.set_postfix_str(
                f"held-out {100 * accuracy:.1f} %, noisy gradient {record.gradient_norm:.3g}, "
                f"budget left {100 * record.budget_left:.1f} %",
                refresh=False,
            )
            bar.update(1)

        outcome = training.fit(
            step,
            state,
            (jnp.asarray(dataset.train_x), jnp.asarray(dataset.train_y)),
            steps=most,
            evaluate=training.accuracy(network.logits, dataset.test_x, dataset.test_y),
            evaluate_every=settings["evaluate_every"],
            interrupted=interrupted,
            on_step=show,
            before=run,
        )
        if run is not None:
            run.save(outcome.state)
    report = training.make_report(
        outcome, budget, delta=settings["delta"], data=description, settings=settings, seed=seed
    )
    with plain_errors():
        files = training.write_report(report, folder)
    if wanted("as_json"):
        say_json({**report, "files": [str(file) for file in files]})
        return
    click.echo(training.table(report))
    click.echo("wrote " + " and ".join(click.format_filename(file) for file in files))


def _own_filter(sampling: str, schedule: str, checkpoint: Path | None) -> str:
    """The name of the filter of a sampler.

    Raises:
        ValueError: what such a sampler has no analysis for, and what would work.
    """
    if click.get_current_context().get_parameter_source("filter_name") == ParameterSource.COMMANDLINE:
        raise ValueError(
            f"filter goes with sampling poisson: {sampling} batches are charged by a menu of their own mechanism "
            "alone; leave --filter out"
        )
    if schedule != "constant":
        raise ValueError(
            f"schedule {schedule} has an analysis for sampling poisson only, got sampling {sampling}: use --schedule "
            "constant"
        )
    if checkpoint is not None:
        raise ValueError(
            f"checkpoint goes with sampling poisson, got {sampling}: a resumed run would draw the batches of an epoch "
            "that was begun a second time"
        )
    return f"{sampling} menu"


def _keep_compiled() -> None:
    """Keeps compiled programs beside the tables, unless the user has a place for them: they take most of a start.

    One folder for each machine: a program for one processor may not run on another that shares the home directory.
    """
    import platform

    import jax

    from jaxacct.filters.menus import cache

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update(
            "jax_compilation_cache_dir", str(cache.directory() / "compiled" / (platform.node() or "here"))
        )


def _planned(settings: dict[str, Any], size: int) -> Any:
    from jaxacct import training
    from jaxacct.cli.output import progress

    target = {name: settings[name] for name in ("epsilon", "delta", "steps", "rate")}
    if settings["sampling"] != "poisson":
        return training.plan_sampled_budget(
            settings["sampling"], size=size, largest=settings["largest"], piece=settings["physical_batch"], **target
        )
    with progress("table of prices", wanted("quiet")) as told:
        return training.plan_budget(settings["filter"], settings["schedule"], **target, progress=told)


def _introduce(data: dict[str, Any], settings: dict[str, Any], budget: Any, seed: int | None) -> None:
    say = partial(click.echo, err=wanted("as_json"))  # JSON has standard output to itself
    sigmas = [sigma for sigma, _, _ in budget.schedule.planned]
    noise = f"{sigmas[0]:.4g}" if len(set(sigmas)) == 1 else f"{max(sigmas):.4g} to {min(sigmas):.4g}"
    say(
        f"{data['name']} ({data['source']}): {data['training_examples']} private training examples, "
        f"{data['held_out_examples']} held-out examples treated as public (and the number of both)"
    )
    say(
        f"{settings['model']} network, {settings['filter']} filter, epsilon {settings['epsilon']:g} "
        f"at delta {settings['delta']:g}, {settings['schedule']} schedule: {settings['steps']} steps "
        f"planned at rate {settings['rate']:g}, noise multiplier {noise}"
    )
    if budget.sampler is not None:
        drawn = budget.sampler
        epochs = f", {drawn.steps} batches an epoch" if drawn.steps > 1 else ""
        say(f"batches drawn as {type(drawn.mechanism).__name__} says, {drawn.expected:g} examples expected{epochs}")
    if not budget.filter.guarantee.is_bound:
        say("this filter's guarantee is asymptotic, not a bound: --filter priced-box is rigorous")
        if min(sigmas) < _TRUSTED_SIGMA:
            say(
                f"warning: noise multipliers below {_TRUSTED_SIGMA:g} are outside the range where its "
                "approximation is known to be good; more steps, a larger rate or a smaller epsilon raise them"
            )
    if seed is not None:
        say(f"reproducible run: not private to anyone who knows the seed {seed}")
