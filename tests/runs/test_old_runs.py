"""Run directories written by version 0.1 are listed, shown, compared and resumed as that version did it.

written_by_0.1.tar.xz holds eight small runs on the sample data, seed 1, one CPU thread. To keep it small the snapshots
of the images, the checkpoints of the PhysioNet run (which therefore starts again) and `last.pt` of finished runs were
left out. written_by_0.1.json holds what version 0.1 printed of them, and the test metrics it reached by resuming them.
"""

from __future__ import annotations

import json
import platform
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from acenode import experiments
from acenode.cli import main
from acenode.config import Config
from acenode.execution.execute import execute
from acenode.runs.store import Run, RunStore

HERE = Path(__file__).parent
KNOWN: dict[str, Any] = json.loads((HERE / "written_by_0.1.json").read_text())
STOPPED = [name for name, known in KNOWN["runs"].items() if known["list"]["state"] == "stopped"]


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    with tarfile.open(HERE / "written_by_0.1.tar.xz") as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
        archive.extractall(tmp_path / "runs", **safely)
    return RunStore(tmp_path / "runs")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def tolerance(run: Run) -> float:
    """Equal on the machine that wrote the runs; elsewhere rounding differs."""
    environment = run.description()["environment"]
    same = environment["versions"]["torch"] == torch.__version__ and environment["platform"] == platform.platform()
    return 1e-6 if same else 5e-2


def test_configurations_round_trip_unchanged(store: RunStore) -> None:
    for run in store:
        written = run.description()["config"]
        assert list(run.config().to_dict().items()) == list(written.items())
        assert Config.from_dict(run.config().to_dict()) == run.config()


def test_list_shows_the_same(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {line.pop("run"): line for line in printed(capsys, "list")}
    assert {name: {k: v for k, v in line.items() if k != "created"} for name, line in shown.items()} == {
        name: known["list"] for name, known in KNOWN["runs"].items()}


def test_show_reads_every_run(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    for run in store:
        shown = printed(capsys, "show", run.id)
        assert shown["config"] == run.description()["config"]
        assert shown["params"] == experiments.get(shown["config"]["experiment"]).count(run.config())


@pytest.mark.parametrize("experiment", KNOWN["tables"])
def test_table_measures_the_same(store: RunStore, experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    measured = [row for row in printed(capsys, "table", experiment) if row["data"] == "sample"]
    assert measured == KNOWN["tables"][experiment]


@pytest.mark.parametrize("name", STOPPED, ids=lambda name: name.rsplit("-", 3)[0])
def test_stopped_runs_resume_to_the_same_metrics(store: RunStore, name: str, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        outcome = execute(store.open(name), tmp_path / "data")
    finally:
        torch.set_num_threads(threads)
    assert outcome.state == "finished", outcome.error
    assert outcome.metrics == pytest.approx(KNOWN["runs"][name]["test"], rel=tolerance(outcome.run))
