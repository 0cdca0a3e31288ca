"""Answers one question of `first_answer.py` and prints what it took, as JSON: a fresh process for a fresh answer.

Called with a question's fields as JSON, and which sides are asked, how often and for how many seconds again. Nothing is
imported before its import is timed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

LIBRARIES = ("jax", "numpy", "nbclient", "nbformat")


def ours(text: str) -> dict[str, Any]:
    """The public names of jaxacct that ``text`` uses, loaded."""
    words = set(re.findall(r"\w+", text))
    jaxacct = importlib.import_module("jaxacct")
    names = {name: getattr(jaxacct, name) for name in jaxacct.__all__ if name in words} | {"jaxacct": jaxacct}
    return names | {name: importlib.import_module(name) for name in LIBRARIES if name in words}


def peers(text: str) -> dict[str, Any]:
    """What dp_accounting has, and this bench's own calls of it that ``text`` uses."""
    import numpy
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant, common, privacy_loss_distribution

    def accounted(*events: tuple[Any, int]) -> Any:
        accountant = PLDAccountant()
        for event, count in events:
            accountant.compose(event, count)
        return accountant

    queries = importlib.import_module("peer_queries") if "peer_" in text else None
    names = {name: getattr(queries, name) for name in set(re.findall(r"\bpeer_\w+", text))}
    law = {"law": privacy_loss_distribution, "event": dp_event, "accounted": accounted}
    return names | law | {"claim": common.DifferentialPrivacyParameters, "numpy": numpy}


def clocked(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds until the value is there, and the value."""
    before = time.perf_counter()
    value = function(*arguments)
    if "jax" in sys.modules:
        sys.modules["jax"].block_until_ready(value)
    return time.perf_counter() - before, value


def described(value: Any) -> dict[str, Any]:
    """Numbers of an answer that JSON can hold: the first few of each bound, and the greatest width of all."""
    import numpy as np

    if not hasattr(value, "lower"):
        try:
            return {"value": np.ravel(np.asarray(value, np.float64))[:4].tolist()}
        except (TypeError, ValueError):
            return {"value": repr(value)[:120]}
    lower, upper = (np.ravel(np.asarray(x, np.float64)) for x in (value.lower, value.upper))
    with np.errstate(all="ignore"):
        width = np.where(upper == lower, 0.0, upper / lower - 1)
    return {"lower": lower[:4].tolist(), "upper": upper[:4].tolist(), "width": float(np.max(width))}


def staged(space: dict[str, Any]) -> dict[str, float]:
    """Seconds of each stage of compiling ``program``, and lines of StableHLO; the compiled one takes its place.

    ``cpu`` has the seconds of all cores together, in which other processes count less.
    """
    arguments = space["arguments"]
    found: dict[str, float] = {}
    before = time.process_time()
    found["trace"], traced = clocked(lambda: space["program"].trace(*arguments))
    found["lower"], lowered = clocked(traced.lower)
    found["compile"], space["program"] = clocked(lowered.compile)
    found["cpu"] = time.process_time() - before
    return found | {"lines": len(lowered.as_text().splitlines())}


def away(value: Any, plain: Any) -> float:
    """The most that a program's upper bounds differ from the eager ones, relative."""
    import numpy as np

    one, other = (np.asarray(getattr(x, "upper", x), np.float64) for x in (value, plain))
    return float(np.max(np.abs(one / other - 1)))


def main() -> None:
    asked = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    jobs: dict[str, Callable[[], Any]] = {}
    spaces: dict[str, dict[str, Any]] = {}
    values: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for side in asked["sides"]:
            text = "\n".join(asked[key] for key in ("setup", side, "eager", "widths"))
            before = time.perf_counter()
            names = ours(text) if side == "ours" else peers(text)
            found[side] = {"import": time.perf_counter() - before}
            spaces[side] = space = names | asked["values"]
            if asked["x64"] and side == "ours":
                stack.enter_context(importlib.import_module("jax").enable_x64(True))
            found[side]["setup"], _ = clocked(exec, asked["setup"], space)
            if side == "ours" and hasattr(space.get("program"), "trace"):
                alone = names["jaxacct"].without_callbacks() if asked["alone"] else contextlib.nullcontext()
                with alone:
                    found[side]["stages"] = staged(space)
            code = compile(asked[side], side, "eval")
            jobs[side] = lambda code=code, space=space: eval(code, space)
            found[side]["answer"], values[side] = clocked(jobs[side])
            found[side] |= described(values[side])
            if side == "ours" and asked["runs"] and asked["eager"]:
                jobs["eager"] = lambda space=space: eval(asked["eager"], space)
                found["eager"] = {}
                found["eager"]["answer"], plain = clocked(jobs["eager"])
                found["eager"]["away"] = away(values["ours"], plain)
        times: dict[str, list[float]] = {side: [] for side in jobs}
        end = time.perf_counter() + asked["seconds"] * len(jobs)
        for turn in range(asked["runs"]):
            if turn and time.perf_counter() > end:
                break
            for side, job in jobs.items():
                times[side].append(clocked(job)[0])
        for side, taken in times.items():
            found[side] |= {"warm": statistics.median(taken), "warm_runs": len(taken)} if taken else {}
        if asked["runs"] and asked["widths"]:
            found["ours"]["widths"] = described(eval(asked["widths"], spaces["ours"]))
    found["gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux
    print(json.dumps(found))


if __name__ == "__main__":
    main()
