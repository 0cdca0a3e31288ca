"""One run of ``jaxacct train``, once its options have been checked: plan, train, report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import click
import jax.numpy as jnp
import optax

from jaxacct import training
from jaxacct._printing import rounded_down, rounded_up
from jaxacct._progress import progress
from jaxacct._types import Fields
from jaxacct.adversary import true_cost
from jaxacct.cli.output import json_text
from jaxacct.cli.start import cache_compilations


def run(given: Fields, settings: Fields) -> bool:
    """Plans the budget, trains, and writes the report; whether Ctrl-C was pressed.

    ``given`` are the command's options; ``settings`` those that the report lists, with what stands for None.
    """
    seed, as_json, quiet, checkpoint = (given[name] for name in ("seed", "as_json", "quiet", "checkpoint"))
    folder = given["output"] or checkpoint or Path("runs") / time.strftime("%Y-%m-%dT%H-%M-%S")
    cache_compilations()
    dataset = training.demo.load_data(given["data"], given["path"])
    keys = training.fresh_keys() if seed is None else training.seeded_keys(seed)
    # The first parameters are public: a fixed seed unless the run is one of several reproducible ones.
    network = training.demo.build_network(
        settings["model"], dataset.train_x.shape[1:], dataset.classes, 0 if seed is None else seed % 2**32
    )
    clip, quantile = settings["clip"], settings["clip_quantile"]
    clip = clip if quantile is None else training.adaptive_clip(quantile, start=clip)
    target = {name: settings[name] for name in ("epsilon", "delta", "steps", "rate")}
    if settings["sampling"] != "poisson":
        target |= {name: settings[name] for name in ("sampling", "largest", "physical_batch")}
        target["size"] = len(dataset.train_y)
    with progress("table of prices", quiet):
        budget = training.plan_budget(settings["filter"], settings["schedule"], **target)
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
    for line in _introduced(description, settings, budget, seed, quiet):
        click.echo(line, err=as_json)  # JSON has standard output to itself
    optimizer = optax.sgd(
        optax.cosine_decay_schedule(settings["learning_rate"], settings["steps"], alpha=0.05), momentum=0.9
    )
    step = training.make_step(
        network.loss,
        optimizer,
        budget.filter,
        schedule,
        clip_norm=clip,
        sampler=budget.sampler,
        physical_batch=settings["physical_batch"],
        donate=True,
    )
    state = training.init_state(network.params, optimizer, budget.filter, schedule, keys)
    durably = None
    with contextlib.ExitStack() as open_run:
        interrupted = open_run.enter_context(training.stop_on_interrupt())
        if checkpoint is not None:
            agreed = settings | {"data": given["data"], "seeded": seed is not None}  # the seed is on no disk
            roots = (lambda _: training.fresh_keys()) if seed is None else partial(training.attempt_keys, keys)
            durably = open_run.enter_context(
                training.durable_run(
                    step=step,
                    state=state,
                    filter=budget.filter,
                    keys=roots,
                    settings=agreed,
                    folder=checkpoint,
                    every=given["checkpoint_every"],
                    resume=given["resume"],
                )
            )
            step, state = durably.step, durably.state
        told = open_run.enter_context(progress("steps", quiet))

        def show(record: training.StepRecord, accuracy: float) -> None:
            if told is not None:
                told(min(record.step, settings["steps"]), settings["steps"])

        outcome = training.fit(
            step,
            state,
            (jnp.asarray(dataset.train_x), jnp.asarray(dataset.train_y)),
            # An adaptive run may find that it can afford more steps than planned.
            steps=settings["steps"] * (4 if schedule.is_adaptive else 1),
            evaluate=training.accuracy(network.logits, dataset.test_x, dataset.test_y),
            evaluate_every=settings["evaluate_every"],
            interrupted=interrupted,
            on_step=show,
            before=durably,
        )
        if durably is not None:
            durably.save(outcome.state)
        with progress("report", quiet):
            report = training.make_report(
                outcome, budget, delta=settings["delta"], data=description, settings=settings, seeded=seed is not None
            )
            files = training.write_report(report, folder, budget.filter, durably)
        stopped = interrupted()
    if as_json:
        click.echo(json_text({**report, "files": [str(file) for file in files]}))
        return stopped
    click.echo(training.table(report, given["verbose"]))
    if not given["verbose"]:
        click.echo("why, and the numbers that are not to be reported: report.md, or --verbose")
    click.echo("wrote " + " and ".join(click.format_filename(file) for file in files))
    return stopped


def _introduced(
    data: Mapping[str, object], settings: Fields, budget: training.Budget, seed: int | None, quiet: bool
) -> Iterator[str]:
    sigmas = [sigma for sigma, _, _ in budget.schedule.planned]
    noise = f"{sigmas[0]:.4g}" if len(set(sigmas)) == 1 else f"{max(sigmas):.4g} to {min(sigmas):.4g}"
    yield (
        f"{data['name']} ({data['source']}): {data['training_examples']} private training examples, "
        f"{data['held_out_examples']} held-out examples treated as public (and the number of both)"
    )
    yield (
        f"{settings['model']} network, {settings['filter']} filter, epsilon {settings['epsilon']:g} "
        f"at delta {settings['delta']:g}, {settings['schedule']} schedule: {settings['steps']} steps "
        f"planned at rate {settings['rate']:g}, noise multiplier {noise}"
    )
    if budget.sampler is not None:
        drawn = budget.sampler
        epochs = f", {drawn.steps} batches an epoch" if drawn.steps > 1 else ""
        yield f"batches drawn as {type(drawn.mechanism).__name__} says, {drawn.expected:g} examples expected{epochs}"
    if not budget.filter.guarantee.is_bound:
        yield "this filter's guarantee is asymptotic, not a bound: --filter sampled_gaussian is rigorous"
        if budget.schedule.levels:
            with progress("worst case", quiet):
                found = true_cost(budget.filter, budget.schedule.menu(), clipped=True, delta=settings["delta"])
            worst = found.epsilon(settings["delta"])
            yield (
                "certified: the worst that choosing among this schedule's steps by earlier results can cost is epsilon "
                f"{rounded_down(float(worst.lower))} to {rounded_up(float(worst.upper))}"
            )
    if budget.note:
        yield budget.note
    if seed is not None:
        yield "reproducible run: not private to anyone who knows the seed"
