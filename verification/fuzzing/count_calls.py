"""How many hostile calls the fuzz tests made, by family of callables, from the reports that pytest writes of them.

    pytest -m slow tests/fuzz -k "expost or audit" --junitxml=rooms.xml
    python -m verification.fuzzing.count_calls rooms.xml --out verification/results/fuzz.json

A call has one argument (or function, or tree) that makes no sense, or barely. It was answered, with an answer that the
test found sound, or refused by an error that names the argument; anything else fails the test.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import xml.etree.ElementTree as ET


def counted(reports: list[pathlib.Path]) -> dict[str, dict[str, float]]:
    """Tests, calls and seconds of every room, or function of the package itself."""
    found: dict[str, dict[str, float]] = {}
    for report in reports:
        for test in ET.parse(report).iter("testcase"):
            if "[" not in test.get("name", ""):  # the test that was running when somebody stopped them
                continue
            family = test.attrib["name"].partition("[")[2].rstrip("]").split(".")[0]
            row = found.setdefault(family, {"tests": 0, "failed": 0, "named": 0, "answered": 0, "seconds": 0.0})
            row["tests"] += test.find("skipped") is None
            row["failed"] += test.find("failure") is not None or test.find("error") is not None
            row["seconds"] = round(row["seconds"] + float(test.attrib["time"]), 1)
            for one in test.iter("property"):
                if one.attrib["name"] in ("named", "answered"):
                    row[one.attrib["name"]] += int(one.attrib["value"])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", type=pathlib.Path, nargs="+")
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    calls = counted(given.reports)
    for family, row in sorted(calls.items()):
        print(family, row)
    if given.out:
        held = json.loads(given.out.read_text()) if given.out.exists() else {}
        held["calls"] = {**held.get("calls", {}), **calls}
        given.out.write_text(json.dumps(held, indent=1) + "\n")
