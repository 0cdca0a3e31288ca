"""A run that is killed in the middle, resumed, and verified: no release is left uncharged.

Run with ``python notebooks/examples/kill_and_resume.py`` in an environment with ``jaxacct[train]``. The program starts
itself as a second process, kills that with SIGKILL when its journal holds some charges, and goes on with the run.
"""

import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import jax.numpy as jnp
import optax
from flax import nnx

from jaxacct import Gaussian, PoissonSampled, filters, training

CLIP, DELTA = 1.0, 1e-5


def train(
    folder: str, epsilon: float = 3.0, sigma: float = 3.0, rate: float = 0.1, most: int = 10_000, slow: float = 0
):
    """Starts the run in ``folder``, or goes on with it, until the filter refuses; its outcome and its filter."""
    data = training.demo.load_data("digits")
    x, y = jnp.asarray(data.train_x).reshape(-1, 64), jnp.asarray(data.train_y)
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(64, 48, rngs=rngs), jnp.tanh, nnx.Linear(48, 10, rngs=rngs))
    network = training.from_flax(model)  # the same public numbers on every start
    schedule, optimizer = training.schedules.constant(sigma, rate, most), optax.adam(5e-3)
    budget = filters.menu([PoissonSampled(Gaussian(sigma), rate)], epsilon=epsilon, delta=DELTA)
    step = training.make_step(network.loss, optimizer, budget, schedule, clip_norm=CLIP)
    state = training.init_state(network.params, optimizer, budget, schedule, training.fresh_keys())
    measure = training.accuracy(network.logits, jnp.reshape(data.test_x, (-1, 64)), data.test_y)
    with training.durable_run(folder, step, state, budget, resume=True, every=25, ahead=10) as run:
        outcome = training.fit(
            run.step, run.state, (x, y), steps=most, evaluate=measure, evaluate_every=100, before=run,
            on_step=lambda record, accuracy: time.sleep(slow),
        )  # fmt: skip
        run.save(outcome.state)
    return outcome, budget


def main(after: int = 60, most: int = 10_000) -> dict:
    """Kills a process that trains, once it has charged ``after`` steps, and goes on; what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        # The process that will die takes its time, so that it is in the middle of its run when it does.
        doomed = subprocess.Popen([sys.executable, __file__, folder])
        journal, deadline = pathlib.Path(folder, "journal"), time.monotonic() + 120
        while not journal.exists() or journal.read_bytes().count(b'"kind":"charge"') < after:
            if time.monotonic() > deadline or doomed.poll() is not None:
                doomed.kill()
                raise RuntimeError(f"the training process charged fewer than {after} steps")
            time.sleep(0.05)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        outcome, budget = train(folder, most=most)
    return {
        "attempts": outcome.attempts,
        "steps": int(outcome.state.step),
        "charged": len(outcome.records),
        "lost": sum(record.lost for record in outcome.records),
        "accuracy": outcome.evaluations[-1][1],
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
        "is_bound": budget.guarantee.is_bound,
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(sys.argv[1], slow=0.02)
    else:
        print(main())
