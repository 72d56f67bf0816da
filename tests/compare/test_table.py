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
from acenode.experiments import Experiment
from acenode.files import write_json
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore

MNIST, VITALS, USHCN = (experiments.get(name) for name in ("mnist", "physionet-vitals", "ushcn"))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


def finished(store: RunStore, experiment: Experiment, method: str, value: float, data: str = "full", *,
             partial: bool = False, **given: Any) -> None:
    config = experiment.configure(method, data, **given)
    about = {"params": experiment.count(config) if experiment is MNIST else 1}
    run = store.create(config, {**about, "partial": True} if partial else about)
    write_json(run.path / "result.json", {"test": {experiment.metric.name: value}, "metric": experiment.metric.name})


def rows(experiment: Experiment, store: RunStore) -> pd.DataFrame:
    return measured(experiment, Catalogue(store).entries())


def text(experiment: Experiment, store: RunStore) -> str:
    return render(experiment, rows(experiment, store))


def table_cells(experiment: Experiment, store: RunStore) -> list[dict[str, str]]:
    """Return the rows of the first printed table by their heads, split where two spaces are."""
    lines = [re.split(r"  +", line) for line in text(experiment, store).splitlines()]
    start = next(i for i, line in enumerate(lines) if line[0] == "method")
    return [dict(zip(lines[start], line, strict=True)) for line in lines[start + 1:]
            if len(line) == len(lines[start])]


def find(table: pd.DataFrame, method: str, data: str = "full", partial: bool = False,
         **changed: Any) -> dict[str, Any]:
    return next(r for r in to_records(table)
                if (r["method"], r["data"], r["partial"], r["changed"]) == (method, data, partial, changed))


def test_mean_and_sample_deviation_over_seeds(store: RunStore) -> None:
    values = [0.9961, 0.9958, 0.9967]
    for seed, value in enumerate(values):
        finished(store, MNIST, "ace", value, seed=seed)
    finished(store, MNIST, "ace", 0.5, seed=0, attention="none")
    finished(store, MNIST, "ace", 0.7, partial=True)
    for value in (0.95, 0.96):
        finished(store, MNIST, "odenet", value, seed=1)
    table = rows(MNIST, store)
    row = find(table, "ace")
    assert (row["mean"], row["std"]) == pytest.approx((statistics.mean(values) * 100, statistics.stdev(values) * 100))
    assert (row["seeds"], row["paper"], row["paper_params"]) == ([0, 1, 2], "99.68 ± 0.03", "0.28M")
    ablation = find(table, "ace", attention="none")
    assert (ablation["paper"], ablation["std"]) == (None, None)
    repeated = find(table, "odenet")
    assert (repeated["seeds"], repeated["mean"]) == ([1], pytest.approx(96))  # the latest
    assert find(table, "ace", partial=True)["paper"] is None
    whole, part = render(MNIST, table).split("On a part of the full data")
    assert ("70.00" in part, "70.00" in whole, "99.68" in part) == (True, False, False)


def test_what_no_run_of_the_experiment_is_is_left_out(store: RunStore, tmp_path: Path) -> None:
    finished(store, MNIST, "ace", 0.99)
    finished(store, MNIST, "odenet", 0.98)
    stranger = next(run for run in store if run.config().method == "odenet")
    description = stranger.description()
    description["config"]["method"] = "hyper"
    write_json(stranger.path / "config.json", description)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text("{")
    table = rows(MNIST, store)
    assert len(table) == len(MNIST.methods)
    assert (find(table, "ace")["n"], find(table, "odenet")["n"]) == (1, 0)


def test_a_sample_run_is_never_compared_with_the_paper(store: RunStore) -> None:
    finished(store, MNIST, "ace", 0.98, "sample")
    table = rows(MNIST, store)
    assert (find(table, "ace", "sample")["paper"], find(table, "ace")["mean"]) == (None, None)
    sample, full = render(MNIST, table).split("On the full data: no run yet")
    assert ("98.00" in sample, "98.00" in full, "99.68" in sample) == (True, False, False)
    lines = sample.splitlines()
    assert lines[1].startswith("On the bundled sample")  # what is measured comes first
    assert lines[3].split()[0] == "ACE-ODE-Net"
    finished(store, MNIST, "odenet", 0.97)
    lines = text(MNIST, store).splitlines()
    assert lines[2].split()[0] == "ODE-Net"
    assert not any("no run yet" in line for line in lines)


def test_a_set_without_full_data_has_no_empty_table(store: RunStore) -> None:
    oscillators = experiments.get("oscillators")
    finished(store, oscillators, "ace", 0.5, "sample")
    assert [line.split()[0] for line in text(oscillators, store).splitlines()[1:]] == ["On", "method", "ACE"]


def test_defaults_and_epochs_that_are_not_printed_are_named(store: RunStore) -> None:
    assert text(USHCN, store).splitlines()[-2:] == [
        "the default is epochs=120, the paper prints 300; `acenode settings ushcn` says why",
        "gru-ode-bayes, augmented, ace: the default is learning_rate=0.001, the paper prints 0.0001; "
        "`acenode settings ushcn` says why"]
    finished(store, USHCN, "ace", 0.5, epochs=300)  # as in the paper
    assert "epochs=300" in text(USHCN, store)
    assert "the paper trains" not in text(USHCN, store)
    finished(store, MNIST, "odenet", 0.9, epochs=2)  # too short to stand beside a value of the paper
    assert "the paper trains" not in text(MNIST, store)
    finished(store, MNIST, "odenet", 0.99, epochs=40)
    finished(store, MNIST, "ace", 0.99, epochs=20)
    assert "\nrows with epochs=20 or epochs=40: the paper trains for 160 epochs" in text(MNIST, store)


def test_measured_rows_come_first(store: RunStore) -> None:
    finished(store, MNIST, "odenet", 0.98, epochs=40)
    finished(store, MNIST, "ace", 0.99, epochs=40)
    lines = text(MNIST, store).splitlines()[2:-1]  # without heads and the note on epochs
    assert [line.split()[0] for line in lines[:2]] == ["ODE-Net", "ACE-ODE-Net"]
    assert len(lines) == len(MNIST.methods)  # a value of the paper stands there once
    assert all(line.split()[2:4] == ["-", "0"] for line in lines[2:])


def test_numbers_have_the_digits_of_the_metric_or_three_significant_ones(store: RunStore) -> None:
    for method, seed, value in (("ace", 0, 0.00123), ("ace", 1, 0.00127), ("gru-d", 0, 0.8314)):
        finished(store, USHCN, method, value, "sample", seed=seed)
    assert "0.00125 ± 2.83e-05" in text(USHCN, store)
    assert "0.831 " in text(USHCN, store)
    finished(store, VITALS, "ace", 0.0025)
    assert text(VITALS, store).count("×10⁻³") == 1  # in the heading
    row = table_cells(VITALS, store)[0]
    assert (row["measured"], row["paper"]) == ("2.500", "2.560 ± 0.080")
    assert find(rows(VITALS, store), "ace")["paper"] == "2.560 ± 0.080 ×10⁻³"  # JSON is read without a heading


def test_runs_on_one_sample_are_listed_together(store: RunStore) -> None:
    for method in ("gru-ode-bayes", "ace"):
        for sample in ("ou", "climate", "brusselator"):
            finished(store, USHCN, method, 0.5, "sample", sample=sample)
    found = [(r["changed"].get("sample"), r["method"]) for r in to_records(rows(USHCN, store)) if r["data"] == "sample"]
    assert found == [(sample, method) for sample in (None, "brusselator", "ou") for method in ("gru-ode-bayes", "ace")]


def test_every_row_names_the_task_and_the_papers_ablation(store: RunStore) -> None:
    finished(store, VITALS, "ace", 0.002, task="extrapolation", initial="dense")
    finished(store, VITALS, "ace", 0.002, task="extrapolation", initial="dense", learning_rate=0.02)
    finished(store, VITALS, "ace", 0.002, task="interpolation", initial="dense")  # the paper has no such value
    full = table_cells(VITALS, store)
    assert len(full) == 2 * len(VITALS.methods) + 4  # the paper's two ablations are extrapolations
    assert {(row["task"], row["settings changed"]): row["method"] for row in full if row["method"][:3] == "ACE"} == {
        ("interpolation", "-"): "ACE-Latent-ODE", ("interpolation", "initial=dense"): "ACE-Latent-ODE",
        ("extrapolation", "-"): "ACE-Latent-ODE", ("extrapolation", "initial=dense"): "ACE-Latent-ODE (FC)",
        ("extrapolation", "learning_rate=0.02 initial=dense"): "ACE-Latent-ODE",
        ("extrapolation", "attention=fixed"): "ACE-Latent-ODE (fixed attention)"}
    finished(store, MNIST, "ace", 0.99, size="large", epochs=20)
    row = table_cells(MNIST, store)[0]
    assert (row["method"], row["paper"], row["parameters"], "task" in row) == (
        "ACE-ODE-Net (large)", "99.58", "1,271,306", False)  # its layers follow from the size
