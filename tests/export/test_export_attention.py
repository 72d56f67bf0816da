"""The attention of a run as a table: softmax(a) of each pair in a closed form, and runs that have no pairs."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_runs import metrics, snapshot

from acenode.cli import main
from acenode.errors import UserError
from acenode.export import export
from acenode.runs.store import Run

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("load", "=inlet")
WEIGHTS = np.array([[0.9, 0.1], [0.25, 0.75]])  # row load: load listens to itself, a tenth comes from the inlet


def named(shift: float = 0.0, **changed: Any) -> dict[str, np.ndarray]:
    """Return a snapshot of two variables and two series whose softmax(a) is WEIGHTS at t = 0.5, even at t = 1."""
    a = np.stack([np.log(WEIGHTS) + shift, np.zeros((2, 2))])[:, None].repeat(2, 1)  # (F, B, V, V)
    arrays = {"t": np.array([0.5, 1.0], np.float32), "h": np.ones((2, 2, 2), np.float32), "a": a.astype(np.float32),
              "coordinate": np.array(NAMES), "name": np.array(["m1", "-5"]),
              "time_scale": np.array([9.25], np.float32), "time_unit": np.array(["hours"])}
    return {k: v for k, v in (arrays | changed).items() if v is not None}


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def machines(make) -> Run:
    return make(records=metrics(), snapshots={0: named(3.0, a=np.zeros((2, 2, 2, 2), np.float32)), 2: named(3.0)})


def test_each_row_is_the_softmax_of_one_pair(machines: Run) -> None:
    file = export(machines, "attention")
    assert file == machines.path / "export" / "attention.csv"
    found = rows(file)
    assert len(found) == 2 * 2 * 4
    assert list(found[0]) == ["epoch", "series", "time", "time unit", "variable", "attends to", "weight"]
    assert {(row["epoch"], row["time unit"]) for row in found} == {("2", "hours")}
    start = {(row["series"], row["variable"], row["attends to"]): float(row["weight"]) for row in found
             if float(row["time"]) == 4.625}
    for series in ("m1", "-5"):
        assert start[series, "load", "'=inlet"] == pytest.approx(0.1, abs=1e-6)  # not 0.25, the other direction
        assert start[series, "'=inlet", "load"] == pytest.approx(0.25, abs=1e-6)
    assert {row["weight"] for row in found if float(row["time"]) == 9.25} == {"0.5"}


def test_the_mean_that_the_documentation_shows(machines: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(import pandas\n.*?)```", (DOCS / "named.md").read_text(), re.S)
    export(machines, "attention", tmp_path / "attention.csv", epoch="all")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(code, scope)
    mean = scope["mean"]
    assert mean.loc["load", "'=inlet"] == pytest.approx(0.3, abs=1e-6)
    assert mean.sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-5)


def test_the_epoch_is_chosen(machines: Run, tmp_path: Path) -> None:
    assert {row["weight"] for row in rows(export(machines, "attention", epoch=0))} == {"0.5"}
    assert main(["export", machines.id, "--to", "attention", "--epoch", "all", "--runs", str(tmp_path),
                 "--out", str(tmp_path / "all.csv")]) == 0
    assert [row["epoch"] for row in rows(tmp_path / "all.csv")] == ["0"] * 16 + ["2"] * 16
    with pytest.raises(UserError, match="has no snapshot of epoch 1: choose one of 0, 2"):
        export(machines, "attention", epoch=1)
    with pytest.raises(UserError, match="--epoch applies only to --to attention"):
        export(machines, "csv", epoch=1)


def test_units_without_names_have_numbers(make) -> None:
    run = make(records=metrics(), snapshots={1: snapshot(kind="pairwise", frames=2, probes=1)})
    found = rows(export(run, "attention"))
    assert [(row["variable"], row["attends to"]) for row in found[:6]] == [("1", str(j)) for j in range(1, 6)] + [
        ("2", "1")]
    assert {(row["series"], row["time"], row["time unit"]) for row in found} == {("1", "0", ""), ("1", "1", "")}
    assert sum(float(row["weight"]) for row in found[:5]) == pytest.approx(1, abs=1e-4)


def test_long_names_stay_apart(make) -> None:
    names = np.array(["x" * 60 + "1", "x" * 60 + "2"])
    run = make(records=metrics(), snapshots={1: named(coordinate=names)})
    assert {row["variable"] for row in rows(export(run, "attention"))} == set(names)


@pytest.mark.parametrize(("taken", "message"), [
    ({}, "has no snapshot yet"),
    ({1: snapshot(kind="none")}, "has no attention"),
    ({1: snapshot(kind="elementwise")}, "weighs each entry of h by itself: there are no pairs"),
])
def test_runs_without_pairs_say_why(make, taken: dict[int, dict[str, np.ndarray]], message: str) -> None:
    run = make(records=metrics(), snapshots=taken)
    with pytest.raises(UserError, match=message):
        export(run, "attention")
    assert not (run.path / "export").exists()


def test_a_run_recorded_without_snapshots_says_where_some_are(make) -> None:
    run = Run(make(records=metrics()).path, recorded=True)
    with pytest.raises(UserError, match="another seed or fold"):
        export(run, "attention")


def test_show_names_the_strongest_pairs(make, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    mean = [[0.1, 0.6, 0.3], [0.35, 0.6, 0.05], [0.8, 0.2, 0.0]]
    outcome = {"test": {"mse": 0.5}, "metric": "mse", "attention": {"names": ["a", "b", "c"], "mean": mean}}
    make("good", records=metrics(), outcome=outcome)
    assert main(["show", "good", "--runs", str(tmp_path)]) == 0
    assert "  strongest attention  c attends to a 0.800, a attends to b 0.600, b attends to a 0.350" \
        in capsys.readouterr().out.splitlines()
    make("bad", records=metrics(), outcome=outcome | {"attention": {"names": ["a", "b"], "mean": mean}})
    assert main(["show", "bad", "--runs", str(tmp_path)]) == 0
    assert "strongest attention" not in capsys.readouterr().out
