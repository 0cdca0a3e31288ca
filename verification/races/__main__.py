"""Processes that race for one budget while they are being killed: nothing may be overspent, nothing lost.

    python -m verification.races --runs 10 --out verification/results/ledger_race.json  # 8 processes
    python -m verification.races --runs 20 --processes 3 --requests 200 --kills 0 --copying  # see below
    python -m verification.races --runs 10 --url postgresql://...

Every process asks for costs of 1, 2 and 3 of a `pure_dp` budget, and writes each answer to a file of its own after it
has it. A parent kills one of them with SIGKILL at random moments, and starts another that goes on behind the last
answer. At the end, from the ledger's own history:

- the admitted costs add up to no more than the budget, and to all of it (costs of 1 were asked to the end);
- every answer that a process got is in the history, as it got it, once;
- what is admitted there and was heard by nobody (killed between commit and answer) is at most one request a kill;
- `verify` passes, against a head that was taken while the race was on, too.

With ``--copying`` every process has a second thread, which copies and hashes the files of the ledger's folder all the
time, as a backup or an upload does. POSIX locks do not survive that.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import traceback

import jax

from jaxacct import Ledger, filters
from jaxacct.ledger.errors import LedgerError

# Imports are done and no computation has run: children that are forked from here start in milliseconds.


def cost(worker: int, number: int) -> int:
    return 1 + (7 * worker + number) % 3


def copy_folder(place: str, done: threading.Event) -> None:
    """Reads every file beside the ledger, as a program that knows nothing of it would, until ``done``."""
    found = hashlib.sha256()
    while not done.is_set():
        for path in pathlib.Path(place).parent.iterdir():
            with contextlib.suppress(OSError):  # a journal that is gone by now
                found.update(path.read_bytes())
        time.sleep(0.0005)


def work(place: str, log: pathlib.Path, worker: int, requests: int, attempt: int, copying: bool) -> None:
    """One process's life."""
    stop = threading.Event()
    if copying:
        threading.Thread(target=copy_folder, args=(place, stop), daemon=True).start()
    done = len(log.read_bytes().splitlines()) if log.exists() else 0
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ledger = Ledger(place, create=False, timeout=300.0)
    for number in range(done, requests):
        label = f"{worker}:{number}:{attempt}"
        admitted = ledger.request(float(cost(worker, number)), label).admitted
        os.write(out, f"{label} {int(admitted)}\n".encode())
    ledger.close()
    stop.set()


def forked(function, *arguments) -> int:
    """Runs a function in a child, whose process id comes back."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        function(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def waited(child: int) -> None:
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"a process ended with status {status}")


def raced(place: str, processes: int, requests: int, budget: int, kills: int, seed: int, copying: bool) -> dict:
    """One race, and what its history says."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        waited(forked(lambda: Ledger(place, filters.pure_dp(float(budget)), create=True).close()))
        logs = [base / f"{worker}.log" for worker in range(processes)]
        attempts = [0] * processes
        start = time.perf_counter()
        alive = {forked(work, place, logs[w], w, requests, 0, copying): w for w in range(processes)}
        killed = 0
        heads = base / "heads"
        while alive:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                time.sleep(dice.expovariate(1 / 0.15))
                if killed < kills and alive:
                    os.kill(dice.choice(list(alive)), signal.SIGKILL)
                    killed += 1
                continue
            worker = alive.pop(child)
            if os.WIFSIGNALED(status):
                attempts[worker] += 1
                alive[forked(work, place, logs[worker], worker, requests, attempts[worker], copying)] = worker
            elif status:
                raise RuntimeError(f"worker {worker} ended with status {status}")
            elif not heads.exists():
                # The first that is done: a head while the others go on.
                heads.write_bytes(b"")
                waited(forked(lambda: heads.write_text(Ledger(place).verify().head)))
        seconds = time.perf_counter() - start
        answer = base / "answer.json"
        waited(forked(lambda: answer.write_text(json.dumps(judged(place, logs, budget, killed, heads.read_text())))))
        return {**json.loads(answer.read_text()), "seed": seed, "seconds": round(seconds, 2)}


def judged(place: str, logs: list[pathlib.Path], budget: int, killed: int, head: str) -> dict:
    """Compares the history with what the processes heard."""
    ledger = Ledger(place, create=False)
    faults = []
    try:
        report = ledger.verify(head)
    except LedgerError as problem:
        return {"faults": [f"verify: {problem}"]}
    history = {}
    for entry in ledger.history():
        if entry.label in history:
            faults.append(f"{entry.label} is there twice")
        worker, number, _ = map(int, entry.label.split(":"))
        if entry.query != cost(worker, number):
            faults.append(f"{entry.label} was charged {entry.query}")
        history[entry.label] = entry
    spent = sum(int(entry.query) for entry in history.values() if entry.admitted)
    heard = {}
    for log in logs:
        for line in log.read_text().splitlines():
            label, admitted = line.split()
            heard[label] = bool(int(admitted))
    lost = [label for label, admitted in heard.items() if label not in history or history[label].admitted != admitted]
    unheard = [label for label in history if label not in heard]
    if spent > budget:
        faults.append(f"spent {spent} of {budget}")
    if report.refused and spent != budget:
        faults.append(f"{budget - spent} was left and refused")
    if lost:
        faults.append(f"lost or changed: {lost[:5]}")
    if len(unheard) > killed:
        faults.append(f"{len(unheard)} requests nobody heard of, with {killed} kills")
    return {
        "faults": faults,
        "budget": budget,
        "spent": spent,
        "requests": report.requests,
        "admitted": report.admitted,
        "refused": report.refused,
        "kills": killed,
        "answers": len(heard),
        "charged_but_unheard": sum(history[label].admitted for label in unheard),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--copying", action="store_true", help="a thread of every process copies the ledger's folder")
    parser.add_argument("--url", help="of an empty PostgreSQL database; each run has a schema of its own")
    parser.add_argument("--out", type=pathlib.Path, help="where the report goes; without it, to standard output only")
    given = parser.parse_args()
    cache = jax.config.jax_compilation_cache_dir or os.path.join(tempfile.gettempdir(), "jaxacct-race-cache")
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    budget = given.processes * given.requests  # about half of what is asked: costs are 2 on average
    runs = []
    for run in range(given.seed, given.seed + given.runs):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            place = schema(given.url, run) if given.url else os.path.join(folder, "race.db")
            runs.append(raced(place, given.processes, given.requests, budget, given.kills, run, given.copying))
        print(json.dumps(runs[-1]), flush=True)
    misses = sum(bool(run["faults"]) for run in runs)
    report = {"processes": given.processes, "requests_each": given.requests, "misses": misses, "runs": runs}
    if given.out:
        from bench.machine import about

        report["machine"] = about()
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({"runs": len(runs), "misses": misses}))
    sys.exit(bool(misses))


def schema(url: str, run: int) -> str:
    """The URL of a new schema in a database."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"DROP SCHEMA IF EXISTS race{run} CASCADE"))
        connection.execute(sqlalchemy.text(f"CREATE SCHEMA race{run}"))
    engine.dispose()
    parsed = sqlalchemy.make_url(url).update_query_dict({"options": f"-csearch_path=race{run}"})
    return parsed.render_as_string(hide_password=False)


if __name__ == "__main__":
    main()
