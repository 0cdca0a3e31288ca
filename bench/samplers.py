"""Samplers beside their peers: epsilon, its width, and times as ratios in one run.

    python bench/samplers.py [--repeats 3]

A row without a peer has none in dp_accounting 0.6.0. A peer's number is its own upper bound; where ours is lower the
pair is a smaller one, not the arithmetic (see the pages under docs/proofs). Times leave out the first question.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant

import jaxacct
from jaxacct import Gaussian, PoissonSampled, SampledWithoutReplacement, SampledWithReplacement, TruncatedPoisson


def _peer(relation: str, event: Any, steps: int, delta: float) -> Callable[[], float]:
    def asked() -> float:
        accountant = PLDAccountant(NeighboringRelation[relation])
        return accountant.compose(event, steps).get_epsilon(delta)

    return asked


def _truncated(sigma: float, rate: float, largest: int, records: int, delta: float) -> tuple[Any, ...]:
    event = dp_event.TruncatedSubsampledGaussianDpEvent(records, rate, largest, sigma)
    peer = _peer("REPLACE_SPECIAL", event, 1000, delta)
    return TruncatedPoisson(Gaussian(sigma), rate, largest, records), "replace_special", 1000, delta, peer


def _replaced(sigma: float, rate: float, steps: int) -> tuple[Any, ...]:
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma))
    return PoissonSampled(Gaussian(sigma), rate), "replace", steps, 1e-5, _peer("REPLACE_ONE", event, steps, 1e-5)


ROWS = {
    "Poisson, replaced, sigma 1": _replaced(1.0, 0.01, 1000),
    "Poisson, replaced, sigma 2": _replaced(2.0, 0.05, 500),
    "Poisson cut at 120 of 10,000": _truncated(1.0, 0.01, 120, 10_000, 1e-5),
    "Poisson cut at 160 of 10,000": _truncated(1.0, 0.01, 160, 10_000, 1e-5),
    "Poisson cut at 300 of 50,000": _truncated(0.8, 0.005, 300, 50_000, 1e-6),
    **{
        f"fixed size, {relation}, sensitivity {moved:g}": (
            SampledWithoutReplacement(Gaussian(2.0, moved), 100, 10_000), relation, 1000, 1e-5, None,
        )
        for relation in ("add_or_remove", "replace") for moved in (1.0, 2.0)
    },
    **{
        f"with replacement, {relation}, sensitivity {moved:g}": (
            SampledWithReplacement(Gaussian(2.0, moved), 100, 10_000), relation, 1000, 1e-5, None,
        )
        for relation in ("add_or_remove", "replace") for moved in (1.0, 2.0)
    },
}  # fmt: skip


def _timed(ask: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        answer = ask()
        times.append(time.process_time() - start)
    return answer, float(np.median(times))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore", RuntimeWarning)
    jaxacct.epsilon(Gaussian(1.0), 1e-5)
    print("| sampler | epsilon | peer | CPU time | peer's over ours |\n|---|---|---|---|---|")
    for name, (mechanism, relation, steps, delta, peer) in ROWS.items():
        ask = lambda m=mechanism, s=steps, d=delta, r=relation: jaxacct.epsilon(m, d, steps=s, relation=r)  # noqa: E731
        bounds, ours = _timed(ask, repeats)
        theirs, took = (None, np.nan) if peer is None else _timed(peer, 1)
        said = ("", "") if theirs is None else (f"{theirs:.5f}", f"{took / ours:.0f}")
        print(
            f"| {name} | {bounds.lower:.5f} to {bounds.upper:.5f} | {said[0]} | {ours:.3f} s | {said[1]} |", flush=True
        )


if __name__ == "__main__":
    main()
