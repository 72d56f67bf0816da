"""`acenode reproduce`: the list of cells, its JSON, training a plan, and mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import command
from quick_settings import QUICK

from acenode import experiments
from acenode.cli import main
from acenode.compare.cells import terminal_legend
from acenode.compare.paper import CELLS
from acenode.compare.reproduction import PlannedRun
from acenode.files import write_json
from acenode.runs.store import RunStore


def finished(store: RunStore, experiment: str, method: str, values: dict[str, float], device: str = "cpu (x86_64)",
             **given: Any) -> None:
    config = experiments.get(experiment).configure(method, "full", **given)
    run = store.create(config, {"params": 1, "environment": {"device": device}})
    write_json(run.path / "result.json", {"test": values, "metric": experiments.get(experiment).metric.name})
    run.set_state("finished", seconds=400.0, epochs=config.get("epochs"))


def test_every_cell_is_listed_with_what_is_measured_and_missing(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    for fold in range(2):
        finished(store, "ushcn", "ace", {"mse": 0.4 + 0.2 * fold, "negll": 0.95}, fold=fold, seed=fold)
    lines = command("reproduce --list --device cpu").splitlines()
    assert len(lines[1:lines.index("")]) == 79
    line = next(x for x in lines if "ACE-GRU-ODE-Bayes " in x and "MSE" in x)
    for part in ("ushcn", "0.38 ± 0.03", "0.500 ± 0.141", "  2  ", "120", "20 min"):  # three folds of 400 s are missing
        assert part in line
    assert any("2 of 79 cells measured" in x for x in lines)
    assert "the data of svhn is missing: acenode data get svhn" in lines
    assert any(x.startswith("first seeds of the main methods: ") for x in lines)
    assert lines[-1] == terminal_legend()
    shown = {"within", "better", "worse", "single", "partial", "missing"}
    assert all(f" {name}: " in lines[-1] for name in shown)


def test_a_time_that_is_unknown_here_is_that_of_the_recorded_runs(tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACENODE_RECORDED", str(tmp_path / "paper"))
    recorded = RunStore(tmp_path / "paper")
    for experiment, method in (("svhn", "ace"), ("mnist", "resnet")):
        finished(recorded, experiment, method, {"accuracy": 0.99}, "NVIDIA H200", seed=0)
    finished(RunStore(tmp_path / "runs"), "mnist", "resnet", {"accuracy": 0.99}, seed=1)
    lines = command("reproduce mnist svhn size --list --device cpu").splitlines()
    assert not any("time unknown" in line for line in lines)
    resnet, ace, never = (next(line for line in lines if line.split()[:3] == words) for words in (
        ["mnist", "mnist", "ResNet"], ["svhn", "svhn", "ACE-ODE-Net"], ["size", "svhn", "ACE-ODE-Net"]))
    assert resnet.endswith("  5 min")  # measured here: three runs of 40 epochs, where 160 took 400 s
    assert ace.endswith(" on NVIDIA H200")
    assert never.endswith(" 3")  # no run of this size is recorded: no time
    assert any(line.startswith("a time that names no device is for this processor, and is known") for line in lines)


def test_the_list_as_json_has_configurations_to_train(tmp_path: Path) -> None:
    finished(RunStore(tmp_path / "runs"), "mnist", "ace", {"accuracy": 0.9968}, seed=0, epochs=40)
    found = json.loads(command("reproduce mnist --list --json --seeds 2"))
    cell = next(c for c in found["cells"] if c["key"] == "mnist/ace/accuracy")
    assert (cell["mean"], cell["n"], cell["mark"], cell["missing"]) == (pytest.approx(99.68), 1, "single", 1)
    assert found["totals"] | {"device": "", "seconds": 0, "unknown": 0} == {
        "cells": 5, "measured": 1, "missing": 9, "seconds": 0, "unknown": 0, "device": ""}
    assert [run["rank"] for run in found["queue"]] == list(range(9))
    for run in found["queue"]:
        config = run["config"]
        given = {k: config[k] for k in ("seed", "epochs", "device")}
        again = experiments.get("mnist").configure(config["method"], config["data"], **given)
        assert again.to_dict() == config
    assert found["missing_data"] == {"mnist": "acenode data get mnist"}


def test_the_list_does_not_import_torch(tmp_path: Path) -> None:
    program = ("import sys; from acenode.cli import main; main(['reproduce', '--list']); "
               "sys.exit(any(name in sys.modules for name in ('torch', 'pandas')))")
    environment = os.environ | {"ACENODE_RUNS": str(tmp_path), "ACENODE_DATA": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "of 79 cells measured" in found.stdout


def test_a_plan_is_trained_and_cells_without_data_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = CELLS["mnist/resnet/accuracy"]
    config = experiments.get("mnist").configure("resnet", device="cpu", **QUICK)
    monkeypatch.setattr("acenode.cli.reproduce.queue", lambda *args: [PlannedRun(config, (cell,), 0)])
    monkeypatch.setattr("acenode.cli.reproduce.missing_data", lambda cells, root: {"svhn": "acenode data get svhn"})
    out = command("reproduce --device cpu --workers 1 --minutes 5")
    (run,) = RunStore(tmp_path / "runs")
    assert "svhn is skipped, its data is missing: acenode data get svhn" in out
    assert f"started   mnist resnet seed 0 ({run.id}), 1 epochs" in out
    assert f"finished  mnist resnet seed 0 ({run.id}): accuracy " in out
    assert out.strip().endswith("1 finished")
    assert run.status()["state"] == "finished"


def test_nothing_is_trained_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "empty"))
    assert main(["reproduce", "mnist", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["left"] == 0
    assert "acenode data get mnist" in captured.err
    assert main(["reproduce", "mnist"]) == 2
    captured = capsys.readouterr()
    assert "acenode data get mnist" in captured.out
    assert "nothing to train without data" in captured.err
    assert not (tmp_path / "runs").exists()


def test_help_needs_no_library() -> None:
    program = "import sys, acenode.cli.parser; sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
