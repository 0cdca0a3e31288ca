"""docs/papers.md: every name, page, notebook cell and test that it mentions exists."""

import importlib
import json
import pathlib
import re

import jaxacct

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| in the paper")
]


def named(path):
    """What a dotted name under ``jaxacct`` stands for."""
    at = jaxacct
    for part in path.split("."):
        at = getattr(at, part) if hasattr(at, part) else importlib.import_module(f"{at.__name__}.{part}")
    return at


def test_every_row_names_what_exists():
    headings = {
        path.stem: "".join("".join(cell["source"]) + "\n" for cell in json.loads(path.read_text("utf-8"))["cells"])
        for path in (ROOT / "notebooks").glob("*.ipynb")
    }
    wrong = []
    for item, _, names, page, cell, test in ROWS:
        wrong += [(item, name) for name in re.findall(r"`(.+?)`", names) if not callable(named(name))]
        if not (ROOT / "docs" / re.search(r"\((.+?)\)", page).group(1)).exists():
            wrong.append((item, page))
        if cell:
            notebook, heading = re.fullmatch(r"`(.+?)`: (.+)", cell).groups()
            if not re.search(rf"^#+ {re.escape(heading)}$", headings[notebook], re.MULTILINE):
                wrong.append((item, cell))
        file, name = test.strip("`").split("::")
        if not re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE):
            wrong.append((item, test))
    assert not wrong


def test_every_erratum_of_a_paper_is_on_the_page_and_the_other_way_round():
    errata = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8").split("## dp_accounting")[0]
    listed = {int(number) for number in re.findall(r"^(\d+)\. ", errata, re.MULTILINE)}
    cited = {int(n) for found in re.findall(r"\(errat(?:um|a) ([\d and]+)\)", PAGE) for n in re.findall(r"\d+", found)}
    assert cited == listed
    assert len(ROWS) >= 80
