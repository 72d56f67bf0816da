"""Tables as CSV, Markdown and LaTeX: of a run, its attention, Compare and the paper."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_results as synthetic
from catalogue_entries import entry
from command_line import command
from export_runs import epoch, metrics, result, snapshot, step

from acenode.compare import result_charts
from acenode.compare.cells import measure_all
from acenode.compare.groups import grouped_frame
from acenode.compare.paper import CELLS, TABLES
from acenode.compare.verdict import ComparedGroups, compare_groups
from acenode.errors import UserError
from acenode.export import export
from acenode.export.tables import COMPARISON, paper_csv, paper_latex, paper_markdown
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
    command(f"export {machines.id} --to attention --epoch all --runs {tmp_path} --out {tmp_path / 'all.csv'}")
    assert [row["epoch"] for row in rows(tmp_path / "all.csv")] == ["0"] * 16 + ["2"] * 16
    with pytest.raises(UserError, match="has no snapshot of epoch 1: choose one of 0, 2"):
        export(machines, "attention", epoch=1)
    with pytest.raises(UserError, match="--epoch applies only to --to attention"):
        export(machines, "csv", epoch=1)


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


def test_csv_has_the_values_of_the_metrics(ace) -> None:
    folder = export(ace, "csv")
    assert folder == ace.path / "export" / "csv"
    assert sorted(p.name for p in folder.iterdir()) == ["epochs.csv", "steps.csv", "summary.csv"]
    steps = [r for r in metrics() if r["kind"] == "step"]
    for row, record in zip(rows(folder / "steps.csv"), steps, strict=True):
        assert {k: float(v) for k, v in row.items()} == {k: v for k, v in record.items() if k != "kind"}
    read = rows(folder / "epochs.csv")
    assert [float(r["validation_accuracy"]) for r in read] == [0.35, 0.7]
    assert [r["best"] for r in read] == ["true", "true"]


def test_columns_in_order_of_appearance_and_empty_where_absent(make) -> None:
    run = make(records=[{"kind": "step", "step": 0, "b": 1}, {"kind": "step", "a": 2.5, "step": 1},
                        {"kind": "step", "step": 2, "b": None, "best": False}])
    assert (export(run, "csv") / "steps.csv").read_text() == "step,b,a,best\n0,1,,\n1,,2.5,\n2,nan,,false\n"


def test_summary_names_configuration_and_result(make) -> None:
    run = make(records=[step(0), epoch(1)], outcome=result(), notes="a, \"quoted\"\nnote")
    read = {r["key"]: r["value"] for r in rows(export(run, "csv") / "summary.csv")}
    assert read["config.method"] == "ace"
    assert read["status.state"] == "finished"
    assert read["result.test.accuracy"] == "0.75"
    assert read["result.confusion"] == "[[4, 0, 0], [1, 3, 0], [0, 2, 2]]"
    assert read["notes"] == "a, \"quoted\"\nnote"
    assert not any("process" in key for key in read)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "＝1"])
def test_texts_are_never_formulas(make, text: str) -> None:
    run = make(records=[{"kind": "step", "step": 0, "loss": -0.5, text: text}], notes=text)
    folder = export(run, "csv")
    (row,) = rows(folder / "steps.csv")
    assert row == {"step": "0", "loss": "-0.5", f"'{text}": f"'{text}"}
    assert {r["key"]: r["value"] for r in rows(folder / "summary.csv")}["notes"] == f"'{text}"


def test_records_of_a_time_series_with_both_sides_of_a_jump(make) -> None:
    outcome = synthetic.climate(stations=1)
    read = rows(export(make(records=metrics(), outcome=result() | outcome), "csv") / "records.csv")
    (record,) = outcome["records"]
    assert {r["record"] for r in read} == {record["id"]}
    days = result_charts.days_of(record["unit_note"]) or 0.0
    assert {r["time unit"] for r in read} == {"days"}
    assert {r["unit"] for r in read if r["variable"]} == {"standard deviations"}
    assert [float(r["t"]) for r in read if r["kind"] == "jump"] == pytest.approx([days * t for t in record["jumps"]])
    model = [r for r in read if (r["variable"], r["kind"]) == ("TMAX", "model")]
    wanted = next(v for v in record["variables"] if v["name"] == "TMAX")
    for column, key in (("t", "grid"), ("value", "mean"), ("low", "low"), ("high", "high")):
        scale = days if column == "t" else 1.0
        assert [float(r[column]) for r in model] == pytest.approx([scale * v for v in wanted[key]], abs=1e-3)
    assert len({r["t"] for r in model}) < len(model)
    assert {r["kind"] for r in read} == {"jump", "observed", "held out", "model"}


@pytest.fixture
def compared() -> ComparedGroups:
    values = {"odenet": (0.90, 0.91, 0.92), "ace": (0.92, 0.93, 0.942)}
    runs = [entry(method, value, seed=n) for method, own in values.items() for n, value in enumerate(own)]
    return compare_groups(grouped_frame([*runs, entry(value=0.5, data="full")]), "ODE-Net (sample)")


def test_csv_has_plain_numbers(compared: ComparedGroups) -> None:
    host, ace, other = csv.DictReader(io.StringIO(COMPARISON["csv"](compared)))
    assert (host["effect"], ace["effect"], other["effect"]) == ("baseline", "helps", "not comparable")
    assert float(ace["difference"]) == pytest.approx(0.0620 / 3)
    assert float(ace["low"]) < float(ace["difference"]) < float(ace["high"])
    assert (host["difference"], other["low"], ace["runs"], ace["pairs"]) == ("", "", "3", "3")


def test_markdown_and_latex_have_the_table_and_the_answer(compared: ComparedGroups) -> None:
    markdown, latex = COMPARISON["md"](compared), COMPARISON["tex"](compared)
    assert "| ODE-Net (sample) (baseline) | 3 | 91.00 ± 1.00% |" in markdown
    assert "ACE-ODE-Net (sample) helps: accuracy +2.07 points" in markdown
    assert r"ODE-Net (sample) (baseline) & 3 & 91.00 $\pm$ 1.00\% &" in latex
    assert "% ACE-ODE-Net (sample) helps" in latex
    assert latex.count(r"\begin{tabular}") == 1


PAPER_RUNS = [dataclasses.replace(entry("ace", value, data="full", seed=seed, epochs=40), metric="accuracy")
        for seed, value in enumerate((0.9950, 0.9960))]


def test_csv_has_every_cell_with_its_runs() -> None:
    rows = list(csv.DictReader(io.StringIO(paper_csv(measure_all(PAPER_RUNS)))))
    assert len(rows) == sum(len(table.cells) for table in TABLES.values())
    assert len({(r["experiment"], r["method"], r["metric"], r["settings"]) for r in rows}) == len(CELLS)
    (ours,) = [r for r in rows if (r["table"], r["method"]) == ("mnist", "ace")]
    assert (ours["paper_mean"], ours["paper_std"], ours["runs"], ours["seeds"]) == ("99.68", "0.03", "2", "0 1")
    assert float(ours["mean"]) == 99.55
    assert (ours["epochs"], ours["mark"], ours["unit"]) == ("40", "worse", "%")
    assert ours["run_ids"].split() == [run.id for run in PAPER_RUNS]
    other = next(r for r in rows if r["method"] == "resnet")
    assert (other["mean"], other["mark"]) == ("", "missing")


def test_markdown_has_one_row_a_method() -> None:
    text = paper_markdown(measure_all(PAPER_RUNS), [TABLES["mnist"]])
    for line in ("| Method | Accuracy, paper | Accuracy, ours |", "| ResNet | 99.65 ± 0.03 | ○ not measured |",
                 "| ACE-ODE-Net | 99.68 ± 0.03 | 99.55 ± 0.07 (2 seeds, 40 of 160 epochs, −0.13, ▼ worse) |"):
        assert line in text
    assert text.count("\n| ") == 2 + len(TABLES["mnist"].rows)


def test_latex_is_balanced_and_escaped() -> None:
    text = paper_latex(measure_all(PAPER_RUNS))
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == len(TABLES)
    assert r"99.55 $\pm$ 0.07 (2 seeds, 40 of 160 epochs, $-$0.13, $\blacktriangledown$ worse) \\" in text
    assert r"$\times 10^{-3}$" in text
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert not re.search(r"(?<!\\)[%#_]", body)
    assert body.isascii(), sorted({c for c in body if not c.isascii()})
    for table in TABLES.values():
        assert len(table.columns) * 2 + 1 in {len(m) for m in re.findall(r"\\begin\{tabular\}\{(l+)\}", body)}
