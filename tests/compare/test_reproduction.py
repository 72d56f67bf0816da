"""The plan of missing runs: what is selected, in which order, how long it takes, and what data is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalogue_entries import entry

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
    select,
    time_of,
)
from acenode.config import Config
from acenode.errors import UserError
from acenode.runs.catalogue import Entry


def full(experiment: str, method: str, metric: str, **given: Any) -> Entry:
    found = entry(method, 0.5, experiment=experiment, data="full", **given)
    return replace(found, metric=metric, test={metric: 0.5})


def planned(entries: list[Entry], names: list[str], wanted: Wanted | None = None, **more: Any) -> list[PlannedRun]:
    wanted = wanted or Wanted()
    return queue(cell_plans(select(names), entries, wanted), entries, wanted, **more)


def test_tables_and_cells_are_selected_by_name() -> None:
    assert len(select([])) == 79
    assert len(select(["ushcn", "ushcn/ace/mse"])) == 18
    assert select(["size"])[0] is CELLS["cifar10/ace/accuracy"]
    with pytest.raises(UserError, match="no table 'imagenet': choose one of mnist, svhn"):
        select(["imagenet"])


def test_main_methods_come_first_by_seed_then_the_rest_then_ablations() -> None:
    runs = planned([], [])
    order = [run.worth for run in runs]
    assert order == sorted(order)
    kinds = [(run.cells[0].main, run.cells[0].ablation, run.config.seed) for run in runs]
    assert all(kind == (True, False, 0) for kind in kinds[:21])  # seven columns of tables, three methods each
    first_rest = kinds.index((False, False, 0))
    assert all(main for main, _, _ in kinds[:first_rest])
    assert {kind[2] for kind in kinds[:first_rest]} == {0, 1, 2, 3, 4}
    last_first_seed = max(i for i, (_, _, seed) in enumerate(kinds) if seed == 0)
    assert all(seed > 0 for main, _, seed in kinds[last_first_seed + 1:] if not main)
    assert len({run.config for run in runs}) == len(runs)


def test_a_run_serves_all_cells_of_its_configuration() -> None:
    runs = planned([], ["ushcn/ace/mse", "ushcn/ace/negll", "cifar10/ace/accuracy", "cifar10/ace/silhouette"])
    assert len(runs) == 5 + 3
    assert [c.metric for c in runs[0].cells] in (["mse", "negll"], ["accuracy", "silhouette"])


def test_what_is_measured_is_not_planned_and_longer_runs_come_last() -> None:
    done = [full("mnist", "odenet", "accuracy", seed=i, epochs=40) for i in range(3)]
    assert planned(done, ["mnist/odenet/accuracy"]) == []
    more = planned(done, ["mnist/odenet/accuracy"], Wanted(seeds=4))
    assert [(r.config.seed, WORTH[r.worth]) for r in more] == [(3, "more than three seeds")]
    longer = planned(done, ["mnist"], Wanted(seeds=1, epochs=160))
    assert [(r.config.method, WORTH[r.worth]) for r in longer][-1] == ("odenet", "longer runs of measured cells")
    assert {r.config.get("epochs") for r in longer} == {160}


def test_runs_on_a_part_of_the_data_do_not_measure_a_cell_of_complete_data() -> None:
    parts = [replace(full("activity", "ace", "accuracy", seed=i), partial=True) for i in range(3)]
    runs = planned(parts, ["activity/ace/accuracy"])
    assert WORTH[runs[0].worth] == "first seeds of the main methods"
    assert len(runs) == 3


def test_an_unfinished_run_is_continued_and_comes_first() -> None:
    half = replace(full("mnist", "ace", "accuracy", epochs=40), state="stopped", test={}, value=None,
                               progress=0.75)
    runs = planned([half], ["mnist"], Wanted(seeds=1), seconds=lambda config: 100.0)
    assert (runs[0].resumes, runs[0].seconds) == (half.id, pytest.approx(25))
    assert [r.resumes for r in runs[1:]] == [None] * 4


def test_equal_worth_is_ordered_by_time_with_partial_data_last() -> None:
    times = {"odenet": 30.0, "augmented": 20.0, "ace": None}
    runs = planned([], ["mnist", "activity"], Wanted(seeds=1), partial=frozenset({"activity"}),
                   seconds=lambda config: times.get(config.method))
    assert [(r.config.experiment, r.config.method) for r in runs[:4]] == [
        ("mnist", "augmented"), ("mnist", "odenet"), ("mnist", "ace"), ("activity", "augmented")]


def test_the_device_and_the_preset_are_in_the_configuration() -> None:
    runs = planned([], ["ushcn/ace/mse"], Wanted(preset="printed", device="cpu"))
    assert {(r.config.device, r.config.get("learning_rate"), r.config.get("epochs")) for r in runs} == {
        ("cpu", 1e-4, 300)}
    assert [r.title for r in runs] == [f"ushcn ace fold {i}" for i in range(5)]


def test_missing_data_names_the_command(tmp_path: Path) -> None:
    cells = select(["mnist", "physionet", "physionet-vitals"])
    assert missing_data(cells, tmp_path) == {
        "mnist": "acenode data get mnist", "physionet": "acenode data get physionet2012",
        "physionet-vitals": "acenode data get physionet2012"}
    (tmp_path / "mnist.npz").touch()
    assert "mnist" not in missing_data(cells, tmp_path)


def test_data_is_read_only_where_runs_are_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = replace(full("activity", "ace", "accuracy"), partial=True)
    assert partial_data([full("mnist", "ace", "accuracy")], tmp_path) == frozenset()
    assert partial_data([part], tmp_path) == {"activity"}  # there is no data
    complete = replace(experiments.get("activity"), is_complete=lambda root: True)
    monkeypatch.setitem(experiments.EXPERIMENTS, "activity", complete)
    assert partial_data([part], tmp_path) == frozenset()


def test_times_are_those_of_similar_runs_on_such_a_device() -> None:
    gpu = replace(full("mnist", "ace", "accuracy"), recorded=True, device="NVIDIA H200", seconds=100.0,
                              epochs=20, epoch=20, other_seconds=10.0)
    config = CELLS["mnist/ace/accuracy"].config(0, 40)
    assert measured_seconds([gpu], "cuda")(config) == pytest.approx(210)
    assert measured_seconds([gpu], "cuda", "NVIDIA H200")(config) == pytest.approx(210)
    assert measured_seconds([gpu], "cuda", "NVIDIA T4")(config) is None
    assert measured_seconds([gpu], "cpu")(config) is None
    own = replace(gpu, recorded=False, device="cpu (x86_64)")
    assert measured_seconds([own], "cpu")(config) == pytest.approx(210)
    assert measured_seconds([own], "cpu")(CELLS["mnist/odenet/accuracy"].config()) is None
    assert measured_seconds([own], "cpu")(CELLS["mnist/ace/large/accuracy"].config()) is None


def test_the_most_similar_runs_are_timed() -> None:
    def timed(seconds: float, **given: Any) -> Entry:
        return replace(full("mnist", "ace", "accuracy", **given), seconds=seconds, epochs=10)

    config: Config = CELLS["mnist/ace/accuracy"].config()
    found = time_of(config, [timed(10), timed(30), timed(500, batch_size=64)])
    assert found is not None
    assert (found.epoch, found.runs) == (2.0, 2)
    assert time_of(config, []) is None
