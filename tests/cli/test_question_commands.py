"""`acenode study` and `acenode search`: make, list, show, train, continue, stop and delete."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import command
from search_launcher import a_search

from acenode.bench.synthetic import synthetic_search
from acenode.cli import study, training
from acenode.execution import estimate
from acenode.runs.questions import SearchStore, StudyStore
from acenode.runs.store import RunStore
from acenode.search.journal import SearchJournal

TINY = "--epochs 1 --set batch_size=512 --set snapshots=2 --set analysis=false"
RATES = "--over learning_rate=log:1e-2..1 --device cpu --workers 1"


@pytest.fixture(autouse=True)
def _no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_time", lambda *given: {})


@pytest.fixture
def store(tmp_path: Path) -> SearchStore:
    return SearchStore(RunStore(tmp_path / "runs"))


@pytest.fixture
def studies(tmp_path: Path) -> StudyStore:
    return StudyStore(RunStore(tmp_path / "runs"))


def test_a_study_is_made_trained_shown_and_deleted(tmp_path: Path) -> None:
    made = command(f"study new nets mnist --vary method=resnet,odenet --seeds 0 --set rtol=0.1 {TINY}")
    assert "nets: ResNet / ODE-Net, 1 runs each" in made
    assert "0 of 2 runs are finished already; left: 2 runs" in made
    out = command("study run nets --device cpu --workers 1")
    assert "finished  ResNet, seed 0 (mnist-resnet-" in out
    assert "ODE-Net against ResNet: cannot be told with 1 seed: at least 2 more are needed" in out
    assert json.loads(command("study run nets --json"))["finished"] == []  # nothing is trained twice
    lines = command("study show nets").splitlines()
    assert lines[3].split()[:4] == ["Group", "Parameters", "seed", "0"]
    assert any(line.startswith("majority class") and "10.03" in line for line in lines)
    found = json.loads(command("study show nets --json"))
    assert [cell["state"] for group in found["groups"] for cell in group["cells"]] == ["finished", "finished"]
    assert found["best"] is None
    listed = json.loads(command("study list --json"))
    assert [(x["study"], x["finished"], x["runs"]) for x in listed] == [("nets", 2, 2)]
    command("study delete nets")
    assert len(list(RunStore(tmp_path / "runs"))) == 2


def test_an_interrupted_study_trains_nothing_more_and_can_be_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def at_once() -> Iterator[threading.Event]:
        stop = threading.Event()
        stop.set()
        yield stop

    monkeypatch.setattr(training, "stop_on_interrupt", at_once)
    command(f"study new nets mnist --vary method=resnet,odenet {TINY}")
    assert "6 not started" in command("study run nets --device cpu", 130)


def test_presets_are_listed_and_made(studies: StudyStore) -> None:
    assert "evolving attention / fixed attention / no attention, 3 seeds" in command("study presets ushcn")
    command("study new mine ushcn --preset attention --data full --seeds 0,1 --folds 2-3 --metric negll")
    study = studies.read("mine")
    assert (study.repeats, study.metric) == (((0, 2), (1, 2), (0, 3), (1, 3)), "negll")


def test_groups_are_combinations_or_given_one_by_one(studies: StudyStore) -> None:
    grid = "study new grid mnist --vary attention=evolving,fixed --vary size=small,large --json --baseline"
    command(f"{grid} 'large size'", 2)
    command(f"{grid} 'fixed attention, large size'")
    study = studies.read("grid")
    assert [dict(group.settings) for group in study.groups] == [
        {"attention": a, "size": s} for a in ("evolving", "fixed") for s in ("small", "large")]
    assert study.baseline == 3
    command("study new two mnist --group 'ace attention=fixed' --group odenet --baseline 2 --json")
    assert [group.method for group in studies.read("two").groups] == ["ace", "odenet"]


def test_an_equal_study_is_made_from_one_that_is_not(studies: StudyStore) -> None:
    out = command("study new plain mnist --vary attention=evolving,fixed")
    assert "not equal: initial differs too" in out
    assert "make the equal study with `acenode study new plain-equal --from plain --equal`" in out
    command("study new plain-equal --from plain --equal")
    assert studies.read("plain-equal").held == {"initial": "conv"}


def test_a_search_is_conducted_listed_shown_continued_and_deleted(tmp_path: Path, few_digits: None) -> None:
    out = command(f"search mnist --method resnet {RATES} --trials 2 --pruner none {TINY}")
    assert "mnist-resnet: 2 trials of resnet on mnist, 1 at a time" in out
    assert "trial 0   learning_rate=0.15: validation accuracy " in out
    assert "finished: 2 of 2 trials finished" in out
    assert "test" not in out.replace("test them with", "")
    (listed,) = json.loads(command("search list --json"))
    assert (listed["search"], listed["state"], listed["by_state"]) == ("mnist-resnet", "finished", {"finished": 2})
    out = command("search resume mnist-resnet --trials 3 --device cpu --workers 1")
    assert "finished: 3 of 3 trials finished" in out
    shown = command("search show mnist-resnet")
    assert "over learning_rate=log:0.01..1.0; held epochs=1, batch_size=512" in shown
    assert "(the defaults)" in shown
    assert "trials are not tested" in shown
    assert "3 of 3 trials finished; best validation accuracy" in command("search list")
    assert [run.result() for run in RunStore(tmp_path / "runs")] == [None] * 3
    command("search delete mnist-resnet")
    assert len(list(RunStore(tmp_path / "runs"))) == 3


def test_a_missing_optuna_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert command("search mnist --method ace --over learning_rate=0.1,0.2", 2) == (
        "acenode: a search needs Optuna: run `pip install 'acenode[search]'`\n")
    assert not (tmp_path / "runs").exists()


def test_only_a_running_search_is_stopped(store: SearchStore) -> None:
    store.write(a_search())
    assert "rates is stopped: only a running search can be stopped" in command("search stop rates", 2)
    store.write_status("rates", "running")
    command("search stop rates")
    assert store.stop("rates").exists()
    assert "rates is running already" in command("search resume rates", 2)


def test_a_search_does_not_get_fewer_trials_than_it_has(store: SearchStore) -> None:
    synthetic_search(store, "many", 5)
    before = {path.name: path.read_bytes() for path in store.path("many").iterdir()}
    assert command("search resume many --trials 3", 2) == (
        "acenode: many has 5 trials already: --trials must be larger\n")
    assert {path.name: path.read_bytes() for path in store.path("many").iterdir()} == before


def test_the_study_of_the_best_settings_is_named(store: SearchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "run", lambda options: 0)  # trains nothing
    synthetic_search(store, "many", 30)
    assert "study" not in command("search show many")
    out = command("search winner many --seeds 0-1")
    assert "study many-winner: the best settings of many and the defaults, seeds 0, 1\n" in out
    assert "see it with `acenode study show many-winner`" in out
    assert "so far" not in out
    command("study show many-winner")
    assert "in the study many-winner: see `acenode study show many-winner`" in command("search show many")
    assert json.loads(command("search show many --json"))["winner"] == "many-winner"
    store.write_status("many", "running")
    assert ("the search is running: these are the best settings so far (22 of 30 trials finished, 8 pruned)\n"
            in command("search winner many"))


@pytest.mark.long
def test_a_killed_search_resumes_and_its_winner_is_tested(store: SearchStore, tmp_path: Path) -> None:
    """The process is killed in the middle of a trial; the same trials follow as in an unbroken search."""
    line = f"search mnist --method resnet {RATES} --trials 4 --epochs 3 --set batch_size=256 --pruner none --name"
    process = subprocess.Popen(
        [sys.executable, "-m", "acenode.cli", *line.split(), "killed", "--runs", str(tmp_path / "runs")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    command("search resume killed --device cpu --workers 1")
    command(f"{line} unbroken")
    found = [SearchJournal(store.journal(name), store.read(name).ranges).refresh() for name in ("killed", "unbroken")]
    assert [(t.params, t.value, t.state) for t in found[0]] == [(t.params, t.value, t.state) for t in found[1]]
    assert len(list(store.runs)) == 8
    if not max(found[0], key=lambda t: t.value or 0).default:
        assert "2 finished" in command("search winner killed --seeds 0 --device cpu --workers 1")
