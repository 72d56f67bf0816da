"""`acenode search`: search, list, show, resume, stop, winner, delete, and mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acenode.bench.synthetic import synthetic_search
from acenode.cli import main, study
from acenode.cli.parser import ACTIONS
from acenode.execution import estimate
from acenode.runs.questions import SearchStore
from acenode.runs.store import RunStore
from acenode.search.journal import SearchJournal

TINY = ["--epochs", "1", "--set", "batch_size=512", "--set", "snapshots=2", "--set", "analysis=false"]
RATES = ["--over", "learning_rate=log:1e-2..1", "--device", "cpu", "--workers", "1"]


@pytest.fixture(autouse=True)
def _no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_time", lambda *given: {})


def test_a_search_is_conducted_listed_shown_continued_and_deleted(
        tmp_path: Path, few_digits: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "mnist", "--method", "resnet", *RATES, "--trials", "2", "--pruner", "none", *TINY]) == 0
    out = capsys.readouterr().out
    assert "mnist-resnet: 2 trials of resnet on mnist, 1 at a time" in out
    assert "trial 0   learning_rate=0.15: validation accuracy " in out
    assert "finished: 2 of 2 trials finished" in out
    assert "test" not in out.replace("test them with", "")
    assert main(["search", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["search"], listed["state"], listed["by_state"]) == ("mnist-resnet", "finished", {"finished": 2})
    assert main(["search", "resume", "mnist-resnet", "--trials", "3", "--device", "cpu", "--workers", "1"]) == 0
    assert "finished: 3 of 3 trials finished" in capsys.readouterr().out
    assert main(["search", "show", "mnist-resnet"]) == 0
    shown = capsys.readouterr().out
    assert "over learning_rate=log:0.01..1.0; held epochs=1, batch_size=512" in shown
    assert "(the defaults)" in shown
    assert "trials are not tested" in shown
    assert main(["search", "list"]) == 0
    assert "3 of 3 trials finished; best validation accuracy" in capsys.readouterr().out
    runs = list(RunStore(tmp_path / "runs"))
    assert [run.result() for run in runs] == [None] * 3
    assert main(["search", "delete", "mnist-resnet"]) == 0
    assert len(list(RunStore(tmp_path / "runs"))) == 3


@pytest.mark.parametrize(("words", "message"), [
    (["mnist", "--method", "ace", "--over", "learning_rate=log:0..1"], "a logarithmic range must start above 0"),
    (["mnist", "--method", "ace", "--over", "learning_rat=0..1"], "did you mean learning_rate?"),
    (["mnist", "--method", "resnet", "--over", "rtol=1e-4..1e-2"], "rtol does not apply to resnet in mnist"),
    (["mnist", "--over", "learning_rate=0.1,0.2"], "name a method with --method: resnet"),
    (["mnist", "--method", "ace"], "name the settings to search with --over"),
    (["nothing", "--method", "ace", "--over", "learning_rate=0.1,0.2"], "nothing"),
    (["mnist", "--method", "ace", "--over", "learning_rate=0.1,0.2", "--set", "learning_rate=1"],
     "learning_rate is searched and held equal"),
    (["mnist", "--method", "ace", "--over", "learning_rate=0.1,0.2", "--trials", "0"], "1 to 100000 trials, not 0"),
    (["mnist", "--method", "ace", "--over", "learning_rate=0.1,0.2", "--name", "a/b"], "cannot be the name"),
    (["mnist", "x", "--method", "ace"], "'x' is not expected here"),
    (["show"], "name the search: `acenode search show NAME`"), (["show", "nothing"], "there is no search 'nothing'"),
    (["stop", "nothing"], "there is no search 'nothing'"), (["list", "--over", "x"], "--over belongs to a new search"),
    (["show", "x", "--trials", "3"], "--trials belongs to a new search and to `search resume`"),
    (["resume", "x", "--seeds", "0-2"], "--seeds belongs to `search winner`"),
    *((["mnist", "--method", "ace", "--over", "learning_rate=0.1,0.2", "--name", name],
       f"a search cannot have the name {name!r}, which is an action: choose another name") for name in ACTIONS),
    (["winner", "nothing"], "there is no search 'nothing'")])
def test_a_mistake_is_one_line(words: list[str], message: str, tmp_path: Path,
                               capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs" / "searches").exists()


def test_a_missing_optuna_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["search", "mnist", "--method", "ace", "--over", "learning_rate=0.1,0.2"]) == 2
    assert capsys.readouterr().err == "acenode: a search needs Optuna: run `pip install 'acenode[search]'`\n"
    assert not (tmp_path / "runs").exists()


def test_only_a_running_search_is_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from search_launcher import a_search

    store = SearchStore(RunStore(tmp_path / "runs"))
    store.write(a_search())
    assert main(["search", "stop", "rates"]) == 2
    assert "rates is stopped: only a running search can be stopped" in capsys.readouterr().err
    store.write_status("rates", "running")
    assert main(["search", "stop", "rates"]) == 0
    assert store.stop("rates").exists()
    assert main(["search", "resume", "rates"]) == 2
    assert "rates is running already" in capsys.readouterr().err


def test_a_search_does_not_get_fewer_trials_than_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = SearchStore(RunStore(tmp_path / "runs"))
    synthetic_search(store, "many", 5)
    before = {path.name: path.read_bytes() for path in store.path("many").iterdir()}
    assert main(["search", "resume", "many", "--trials", "3"]) == 2
    assert capsys.readouterr().err == "acenode: many has 5 trials already: --trials must be larger\n"
    assert {path.name: path.read_bytes() for path in store.path("many").iterdir()} == before


def test_the_study_of_the_best_settings_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "run", lambda options: 0)  # trains nothing
    store = SearchStore(RunStore(tmp_path / "runs"))
    synthetic_search(store, "many", 30)
    assert main(["search", "show", "many"]) == 0
    assert "study" not in capsys.readouterr().out
    assert main(["search", "winner", "many", "--seeds", "0-1"]) == 0
    out = capsys.readouterr().out
    assert "study many-winner: the best settings of many and the defaults, seeds 0, 1\n" in out
    assert "see it with `acenode study show many-winner`" in out
    assert "so far" not in out
    assert main(["study", "show", "many-winner"]) == 0
    capsys.readouterr()
    assert main(["search", "show", "many"]) == 0
    assert "in the study many-winner: see `acenode study show many-winner`" in capsys.readouterr().out
    assert main(["search", "show", "many", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["winner"] == "many-winner"
    store.write_status("many", "running")
    assert main(["search", "winner", "many"]) == 0
    assert ("the search is running: these are the best settings so far (22 of 30 trials finished, 8 pruned)\n"
            in capsys.readouterr().out)


@pytest.mark.long
def test_a_killed_search_resumes_and_its_winner_is_tested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The process is killed in the middle of a trial; the same trials follow as in an unbroken search."""
    words = ["mnist", "--method", "resnet", *RATES, "--trials", "4", "--epochs", "3", "--set", "batch_size=256",
             "--pruner", "none"]
    store = SearchStore(RunStore(tmp_path / "runs"))
    command = [sys.executable, "-m", "acenode.cli", "search", *words, "--name", "killed", "--runs",
               str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:  # until the second trial has an epoch
        trials = SearchJournal(store.journal("killed"), store.read("killed").ranges).refresh() \
            if "killed" in store.names() else []
        if len(trials) > 1 and trials[1].run and store.runs.open(trials[1].run).metrics()[0]:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert store.status("killed").state == "interrupted"
    assert main(["search", "resume", "killed", "--device", "cpu", "--workers", "1"]) == 0
    assert main(["search", *words, "--name", "unbroken"]) == 0
    found = [SearchJournal(store.journal(name), store.read(name).ranges).refresh() for name in ("killed", "unbroken")]
    assert [(t.params, t.value, t.state) for t in found[0]] == [(t.params, t.value, t.state) for t in found[1]]
    assert len(list(store.runs)) == 8
    capsys.readouterr()
    if not max(found[0], key=lambda t: t.value or 0).default:
        assert main(["search", "winner", "killed", "--seeds", "0", "--device", "cpu", "--workers", "1"]) == 0
        assert "2 finished" in capsys.readouterr().out
