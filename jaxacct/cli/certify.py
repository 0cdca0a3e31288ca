"""``jaxacct certify``: writes an answer in ball arithmetic as a certificate, or checks a certificate."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jaxacct._files import is_regular
from jaxacct.cli.output import Answer
from jaxacct.cli.page import output_file, question, relation_option, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import composed
from jaxacct.cli.values import WHOLE

_question = under("Question")
_MOST = 2**24  # bytes of a certificate


@question(
    "certify --sigma 1 --rate 0.01 --steps 1000 --epsilon 1",
    "certify --mechanism laplace --scale 2 --steps 10 --delta 1e-6 --digits 30 --output answer.json",
    "certify --check answer.json",
    "certify --check answer.json --bounds 0.0026123 0.0026126",
)
@_question("--epsilon", type=float, help="Privacy loss in nats: asks for delta.")
@_question("--delta", type=float, help="Failure probability, in (0, 1): asks for epsilon.")
@relation_option
@_question("--digits", type=WHOLE, default=15, show_default=True, help="Significant digits, 1 to 200.")
@_question(
    "--check",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Verify the certificate in this file, or in this statement, again; asks nothing else. Exit status 1 if it "
    "does not hold.",
)
@_question(
    "--bounds",
    type=float,
    nargs=2,
    help="With --check: bounds of the same number that a program gave. Exit status 1 if they contradict it.",
)
@mechanism_options()
@output_file("Write the certificate, one JSON object, to this file.")
def certify(
    epsilon: float | None,
    delta: float | None,
    relation: str,
    digits: int,
    check: Path | None,
    bounds: tuple[float, float] | None,
    output: Path | None,
    **arguments: object,
) -> Answer:
    """Print an enclosure of delta or epsilon in ball arithmetic, or check one that was written.

    Closed forms, exact sums or a contour integral with every error bounded, in Arb's balls: a second path to the
    number, which shares no code with `jaxacct delta` and `jaxacct epsilon`. Needs the extra certify (python-flint).
    """
    if check is not None:
        return _checked(check, bounds)
    if bounds is not None:
        raise click.UsageError("--bounds needs --check FILE")
    if (epsilon is None) == (delta is None):
        raise click.UsageError("give one of --epsilon and --delta, or --check FILE")
    import jaxacct

    mechanism, steps = composed(runs_of(arguments))
    found = jaxacct.certify(mechanism, epsilon=epsilon, delta=delta, steps=int(steps), relation=relation, digits=digits)
    if output is not None:
        output.write_text(found.to_json() + "\n", encoding="utf-8")
    answer = "delta" if found.given == "epsilon" else "epsilon"
    lines = [
        f"{answer} <= {found.upper}",
        f"{answer} >= {found.lower}",
        f"at {found.given} {found.at:g}, relation {relation}; by {found.method}, {found.bits} bits",
        f"of {found.certifies}",
    ]
    return Answer(lines, json.loads(found.to_json()))


def _checked(path: Path, bounds: tuple[float, float] | None) -> Answer:
    from jaxacct import certificates

    if not is_regular(path) or path.stat().st_size > _MOST:
        raise ValueError(f"{path} must be a file with a certificate")
    text = path.read_text(encoding="utf-8")
    if '"statement"' in text[:40]:
        return _checked_statement(text)
    found = certificates.read_certificate(text)
    holds, answer = found.check(), "delta" if found.given == "epsilon" else "epsilon"
    verdict = "holds" if holds else "NOT CONFIRMED" + (found.altered and f", {found.altered}")
    lines = [f"{answer} in [{found.lower}, {found.upper}] at {found.given} {found.at:g}: {verdict}"]
    agree = bounds is None or found.encloses(*bounds)
    if bounds is not None:
        lines.append(f"bounds [{bounds[0]!r}, {bounds[1]!r}]: {'agree' if agree else 'CONTRADICT IT'}")
    return _verdict(lines, holds and agree)


def _checked_statement(text: str) -> Answer:
    """Checks the certificate in a statement."""
    from jaxacct.reports import read_statement
    from jaxacct.reports.verdict import check_certificate

    found = read_statement(text)
    try:
        return _verdict([check_certificate(found)], True)
    except ValueError as problem:
        return _verdict([f"NOT CONFIRMED: {problem}"], False)


def _verdict(lines: list[str], holds: bool) -> Answer:
    return Answer(lines, {"holds": holds, "said": lines}, status=0 if holds else 1)
