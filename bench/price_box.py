"""How much of a budget `sampled_gaussian` lets be spent, and what its tables cost.

Run with ``python bench/price_box.py [names]``; it prints rows and writes ``results/price_box.json`` as they come. A
*share* is what the steps that a filter admits until its first refusal would cost had they been fixed in advance, over
the target epsilon. For constant schedules the loss is taken apart: `any filter` is the share of the largest whole
number of steps that meets the target (to 1 in 10,000), which no filter exceeds; `own price` that of the query's own
least price, with nothing lost between the table's points; what is missing from it is what curves that hold for every
adaptive choice cost.

A table that is found on disk is not built again, and its row keeps the seconds it had: set JAXACCT_CACHE_DIR to an
empty folder to measure them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from machine import about
from menu_table import HERE, admissions, first_refusal, showcase, wandering

import jaxacct
from jaxacct import Composed, Gaussian, PoissonSampled, filters
from jaxacct.filters.prices import kept as cache
from jaxacct.filters.prices.family import UNITS
from jaxacct.filters.prices.grid_table import DEAR
from jaxacct.filters.prices.kernels import gaussian_atoms, sampled
from jaxacct.filters.prices.lines import kernel_next_to, price_lines
from jaxacct.filters.prices.look_up import charge_of, left_after_run
from jaxacct.filters.prices.sampled_gaussian import _VERSION

PATH = HERE / "price_box.json"
BOXES: dict[str, dict[str, Any]] = {
    "sigma 2 to 4, rate .002 to .05": {"sigma": (2.0, 4.0), "rate": (0.002, 0.05), "epsilon": 2.0, "delta": 1e-5},
    "sigma 1 to 4, rate .002 to .01": {"sigma": (1.0, 4.0), "rate": (0.002, 0.01), "epsilon": 2.0, "delta": 1e-5},
    "sigma 1 to 4, rate .002 to .05": {"sigma": (1.0, 4.0), "rate": (0.002, 0.05), "epsilon": 2.0, "delta": 1e-5},
}
# rate, smallest and largest noise multiplier, epsilon, delta
SETTINGS: dict[str, tuple[float, float, float, float, float]] = {
    "q 0.01, sigma 0.6 to 0.9": (0.01, 0.6, 0.9, 6.0, 1e-5),
    "showcase at 1.228": (0.01, 1.4140625, 2.5, 1.228, 1e-5),
    "showcase at 1.406": (0.01, 1.4140625, 2.5, 1.406, 1e-6),
    "q 0.001, sigma 0.8 to 1.2": (0.001, 0.8, 1.2, 0.5, 1e-6),
    "q 0.1, sigma 3 to 6": (0.1, 3.0, 6.0, 1.0, 1e-5),
    "q 0.05, sigma 1 to 2": (0.05, 1.0, 2.0, 3.0, 1e-5),
    "q 0.2, sigma 4 to 8": (0.2, 4.0, 8.0, 8.0, 1e-5),
}
SIDE = 5  # a grid of constant schedules, and of what adaptive ones choose from
LEDGERS = "individual ledgers"
EXAMPLES = 10_000_000


def made(before: dict[str, Any], **given: Any) -> tuple[Any, dict[str, Any]]:
    """A box, and what its table cost."""
    known = set(cache.directory().glob("*.npz"))
    cpu, start = time.process_time(), time.perf_counter()
    box = filters.sampled_gaussian(**given)
    took = {
        "seconds of processor to build": round(time.process_time() - cpu, 1),
        "seconds to build": round(time.perf_counter() - start, 1),
    }
    fresh = set(cache.directory().glob("*.npz")) - known
    if fresh:
        return box, took | {"megabytes kept": round(fresh.pop().stat().st_size / 1e6, 1)}
    return box, {name: before[name] for name in (*took, "megabytes kept") if name in before}


def query(sigma: Any, rate: Any) -> PoissonSampled:
    return PoissonSampled(Gaussian(sigma), rate)


def share(queries: list[Any], counts: list[int], epsilon: float, delta: float) -> float:
    """What these steps cost had they been fixed in advance, over epsilon."""
    used = [(one, int(n)) for one, n in zip(queries, counts, strict=True) if n > 0]
    if not used:
        return 0.0
    return float(jaxacct.epsilon(Composed([one for one, _ in used], [n for _, n in used]), delta).upper) / epsilon


def steps_at_own_price(box: Any, sigma: float, rate: float) -> int:
    """How often a query runs at its own least price, in the better one of two tables."""
    if box.other is not None:
        each = dataclasses.replace(box, other=None), box.other
        return max(steps_at_own_price(one, sigma, rate) for one in each)
    atoms = sampled(gaussian_atoms(1.0 / sigma), rate)
    count = len(box.nodes) - 1
    lines = np.stack(price_lines(kernel_next_to(atoms, box.promise), box.promise)[:2])[:, :count]
    units = np.where(lines <= 1.0, np.ceil(lines * UNITS), DEAR).astype(np.int32)

    @jax.jit
    def run(units: Any, nodes: Any) -> Any:
        def body(carry: Any) -> Any:
            return left_after_run(charge_of(units), nodes, carry[0]), carry[1] + 1

        return jax.lax.while_loop(lambda carry: carry[0] >= 0, body, (jnp.int32(UNITS), jnp.int32(-1)))[1]

    with jax.enable_x64(True):
        return int(run(jnp.asarray(units), jnp.asarray(box.nodes)))


def most_steps(one: Any, epsilon: float, delta: float, low: int) -> int:
    """The largest number of steps that, fixed in advance, meets the target; at least ``low``."""
    high = max(low + 1, int(1.2 * low))
    while share([one], [high], epsilon, delta) <= 1.0:
        low, high = high, int(1.5 * high) + 1
    while high - low > max(1, low // 10_000):
        middle = (low + high) // 2
        low, high = (middle, high) if share([one], [middle], epsilon, delta) <= 1.0 else (low, middle)
    return low


def side(given: dict[str, Any]) -> list[tuple[float, float]]:
    return [
        (float(s), float(q)) for s in np.geomspace(*given["sigma"], SIDE) for q in np.geomspace(*given["rate"], SIDE)
    ]


def constant(box: Any, given: dict[str, Any]) -> dict[str, Any]:
    target = given["epsilon"], given["delta"]
    rows = []
    for sigma, rate in side(given):
        one = query(sigma, rate)
        with jax.enable_x64(True):
            admitted = int(box.steps_left(one))
        own = steps_at_own_price(box, sigma, rate)
        most = most_steps(one, *target, max(admitted, own))
        rows.append(
            {"sigma": round(sigma, 4), "rate": round(rate, 5), "steps": [admitted, own, most]}
            | {
                name: round(share([one], [n], *target), 4)
                for name, n in (("share", admitted), ("own price", own), ("any filter", most))
            }
        )
    found = {
        name: {"mean": round(float(np.mean([r[name] for r in rows])), 4), "worst": min(r[name] for r in rows)}
        for name in ("share", "own price", "any filter")
    }
    rows.sort(key=lambda r: r["share"])
    return found | {"three worst": rows[:3]}


def microseconds(box: Any, low: float, high: float, rate: float, updates: int = 100_000) -> float:
    """Of processor, for an update inside a loop: the least of five."""

    @jax.jit
    def loop(box: Any, count: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            return box.update(query(low + (high - low) * jnp.float32(i % 97) / 97, rate), state)[1]

        return jax.lax.fori_loop(0, count, body, box.init())

    times = []
    for count in (1, *(updates,) * 5):
        begun = time.process_time()
        jax.block_until_ready(loop(box, count))
        times.append(time.process_time() - begun)
    return round(1e6 * min(times[1:]) / updates, 2)


@jax.jit
def play(box: Any, sigma: Any, rate: Any, order: Any, key: Any) -> Any:
    """How often each query ran until the first refusal: at random without an order, else each for as many units."""
    count = sigma.shape[0]

    def body(carry: Any) -> Any:
        _, state, key, counts = carry
        key, fresh = jax.random.split(key)
        turn = jnp.minimum(state.spent // (UNITS // count), count - 1)
        at = jnp.where(order[0] < 0, jax.random.randint(fresh, (), 0, count), order[turn])
        admitted, state = box.update(query(sigma[at], rate[at]), state)
        return admitted, state, key, counts.at[at].add(admitted)

    start = jnp.bool_(True), box.init(), key, jnp.zeros(count, jnp.int32)
    return jax.lax.while_loop(lambda carry: carry[0], body, start)[3]


def adaptive(box: Any, given: dict[str, Any]) -> dict[str, float]:
    """Shares of schedules that move over the grid: at random, the loudest first, the quietest first."""
    points = side(given)
    sigma, rate = (jnp.asarray(x, jnp.float32) for x in zip(*points, strict=True))
    prices = np.asarray(jax.vmap(lambda s, q: box.price(query(s, q)))(sigma, rate))
    quiet = np.argsort(prices).astype(np.int32)
    found = {}
    for name, order in (
        ("at random", np.full(len(points), -1, np.int32)),
        ("loudest first", quiet[::-1]),
        ("quietest first", quiet),
    ):
        for seed in range(3 if order[0] < 0 else 1):
            counts = np.asarray(play(box, sigma, rate, jnp.asarray(order.copy()), jax.random.key(seed)))
            queries = [query(float(s), float(q)) for s, q in zip(sigma, rate, strict=True)]
            one = round(share(queries, counts.tolist(), given["epsilon"], given["delta"]), 4)
            found[name] = min(found.get(name, 1.0), one)
    return found


def box_row(name: str, before: dict[str, Any]) -> dict[str, Any]:
    given = BOXES[name]
    box, cost = made(before, **given)
    return cost | {
        "constant schedules": constant(box, given),
        "adaptive schedules, least": adaptive(box, given),
        "microseconds of processor an update": microseconds(box, *given["sigma"], given["rate"][1]),
    }


def setting_row(name: str, before: dict[str, Any]) -> dict[str, Any]:
    rate, low, high, epsilon, delta = SETTINGS[name]
    shown = name.startswith("showcase")
    menu = json.loads((HERE / "menu_table.json").read_text())["rows"].get("showcase" if shown else name)
    schedule = showcase() if shown else wandering(low, high, menu["steps"]["of"])
    ends = (float(schedule.min()), high) if shown else (low, high)
    box, cost = made(before, sigma=ends, rate=rate, epsilon=epsilon, delta=delta)
    with jax.enable_x64(True):
        admitted = np.asarray(admissions(box, jnp.asarray(schedule), jnp.asarray(rate)))
    steps = first_refusal(admitted)
    sigma, counts = np.unique(schedule[:steps], return_counts=True)
    spent = share([query(float(s), rate) for s in sigma], counts.tolist(), epsilon, delta)
    return cost | {
        "steps": {"box": steps, "menu": menu["steps"]["menu"], "of": len(schedule)},
        "share of the admitted steps": round(spent, 4),
        "over the fixed schedule, %": round(100 * (1.0 / spent - 1.0), 2),
        "microseconds of processor an update": microseconds(box, low, high, rate),
    }


def ledger_row() -> dict[str, Any]:
    box = filters.per_example(
        filters.sampled_gaussian(sigma=(1.0, 4.0), rate=(0.002, 0.01), epsilon=2.0, delta=1e-5), examples=EXAMPLES
    )
    norms = jnp.exp(jax.random.normal(jax.random.key(0), (EXAMPLES,)) - 1)
    state, one, wall, cpu = box.init(), query(1.0, 0.01), [], []
    for _ in range(12):
        start, used = time.perf_counter(), time.process_time()
        _, state = jax.block_until_ready(box.update(one, norms, state, donate=True))
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    return {
        "examples": EXAMPLES,
        "milliseconds, the fastest": round(1e3 * min(wall), 1),
        "milliseconds of processor, the least": round(1e3 * min(cpu[1:]), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="rows to measure; all without")
    names = parser.parse_args().names or [*BOXES, *SETTINGS, LEDGERS]
    found = json.loads(PATH.read_text()) if PATH.exists() else {"rows": {}}
    for name in names:
        before = found["rows"].get(name, {}) if found.get("tables") == _VERSION else {}
        if found.get("tables") != _VERSION:
            found = {"rows": {}, "tables": _VERSION}
        found["machine"] = about()
        row = ledger_row() if name == LEDGERS else (box_row if name in BOXES else setting_row)(name, before)
        found["rows"][name] = row | {"load average after": round(os.getloadavg()[0], 1)}
        found["rows"] = {n: found["rows"][n] for n in (*BOXES, *SETTINGS, LEDGERS) if n in found["rows"]}
        print(name, json.dumps(found["rows"][name]), flush=True)
        PATH.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
