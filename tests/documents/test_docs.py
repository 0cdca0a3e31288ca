"""The pages' Python runs as printed, their links lead somewhere, and every theorem names code and tests that exist."""

import ast
import builtins
import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md"))
THEOREMS = [page for page in PAGES if page.parent.name == "theorems" and page.stem != "index"]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNABLE = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]
# Compile next to nothing; the others are slow tests.
QUICK = {"sharp-edges.md"}


def _name(page):
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=_name(p), marks=() if _name(p) in QUICK else pytest.mark.slow) for p in RUNNABLE]
)
def test_every_python_block_of_a_page_runs_as_printed(page, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.chdir(tmp_path)
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec"), {"__name__": "page"})
    pyplot.close("all")


@pytest.mark.parametrize("page", [*RUNNABLE, ROOT / "README.md"], ids=lambda page: page.stem)
def test_a_block_brings_every_name_that_it_uses(page):
    # Pasted alone it runs.
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        nodes = list(ast.walk(ast.parse(block)))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        known = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | set(dir(builtins))
        known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        known |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        known |= {
            (name.asname or name.name).split(".")[0]
            for node in nodes
            for name in getattr(node, "names", ())
            if isinstance(name, ast.alias)
        }
        missing = {node.id for node in names} - known
        assert not missing, (sorted(missing), block)


@pytest.mark.parametrize("page", THEOREMS, ids=_name)
def test_a_theorem_page_names_a_statement_a_source_code_and_tests_that_exist(page):
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# ")
    for part in ("**Source.**", "**In the code.**", "**Tests.**"):
        assert text.count(part) == 1, part
    code, tests = text.split("**In the code.**")[1].split("**Tests.**")
    files = re.findall(r"`(jaxacct/[^`]+)`", code)
    named = re.findall(r"^- `(tests/[^`:]+)::(\w+)`$", tests, re.MULTILINE)
    assert files
    assert named
    assert len(named) == tests.count("`tests/")
    for file in files:
        assert (ROOT / file).is_file(), file
    for file, test in named:
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), (file, test)


def test_what_a_page_of_proofs_names_exists():
    assert len(THEOREMS) > 30
    source = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "jaxacct").rglob("*.py"))
    files = {file.name for file in (ROOT / "jaxacct").rglob("*.py")}
    for page in (DOCS / "proofs").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`([A-Za-z_][\w.]*)`", text):
            assert name in files or re.search(rf"\b{name.rpartition('.')[2]}\b", source), (page.name, name)
        for file, test in re.findall(r"`(tests/[^`:]+)::(\w+)`", text):
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (page.name, test)
        for file in re.findall(r"`(jaxacct/[^`]+)`", text):
            assert (ROOT / file).exists(), (page.name, file)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.stem)
def test_files_that_a_page_links_to_exist(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        # Pages that mkdocs makes or takes from elsewhere are checked by its own strict build.
        if page.is_relative_to(DOCS) and re.search(r"(^|/)((api|bench|notebooks)/|command-line\.md$)", target):
            continue
        path = os.path.normpath(page.parent / target)
        assert os.path.exists(path), target


def test_no_page_names_an_address_for_the_repository_before_it_has_one():
    assert not re.search(r"^(repo_url|site_url)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
