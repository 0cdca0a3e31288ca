"""``jaxacct ledger``: a privacy budget on disk, from the shell."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from jaxacct._progress import progress
from jaxacct.cli import plain_errors
from jaxacct.cli.ledger_arguments import FILTERS, PARAMETERS, is_target, parameters_of, query_of
from jaxacct.cli.output import say_json
from jaxacct.cli.page import AnySpelling, Page, examples, together
from jaxacct.cli.run_options import mechanism_options
from jaxacct.cli.runs import warn_of_delta

if TYPE_CHECKING:
    from jaxacct.ledger import Ledger
    from jaxacct.ledger.reading import Reading
    from jaxacct.ledger.records import Entry

_REFUSED = 1
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


_PLACE = click.argument("place", metavar="LEDGER")
_TIMEOUT = click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds to wait for a lock.")
_shared = together(
    _PLACE,
    _TIMEOUT,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with full precision."),
)


@ledger.command(epilog=PARAMETERS, short_help="Make a ledger for a filter.")
@_shared
@click.option("--delta", type=float, help="At which the ledger quotes epsilons.  [default: the filter's, or 1e-5]")
@click.argument("filter_name", metavar="FILTER", type=AnySpelling(sorted(FILTERS)))
@click.argument("parameters", nargs=-1, metavar="NAME=VALUE...")
def create(
    place: str, filter_name: str, parameters: tuple[str, ...], delta: float | None, timeout: float, as_json: bool
) -> None:
    """Make a ledger for a filter: create team.db zcdp epsilon=1 delta=1e-6.

    FILTER is a name in jaxacct.filters; several numbers are separated by commas (orders=4,8,16, or the ends of a
    range: sigma=1,4). The table of sampled_gaussian takes seconds to minutes. A filter that needs more than numbers,
    such as menu, is made in Python: jaxacct.Ledger(path, filter, create=True).
    """
    from jaxacct import filters
    from jaxacct.ledger import Ledger, LedgerError

    with plain_errors(LedgerError):
        given = parameters_of(filter_name, parameters)
        stated = given.get("delta") if "epsilon" in given else None
        if is_target(filter_name, given):
            made = filters.for_target(filter_name, **given)
        else:
            with progress("table of prices", as_json):
                made = getattr(filters, filter_name)(**given)
        with Ledger(place, made, create=True, delta=stated if delta is None else delta, timeout=timeout) as book:
            statement, head = str(book.guarantee.statement), book.head
            is_bound, remaining = bool(book.guarantee.is_bound), book.remaining()
            reading = book.reading()
            where = str(book._store)  # without a URL's password
        warn_of_delta(reading.delta, [])
    if as_json:
        fields = {"remaining": remaining, "is_bound": is_bound, "statement": statement, "head": head}
        say_json({"filter": filter_name, **fields, **_epsilons(reading)})
        return
    click.echo(f"made {where}: {filter_name} {' '.join(parameters)}")
    click.echo("\n".join(reading.lines()))
    click.echo(statement)
    click.echo(f"head {head}   (keep it elsewhere: `jaxacct ledger verify --head` finds whether it was cut)")


@ledger.command(
    cls=Page,
    short_help="Ask for a query; exit code 0 if it is admitted (and charged).",
    epilog=examples(
        'ledger request team.db --sigma 20 --label "mean age" && ./publish',
        "ledger request team.db --scale 10 && ./publish",
        "ledger request team.db --mechanism exponential --epsilon 0.1 && ./publish",
        "ledger request team.db --noise-multiplier 2 --batch 600 --records 60000 --epochs 3 && ./train",
    ),
)
@_shared
@mechanism_options(short=True, family="gaussian for --sigma, laplace for --scale, zcdp for --rho, else what is claimed")
@click.option("--cost", type=float, help="A number in the filter's own parameter, for what is proven elsewhere.")
@click.option("--label", default="", help="Who asks, and what for.")
def request(place: str, timeout: float, as_json: bool, label: str, cost: float | None, **given: object) -> None:
    """Ask for a query; exit code 0 if it is admitted, and then it has been charged.

    A query of several steps or runs is admitted as a whole or not at all.

    Epsilons are at the ledger's delta. Those of a cost, of what is spent and of what is left are the epsilons of
    budgets of that size, and do not add up; the guarantee is that of the whole budget, the last line.
    """
    with _opened(place, timeout) as book:
        query, assumed = query_of(cost, given)
        entry = book.request(query, label)
        reading = entry.reading() if entry.reading else book.reading()
        spent, remaining = book.spent(), book.remaining()
    if as_json:
        where = {"spent": spent, "remaining": remaining, "fraction": reading.fraction, "head": entry.head}
        where |= {"assumes": assumed} if assumed else {}
        say_json({"id": entry.id, "admitted": entry.admitted, **where, **_epsilons(reading)})
    else:
        click.echo(f"{'admitted' if entry.admitted else 'REFUSED'}   (id {entry.id})")
        click.echo("\n".join([*reading.lines(), *assumed]))
    click.get_current_context().exit(0 if entry.admitted else _REFUSED)


@ledger.command()
@_shared
@click.argument("number", metavar="ID", type=int)
def release(place: str, number: int, timeout: float, as_json: bool) -> None:
    """Write down that the output of an admitted request was released."""
    with _opened(place, timeout) as book:
        book.released(number)
        head = book.head
    if as_json:
        say_json({"id": number, "head": head})
    else:
        click.echo(f"released   (id {number})")


@ledger.command()
@_shared
@click.option("--last", type=click.IntRange(min=0), default=10, show_default=True, help="How many requests to list.")
def show(place: str, last: int, timeout: float, as_json: bool) -> None:
    """Print what is spent and left, and the last requests."""
    from jaxacct.filters.names import name_of

    with _opened(place, timeout) as book:
        history = book.history()
        spent, remaining = book.spent(), book.remaining()
        reading, name, head = book.reading(), name_of(book.filter), book.head
    admitted = [entry for entry in history if entry.admitted]
    waiting = sum(entry.released is None for entry in admitted)
    listed = history[len(history) - min(last, len(history)) :]
    if as_json:
        counts = {"requests": len(history), "admitted": len(admitted), "not_released": waiting}
        budget = {"filter": name, "spent": spent, "remaining": remaining, "fraction": reading.fraction}
        say_json({**budget, **_epsilons(reading), **counts, "last": [*map(_row, listed)], "head": head})
        return
    click.echo(f"{name}: {len(admitted)} of {len(history)} requests admitted, {waiting} not yet released")
    click.echo("\n".join(reading.lines()))
    for entry in listed:
        mark = "released" if entry.released else ("admitted" if entry.admitted else "refused")
        words = f"  {_shown(entry.label)}" if entry.label else ""
        click.echo(f"{entry.id:>6}  {entry.at:%Y-%m-%d %H:%M:%S}  {mark:<8}  {_brief(entry)}{words}")
    click.echo(f"head {head}")


@ledger.command(short_help="Check every hash, replay every decision.")
@_shared
@click.option("--head", help="What an earlier verify printed: finds whether the ledger was cut or rewritten since.")
def verify(place: str, head: str | None, timeout: float, as_json: bool) -> None:
    """Check every hash, replay every decision; exit code 1 if the ledger does not hold together."""
    from jaxacct.ledger import Ledger, LedgerError
    from jaxacct.ledger.errors import LedgerCorrupted

    with plain_errors(LedgerError):
        try:
            with Ledger(place, timeout=timeout) as book:
                report = book.verify(head)
        except LedgerCorrupted as problem:
            words = " ".join(str(problem).split())
            if as_json:
                say_json({"verified": False, "problem": words})
            else:
                click.echo(f"NOT VERIFIED: {words}", err=True)
            click.get_current_context().exit(1)
    counts = {"requests": report.requests, "admitted": report.admitted, "refused": report.refused}
    if as_json:
        more = {"released": report.released, "set_back": report.set_back}
        say_json({"verified": True, "head": report.head, **counts, **more})
        return
    click.echo(f"verified: {report.requests} requests, {report.admitted} admitted, {report.released} released")
    if report.set_back:
        found = ", ".join(map(str, report.set_back[:5])) + (", ..." if len(report.set_back) > 5 else "")
        click.echo(f"times: dated before the record before them: {found} (a clock was wrong; times decide nothing)")
    click.echo(f"head {report.head}   (keep it elsewhere, for --head)")


@ledger.command(short_help="Copy a ledger into a new file, and verify the copy.")
@click.argument("source")
@click.argument("target", type=click.Path())
@_TIMEOUT
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with full precision.")
def backup(source: str, target: str, timeout: float, as_json: bool) -> None:
    """Copy the ledger SOURCE into the new file TARGET, through SQLite, and verify the copy.

    Charges may go on meanwhile. Nothing is overwritten. A ledger on a server has the server's own backups.
    """
    with _opened(source, timeout) as book:
        report = book.backup(target)
    if as_json:
        say_json({"requests": report.requests, "admitted": report.admitted, "head": report.head})
        return
    click.echo(f"copied and verified: {report.requests} requests, {report.admitted} admitted")
    click.echo(f"head {report.head}   (keep it elsewhere: `jaxacct ledger verify --head` knows the copy by it)")


@ledger.command(short_help="Print the whole ledger as stable JSON, or as DpEvents.")
@_PLACE
@_TIMEOUT
@click.option("--events", is_flag=True, help="Print the DpEvents of dp_accounting, of what was admitted.")
@click.option("--out", type=click.Path(dir_okay=False, writable=True), help="A file; without it, standard output.")
def export(place: str, timeout: float, events: bool, out: str | None) -> None:
    """Print the whole ledger as stable JSON: the same text for the same history."""
    with _opened(place, timeout) as book:
        if out is not None and _is_part_of(out, place):
            raise ValueError(f"out must be another file than the ledger, got {out}")
        text = f"{book.export('dp_events')!r}\n" if events else book.export()
        if out is None:
            click.echo(text, nl=False)
        else:
            with open(out, "w", encoding="utf-8") as file:
                file.write(text)


@contextlib.contextmanager
def _opened(place: str, timeout: float) -> Iterator[Ledger]:
    """The ledger; what may go wrong with it is one clear line and exit code 2."""
    from jaxacct.ledger import Ledger, LedgerError

    with plain_errors(LedgerError), Ledger(place, timeout=timeout) as book:
        yield book


def _is_part_of(out: str, place: str) -> bool:
    """Whether a file that is to be written is the ledger itself, or what SQLite or a lock may lie in beside it."""
    from jaxacct.ledger.stores.sqlite import FILES

    return os.path.realpath(out) in [os.path.realpath(place) + end for end in FILES]


def _epsilons(reading: Reading) -> dict[str, object]:
    """A reading for JSON; the numbers in the filter's own parameter are printed beside it."""
    found: dict[str, object] = {
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


def _row(entry: Entry) -> dict[str, object]:
    released = entry.released.isoformat() if entry.released else None
    row = {"id": entry.id, "at": entry.at.isoformat(), "label": entry.label, "query": _brief(entry)}
    return {**row, "admitted": entry.admitted, "released": released}


def _brief(entry: Entry) -> str:
    text = " ".join(repr(entry.query).split())
    return text if len(text) <= 100 else text[:97] + "..."
