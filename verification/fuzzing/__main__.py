"""Coverage-guided fuzzing (atheris) of everything that is read from a file or a line of text.

    python -m verification.fuzzing --target journal --runs 20000 --corpus /tmp/corpus
    python -m verification.fuzzing --seconds 240 --out verification/results/fuzz.json  # every target

A target takes bytes, makes a file or a text of them, and reads it. It may give what was written or raise the error that
the format has for damage; anything else (another exception, another value, no answer in time, half a gigabyte of
memory) ends the run with the input in the corpus's folder. Where a seal or a hash stands before a parser, the harness
seals what the fuzzer made, so that the parser behind it is reached. Seeds are made by this program.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import pathlib
import re
import resource
import subprocess
import sys
import time

import atheris
import jax

from bench import machine
from verification.fuzzing.targets import FOLDER, TARGETS

SECONDS = {"events": 120}  # for one input: other kinds of events compile other programs


def run(name: str, runs: int, seconds: int, corpus: pathlib.Path) -> None:
    """One target, until it is done or something is found; does not return."""
    one, seeds, expected = TARGETS[name]()
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)

    def test(raw: bytes) -> None:
        with contextlib.suppress(expected):
            one(raw)

    for seed in seeds:  # what compiles, before the clock runs
        test(seed)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + 500
    limits = [
        f"-runs={runs}",
        f"-max_total_time={seconds}",
        f"-timeout={SECONDS.get(name, 10)}",
        f"-rss_limit_mb={memory}",
        "-max_len=4096",
    ]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={corpus.parent}/{name}-", str(corpus)], test)
    atheris.Fuzz()


def every(names: list[str], runs: int, seconds: int, corpus: pathlib.Path, out: pathlib.Path) -> None:
    """Each target in a process of its own, and what libFuzzer says of it."""
    found = json.loads(out.read_text()) if out.exists() else {}
    found["machine"] = machine.about("atheris", "hypothesis")
    for name in names:
        begin = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "verification.fuzzing",
            "--target",
            name,
            "--runs",
            str(runs),
            "--seconds",
            str(seconds),
        ]
        done = subprocess.run([*command, "--corpus", str(corpus / name)], capture_output=True, check=False)
        said = done.stderr.decode(errors="replace")
        status = re.findall(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", said)
        executions, coverage, features, entries = map(int, status[-1]) if status else (0, 0, 0, 0)
        total = re.search(r"Done (\d+) runs", said)
        found.setdefault("files", {})[name] = {
            "executions": int(total[1]) if total else executions,
            "edges": coverage,
            "features": features,
            "corpus": entries,
            "findings": int(done.returncode != 0),
            "seconds": round(time.perf_counter() - begin),
        }
        print(name, found["files"][name], said[-1500:] if done.returncode else "", flush=True)
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=-1)
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--corpus", type=pathlib.Path, default=FOLDER / "corpus")
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    if given.out:
        every([given.target] if given.target else list(TARGETS), given.runs, given.seconds, given.corpus, given.out)
    else:
        run(given.target, given.runs, given.seconds, given.corpus)
