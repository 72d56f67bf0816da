"""Data of the paper's figures, from runs with made-up results."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalogue_entries import entry

from acenode.compare import paper_figures
from acenode.compare.cells import measure_all
from acenode.files import write_json
from acenode.player.snapshots import TimeAxis
from acenode.runs.catalogue import Entry


def run(folder: Path, method: str, experiment: str, result: dict[str, Any], metric: str = "mse", **given: Any) -> Entry:
    """Write a result and return its entry."""
    made = entry(method, 0.5, experiment=experiment, data="full", **given)
    path = folder / made.id
    path.mkdir()
    write_json(path / "result.json", {"test": {metric: 0.5}, "metric": metric, **result})
    return dataclasses.replace(made, path=path, metric=metric, test={metric: 0.5})


def over_time(*mse: float | None) -> dict[str, Any]:
    return {"over_time": {"t": [1.0, 2.0, 3.0][:len(mse)], "mse": list(mse), "count": [5] * len(mse), "unit": "h"}}


def lines_of(folder: Path, *results: tuple[str, dict[str, Any]]) -> list[paper_figures.ErrorLine]:
    """Return the lines of these methods and results, one seed each."""
    entries = [run(folder, method, "physionet-vitals", result, seed=seed, task="extrapolation")
               for seed, (method, result) in enumerate(results)]
    cells = paper_figures.over_time_cells("physionet-vitals", "extrapolation")
    return paper_figures.error_lines(cells, measure_all(entries))


def test_error_lines_average_over_runs_in_the_printed_unit(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, ("ace", over_time(0.001, None, 0.002)), ("ace", over_time(0.003, None, 0.002)),
                     ("latent-ode", over_time(0.005, 0.004, 0.003)), ("augmented", {}))
    assert [line.cell.method for line in lines] == ["latent-ode", "ace"]  # ACE on top, none without errors over time
    ace = lines[-1]
    assert (ace.t, ace.runs, ace.first.unit) == ([1.0, 3.0], 2, "h")  # nothing was measured at t = 2
    assert ace.mean == pytest.approx([2.0, 2.0])
    assert (ace.low, ace.high) == (pytest.approx([1.0, 2.0]), pytest.approx([3.0, 2.0]))


def test_a_sentence_says_how_often_ace_has_the_smallest_error(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, ("ace", over_time(0.001, 0.002, 0.009)), ("latent-ode", over_time(0.002, 0.001, None)),
                     ("augmented", over_time(0.003, 0.003, 0.003)))
    assert paper_figures.smallest_error_sentence(lines) == (
        "Among Latent-ODE (ODE enc.), Augmented-Latent-ODE and ACE, ACE has the smallest mean error at 1 of 2 times "
        "and the largest at 0.")
    assert paper_figures.smallest_error_sentence(lines[:2]) == ""
    several = [dataclasses.replace(line, runs=3) if line.cell.method == "augmented" else line for line in lines]
    assert paper_figures.smallest_error_sentence([x for x in several if x.cell.method != "latent-ode"]) == ""


def tsne(silhouette: float) -> dict[str, Any]:
    return {"classes": ["a", "b"], "tsne": {"x": [0.0, 1.0], "y": [0.0, 1.0], "label": [0, 1]},
            "silhouette": {"features": silhouette}}


def test_tsne_prefers_cifar10_and_averages_silhouettes(tmp_path: Path) -> None:
    mnist = [run(tmp_path, m, "mnist", tsne(0.5), "accuracy", epochs=40) for m in ("odenet", "augmented", "ace")]
    experiment, panels = paper_figures.tsne_panels(measure_all(mnist))
    assert (experiment, [p.entry.method for p in panels]) == ("mnist", ["odenet", "augmented", "ace"])
    cifar = [run(tmp_path, m, "cifar10", tsne(0.2 + 0.2 * seed), "accuracy", seed=seed, epochs=40)
             for m in ("odenet", "augmented", "ace") for seed in range(2)]
    experiment, panels = paper_figures.tsne_panels(measure_all([*mnist, *cifar]))
    assert experiment == "cifar10"
    assert [(p.runs, p.silhouette) for p in panels] == 3 * [(2, pytest.approx(0.3))]
    assert paper_figures.tsne_panels({}) == ("", [])


def test_attention_frames_are_softmax_at_several_times(tmp_path: Path) -> None:
    entry = run(tmp_path, "ace", "ushcn", {})
    (entry.path / "snapshots").mkdir()
    rng = np.random.default_rng(0)
    a = rng.normal(size=(11, 2, 3, 3)).astype(np.float32)
    a[:, 1] = a[0, 1] * np.linspace(1, 2, 11)[:, None, None]  # the second probe doubles
    np.savez(entry.path / "snapshots" / "epoch-00007.npz", t=np.linspace(0, 1, 11), h=rng.normal(size=(11, 2, 3)), a=a)
    assert list(paper_figures.attention_runs(measure_all([entry]))) == ["ushcn"]
    found = paper_figures.attention_frames(entry.run, probe=1)
    assert (found.t, found.epoch, found.probes) == ([0.0, 0.2, 0.5, 0.8, 1.0], 7, ["Sample 1", "Sample 2"])
    e = np.exp(a[[0, 2, 5, 8, 10], 1])
    np.testing.assert_allclose(found.maps, e / e.sum(-1, keepdims=True), rtol=1e-5)
    entropy = -(found.maps * np.log(found.maps)).sum(-1)
    assert found.measured == pytest.approx(np.exp(entropy).mean(-1).tolist(), rel=1e-4)
    assert found.measure_text(0) == f"{found.measured[0]:.1f} of 3 mixed"
    assert found.time_text(4) == "t = 1"  # this run does not say what its time means
    assert dataclasses.replace(found, time=TimeAxis(7.45, "days")).time_text(4) == "7.45 days"
    assert dataclasses.replace(found, time=TimeAxis(1117.5, "days")).time_text(4) == "1,120 days"


def test_runs_without_attention_have_no_frames(tmp_path: Path) -> None:
    entry = run(tmp_path, "ace", "ushcn", {})
    assert paper_figures.attention_frames(entry.run) is None
    assert paper_figures.attention_runs(measure_all([entry])) == {}
    (entry.path / "snapshots").mkdir()
    np.savez(entry.path / "snapshots" / "epoch-00001.npz", t=np.zeros(2), h=np.zeros((2, 1, 3)))
    assert paper_figures.attention_frames(entry.run) is None
