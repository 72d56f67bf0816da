"""`acenode study`: make, list, train, show and delete, and mistakes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acenode.cli import main, training
from acenode.execution import estimate
from acenode.runs.questions import StudyStore
from acenode.runs.store import RunStore

TINY = ["--epochs", "1", "--set", "batch_size=512", "--set", "snapshots=2", "--set", "analysis=false"]


@pytest.fixture(autouse=True)
def _no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_time", lambda *given: {})


def stored(tmp_path: Path) -> StudyStore:
    return StudyStore(RunStore(tmp_path / "runs"))


def test_a_study_is_made_trained_shown_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "new", "nets", "mnist", "--vary", "method=resnet,odenet", "--seeds", "0", "--set",
                 "rtol=0.1", *TINY]) == 0
    made = capsys.readouterr().out
    assert "nets: ResNet / ODE-Net, 1 runs each" in made
    assert "0 of 2 runs are finished already; left: 2 runs" in made
    assert main(["study", "run", "nets", "--device", "cpu", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "finished  ResNet, seed 0 (mnist-resnet-" in out
    assert "ODE-Net against ResNet: cannot be told with 1 seed: at least 2 more are needed" in out
    assert main(["study", "run", "nets", "--json"]) == 0  # nothing is trained twice
    assert json.loads(capsys.readouterr().out)["finished"] == []
    assert main(["study", "show", "nets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split()[:4] == ["Group", "Parameters", "seed", "0"]
    assert any(line.startswith("majority class") and "10.03" in line for line in lines)
    assert main(["study", "show", "nets", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [cell["state"] for group in found["groups"] for cell in group["cells"]] == ["finished", "finished"]
    assert found["best"] is None
    assert main(["study", "list", "--json"]) == 0
    assert [(x["study"], x["finished"], x["runs"]) for x in json.loads(capsys.readouterr().out)] == [("nets", 2, 2)]
    assert main(["study", "delete", "nets"]) == 0
    assert len(list(RunStore(tmp_path / "runs"))) == 2


def test_an_interrupted_study_trains_nothing_more_and_can_be_continued(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def at_once() -> Iterator[threading.Event]:
        stop = threading.Event()
        stop.set()
        yield stop

    monkeypatch.setattr(training, "stop_on_interrupt", at_once)
    main(["study", "new", "nets", "mnist", "--vary", "method=resnet,odenet", *TINY])
    assert main(["study", "run", "nets", "--device", "cpu"]) == 130
    assert "6 not started" in capsys.readouterr().out


def test_presets_are_listed_and_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "presets", "ushcn"]) == 0
    assert "evolving attention / fixed attention / no attention, 3 seeds" in capsys.readouterr().out
    assert main(["study", "new", "mine", "ushcn", "--preset", "attention", "--data", "full", "--seeds", "0,1",
                 "--folds", "2-3", "--metric", "negll"]) == 0
    study = stored(tmp_path).read("mine")
    assert (study.repeats, study.metric) == (((0, 2), (1, 2), (0, 3), (1, 3)), "negll")


def test_groups_are_combinations_or_given_one_by_one(tmp_path: Path) -> None:
    assert main(["study", "new", "grid", "mnist", "--vary", "attention=evolving,fixed", "--vary", "size=small,large",
                 "--baseline", "large size", "--json"]) == 2
    assert main(["study", "new", "grid", "mnist", "--vary", "attention=evolving,fixed", "--vary", "size=small,large",
                 "--baseline", "fixed attention, large size", "--json"]) == 0
    study = stored(tmp_path).read("grid")
    assert [dict(group.settings) for group in study.groups] == [
        {"attention": a, "size": s} for a in ("evolving", "fixed") for s in ("small", "large")]
    assert study.baseline == 3
    assert main(["study", "new", "two", "mnist", "--group", "ace attention=fixed", "--group", "odenet", "--baseline",
                 "2", "--json"]) == 0
    assert [group.method for group in stored(tmp_path).read("two").groups] == ["ace", "odenet"]


def test_an_equal_study_is_made_from_one_that_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["study", "new", "plain", "mnist", "--vary", "attention=evolving,fixed"])
    out = capsys.readouterr().out
    assert "not equal: initial differs too" in out
    assert "make the equal study with `acenode study new plain-equal --from plain --equal`" in out
    assert main(["study", "new", "plain-equal", "--from", "plain", "--equal"]) == 0
    assert stored(tmp_path).read("plain-equal").held == {"initial": "conv"}


@pytest.mark.parametrize(("arguments", "message"), [
    (["new", "x"], "name an experiment"),
    (["new", "x", "mnist"], "a study compares 2 to"),
    (["new", "x", "mnist", "--vary", "attention=fixed"], "--vary takes KEY=VALUE,VALUE"),
    (["new", "x", "mnist", "--preset", "sizes"], "has no preset 'sizes'"),
    (["new", "x", "mnist", "--preset", "size", "--vary", "size=small,large"], "exclude each other"),
    (["new", "x", "mnist", "--preset", "size", "--equal"], "name it with --from"),
    (["new", "x", "--from", "y"], "there is no study 'y'"),
    (["new", "a/b", "mnist", "--preset", "size"], "cannot be the name of a study"),
    (["show", "x"], "there is no study 'x'"),
    (["run", "x", "--workers", "0"], "--workers must be at least 1"),
    (["delete", "x"], "there is no study 'x'"),
])
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
