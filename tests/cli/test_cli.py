"""The command line: what it prints, and one line with exit code 2 for whatever a person can get wrong."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import command
from short_runs import same
from trained_sets import TINY, import_set

from acenode import experiments
from acenode.cli import main
from acenode.cli.common import TrainingBar
from acenode.execution.execute import create
from acenode.experiments import EXPERIMENTS
from acenode.export import export
from acenode.runs.store import RunStore

FAST = "--epochs 1 --set analysis=false --set batch_size=512 --set snapshots=2"


def started(*words: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "acenode.cli", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def test_train_prints_one_json_object_last() -> None:
    out = json.loads(command(f"train mnist --method odenet --seed 4 --json {FAST}").strip().splitlines()[-1])
    assert out["state"] == "finished"
    assert out["params"] == 20_818
    assert set(out) == {"run", "state", "metrics", "seconds", "params"}
    assert 0 <= out["metrics"]["accuracy"] <= 1
    shown = json.loads(command(f"show {out['run']} --json"))
    assert shown["config"]["seed"] == 4
    assert shown["result"]["test"]["accuracy"] == out["metrics"]["accuracy"]
    text = command("show last")
    assert out["run"] in text
    assert re.search(r"\n  engine +auto\n  trained by +\w+\n", text)
    assert re.search(rf"{out['run']} +finished +sample +4 +accuracy 0\.\d+ .*epochs=", command("list"))
    table = json.loads(command("table mnist --json"))
    assert any(r["data"] == "sample" and r["method"] == "odenet" for r in table)


def test_lists() -> None:
    assert [e["name"] for e in json.loads(command("experiments --json"))] == [
        "mnist", "svhn", "cifar10", "ushcn", "physionet", "physionet-vitals", "activity",
        "oscillators", "predator-prey", "la-speeds", "ny-speeds", "stocks", "liver", "air-quality"]
    settings = json.loads(command("settings --json"))
    assert {"attention", "penalty_weight", "solver"} <= {s["key"] for s in settings}
    assert [d["name"] for d in json.loads(command("data list --json"))] == [
        "mnist", "svhn", "cifar10", "physionet2012", "activity", "ushcn"]
    for words in ("experiments", *(f"methods {name}" for name in EXPERIMENTS), "settings", "data list"):
        assert command(words)


def test_a_fallback_from_the_graph_engine_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"train mnist --method odenet --device cpu --set engine=graph {FAST} --runs {tmp_path}"
    assert main(words.split()) == 0
    found = capsys.readouterr()
    assert re.search(r"finished in [\d.]+ s of training, \d+ s in all: test accuracy", found.out)
    first, *others = found.err.splitlines()  # before the epochs, not when all is over
    assert first == "graph engine not used: it needs a CUDA device; training without it"
    assert first not in others


@pytest.mark.long
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """Kill -9 after the first checkpoint inside an epoch, then resume: every number is the same."""
    config = experiments.get("mnist").configure("ace", epochs=2, analysis=False, snapshots=2, batch_size=64,
                                                solver="rk4", step_size=0.5, device="cpu")
    config = replace(config, settings={**config.settings, "checkpoint_seconds": 0.0})  # as version 0.1 could set it
    whole, killed = RunStore(tmp_path / "whole"), RunStore(tmp_path / "killed")
    create(whole, config)
    create(killed, config)
    beside = started("resume", "last", "--runs", str(whole.root))
    victim = started("resume", "last", "--runs", str(killed.root))
    while not list(killed.root.glob("*/checkpoints/last.pt")):
        assert victim.poll() is None, victim.communicate()[1]
        time.sleep(0.05)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    (run,) = killed
    assert run.status()["state"] == "interrupted"
    cut = run.metrics()[0]
    assert all(r["kind"] == "step" for r in cut)  # it was inside the first epoch
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"kind": "step", "st')  # what a crash can leave
    again = started("resume", run.id, "--runs", str(killed.root), "--json")
    out, err = again.communicate()
    assert json.loads(out)["state"] == "finished", err
    assert beside.wait() == 0
    (reference,) = whole
    assert same(run, reference)
    assert "resumed on cpu at epoch 0" in (run.path / "log.txt").read_text()


def test_a_run_of_another_device_can_be_resumed_here(tmp_path: Path) -> None:
    config = experiments.get("physionet").configure("rnn-dt", device="cuda:99", epochs=1)
    run = create(RunStore(tmp_path / "runs"), config, elsewhere=True)
    assert "use --device cpu" in command(f"resume {run.id}", 2)
    assert "leave it out with --on" in command(f"resume {run.id} --device cpu --on ray", 2)
    command(f"resume {run.id} --device cpu")
    assert "started on cpu" in (run.path / "log.txt").read_text()
    assert run.config().device == "cuda:99"


@pytest.mark.parametrize("how", ["interrupt", "stop command"])
def test_a_stopped_run_can_be_resumed(how: str, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    process = started("train", "mnist", "--method", "odenet", "--runs", str(root), "--set", "analysis=false")
    while not list(root.glob("*/metrics.jsonl")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    (run,) = RunStore(root)
    if how == "interrupt":
        process.send_signal(signal.SIGINT)
    else:
        command(f"stop {run.id}")
    _, err = process.communicate()
    assert process.returncode == 130
    assert f"acenode resume {run.id}" in err
    assert "Traceback" not in err
    assert run.status()["state"] == "stopped"
    assert (run.path / "checkpoints" / "last.pt").exists()
    command(f"stop {run.id}", 2)  # no longer running


def test_a_terminal_without_utf8_gets_replacements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "é😀").mkdir()
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert main(["list", "--runs", str(tmp_path)]) == 0
    sys.stdout.flush()
    assert b"??" in out.getvalue()


@pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("sklearn.manifold", "scikit-learn")])
def test_a_missing_package_is_one_line(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(options: object) -> int:
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)

    monkeypatch.setattr("acenode.cli.runs.list_runs", missing)
    assert f"is not installed: run `pip install {package}`" in command("list", 2)


def status(epoch: int, value: float | None) -> dict[str, Any]:
    return {"epoch": epoch, "epochs": 2, "metric": "accuracy", "validation": value, "best": value, "phase": "training",
            "seconds": 1.5 * epoch, "seconds_left": 3.0 - 1.5 * epoch, "progress": epoch / 2}


def test_seeds_that_train_together_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingBar("three", False, [[0, 1, 2]], together=True) as bar:
        bar.show(status(0, None), 1)
        for epoch, order in ((1, (1, 0, 2)), (2, (2, 1, 0))):
            for seed in order:
                bar.show(status(epoch, 0.25 + seed / 8), seed)
    found = capsys.readouterr()
    assert found.out == "three\n"
    assert found.err == ("epoch 1/2: validation accuracy 0.2500, 0.3750, 0.5000 (seeds 0, 1, 2), 1.5 s, 2 s left\n"
                         "epoch 2/2: validation accuracy 0.2500, 0.3750, 0.5000 (seeds 0, 1, 2), 3.0 s\n")


def test_an_imported_set_is_your_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("acenode.experiments.named_task.NamedTask.report", lambda _: {})  # takes longer than training
    import_set(tmp_path / "data", "wind")
    given = [f"--set={key}={value}" for key, value in TINY.items() if key not in ("epochs", "device")]
    assert "ace on wind (your data), seed 0" in command(
        f"train wind --method ace --epochs 1 --device cpu {' '.join(given)}")
    assert "  your data  " in command("list")
    assert json.loads(command("list --json"))[0]["data"] == "sample"  # scripts read it
    out = command("table wind")
    assert "On your data (Imported from mine.csv; cut into windows of 12 hours):" in out.splitlines()
    assert "sample (" not in out
    assert "your data: Imported from mine.csv" in command("experiments")
    (run,) = RunStore(tmp_path / "runs")
    report = export(run, "html", tmp_path / "report.html").read_text()
    assert "<title>ACE on wind (your data)" in report
    assert "Data: your data (Imported from mine.csv; cut into windows of 12 hours)." in report
    assert "Not comparable" not in report.split("<script")[0]
