"""The table of an experiment: means over seeds, and the paper's values for runs on the full data only."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from acenode import experiments
from acenode.compare.table import measured, render, to_records
from acenode.files import write_json
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore

MNIST = experiments.get("mnist")


VITALS = experiments.get("physionet-vitals")


def finished(store: RunStore, method: str, accuracy: float, data: str, **given: Any) -> None:
    config = MNIST.configure(method, data, **given)
    run = store.create(config, {"params": MNIST.count(config)})
    write_json(run.path / "result.json", {"test": {"accuracy": accuracy}, "metric": "accuracy"})


def finished_vitals(store: RunStore, method: str, mse: float, data: str = "full", **given: Any) -> None:
    run = store.create(VITALS.configure(method, data, **given), {"params": 1})
    write_json(run.path / "result.json", {"test": {"mse": mse}, "metric": "mse"})


def table_cells(experiment: experiments.Experiment, store: RunStore) -> list[dict[str, str]]:
    """Return the rows of the first printed table by their heads, split where two spaces are."""
    lines = [re.split(r"  +", line) for line in render(experiment, rows(experiment, store)).splitlines()]
    start = next(i for i, line in enumerate(lines) if line[0] == "method")
    return [dict(zip(lines[start], line, strict=True)) for line in lines[start + 1:]
            if len(line) == len(lines[start])]


def rows(experiment: experiments.Experiment, store: RunStore) -> pd.DataFrame:
    return measured(experiment, Catalogue(store).entries())


def find(table: pd.DataFrame, method: str, data: str, changed: dict | None = None) -> dict[str, Any]:
    return next(r for r in to_records(table)
                if (r["method"], r["data"], r["changed"]) == (method, data, changed or {}))


def test_a_run_of_an_unknown_method_is_left_out(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finished(store, "ace", 0.99, "full")
    finished(store, "odenet", 0.98, "full")
    stranger = next(run for run in store if run.config().method == "odenet")
    description = stranger.description()
    description["config"]["method"] = "hyper"
    write_json(stranger.path / "config.json", description)
    assert find(rows(MNIST, store), "ace", "full")["n"] == 1
    assert find(rows(MNIST, store), "odenet", "full")["n"] == 0


def test_mean_and_sample_deviation_over_seeds(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    values = [0.9961, 0.9958, 0.9967]
    for seed, value in enumerate(values):
        finished(store, "ace", value, "full", seed=seed)
    finished(store, "ace", 0.5, "full", seed=0, attention="none")
    finished(store, "ace", 0.98, "sample")
    table = rows(MNIST, store)
    row = find(table, "ace", "full")
    assert row["mean"] == pytest.approx(statistics.mean(values) * 100)
    assert row["std"] == pytest.approx(statistics.stdev(values) * 100)
    assert row["seeds"] == [0, 1, 2]
    assert row["paper"] == "99.68 ± 0.03"
    assert row["paper_params"] == "0.28M"
    ablation = find(table, "ace", "full", {"attention": "none"})
    assert ablation["paper"] is None
    assert ablation["std"] is None


def test_a_sample_run_is_never_compared_with_the_paper(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finished(store, "ace", 0.98, "sample")
    table = rows(MNIST, store)
    assert find(table, "ace", "sample")["paper"] is None
    assert find(table, "ace", "full")["mean"] is None
    sample, full = render(MNIST, table).split("On the full data: no run yet")
    assert "98.00" in sample
    assert "98.00" not in full
    assert "99.68" not in sample


def test_the_large_model_has_its_own_value_of_the_paper(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finished(store, "ace", 0.99, "full", size="large")
    row = find(rows(MNIST, store), "ace", "full", {"size": "large"})  # its layers follow from the size
    assert row["paper"] == "99.58"
    assert row["params"] == 1_271_306


def test_defaults_that_are_not_printed_are_named(tmp_path: Path) -> None:
    empty = RunStore(tmp_path)
    cifar, ushcn = (experiments.get(name) for name in ("cifar10", "ushcn"))
    assert render(cifar, rows(cifar, empty)).splitlines()[-1] == (
        "the default is learning_rate=0.05, the paper prints 0.01; `acenode settings cifar10` says why")
    assert render(ushcn, rows(ushcn, empty)).splitlines()[-2:] == [
        "the default is epochs=120, the paper prints 300; `acenode settings ushcn` says why",
        "gru-ode-bayes, augmented, ace: the default is learning_rate=0.001, the paper prints 0.0001; "
        "`acenode settings ushcn` says why"]
    assert "the paper prints" not in render(MNIST, rows(MNIST, empty))


def test_measured_rows_come_first(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finished(store, "odenet", 0.98, "full", epochs=40)
    finished(store, "ace", 0.99, "full", epochs=40)
    lines = render(MNIST, rows(MNIST, store)).splitlines()[2:-1]  # without heads and the note on epochs
    assert [line.split()[0] for line in lines[:2]] == ["ODE-Net", "ACE-ODE-Net"]
    assert all("epochs=40" in line for line in lines[:2])
    assert len(lines) == len(MNIST.methods)  # a value of the paper stands there once
    assert all(line.split()[2:4] == ["-", "0"] for line in lines[2:])


def test_what_is_measured_comes_before_what_is_not(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finished(store, "ace", 0.98, "sample")
    lines = render(MNIST, rows(MNIST, store)).splitlines()
    assert lines[1].startswith("On the bundled sample")
    assert lines[3].split()[0] == "ACE-ODE-Net"
    assert lines[4:6] == ["", "On the full data: no run yet"]
    finished(store, "odenet", 0.97, "full")
    lines = render(MNIST, rows(MNIST, store)).splitlines()
    assert lines[2].split()[0] == "ODE-Net"
    assert any(line.startswith("On the bundled sample") for line in lines)
    assert not any("no run yet" in line for line in lines)


def test_a_set_without_full_data_has_no_empty_table(tmp_path: Path) -> None:
    entry, store = experiments.get("oscillators"), RunStore(tmp_path)
    run = store.create(entry.configure("ace"), {"params": 1})
    write_json(run.path / "result.json", {"test": {"mse": 0.5}, "metric": "mse"})
    lines = render(entry, rows(entry, store)).splitlines()
    assert lines[1].startswith("On the bundled sample")
    assert lines[3].startswith("ACE ")
    assert len(lines) == 4


def test_a_repeated_seed_counts_once(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for value in (0.95, 0.96):
        finished(store, "odenet", value, "full", seed=1)
    row = find(rows(MNIST, store), "odenet", "full")
    assert row["seeds"] == [1]
    assert row["mean"] == pytest.approx(96)  # the latest


def test_folders_that_are_no_runs_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text("{")
    assert len(rows(MNIST, RunStore(tmp_path))) == len(MNIST.methods)


def test_small_errors_have_significant_digits(tmp_path: Path) -> None:
    ushcn, store = experiments.get("ushcn"), RunStore(tmp_path)
    for method, seed, value in (("ace", 0, 0.00123), ("ace", 1, 0.00127), ("gru-d", 0, 0.8314)):
        run = store.create(ushcn.configure(method, seed=seed), {"params": 1})
        write_json(run.path / "result.json", {"test": {"mse": value}, "metric": "mse"})
    text = render(ushcn, rows(ushcn, store))
    assert "0.00125 ± 2.83e-05" in text
    assert "0.831 " in text


def test_runs_on_one_sample_are_listed_together(tmp_path: Path) -> None:
    store, entry = RunStore(tmp_path), experiments.get("ushcn")
    for method in ("gru-ode-bayes", "ace"):
        for sample in ("ou", "climate", "brusselator"):
            run = store.create(entry.configure(method, "sample", sample=sample), {"params": 1})
            write_json(run.path / "result.json", {"test": {"mse": 0.5}, "metric": "mse"})
    found = [(r["changed"].get("sample"), r["method"]) for r in to_records(rows(entry, store))
             if r["data"] == "sample"]
    assert found == [(sample, method) for sample in (None, "brusselator", "ou") for method in ("gru-ode-bayes", "ace")]


def test_every_row_names_the_task(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for task in ("interpolation", "extrapolation"):
        finished_vitals(store, "ace", 0.0025, task=task)
    full = table_cells(VITALS, store)
    assert len(full) == 2 * len(VITALS.methods) + 2  # the paper's two ablations are extrapolations
    assert [row["task"] for row in full[:2]] == ["interpolation", "extrapolation"]
    assert {row["task"] for row in full} == {"interpolation", "extrapolation"}
    assert {row["settings changed"] for row in full} == {"-", "initial=dense", "attention=fixed"}
    finished_vitals(RunStore(tmp_path / "sample"), "ace", 0.0025, "sample")
    assert [row["task"] for row in table_cells(VITALS, RunStore(tmp_path / "sample"))] == ["interpolation"]
    assert "task" not in table_cells(MNIST, RunStore(tmp_path / "none"))[0]


def test_the_unit_is_in_the_heading_alone(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finished_vitals(store, "ace", 0.0025)
    text = render(VITALS, rows(VITALS, store))
    assert text.count("×10⁻³") == 1
    assert "MSE ×10⁻³" in text.splitlines()[0]
    assert (row := table_cells(VITALS, store)[0])["paper"] == "2.560 ± 0.080"
    assert row["measured"] == "2.500"
    assert find(rows(VITALS, store), "ace", "full")["paper"] == "2.560 ± 0.080 ×10⁻³"  # JSON is read without a heading


def test_ablations_of_the_paper_are_named(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finished_vitals(store, "ace", 0.002, task="extrapolation", initial="dense")
    finished_vitals(store, "ace", 0.002, task="extrapolation", initial="dense", learning_rate=0.02)
    finished_vitals(store, "ace", 0.002, task="interpolation", initial="dense")  # the paper has no such value
    titles = {(row["task"], row["settings changed"]): row["method"] for row in table_cells(VITALS, store)
              if row["method"].startswith("ACE")}
    assert titles == {
        ("interpolation", "-"): "ACE-Latent-ODE",
        ("interpolation", "initial=dense"): "ACE-Latent-ODE",
        ("extrapolation", "-"): "ACE-Latent-ODE",
        ("extrapolation", "initial=dense"): "ACE-Latent-ODE (FC)",
        ("extrapolation", "learning_rate=0.02 initial=dense"): "ACE-Latent-ODE",
        ("extrapolation", "attention=fixed"): "ACE-Latent-ODE (fixed attention)"}
    assert {r["title"] for r in to_records(rows(VITALS, store)) if r["method"] == "ace"} == {"ACE-Latent-ODE"}
    images = RunStore(tmp_path / "images")
    finished(images, "ace", 0.99, "full", size="large", epochs=20)
    assert table_cells(MNIST, images)[0]["method"] == "ACE-ODE-Net (large)"


def test_epochs_that_are_not_the_paper_s_are_named(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finished(store, "ace", 0.99, "full", epochs=160)
    finished(store, "odenet", 0.9, "full", epochs=2)  # too short to stand beside a value of the paper
    finished(store, "odenet", 0.9, "sample", epochs=3)
    assert "the paper trains" not in render(MNIST, rows(MNIST, store))
    ushcn, forecasts = experiments.get("ushcn"), RunStore(tmp_path / "ushcn")
    run = forecasts.create(ushcn.configure("ace", "full", epochs=300), {"params": 1})  # as in the paper
    write_json(run.path / "result.json", {"test": {"mse": 0.5}, "metric": "mse"})
    assert "epochs=300" in (text := render(ushcn, rows(ushcn, forecasts)))
    assert "the paper trains" not in text
    finished(store, "odenet", 0.99, "full", epochs=40)
    finished(store, "ace", 0.99, "full", epochs=20)
    assert "\nrows with epochs=20 or epochs=40: the paper trains for 160 epochs\n" in render(MNIST, rows(MNIST, store))
