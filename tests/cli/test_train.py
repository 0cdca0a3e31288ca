"""`jaxacct train` as a person meets it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import termios
import threading

import jax
import pytest

from tests.cli.called import called as call
from tests.cli.called import said

QUICK = ["train", "--filter", "gdp", "--model", "linear", "--epsilon", "8"]


def test_help_lists_the_commands_and_the_filters(capsys):
    assert "train" in call(capsys, "--help")[1]
    out = said(capsys, "train", "--help")
    assert "approximate_gdp" in out
    assert "default: sampled_gaussian" in out


def test_missing_extras_are_named_with_the_way_to_install_them(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = call(capsys, "train")
    assert code == 2
    assert "pip install 'jaxacct[train]'" in err
    assert err.count("\n") == 1


def test_a_run_ends_with_a_table_and_a_report_and_leaves_float32_alone(capsys, tmp_path):
    before = jax.config.jax_enable_x64
    code, out, err = call(
        capsys, *QUICK, "--steps", "25", "--learning-rate", "1", "--seed", "1", "--output", str(tmp_path)
    )
    assert code == 0, err
    assert jax.config.jax_enable_x64 == before
    for words in ("treated as public", "not private to anyone who knows the seed", "test accuracy", "guarantee"):
        assert words in out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["steps"] == 25
    assert report["test_accuracy"] > 0.8
    assert report["privacy"]["filter"]["epsilon"] == pytest.approx(8.0, rel=1e-6)
    assert report["privacy"]["pld"]["epsilon"] <= 8.0 * 1.001
    private = ("loss", "train_accuracy", "batch_size", "sample", "clipped_fraction", "key")
    assert not [word for word in private if word in json.dumps(report["history"])]
    assert "loss" not in err


def test_epochs_become_steps_and_json_has_standard_output_to_itself(capsys, tmp_path):
    code, out, err = call(capsys, *QUICK, "--epochs", "3", "--output", str(tmp_path), "--json", "--quiet")
    assert code == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["steps"], report["seeded"]) == (3, False)
    printed = json.loads(out)
    assert printed.pop("files") == [
        str(tmp_path / name) for name in ("report.md", "report.json", "history.csv", "budget.png")
    ]
    assert printed["steps"] == 3
    assert "treated as public" in err


def test_a_clip_norm_that_moves_is_told_in_the_report_and_verified(capsys, tmp_path):
    options = ["--steps", "3", "--clip", "2", "--clip-quantile", ".5", "--output", str(tmp_path), "--quiet"]
    code, _, err = call(capsys, *QUICK, *options)
    assert code == 0, err
    said = (tmp_path / "report.md").read_text()
    assert "clipped by itself to an L2 norm of 2 at first, which released counts then move towards the 0.5" in said
    assert call(capsys, "verify", str(tmp_path))[0] == 0
    code, _, err = call(capsys, *QUICK, "--clip-quantile", "1")
    assert (code, "quantile must be" in err) == (2, True)


@pytest.mark.slow
def test_a_run_with_a_checkpoint_goes_on_where_it_was_and_reports_the_whole(capsys, tmp_path):
    folder = str(tmp_path / "kept")
    quick = [*QUICK, "--seed", "1", "--steps", "6", "--checkpoint", folder, "--checkpoint-every", "2"]
    code, _, err = call(capsys, *quick)
    assert code == 0, err
    report = json.loads((tmp_path / "kept" / "report.json").read_text())
    assert (report["steps"], report["attempts"], report["steps_lost"]) == (6, 1, 0)
    # As if killed after step 5: the checkpoint of the end is gone, the journal is not.
    (tmp_path / "kept" / "checkpoints" / "6.npz").unlink()
    code, out, err = call(capsys, *quick, "--resume")
    assert code == 0, err
    report = json.loads((tmp_path / "kept" / "report.json").read_text())
    assert (report["stopped"], report["steps"], report["attempts"]) == ("budget spent", 4, 2)
    assert report["steps_lost"] == 2
    assert "2 charged that a killed attempt lost" in out
    assert not report["privacy"]["pld"]["is_bound"]
    for changed, message in (([], "resume it"), (["--resume", "--clip", "2"], "clip must stay 1.0")):
        code, _, err = call(capsys, *quick, *changed)
        assert (code, err.count("jaxacct:")) == (2, 1)
        assert message in err


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_with_the_report_written(tmp_path):
    command = [sys.executable, "-c", "from jaxacct.cli import main; main()", *QUICK]
    command += ["--steps", "1000000", "--output", str(tmp_path)]
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    ours, theirs = os.openpty()  # there is a progress bar on terminals only
    termios.tcsetwinsize(theirs, (24, 200))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment) as process:
        os.close(theirs)
        deadline = threading.Timer(500, process.kill)  # or reading would wait for ever
        deadline.start()
        seen = ""
        asked = False
        with contextlib.suppress(OSError):  # a terminal whose other end is closed
            while more := os.read(ours, 1024):
                seen += more.decode(errors="replace")
                if not asked and "/1000000" in seen:  # the progress bar has begun
                    process.send_signal(signal.SIGINT)
                    asked = True
        out, _ = process.communicate(timeout=100)
        deadline.cancel()
    os.close(ours)
    assert process.returncode == 130, seen
    assert "Traceback" not in seen
    assert "interrupted" in out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["stopped"] == "interrupted"
    assert 0 < report["steps"] < 1_000_000
    assert len(report["history"]["step"]) == report["steps"]
    assert (tmp_path / "budget.png").exists()
