"""``jaxacct ledger`` as a shell sees it."""

import json
import shlex
import time

import pytest

from jaxacct import filters
from jaxacct.cli import ledger_arguments as arguments
from jaxacct.cli import main


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(line):
        with pytest.raises(SystemExit) as stop:
            main(["ledger", *shlex.split(line)])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run


@pytest.mark.parametrize("name", arguments._TARGETS)
def test_a_ledger_made_from_epsilon_and_delta_quotes_them(run, name):
    code, out, _ = run(f"create team.db {name} epsilon=1 delta=1e-6 --json")
    made = json.loads(out)
    assert code == 0
    assert made["delta"] == 1e-6
    assert 0.99 <= made["epsilon"] <= 1.0
    assert made["spent_epsilon"] == 0.0


def test_a_clock_that_ran_ahead_once_stops_nothing_and_is_reported(run, monkeypatch):
    run("create team.db pure_dp epsilon=1")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1e8)
    assert run("request team.db --cost 0.1")[0] == 0
    monkeypatch.setattr(time, "time", lambda: now)
    for line in ("request team.db --cost 0.1", "release team.db 1"):
        assert run(line)[0] == 0
    code, out, _ = run("verify team.db")
    assert code == 0
    assert "times: dated before the record before them: 2 (" in out
    assert json.loads(run("verify team.db --json")[1])["set_back"] == [2]


@pytest.mark.parametrize("name", arguments.FILTERS)
def test_create_knows_every_filter_s_parameters(name):
    import inspect

    given = inspect.signature(getattr(filters, name)).parameters
    for word in arguments.FILTERS[name].split():
        parameter = given[word.strip("[]")]
        assert (parameter.default is not inspect.Parameter.empty) == word.startswith("[")
