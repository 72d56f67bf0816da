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
from trained_sets import TINY, import_set

from acenode import experiments
from acenode.cli import main
from acenode.cli.common import SeedsBar
from acenode.execution.execute import create
from acenode.experiments import EXPERIMENTS
from acenode.export import export
from acenode.runs.store import RunStore

FAST = ["--epochs", "1", "--set", "analysis=false", "--set", "batch_size=512", "--set", "snapshots=2"]


def acenode(*words: str, **kwargs: object) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "acenode.cli", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, **kwargs)  # type: ignore[call-overload]


def test_train_prints_one_json_object_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mnist", "--method", "odenet", "--seed", "4", "--json", *FAST]) == 0
    out = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert out["state"] == "finished"
    assert out["params"] == 20_818
    assert set(out) == {"run", "state", "metrics", "seconds", "params"}
    assert 0 <= out["metrics"]["accuracy"] <= 1
    assert main(["show", out["run"], "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["config"]["seed"] == 4
    assert shown["result"]["test"]["accuracy"] == out["metrics"]["accuracy"]
    assert main(["show", "last"]) == 0
    text = capsys.readouterr().out
    assert out["run"] in text
    assert re.search(r"\n  engine +auto\n  trained by +\w+\n", text)
    assert main(["list"]) == 0
    assert re.search(rf"{out['run']} +finished +sample +4 +accuracy 0\.\d+ .*epochs=", capsys.readouterr().out)
    assert main(["table", "mnist", "--json"]) == 0
    assert any(r["data"] == "sample" and r["method"] == "odenet" for r in json.loads(capsys.readouterr().out))


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", "--json"]) == 0
    assert [e["name"] for e in json.loads(capsys.readouterr().out)] == [
        "mnist", "svhn", "cifar10", "ushcn", "physionet", "physionet-vitals", "activity",
        "oscillators", "predator-prey", "la-speeds", "ny-speeds", "stocks", "liver", "air-quality"]
    assert main(["settings", "--json"]) == 0
    assert {"attention", "penalty_weight", "solver"} <= {s["key"] for s in json.loads(capsys.readouterr().out)}
    assert main(["data", "list", "--json"]) == 0
    assert [d["name"] for d in json.loads(capsys.readouterr().out)] == [
        "mnist", "svhn", "cifar10", "physionet2012", "activity", "ushcn"]
    for words in (["experiments"], *(["methods", name] for name in EXPERIMENTS), ["settings"], ["data", "list"]):
        assert main(words) == 0
        assert capsys.readouterr().out


def test_a_fallback_from_the_graph_engine_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "mnist", "--method", "odenet", "--device", "cpu", "--set", "engine=graph", *FAST]
    assert main([*words, "--runs", str(tmp_path)]) == 0
    found = capsys.readouterr()
    assert re.search(r"finished in [\d.]+ s of training, \d+ s in all: test accuracy", found.out)
    first, *others = found.err.splitlines()  # before the epochs, not when all is over
    assert first == "graph engine not used: it needs a CUDA device; training without it"
    assert first not in others


def without_clock(records: list[dict]) -> list[dict]:
    return [{k: v for k, v in r.items() if k not in ("seconds", "elapsed")} for r in records]


@pytest.mark.long
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """Kill -9 after the first checkpoint inside an epoch, then resume: every number is the same."""
    config = experiments.get("mnist").configure("ace", epochs=2, analysis=False, snapshots=2, batch_size=64,
                                                solver="rk4", step_size=0.5, device="cpu")
    config = replace(config, settings={**config.settings, "checkpoint_seconds": 0.0})  # as version 0.1 could set it
    whole, killed = RunStore(tmp_path / "whole"), RunStore(tmp_path / "killed")
    create(whole, config)
    create(killed, config)
    beside = acenode("resume", "last", "--runs", str(whole.root))
    victim = acenode("resume", "last", "--runs", str(killed.root))
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
    again = acenode("resume", run.id, "--runs", str(killed.root), "--json")
    out, err = again.communicate()
    assert json.loads(out)["state"] == "finished", err
    assert beside.wait() == 0
    (reference,) = whole
    assert without_clock(run.metrics()[0]) == without_clock(reference.metrics()[0])
    assert run.result()["test"] == reference.result()["test"]  # type: ignore[index]
    assert "resumed on cpu at epoch 0" in (run.path / "log.txt").read_text()


def test_a_run_of_another_device_can_be_resumed_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = experiments.get("physionet").configure("rnn-dt", device="cuda:99", epochs=1)
    run = create(RunStore(tmp_path / "runs"), config, elsewhere=True)
    again = ["resume", run.id, "--runs", str(tmp_path / "runs")]
    assert main(again) == 2
    assert "use --device cpu" in capsys.readouterr().err
    assert main([*again, "--device", "cpu", "--on", "ray"]) == 2
    assert "leave it out with --on" in capsys.readouterr().err
    assert main([*again, "--device", "cpu"]) == 0
    assert "started on cpu" in (run.path / "log.txt").read_text()
    assert run.config().device == "cuda:99"


@pytest.mark.parametrize("how", ["interrupt", "stop command"])
def test_a_stopped_run_can_be_resumed(how: str, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    process = acenode("train", "mnist", "--method", "odenet", "--runs", str(root), "--set", "analysis=false")
    while not list(root.glob("*/metrics.jsonl")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    (run,) = RunStore(root)
    if how == "interrupt":
        process.send_signal(signal.SIGINT)
    else:
        assert main(["stop", run.id, "--runs", str(root)]) == 0
    _, err = process.communicate()
    assert process.returncode == 130
    assert f"acenode resume {run.id}" in err
    assert "Traceback" not in err
    assert run.status()["state"] == "stopped"
    assert (run.path / "checkpoints" / "last.pt").exists()
    assert main(["stop", run.id, "--runs", str(root)]) == 2  # no longer running


# Terminals without UTF-8, missing packages ----------------------------------------------------------------------------


def test_a_terminal_without_utf8_gets_replacements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "é😀").mkdir()
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert main(["list", "--runs", str(tmp_path)]) == 0
    sys.stdout.flush()
    assert b"??" in out.getvalue()


@pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("sklearn.manifold", "scikit-learn")])
def test_a_missing_package_is_one_line(module: str, package: str, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    def missing(options: object) -> int:
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)

    monkeypatch.setattr("acenode.cli.runs.list_runs", missing)
    assert main(["list"]) == 2
    assert f"is not installed: run `pip install {package}`" in capsys.readouterr().err


# Progress of `acenode train --seeds` ----------------------------------------------------------------------------------


def status(epoch: int, value: float | None) -> dict[str, Any]:
    return {"epoch": epoch, "epochs": 2, "metric": "accuracy", "validation": value, "best": value, "phase": "training",
            "seconds": 1.5 * epoch, "seconds_left": 3.0 - 1.5 * epoch, "progress": epoch / 2}


def test_seeds_that_train_together_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with SeedsBar("three", False, [[0, 1, 2]], together=True) as bar:
        bar.show_seed(1, status(0, None))
        for epoch, order in ((1, (1, 0, 2)), (2, (2, 1, 0))):
            for seed in order:
                bar.show_seed(seed, status(epoch, 0.25 + seed / 8))
    found = capsys.readouterr()
    assert found.out == "three\n"
    assert found.err == ("epoch 1/2: validation accuracy 0.2500, 0.3750, 0.5000 (seeds 0, 1, 2), 1.5 s, 2 s left\n"
                         "epoch 2/2: validation accuracy 0.2500, 0.3750, 0.5000 (seeds 0, 1, 2), 3.0 s\n")


# What commands call a user's own set ----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ACENODE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("ACENODE_RECORDED", "")
    monkeypatch.setattr("acenode.experiments.named_task.NamedTask.report", lambda _: {})  # takes longer than training
    import_set(tmp_path / "data", "wind")
    return tmp_path


def test_an_imported_set_is_your_data(folder: Path, capsys: pytest.CaptureFixture) -> None:
    given = [f"--set={key}={value}" for key, value in TINY.items() if key not in ("epochs", "device")]
    assert main(["train", "wind", "--method", "ace", "--epochs", "1", "--device", "cpu", *given]) == 0
    printed = capsys.readouterr()
    assert "ace on wind (your data), seed 0" in printed.out + printed.err
    assert main(["list"]) == 0
    assert "  your data  " in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["data"] == "sample"  # scripts read it
    assert main(["table", "wind"]) == 0
    out = capsys.readouterr().out
    assert "On your data (Imported from mine.csv; cut into windows of 12 hours):" in out.splitlines()
    assert "sample (" not in out
    assert main(["experiments"]) == 0
    assert "your data: Imported from mine.csv" in capsys.readouterr().out
    (run,) = RunStore(folder / "runs")
    report = export(run, "html", folder / "report.html").read_text()
    assert "<title>ACE on wind (your data)" in report
    assert "Data: your data (Imported from mine.csv; cut into windows of 12 hours)." in report
    assert "Not comparable" not in report.split("<script")[0]
