"""``jaxacct ledger``: a privacy budget on disk, from the shell."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import click

from jaxacct._types import Fields
from jaxacct.cli import plain_errors
from jaxacct.cli.ledger_arguments import FILTERS, PARAMETERS, maker_of, query_of
from jaxacct.cli.output import Answer
from jaxacct.cli.page import AnySpelling, question, together
from jaxacct.cli.run_options import mechanism_options
from jaxacct.cli.runs import warn_of_delta

if TYPE_CHECKING:
    from jaxacct.ledger.reading import Reading
    from jaxacct.ledger.records import Entry

_EXAMPLE = """\b
Example:
  jaxacct ledger create team.db zcdp epsilon=1 delta=1e-6
  jaxacct ledger request team.db --sigma 20 --label "mean age" && ./publish
  jaxacct ledger show team.db
  jaxacct ledger verify team.db
"""


@click.group(epilog=_EXAMPLE)
def ledger() -> None:
    """Keep a privacy budget that several processes draw on.

    LEDGER is a file on this machine, or a URL postgresql://user@host/database.

    Exit codes: 0; 1 for a request that was refused or a ledger that does not verify; 2 for bad usage and for a ledger
    that cannot be used (nothing was charged).
    """


_TIMEOUT = click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds to wait for a lock.")
_ledger = together(click.argument("place", metavar="LEDGER"), _TIMEOUT)


@question(epilog=PARAMETERS)
@_ledger
@click.option("--delta", type=float, help="At which the ledger quotes epsilons.  [default: the filter's, or 1e-5]")
@click.argument("filter_name", metavar="FILTER", type=AnySpelling(sorted(FILTERS)))
@click.argument("parameters", nargs=-1, metavar="NAME=VALUE...")
def create(place: str, filter_name: str, parameters: tuple[str, ...], delta: float | None, timeout: float) -> Answer:
    """Make a ledger for a filter.

    Such as create team.db zcdp epsilon=1 delta=1e-6. FILTER is a name in jaxacct.filters; several numbers are separated
    by commas (orders=4,8,16, or the ends of a range: sigma=1,4). The table of sampled_gaussian takes seconds to
    minutes. A filter that needs more than numbers, such as menu, is made in Python: jaxacct.Ledger(path, filter,
    create=True).
    """
    from jaxacct.ledger import Ledger

    make, given = maker_of(filter_name, parameters)
    stated = given.get("delta") if "epsilon" in given else None
    delta = stated if delta is None else delta
    with Ledger(place, make(**given), create=True, delta=delta, timeout=timeout) as book:
        statement, reading, head = str(book.guarantee.statement), book.reading(), book.head
        fields = {"remaining": book.remaining(), "is_bound": reading.is_bound, "statement": statement, "head": head}
        where = str(book._store)  # without a URL's password
    warn_of_delta(reading.delta, [])
    lines = [
        f"made {where}: {filter_name} {' '.join(parameters)}",
        *reading.lines(),
        statement,
        f"head {head}   (keep it elsewhere: `jaxacct ledger verify --head` finds whether it was cut)",
    ]
    return Answer(lines, {"filter": filter_name, **fields, **_epsilons(reading)})


@question(
    'ledger request team.db --sigma 20 --label "mean age" && ./publish',
    "ledger request team.db --scale 10 && ./publish",
    "ledger request team.db --mechanism exponential --epsilon 0.1 && ./publish",
    "ledger request team.db --noise-multiplier 2 --batch 600 --records 60000 --epochs 3 && ./train",
)
@_ledger
@mechanism_options(short=True, family="gaussian for --sigma, laplace for --scale, zcdp for --rho, else what is claimed")
@click.option("--cost", type=float, help="A number in the filter's own parameter, for what is proven elsewhere.")
@click.option("--label", default="", help="Who asks, and what for.")
def request(place: str, timeout: float, label: str, cost: float | None, **given: object) -> Answer:
    """Ask for a query; exit code 0 if it is admitted (and charged).

    A query of several steps or runs is admitted as a whole or not at all.

    Epsilons are at the ledger's delta. Those of a cost, of what is spent and of what is left are the epsilons of
    budgets of that size, and do not add up; the guarantee is that of the whole budget, the last line.
    """
    from jaxacct.ledger import Ledger

    with Ledger(place, timeout=timeout) as book:
        query, assumed = query_of(cost, given)
        entry = book.request(query, label)
        reading = entry.reading() if entry.reading else book.reading()
        budget = {"spent": book.spent(), "remaining": book.remaining(), "fraction": reading.fraction}
    fields = {"id": entry.id, "admitted": entry.admitted, **budget, "head": entry.head, **_epsilons(reading)}
    if assumed:
        fields["assumes"] = assumed
    lines = [f"{'admitted' if entry.admitted else 'REFUSED'}   (id {entry.id})", *reading.lines(), *assumed]
    return Answer(lines, fields, status=0 if entry.admitted else 1)


@question()
@_ledger
@click.argument("number", metavar="ID", type=int)
def release(place: str, number: int, timeout: float) -> Answer:
    """Write down that the output of an admitted request was released."""
    from jaxacct.ledger import Ledger

    with Ledger(place, timeout=timeout) as book:
        book.released(number)
        return Answer([f"released   (id {number})"], {"id": number, "head": book.head})


@question()
@_ledger
@click.option("--last", type=click.IntRange(min=0), default=10, show_default=True, help="How many requests to list.")
def show(place: str, last: int, timeout: float) -> Answer:
    """Print what is spent and left, and the last requests."""
    from jaxacct.filters.names import name_of
    from jaxacct.ledger import Ledger

    with Ledger(place, timeout=timeout) as book:
        history, reading, name, head = book.history(), book.reading(), name_of(book.filter), book.head
        budget = {"spent": book.spent(), "remaining": book.remaining(), "fraction": reading.fraction}
    admitted = [entry for entry in history if entry.admitted]
    waiting = sum(entry.released is None for entry in admitted)
    listed = history[len(history) - min(last, len(history)) :]
    lines = [
        f"{name}: {len(admitted)} of {len(history)} requests admitted, {waiting} not yet released",
        *reading.lines(),
        *map(_line, listed),
        f"head {head}",
    ]
    counts = {"requests": len(history), "admitted": len(admitted), "not_released": waiting}
    fields = {"filter": name, **budget, **_epsilons(reading), **counts, "last": [*map(_row, listed)], "head": head}
    return Answer(lines, fields)


@question()
@_ledger
@click.option("--head", help="What an earlier verify printed: finds whether the ledger was cut or rewritten since.")
def verify(place: str, head: str | None, timeout: float) -> Answer:
    """Check every hash, replay every decision.

    Exit code 1 if the ledger does not hold together.
    """
    from jaxacct.ledger import Ledger
    from jaxacct.ledger.errors import LedgerCorrupted

    try:
        with Ledger(place, timeout=timeout) as book:
            found = book.verify(head)
    except LedgerCorrupted as problem:
        words = " ".join(str(problem).split())
        return Answer([f"NOT VERIFIED: {words}"], {"verified": False, "problem": words}, status=1, err=True)
    lines = [f"verified: {found.requests} requests, {found.admitted} admitted, {found.released} released"]
    if found.set_back:
        numbers = ", ".join(map(str, found.set_back[:5])) + (", ..." if len(found.set_back) > 5 else "")
        lines.append(f"times: dated before the record before them: {numbers} (a clock was wrong; times decide nothing)")
    lines.append(f"head {found.head}   (keep it elsewhere, for --head)")
    return Answer(lines, {"verified": True, **dataclasses.asdict(found)})


@question()
@click.argument("source")
@click.argument("target", type=click.Path())
@_TIMEOUT
def backup(source: str, target: str, timeout: float) -> Answer:
    """Copy a ledger into a new file, and verify the copy.

    The file TARGET is made by SQLite. Charges may go on meanwhile. Nothing is overwritten. A ledger on a server has the
    server's own backups.
    """
    from jaxacct.ledger import Ledger

    with Ledger(source, timeout=timeout) as book:
        found = book.backup(target)
    lines = [
        f"copied and verified: {found.requests} requests, {found.admitted} admitted",
        f"head {found.head}   (keep it elsewhere: `jaxacct ledger verify --head` knows the copy by it)",
    ]
    return Answer(lines, {"requests": found.requests, "admitted": found.admitted, "head": found.head})


@click.command()
@_ledger
@click.option("--events", is_flag=True, help="Print the DpEvents of dp_accounting, of what was admitted.")
@click.option("--out", type=click.Path(dir_okay=False, writable=True), help="A file; without it, standard output.")
def export(place: str, timeout: float, events: bool, out: str | None) -> None:
    """Print the whole ledger as stable JSON, or as DpEvents.

    The same text for the same history.
    """
    with plain_errors():
        from jaxacct.ledger import Ledger

        with Ledger(place, timeout=timeout) as book:
            if out is not None and _is_part_of(out, place):
                raise ValueError(f"out must be another file than the ledger, got {out}")
            text = f"{book.export('dp_events')!r}\n" if events else book.export()
        with click.open_file(out or "-", "w", encoding="utf-8") as file:
            file.write(text)


for _one in (create, request, release, show, verify, backup, export):
    ledger.add_command(_one)


def _is_part_of(out: str, place: str) -> bool:
    """Whether a file that is to be written is the ledger itself, or what SQLite or a lock may lie in beside it."""
    from jaxacct.ledger.stores.sqlite import FILES

    return os.path.realpath(out) in [os.path.realpath(place) + end for end in FILES]


def _epsilons(reading: Reading) -> Fields:
    """A reading for JSON; the numbers in the filter's own parameter are printed beside it."""
    found: Fields = {
        "delta": reading.delta,
        "epsilon": reading.epsilon,
        "spent_epsilon": reading.spent.epsilon,
        "remaining_epsilon": reading.left.epsilon,
    }
    if reading.cost is not None:
        found |= {"cost": reading.cost.parameter, "cost_epsilon": reading.cost.epsilon}
    if reading.refusal is not None:
        found |= {"refusal": reading.refusal, "fits": [repr(query) for query in reading.alternatives]}
    return found


def _shown(label: str) -> str:
    """A label on one line, with nothing in it that a terminal obeys."""
    plain = " ".join(label.split())
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in plain)


def _row(entry: Entry) -> Fields:
    released = entry.released.isoformat() if entry.released else None
    row = {"id": entry.id, "at": entry.at.isoformat(), "label": entry.label, "query": _brief(entry)}
    return {**row, "admitted": entry.admitted, "released": released}


def _line(entry: Entry) -> str:
    mark = "released" if entry.released else ("admitted" if entry.admitted else "refused")
    words = f"  {_shown(entry.label)}" if entry.label else ""
    return f"{entry.id:>6}  {entry.at:%Y-%m-%d %H:%M:%S}  {mark:<8}  {_brief(entry)}{words}"


def _brief(entry: Entry) -> str:
    text = " ".join(repr(entry.query).split())
    return text if len(text) <= 100 else text[:97] + "..."
