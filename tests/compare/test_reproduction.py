"""The plan of missing runs: what is selected, in which order, how long it takes, and what data is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalogue_entries import full

from acenode import experiments
from acenode.compare.paper import CELLS
from acenode.compare.reproduction import (
    WORTH,
    PlannedRun,
    Wanted,
    cell_plans,
    measured_seconds,
    missing_data,
    partial_data,
    queue,
    recorded_gpu,
    select,
    time_of,
)
from acenode.runs.catalogue import Entry


def planned(entries: list[Entry], names: list[str], wanted: Wanted | None = None, **more: Any) -> list[PlannedRun]:
    wanted = wanted or Wanted()
    return queue(cell_plans(select(names), entries, wanted), entries, wanted, **more)


def test_tables_and_cells_are_selected_by_name() -> None:
    assert len(select([])) == 79
    assert len(select(["ushcn", "ushcn/ace/mse"])) == 18
    assert select(["size"])[0] == CELLS["cifar10/ace/accuracy"]


def test_main_methods_come_first_by_seed_then_the_rest_then_ablations() -> None:
    runs = planned([], [])
    order = [run.worth for run in runs]
    assert order == sorted(order)
    assert set(order) == set(range(7))
    for cell, seed, worth in ((run.cells[0], run.config.seed, run.worth) for run in runs if len(run.cells) == 1):
        assert worth == (min(seed, 2) if cell.main else (3 if seed == 0 else 5) + cell.ablation)
    assert sum(run.worth == 0 for run in runs) == 24  # eight columns of tables, three methods each
    assert len({run.config for run in runs}) == len(runs)
    shared = planned([], ["ushcn/ace/mse", "ushcn/ace/negll", "cifar10/ace/accuracy", "cifar10/ace/silhouette"])
    assert len(shared) == 5 + 3  # a run serves all cells of its configuration
    assert [c.metric for c in shared[0].cells] in (["mse", "negll"], ["accuracy", "silhouette"])


def test_what_is_measured_is_not_planned_and_longer_runs_come_last() -> None:
    done = [full(method="odenet", seed=i, epochs=40) for i in range(3)]
    assert planned(done, ["mnist/odenet/accuracy"]) == []
    more = planned(done, ["mnist/odenet/accuracy"], Wanted(seeds=4))
    assert [(r.config.seed, WORTH[r.worth]) for r in more] == [(3, "more than three seeds")]
    longer = planned(done, ["mnist"], Wanted(seeds=1, epochs=160))
    assert [(r.config.method, WORTH[r.worth]) for r in longer][-1] == ("odenet", "longer runs of measured cells")
    assert {r.config.get("epochs") for r in longer} == {160}
    parts = [replace(full(experiment="activity", seed=i), partial=True) for i in range(3)]
    runs = planned(parts, ["activity/ace/accuracy"])  # a part of the data does not measure a cell of complete data
    assert (len(runs), WORTH[runs[0].worth]) == (3, "first seeds of the main methods")


def test_runs_of_equal_worth_are_ordered_by_what_is_left_with_partial_data_last() -> None:
    half = replace(full(epochs=40), state="stopped", test={}, value=None, progress=0.75)
    runs = planned([half], ["mnist"], Wanted(seeds=1), seconds=lambda config: 100.0)
    assert (runs[0].resumes, runs[0].seconds) == (half.id, pytest.approx(25))
    assert [r.resumes for r in runs[1:]] == [None] * 4
    times = {"odenet": 30.0, "augmented": 20.0, "ace": None}
    runs = planned([], ["mnist", "activity"], Wanted(seeds=1), partial=frozenset({"activity"}),
                   seconds=lambda config: times.get(config.method))
    assert [(r.config.experiment, r.config.method) for r in runs[:4]] == [
        ("mnist", "augmented"), ("mnist", "odenet"), ("mnist", "ace"), ("activity", "augmented")]
    runs = planned([], ["ushcn/ace/mse"], Wanted(preset="printed", device="cpu"))
    assert {(r.config.device, r.config.get("learning_rate"), r.config.get("epochs")) for r in runs} == {
        ("cpu", 1e-4, 300)}
    assert [r.title for r in runs] == [f"ushcn ace fold {i}" for i in range(5)]


def test_missing_and_partial_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = select(["mnist", "physionet", "physionet-vitals"])
    assert missing_data(cells, tmp_path) == {
        "mnist": "acenode data get mnist", "physionet": "acenode data get physionet2012",
        "physionet-vitals": "acenode data get physionet2012"}
    (tmp_path / "mnist.npz").touch()
    assert "mnist" not in missing_data(cells, tmp_path)
    part = replace(full(experiment="activity"), partial=True)
    assert partial_data([full()], tmp_path) == frozenset()
    assert partial_data([part], tmp_path) == {"activity"}  # there is no data
    complete = replace(experiments.get("activity"), is_complete=lambda root: True)
    monkeypatch.setitem(experiments.EXPERIMENTS, "activity", complete)
    assert partial_data([part], tmp_path) == frozenset()


def test_times_are_those_of_the_most_similar_runs_on_such_a_device() -> None:
    gpu = replace(full(), recorded=True, device="NVIDIA H200", seconds=100.0, epochs=20, epoch=20, other_seconds=10.0)
    config = CELLS["mnist/ace/accuracy"].config(0, 40)
    for device, title, seconds in (("cuda", None, 210), ("cuda", "NVIDIA H200", 210), ("cuda", "NVIDIA T4", None),
                                   ("cpu", None, None)):
        assert measured_seconds([gpu], device, title)(config) == seconds
    own = replace(gpu, recorded=False, device="cpu (x86_64)")
    assert measured_seconds([own], "cpu")(config) == pytest.approx(210)
    for other in ("mnist/odenet/accuracy", "mnist/ace/large/accuracy"):
        assert measured_seconds([own], "cpu")(CELLS[other].config()) is None
    assert (recorded_gpu([gpu, own]), recorded_gpu([own])) == ("NVIDIA H200", "")
    timed = [replace(full(**given), seconds=seconds, epochs=10)
             for seconds, given in ((10.0, {}), (30.0, {}), (500.0, {"batch_size": 64}))]
    found = time_of(CELLS["mnist/ace/accuracy"].config(), timed)
    assert (found.epoch, found.runs) == (2.0, 2)
    assert time_of(config, []) is None
