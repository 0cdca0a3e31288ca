"""Pages that nobody has to write: one for each room's public names, the notebooks, and the navigation itself.

New names in a room's ``__all__``, new notebooks, new pages under ``how-to``, ``theorems`` and ``proofs`` appear by
themselves.
"""

import html
import importlib
import importlib.util
import inspect
import pathlib
import re

import click
from latex2mathml.converter import convert
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Pages that introduce come first and in this order; any other page beside them follows.
FIRST = ("index", "getting-started", "concepts", "sharp-edges", "how-it-works")
ROOMS = (
    "mechanisms",
    "certificates",
    "filters",
    "expost",
    "adversary",
    "losses",
    "training",
    "audit",
    "plotting",
    "interop",
    "ledger",
    "reports",
)
# Rooms whose names are in their modules, not in the room.
MODULES = {
    "losses": (
        "grids.grid", "curves.pld", "curves.profile", "curves.trade_off", "compare.order", "compare.suprema",
        "compare.gaussian_order", "compare.attack", "compare.distance", "approximations.moments",
        "approximations.central_limit", "renyi", "renyi.zcdp",
    )
}  # fmt: skip
OUTSIDE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}


def _first_line(module):
    return (inspect.getdoc(module) or "").split("\n", 1)[0]


def _prose(module):
    """A module's docstring, its tables in reStructuredText kept as they are."""
    parts = (inspect.getdoc(module) or "").split("\n\n")
    return "\n\n".join(f"```text\n{part}\n```" if part.startswith("===") else part for part in parts)


def _entries(path):
    """A directive for every public class and function, and a line for every constant, in alphabetical order."""
    module = importlib.import_module(path)
    public = {name: _value(module, name) for name in sorted(module.__all__, key=str.lower) if name != "__version__"}
    constants = [f"- `{name}` = `{value!r}`" for name, value in public.items() if not _described(value)]
    # A filter's methods are its page, wherever they are written.
    options = "\n    options:\n      inherited_members: true" if path == "jaxacct.filters" else ""
    parts = [
        f"::: {path}.{name}{options}"
        for name, value in public.items()
        if _described(value) and not inspect.ismodule(value)
    ]
    return "\n".join(constants) + "\n\n" + "\n\n".join(parts)


def _value(module, name):
    try:
        return getattr(module, name)
    except ImportError:  # of a package that is not installed here: its page is made from the source
        return type


def _described(value):
    return callable(value) or inspect.ismodule(value)


def api_pages():
    """Address and text of every page of the API reference."""
    pages = {
        "api/index.md": f"# jaxacct\n\nThe names of the package itself; the rooms follow.\n\n{_entries('jaxacct')}\n"
    }
    for room in ROOMS:
        if importlib.util.find_spec(f"jaxacct.{room}") is None:
            continue
        module = importlib.import_module(f"jaxacct.{room}")
        text = f"# jaxacct.{room}\n\n{_prose(module)}\n"
        if room in MODULES:
            for name in MODULES[room]:
                text += (
                    f"\n## jaxacct.{room}.{name}\n\n{_first_line(importlib.import_module(f'jaxacct.{room}.{name}'))}\n"
                )
                text += "\n" + _entries(f"jaxacct.{room}.{name}") + "\n"
        else:
            text += "\n" + _entries(f"jaxacct.{room}") + "\n"
        pages[f"api/{room}.md"] = text
    return pages


def _helps(command, path):
    """A heading and the help of a command, then of the commands under it."""
    context = click.Context(command, info_name=path, max_content_width=100)
    text = f"## {path}\n\n```text\n{command.get_help(context)}\n```\n\n"
    if isinstance(command, click.Group):
        under = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
        text += "".join(_helps(one, f"{path} {name}") for name, one in under if one is not None)
    return text


def command_line():
    """The page of all commands, as ``--help`` prints them."""
    from jaxacct.cli import group

    return "# Command line\n\n" + _helps(group, "jaxacct")


def _title(path):
    return path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")


def _notebook_title(path):
    return re.search(r'"# (.+?)(?:\\n)?"', path.read_text(encoding="utf-8")).group(1)


def notebooks():
    """The notebooks, the first tour first."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"), key=lambda path: (path.stem != "quickstart", path.stem))


def _folder(name):
    pages = sorted((DOCS / name).glob("*.md"), key=lambda path: (path.stem != "index", _title(path).lower()))
    return [{_title(page): f"{name}/{page.name}"} for page in pages]


def on_config(config):
    """Writes the navigation from what is there."""
    beside = sorted(path.stem for path in DOCS.glob("*.md") if path.stem not in FIRST)
    nav = [{_title(DOCS / f"{stem}.md"): f"{stem}.md"} for stem in (*FIRST, *beside)]
    nav.append({"How to": _folder("how-to")})
    nav.append({"Notebooks": [{_notebook_title(path): f"notebooks/{path.name}"} for path in notebooks()]})
    nav.append({"Theorems": _folder("theorems")})
    if (DOCS / "proofs").is_dir():
        nav.append({"Proofs": _folder("proofs")})
    nav.append("command-line.md")
    reference = [address for address in api_pages() if address != "api/index.md"]
    nav.append({"API": ["api/index.md", *({address[4:-3]: address} for address in reference)]})
    nav.append({"Project": [page for name, page in OUTSIDE.items() if (ROOT / name).exists()]})
    config.nav = nav
    return config


@event_priority(100)  # before the notebook plug-in, which looks for notebooks among the files
def on_files(files, config):
    """Adds the generated pages and what lies outside the folder."""
    for address, text in api_pages().items():
        files.append(File.generated(config, address, content=text))
    files.append(File.generated(config, "command-line.md", content=command_line()))
    for path in notebooks():
        files.append(File(f"notebooks/{path.name}", str(ROOT), config.site_dir, config.use_directory_urls))
    for path in sorted((ROOT / "bench" / "results").glob("*.png")):
        files.append(File.generated(config, f"bench/results/{path.name}", abs_src_path=str(path)))
    for name, page in OUTSIDE.items():
        if (ROOT / name).exists():
            files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def _formula(match):
    """A formula that arithmatex marked, as MathML: browsers show it, and no script is loaded from anywhere."""
    tex = html.unescape(match.group(2)).strip()[2:-2].replace(r"\arg", r"\operatorname{arg}")
    found = convert(tex, display="block" if match.group(1) == "div" else "inline")
    if re.search(r">\\\w", found):
        raise ValueError(f"a command that latex2mathml does not know, in {tex}")
    # A wide formula scrolls by itself: a page that is wider than a phone is hard to read.
    return (
        f'<div style="overflow-x: auto; overflow-y: hidden; padding: 1em 0">{found}</div>'
        if match.group(1) == "div"
        else found
    )


def colab_link(repository, notebook):
    """A link that opens a notebook on Colab; nothing while the repository has no address on GitHub."""
    place = repository.removeprefix("https://github.com/").removesuffix(".git").strip("/")
    if not repository.startswith("https://github.com/"):
        return ""
    address = f"https://colab.research.google.com/github/{place}/blob/main/{notebook}"
    return f'<p><a class="md-button" href="{address}">Run it on Colab</a></p>'


def _repository():
    """What the notebooks install from: the one place where the address stands; they all say the same."""
    return re.search(r'REPOSITORY = \\"(.*?)\\"', notebooks()[0].read_text(encoding="utf-8")).group(1)


def on_page_content(content, page, **_):
    """Formulas are LaTeX. Docstrings are reStructuredText in two habits: roles before code, a colon more at blocks."""
    if page.file.src_uri.endswith(".ipynb"):
        content = colab_link(_repository(), page.file.src_uri) + content
    content = re.sub(r'<(span|div) class="arithmatex">(.*?)</\1>', _formula, content, flags=re.DOTALL)
    content = re.sub(r":(?:func|mod|class|meth|attr|data):(?=<code>)", "", content)
    return re.sub(r"::</p>", ":</p>", content)
