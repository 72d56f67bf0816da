"""Time estimates from finished runs or, where there are none, from timed iterations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from problems import IdleEngine

from acenode import UserError, experiments
from acenode.bench.synthetic import finished_runs
from acenode.config import Config
from acenode.execution import estimate
from acenode.execution.engine_choice import EngineChoice
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore


@pytest.fixture(autouse=True)
def _no_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the timings of other tests."""
    monkeypatch.setattr(estimate, "_timed", {})


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return Catalogue(RunStore(tmp_path / "runs"))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Configurations whose iteration was timed; each takes a second, with ten per epoch."""
    seen: list[Config] = []

    def iteration(config: Config, data_root: Path) -> tuple[float, int]:
        seen.append(config)
        return 1.0, 10

    monkeypatch.setattr(estimate, "time_iteration", iteration)
    return seen


def config(method: str = "ace", **given: Any) -> Config:
    return experiments.get(given.pop("experiment", "mnist")).configure(method, **{"device": "cpu", **given})


def test_similar_finished_runs_are_used_first(catalogue: Catalogue, tmp_path: Path, timed: list[Config]) -> None:
    for run, seconds in zip(finished_runs(catalogue.store.root, 3, seconds=0.0, epochs=10), (20.0, 40.0, 1000.0),
                            strict=True):  # one was disturbed
        run.set_state("finished", seconds=seconds, heartbeat=run.status()["heartbeat"] + seconds)
    found = estimate.estimate([config(epochs=5), config(epochs=10, seed=4)], catalogue, tmp_path)
    assert found.runs == 2
    assert found.seconds == pytest.approx(4.0 * 15)
    assert found.seconds_each[config(epochs=5)] == pytest.approx(20.0)
    assert found.basis == "from 3 similar finished runs"
    assert timed == []


def test_time_besides_training_counts_once(catalogue: Catalogue, tmp_path: Path) -> None:
    for run, later in zip(finished_runs(catalogue.store.root, 3, seconds=20.0, epochs=10), (5, 9, -4), strict=True):
        run.set_state("finished", heartbeat=run.status()["heartbeat"] + later)  # the last one was resumed
    found = estimate.estimate([config(epochs=5), config(epochs=1)], catalogue, tmp_path)
    assert found.seconds_each == {config(epochs=5): pytest.approx(17.0), config(epochs=1): pytest.approx(9.0)}


@pytest.mark.parametrize(("other", "new"), [
    ({}, 0), ({"method": "gru-ode-bayes"}, 1), ({"experiment": "mnist"}, 1), ({"engine": "reference"}, 1),
    ({"sample": "ou"}, 1), ({"at_jump": "recompute"}, 1), ({"attention_every": 1}, 1), ({"impute": True}, 1),
    ({"g": "matrix"}, 1)])
def test_runs_whose_passes_differ_in_length_are_ignored(other: dict[str, Any], new: int, catalogue: Catalogue,
                                                        tmp_path: Path, timed: list[Config]) -> None:
    finished_runs(catalogue.store.root, 2, experiment="ushcn")
    estimate.estimate([config(**{"experiment": "ushcn"} | other)], catalogue, tmp_path)
    assert len(timed) == new


def test_each_kind_of_run_is_timed_once(catalogue: Catalogue, tmp_path: Path, timed: list[Config]) -> None:
    alternating, joint = config(epochs=3), config(epochs=3, schedule="joint")
    found = estimate.estimate([alternating, joint, config(epochs=6, seed=9)], catalogue, tmp_path)
    assert found.seconds_each == {alternating: 30.0, joint: 30.0, config(epochs=6, seed=9): 60.0}
    assert found.seconds == 120.0
    assert found.basis == "from timing 2 configurations; testing time not included"
    assert len(timed) == 2
    estimate.estimate([alternating], catalogue, tmp_path)
    assert len(timed) == 2  # remembered
    fixed = config(epochs=1, attention="fixed")
    assert estimate.estimate([fixed], catalogue, tmp_path).seconds == 10.0


def test_an_iteration_is_timed_with_the_engine_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    engine = IdleEngine()
    monkeypatch.setattr(estimate, "choose_engine",
                        lambda *given: asked.append(given) or EngineChoice("graph", engine))
    wanted = config(epochs=3, batch_size=512, engine="graph")
    seconds, _ = estimate.time_iteration(wanted, tmp_path)
    ((_, device, name, _),) = asked
    assert (device.type, name) == ("cpu", "graph")
    assert engine.passes >= 2  # both phases, at least once
    assert engine.closed == 1
    assert seconds > 0


def test_an_iteration_is_timed_in_a_process_that_leaves_the_cores_to_others(tmp_path: Path) -> None:
    wanted = config("resnet", epochs=2, batch_size=512)
    seconds, iterations = estimate.time_aside(wanted, tmp_path)
    assert iterations == 2
    assert seconds > 0
    with pytest.raises(UserError, match="mnist is not downloaded yet"):
        estimate.time_aside(config("resnet", data="full"), tmp_path)


def test_a_timing_process_that_dies_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate.sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="ended without an answer"):
        estimate.time_aside(config("resnet"), tmp_path)


def test_missing_data_is_the_reason(catalogue: Catalogue, tmp_path: Path) -> None:
    full = config("resnet", data="full")
    found = estimate.estimate([full, config("resnet", batch_size=512)], catalogue, tmp_path)
    assert found.runs == 2
    assert found.seconds is None
    assert "mnist is not downloaded yet" in found.basis
    assert full not in found.seconds_each


def test_a_running_run_is_projected_to_its_end(catalogue: Catalogue) -> None:
    finished_runs(catalogue.store.root, 1)
    (finished,) = catalogue.entries()
    running = replace(finished, state="running", progress=0.25, seconds=10.0, epochs=8, other_seconds=None)
    found = estimate.measured(config(epochs=8), [running])
    assert found is not None
    assert found.seconds(config(epochs=8)) == pytest.approx(40.0)
    early = replace(running, progress=0.001, epoch=0)
    assert estimate.measured(config(epochs=8), [early]) is None  # too early to tell,
    assert estimate.trains_now(config(epochs=8), [early])  # but not for long
    assert not estimate.trains_now(config(epochs=8), [finished])
    assert not estimate.trains_now(config("odenet"), [early])
    one_epoch = replace(running, progress=0.01, epoch=1, epochs=100)
    found = estimate.measured(config(epochs=100), [one_epoch])
    assert found is not None
    assert found.seconds(config(epochs=100)) == pytest.approx(1000.0)
