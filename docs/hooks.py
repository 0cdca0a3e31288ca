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
# The tabs' pages in the order in which a reader needs them. A page that is named nowhere stands at the end of a tab: a
# how-to of Guides, any other of Project.
START = ("index", "getting-started", "calculator", "which-epsilon", "concepts", "sharp-edges")
GUIDES = {
    "Plan": (
        "calibration-and-noise-planning",
        "sweeps",
        "sweeps-over-devices",
        "which-relation",
        "what-does-my-data-loader-cost",
        "pictures",
    ),
    "Train": (
        "choosing-a-filter",
        "dp-sgd-under-a-filter",
        "dp-sgd-in-flax",
        "private-scores",
        "per-example-budgets",
        "durable-training",
        "search",
        "more-than-one-machine",
    ),
    "Check and report": ("is-my-training-private", "verify-and-report", "audit", "certificates"),
    "Release and share": ("ledger", "counts-and-sums", "accuracy-first"),
    "Other libraries": ("coming-from-other-packages", "bridges"),
}
THEORY = ("how-it-works", "papers", "errata")
ROOMS = (
    "mechanisms",
    "certificates",
    "filters",
    "expost",
    "adversary",
    "papers",
    "losses",
    "training",
    "testing",
    "audit",
    "attacks",
    "plotting",
    "interop",
    "ledger",
    "release",
    "reports",
)
# Rooms with public names in their modules, beside those of the room or without any.
MODULES = {
    "losses": (
        "grids.grid", "curves.pld", "curves.profile", "curves.trade_off", "compare.order", "compare.suprema",
        "compare.chain", "compare.gaussian_order", "compare.attack", "compare.distance", "renyi", "renyi.zcdp",
    ),
    "expost": ("definitions", "reduction", "scales", "exact"),
    "ledger": ("errors",),
    "training": ("schedules", "demo"),
}  # fmt: skip
# What one does with the names of the larger rooms; a name that is in no group stands under "More".
GROUPS = {
    "jaxacct": {
        "Ask": ("epsilon", "delta", "calibrate", "plan_noise", "gdp_summary", "certify", "without_callbacks", "Bounds"),
        "Noise": (
            "Gaussian", "Laplace", "DiscreteGaussian", "DiscreteLaplace", "Skellam", "RandomSensitivityGaussian",
            "RandomizedResponse", "Exponential", "PermuteAndFlip",
        ),
        "Samples, users and sequences": (
            "PoissonSampled", "SampledWithoutReplacement", "SampledWithReplacement", "TruncatedPoisson",
            "RandomAllocation", "Shuffled", "UserLevel", "group_of", "Composed", "PrivateSelection",
        ),
        "Known only by a guarantee": (
            "PureDP", "ApproximateDP", "GDP", "ZeroConcentratedDP", "RenyiDP", "FromTables", "FromProfile",
        ),
        "Curves": ("PLD", "PrivacyProfile", "TradeOff", "LossGrid", "dominates", "supremum"),
        "Budgets on disk": ("Ledger",),
    },
    "jaxacct.filters": {
        "For training": (
            "sampled_gaussian", "closed_form", "menu", "gaussian_menu", "constant_schedules", "approximate_gdp",
        ),
        "For any queries": ("gdp_residue", "residue", "check_residue", "natural", "prepare"),
        "By one number": (
            "pure_dp", "approximate_dp", "zcdp", "approximate_zcdp", "gdp", "renyi", "renyi_any", "plan_order",
            "plan_epsilon",
        ),
        "Make, run and ask": (
            "for_target", "per_example", "halting_scan", "lower_budget", "odometer", "check_state", "Reason",
            "sentence", "Filter", "Guarantee",
        ),
    },
    "jaxacct.training": {
        "Plan": ("plan_budget", "plan_rounds", "schedules", "sampler"),
        "Train": ("make_step", "init_state", "from_flax", "fit", "TrainState", "StepReport", "accuracy"),
        "In a loop of one's own": (
            "noisy_gradient", "filtered_aggregate", "select", "poisson_sample", "clipped_gradient_sum",
            "per_example_gradients", "add_gaussian_noise", "adaptive_clip",
        ),
        "Keys": ("seeded_keys", "fresh_keys", "secure_keys", "step_keys", "RootKeys"),
        "Devices, resumes, reports": ("shard_examples", "replicate", "durable_run", "make_report", "demo"),
        "Search and stop": ("best_of", "fit_until_accurate", "on_levels"),
    },
    "jaxacct.expost": {
        "Release": (
            "release_until", "compose_until", "Brownian", "PrecisionWeighted", "LaplaceReduction", "GumbelReduction",
            "Doubling",
        ),
        "When to stop": ("AboveThreshold", "SparseVector", "PlainGaussian", "PublicScore", "stopped_by"),
        "What it costs": (
            "ExPostResult", "PureExPost", "ApproximateExPost", "ProbabilisticExPost", "RenyiExPost", "ZCDPExPost",
            "GDPExPost", "RenyiOdometer", "compose", "convert", "post_process", "ex_ante", "approximate_epsilon",
            "bayes_factor",
        ),
    },
}  # fmt: skip
OUTSIDE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}


def _first_line(module):
    return (inspect.getdoc(module) or "").split("\n", 1)[0]


def _prose(module):
    """A module's docstring, its tables as Markdown."""
    parts = (inspect.getdoc(module) or "").split("\n\n")
    return "\n\n".join(_table(part) if part.startswith("===") else part for part in parts)


def _table(text):
    """A simple table of reStructuredText as Markdown; a row without a first column goes on in the row before."""
    border, head, _, *lines = text.splitlines()
    places = [match.span() for match in re.finditer("=+", border)]
    ends = [*(start for start, _ in places[1:]), None]
    rows = []
    for line in (head, *(line for line in lines if not line.startswith("==="))):
        cells = [line[start:end].strip() for (start, _), end in zip(places, ends, strict=True)]
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [f"{old} {more}".strip() for old, more in zip(rows[-1], cells, strict=True)]
    rows.insert(1, ["---"] * len(places))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def _entries(path, shown=(), level=2):
    """A directive for every public class and function not yet shown, and a line for every constant, in their groups."""
    public = {*importlib.import_module(path).__all__} - {*shown}
    groups = {heading: [name for name in names if name in public] for heading, names in GROUPS.get(path, {}).items()}
    rest = public.difference(*groups.values())
    if not groups:
        return _entries_of(path, sorted(rest, key=str.lower), level)
    groups |= {"More": sorted(rest, key=str.lower)} if rest else {}
    return "\n\n".join(f"## {heading}\n\n{_entries_of(path, names, 3)}" for heading, names in groups.items())


def _entries_of(path, names, level=2):
    """Directives and lines for those names of a module, in that order."""
    public = {name: _value(importlib.import_module(path), name) for name in names}
    constants = [f"- `{name}` = `{value!r}`" for name, value in public.items() if not _described(value)]
    # A filter's methods are its page, wherever they are written.
    inherited = "\n      inherited_members: true" if path == "jaxacct.filters" else ""
    parts = [
        f"::: {path}.{name}\n    options:\n      heading_level: {level}{inherited}"
        for name, value in public.items()
        if _described(value) and not inspect.ismodule(value)
    ]
    return "\n\n".join(["\n".join(constants), *parts])


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
        shown = getattr(module, "__all__", ())
        if shown:
            text += "\n" + _entries(f"jaxacct.{room}") + "\n"
        for name in MODULES.get(room, ()):
            path = f"jaxacct.{room}.{name}"
            text += f"\n## {path}\n\n{_first_line(importlib.import_module(path))}\n\n{_entries(path, shown, 3)}\n"
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
    return re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE).group(1)


def _notebook_title(path):
    return re.search(r'"# (.+?)(?:\\n)?"', path.read_text(encoding="utf-8")).group(1)


def notebooks():
    """The notebooks, the first tour first."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"), key=lambda path: (path.stem != "quickstart", path.stem))


def _folder(name):
    pages = sorted((DOCS / name).glob("*.md"), key=lambda path: (path.stem != "index", _title(path).lower()))
    return [{_title(page): f"{name}/{page.name}"} for page in pages]


def _pages(stems, folder=""):
    """Titles and addresses of those pages that exist."""
    paths = [DOCS / folder / f"{stem}.md" for stem in stems]
    return [{_title(path): path.relative_to(DOCS).as_posix()} for path in paths if path.exists()]


def _guides():
    listed = {stem for stems in GUIDES.values() for stem in stems}
    others = sorted(path.stem for path in (DOCS / "how-to").glob("*.md") if path.stem not in listed)
    groups = {**GUIDES, "More": others} if others else GUIDES
    return [{title: _pages(stems, "how-to")} for title, stems in groups.items()]


def on_config(config):
    """Writes the navigation from what is there: five tabs."""
    here = {path.stem for path in DOCS.glob("*.md")}
    first = ("filters",)
    others = sorted(here - {*START, *THEORY, *first})
    config.nav = [
        {"Start": _pages(START)},
        {
            "Guides": [
                *_pages(first),
                *_guides(),
                {"Notebooks": [{_notebook_title(path): f"notebooks/{path.name}"} for path in notebooks()]},
            ]
        },
        {
            "Reference": [
                "api/index.md",
                *({page[4:-3]: page} for page in api_pages() if page != "api/index.md"),
                "command-line.md",
            ]
        },
        {"Theory": [*_pages(THEORY), {"Theorems": _folder("theorems")}, {"Proofs": _folder("proofs")}]},
        {"Project": [*_pages(others), *(page for name, page in OUTSIDE.items() if (ROOT / name).exists())]},
    ]
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
