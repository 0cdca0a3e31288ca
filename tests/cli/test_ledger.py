"""``jaxacct ledger`` as a shell sees it."""

import json
import pathlib
import re
import shlex

import pytest

from jaxacct import Ledger
from tests.cli.called import called


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(line):
        return called(capsys, "ledger", *shlex.split(line))

    return run


def test_a_budget_s_life(run, tmp_path):
    for line, status, words in (
        ("create team.db gdp mu=1", 0, "mu-GDP"),
        ("request team.db --sigma 2 --label 'mean age'", 0, "admitted   (id 1)"),
        ("request team.db --sigma 0.5", 1, "REFUSED   (id 2)"),
        ("request team.db --sigma 8 --sensitivity 2 --rate 1 --steps 3 --json", 0, '"id": 3, "admitted": true'),
        ("release team.db 1", 0, "released   (id 1)\n"),
        ("show team.db", 0, "43.76 % of the budget"),
    ):
        code, out, _ = run(line)
        assert (code, words in out) == (status, True), line
    _, out, _ = run("show team.db --last 2")
    assert out.startswith("gdp: 2 of 3 requests admitted, 1 not yet released")
    assert [line.split()[0] for line in out.splitlines()[4:6]] == ["2", "3"]
    shown = json.loads(run("show team.db --json")[1])
    assert shown["spent"] == pytest.approx((0.25 + 3 / 16) ** 0.5)
    assert (shown["requests"], shown["admitted"], shown["not_released"]) == (3, 2, 1)
    assert shown["last"][0]["label"] == "mean age"
    code, out, _ = run("verify team.db")
    head = out.splitlines()[1].split()[1]
    assert head == shown["head"] == Ledger(tmp_path / "team.db").head
    assert run(f"verify team.db --head {head}")[0] == 0
    code, out, _ = run("export team.db")
    assert out == Ledger(tmp_path / "team.db").export()
    assert run("export team.db --out all.json")[0] == 0
    assert (tmp_path / "all.json").read_text() == out


def test_the_page_s_commands_are_admitted_as_it_says(run):
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "how-to" / "ledger.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for line in "".join(blocks).splitlines():
        assert run(line.removeprefix("jaxacct ledger ").partition(" &&")[0])[0] == 0, line


def test_a_delta_that_promises_little_is_warned_of(run):
    code, _, err = run("create team.db zcdp epsilon=1 delta=0.01")
    assert code == 0
    assert "warning: delta 0.01 is above 0.001" in err
    assert not run("create other.db zcdp epsilon=1 delta=1e-6")[2]


@pytest.mark.parametrize("name", ["approximate_zcdp", "gdp", "pure_dp", "renyi", "renyi_any", "zcdp"])
def test_a_ledger_made_from_epsilon_and_delta_quotes_them(run, name):
    code, out, _ = run(f"create team.db {name} epsilon=1 delta=1e-6 --json")
    made = json.loads(out)
    assert (code, made["delta"], made["spent_epsilon"]) == (0, 1e-6, 0.0)
    assert 0.99 <= made["epsilon"] <= 1.0


def test_a_label_cannot_write_over_the_lines_before_it(run):
    run("create team.db pure_dp epsilon=1")
    assert run("request team.db --cost 0.1 --label 'a\n\tb \x1b[1A\x1b[2K\x9b\u202ec\x07 größer'")[0] == 0
    _, out, _ = run("show team.db")
    assert out.splitlines()[4].endswith(r"0.1  a b \x1b[1A\x1b[2K\x9b\u202ec\x07 größer")
    assert run("show team.db --json")[1].strip().isascii()


def test_a_refusal_says_why_and_what_would_have_fitted(run):
    run("create team.db zcdp epsilon=1 delta=1e-6")
    code, out, _ = run("request team.db --scale 5 --steps 20 --json")
    answer = json.loads(out)
    assert code == 1
    assert answer["refusal"].startswith("it costs rho")
    assert answer["cost_epsilon"] > answer["remaining_epsilon"]
    noisier, fewer = answer["fits"]
    scale = float(re.search(r"scale=([0-9.]+)", noisier).group(1))
    assert run(f"request team.db --scale {0.998 * scale} --steps 20")[0] == 1
    assert run(f"request team.db --scale {scale} --steps 20")[0] == 0
    assert fewer == "Laplace(scale=5.0, sensitivity=1.0)"


def test_a_request_is_described_as_in_the_other_commands(run, tmp_path):
    run("create team.db zcdp epsilon=5 delta=1e-6")
    for line in (
        "--noise-multiplier 20",
        "--mechanism discrete-laplace --scale 30",
        "--mechanism exponential --epsilon 0.1",
        "--epsilon 0.1",
        "--run laplace:scale=20 --run gaussian:sigma=20,steps=3",
    ):
        assert run(f"request team.db {line}")[0] == 0, line
    queries = [entry.query for entry in Ledger(tmp_path / "team.db").history()]
    kinds = [type(query).__name__ for query in queries]
    assert kinds == ["Gaussian", "DiscreteLaplace", "Exponential", "PureDP", "Composed"]
    run("create train.db renyi epsilon=3 delta=1e-5 order=8")
    code, out, _ = run("request train.db --noise-multiplier 2 --batch 600 --records 60000 --epochs 3")
    assert code == 0
    assert "holds for Poisson sampling: each record is in each batch with probability 0.01," in out


def test_an_export_does_not_write_over_the_ledger(run, tmp_path):
    run("create team.db pure_dp epsilon=1")
    (tmp_path / "link").symlink_to("team.db")
    for out in ("team.db", "./team.db-journal", "team.db-lock", "link"):
        code, _, err = run(f"export team.db --out {out}")
        assert code == 2
        assert "out must be another file" in err
    assert run("export link --out team.db-shm")[0] == 2
    assert run("verify team.db")[0] == 0


def test_a_ledger_that_does_not_hold_together_has_exit_code_1(run):
    run("create team.db pure_dp epsilon=1")
    _, out, _ = run("verify team.db --json")
    head = json.loads(out)["head"]
    run("request team.db --epsilon 0.5")
    wrong = "1" + head[1:]
    code, _, err = run(f"verify team.db --head {wrong}")
    assert code == 1
    assert err.startswith("NOT VERIFIED: record 1 is not the one")
    code, out, _ = run(f"verify team.db --json --head {wrong}")
    assert code == 1
    assert json.loads(out)["verified"] is False


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("request none.db --cost 1", "holds no ledger"),
        ("create team.db pure_dp epsilon=1", "there already"),
        ("create x.db pure_dp", "of pure_dp must be epsilon=..., or epsilon=... delta=..., each once, got none"),
        ("create x.db pure_dp epsilon=1 epsilon=2", "each once, got epsilon=1 epsilon=2"),
        ("create x.db pure_dp epsilon=much", "epsilon must be a number"),
        ("create x.db pure_dp epsilon=1,2", "epsilon must be one number"),
        ("create x.db approximate_gdp budget=1 regime=odd", "regime must be"),
        ("create x.db gdp mu=1 epsilon=1 delta=1e-5", "mu=..., or epsilon=... delta=..., each once, got mu=1"),
        ("create x.db gdp mu=1 delta=1e-7", "--delta"),
        ("create x.db magic epsilon=1", "FILTER"),
        ("create postgresql://host:bad/x pure_dp epsilon=1", "path_or_url must"),
        ("request", "For example: jaxacct ledger request"),
        ("request team.db", "say what runs: --sigma"),
        ("request team.db --sigma 1 --cost 1", "--cost is"),
        ("request team.db --sigma 1 --scale 1", "does not belong to gaussian, but to laplace"),
        ("request team.db --cost 1 --steps 2", "no option of a mechanism"),
        ("request team.db --delta 1e-5", "approximate-dp needs --each-epsilon"),
        ("request team.db --rho 1", "query must be"),
        ("request team.db --cost 0.1 --timeout -1", "timeout must"),
        ("release team.db 7", "id must be"),
        ("verify team.db --head 7", "head must be"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(run, line, word):
    run("create team.db pure_dp epsilon=1")
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("jaxacct: ")
    assert err.count("\n") == 1
    assert word in err
    assert run("show team.db --json")[1].count('"requests": 0') == 1


@pytest.mark.slow  # compiles two filters
def test_other_kinds_of_queries_and_budgets(run):
    assert run("create a.db renyi_any epsilon=3 delta=1e-5 orders=8,16")[0] == 0
    code, out, _ = run("request a.db --sigma 4 --rate 0.01 --json")
    assert code == 0
    assert len(json.loads(out)["spent"]) == 2
    assert run("create b.db approximate_zcdp rho=0.5 delta=1e-6")[0] == 0
    code, out, _ = run("request b.db --epsilon 0.1 --delta 1e-7")
    assert code == 0
    assert "delta 1" in out
    assert run("request b.db --scale 10")[0] == 0
    assert run("request b.db --rho 0.1")[0] == 0


@pytest.mark.parametrize(
    "secret", ["postgresql://me:hunter2@h/x", "postgres:/me:hun@ter:hunter2@h", "x://h/y?password=hunter2"]
)
def test_a_url_in_a_wrong_place_is_not_quoted_with_its_password(run, secret):
    for line in (
        f"create pure_dp {secret}",
        f"show team.db {secret}",
        f"show {secret} more",
        f"backup {secret} {secret}",
    ):
        code, out, err = run(line)
        assert code == 2
        assert err
        assert "hunter2" not in out + err


def test_a_copy_is_made_verified_and_never_over_another_file(run, tmp_path):
    assert run("create team.db pure_dp epsilon=1")[0] == 0
    assert run("request team.db --cost 0.25")[0] == 0
    code, out, _ = run("backup team.db kept.db")
    assert code == 0
    assert out.startswith("copied and verified: 1 requests, 1 admitted")
    head = re.search(r"head (\S+)", out).group(1)
    assert run(f"verify kept.db --head {head}")[0] == 0
    code, _, err = run("backup team.db kept.db --json")
    assert code == 2
    assert "target must be the path of a new file" in err
    assert run("backup none.db other.db")[0] == 2
    assert json.loads(run("backup team.db again.db --json")[1]) == {"requests": 1, "admitted": 1, "head": head}
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["again.db", "kept.db", "team.db"]
