"""CSV tables: the values of metrics.jsonl, the configuration and the records."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import synthetic_results as synthetic
from export_runs import epoch, metrics, result, step

from acenode.compare import result_charts
from acenode.export import export, tables


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


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


def test_an_incomplete_last_line_is_left_out(make) -> None:
    run = make(records=[step(0), step(1)])
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"kind": "step", "step": 2, "L_h"')
    folder = export(run, "csv")
    assert [r["step"] for r in rows(folder / "steps.csv")] == ["0", "1"]
    assert (folder / "epochs.csv").read_text() == ""


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


@pytest.mark.parametrize(("value", "text"), [(-1e-07, "-1e-07"), (3, "3"), (True, "true"), ("plain", "plain")])
def test_numbers_stay_numbers(value: object, text: str) -> None:
    assert tables.cell(value) == text


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
