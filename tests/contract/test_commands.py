"""What every command of the shell promises of a line that makes no sense: one line that says why, and exit code 2."""

from __future__ import annotations

import shlex

import pytest

from jaxacct.cli import group, main

LINES = [
    ("epsilon --sigma 1 --rate 1.5 --delta 1e-5", "rate must be between 0 and 1, got 1.5"),
    ("epsilon --sigma 1 --steps -1 --delta 1e-5", "steps must be a whole number from 0 to 2**53"),
    ("delta --mechanism skellam --mu 9 --rate 0.1 --epsilon 1 --relation=replace", "no analysis"),
    ("delta --sigma one --epsilon 1", "--sigma"),
    ("epsilon --delta 1e-5", "gaussian needs --sigma"),
    ("epsilon --sigma 1", "'--delta'. Probability that the guarantee may fail, in (0, 1); well below"),
    ("epsilon --sigma 1", "For example: jaxacct epsilon --sigma 1"),
    ("epsilon --sigma 1 --scale 1 --delta 1e-5", "--scale does not belong to gaussian"),
    ("epsilon --sigma 1 --steps 1.5 --delta 1e-5", "not a whole number"),
    ("epsilon --sigma 1 --sample-size 3 --delta 1e-5", "--sample-size goes with --dataset-size"),
    ("epsilon --run '' --delta 1e-5", "--run : Invalid value for '--mechanism': '' is not one of 'gaussian'"),
    ("epsilon --run gaussian:sigma=1,sigma=2 --delta 1e-5", "each name once"),
    ("epsilon --sigma 1 --batch 5 --delta 1e-5", "--batch goes with --records"),
    ("epsilon --sigma 1 --batch 5 --records 4 --delta 1e-5", "--batch must be at most"),
    ("epsilon --sigma 1 --epochs 5 --steps 4 --delta 1e-5", "--epochs and --steps do not go together"),
    ("epsilon --sigma 1 --noise-multiplier 5 --delta 1e-5", "--noise-multiplier is --sigma"),
    ("epsilon --sigma 2 --delta 1e-5 --largest 7", "goes with --records"),
    ("delta --sigma 2 --epsilon 1 --batches 8 --rate 0.1", "--rate and --batches do not go together"),
    ("delta --sigma 2 --epsilon 1 --batches 8 --shuffled --participations 2", "--participations and --shuffled"),
    ("delta --sigma 2 --epsilon 1 --shuffled", "goes with --batches"),
    ("delta --mechanism skellam --mu 9 --epsilon 1 --records-per-user 3 --relation replace", "records-per-user"),
    ("calibrate --epsilon -1 --delta 1e-5", "epsilon must be a finite number of at least 0, got -1"),
    ("calibrate --epsilon 0 --delta 1e-12 --steps 100", "reachable inside the bracket"),
    ("calibrate --delta 1e-5", "--epsilon"),
    ("calibrate --epsilon 1 --delta 1e-5 --bracket 0.1 0.2", "widen the bracket"),
    ("calibrate --epsilon 1 --delta 1e-5 --sigma 0.5 --seek steps", "reachable inside the bracket"),
    ("calibrate --epsilon 3 --delta 1e-5 --mechanism pure-dp --records-per-user 3", "jaxacct epsilon"),
    ("calibrate --gdp 1 --epsilon 1", "--gdp"),
    ("compare --sampling --sigma 1 --rate 0.1 --delta 1e-6", "--records"),
    ("compare --mechanism pure-dp --each-epsilon 0.1 --delta 1e-5 --records-per-user 3", "records-per-user"),
    ("calibrate --epsilon 1 --delta 1e-5 --sigma 1", "--sigma is what this command computes: leave it out, or add --s"),
    ("delta --sigma 1 --delta 1e-5", "delta is the answer: give --epsilon"),
    ("epsilon --sigma 1 --epsilon 1", "epsilon is the answer: give --delta"),
    ("epsiln --sigma 1", "Did you mean 'epsilon'?"),
    ("ledger shw none.db", "Did you mean 'show'?"),
    ("epsilon --sigma 1 --steps 1e18 --delta 1e-5", "not a whole number of at most 2**53"),
    ("statement", "or, for a plan, --noise-multiplier, --batch, --records, --epochs"),
    ("statement --noise-multiplier 0 --batch 1 --records 1 --epochs 1", "noise_multiplier must be"),
    ("statement runs --noise-multiplier 0", "--noise-multiplier describes a plan"),
    ("verify nothing", "where nothing is"),
    ("calibrate --epsilon 1 --delta 1e-5 --seek rate", "gaussian needs --sigma"),
    ("calibrate --epsilon 1 --delta 1e-5 --seek steps --sigma 1 --steps 3", "--steps is what"),
    ("compare --sigma 1 --steps 0 --delta 1e-5", "steps must be"),
    ("compare --sigma 1 --delta 1e-5 --csv --json", "give one of them"),
    ("compare --sigma 1 --sample-size 1 --dataset-size 9 --delta 1e-5", "fixed size"),
    ("compare --sigma 1 --rate 0.1 --largest 20 --records 100 --delta 1e-5", "batches that are cut"),
    ("compare --sigma 1 --batches 10 --delta 1e-5", "epochs of batches"),
    ("plot profile --sigma 1", "--output"),
    ("plot profile --sigma 1 -o picture.txt", "must end in .png, .svg or .pdf"),
    ("sweep --sigma 1 --delta 1e-5 --epsilon 1", "leave out what you want to know"),
    ("sweep --delta 1e-5", "leave out what you want to know: one of --sigma"),
    ("sweep --mechanism pure-dp --epsilon 1", "one of --each-epsilon"),
    ("sweep --sigma 1:2 --delta 1e-5", "LOW:HIGH:COUNT"),
    ("sweep --sigma 1:2:1 --delta 1e-5", "2 to 1000000 numbers"),
    ("sweep --sigma 0:2:9:log --delta 1e-5", "ends above 0"),
    ("sweep --sigma nan:2:9 --delta 1e-5", "finite ends"),
    ("sweep --sigma 1,,2 --delta 1e-5", "could not convert"),
    ("sweep --sigma 1 --steps 1,2.5 --delta 1e-5", "'1,2.5' is not a whole number"),
    ("sweep --sigma 1:2:2000 --rate 0:1:2000 --delta 1e-5", "at most 1000000 settings, got 4000000"),
    ("sweep --sigma 1 --delta 1e-5 -o /nowhere/at/all", "/nowhere/at/all"),
    ("train --rate 1.5", "rate must be between 0 and 1"),
    ("train --steps 10 --epochs 3", "give one of them"),
    ("train --learning-rate -1", "learning_rate must be"),
    ("train --physical-batch 0", "physical_batch must be"),
    ("train --filter gdp --rate 0.1", "rate must be 1 for the gdp filter"),
    ("train --filter approximate_gdp --rate 0.5", "use --filter sampled_gaussian"),
    ("train --filter zcdp", "zcdp"),
    ("train --data mnist --path /nowhere", "/nowhere"),
    ("train --sampling allocation --schedule adaptive", "schedule must be 'constant'"),
    ("train --sampling fixed --filter renyi", "leave --filter out"),
    ("train --sampling shuffled --checkpoint /nowhere", "a second time"),
    ("train --largest 5", "largest goes with sampling truncated"),
    ("train --sampling truncated --largest 2000", "largest must be at most records"),
    ("train --sampling allocation --rate 1e-6", "rate must be at least 1 / size"),
    ("train --resume", "resume needs checkpoint"),
    ("certify --sigma 2", "give one of --epsilon and --delta"),
    ("statement --noise-multiplier 0.9 --batch 70000 --records 60000 --epochs 3", "batch must be at most records"),
    ("ledger request none.db --cost 1", "holds no ledger"),
    (f"epsilon --sigma 1 --steps 1{400 * '0'} --delta 1e-5", "not a whole number"),
]


def test_every_command_has_a_line_here() -> None:
    assert set(group.commands) <= {line.split()[0] for line, _ in LINES}


@pytest.mark.parametrize(("line", "words"), LINES, ids=range(len(LINES)))
def test_a_line_that_makes_no_sense_ends_in_one_line_and_exit_code_2(capsys, tmp_path, monkeypatch, line, words):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(line))
    captured = capsys.readouterr()
    assert (stop.value.code, captured.out) == (2, "")
    assert words in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert not list((tmp_path / "here").iterdir()), "nothing is begun"
