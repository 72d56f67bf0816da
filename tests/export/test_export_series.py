"""Time series in a report: each chart of the result has a figure, and names are never markup."""

from __future__ import annotations

import copy
from typing import Any

import synthetic_results as synthetic
from export_runs import metrics, result
from page_reader import read
from synthetic_results import ALL_CHARTS, STATION_RESULT

from acenode.export import export
from acenode.runs.store import Run


def report(run: Run) -> Any:
    return read(export(run, "html").read_text(encoding="utf-8"))


def test_a_report_has_the_figures_of_its_data_only(make: Any) -> None:
    plain = {"test": {"auc": 0.853, "loss": 0.3}, "metric": "auc", "best_epoch": 1}
    found = report(make(config={"experiment": "physionet"}, records=metrics(), outcome=plain | synthetic.mortality()))
    assert list(found.figures())[-2:] == ["roc", "calibration"]
    assert not {"confusion", "tsne"} & set(found.figures())
    assert "0.853" in found.text
    assert "Test AUC" in found.text
    assert "AUC 0." in found.data["figures"]["roc"]["data"][1]["name"]


def test_a_report_has_all_figures_of_series(make: Any) -> None:
    plain = {"test": {"mse": 0.0020251}, "metric": "mse", "best_epoch": 1}
    found = report(make(config={"experiment": "physionet-vitals", "data": "full"}, records=metrics(),
                        outcome=plain | ALL_CHARTS, partial=True))
    assert {"over_time", "records", "bands", "coupling", "confusion"} <= set(found.figures())
    assert "2.025 ×10⁻³" in found.text
    assert "a part of the full" in found.text
    assert found.data["figures"]["over_time"]["layout"]["yaxis"]["title"]["text"].endswith("×10⁻³")


def test_names_are_not_markup(make: Any) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    outcome = copy.deepcopy(ALL_CHARTS)
    outcome["records"][0]["id"] = outcome["records"][0]["variables"][0]["name"] = hostile
    outcome["bands"][0]["id"] = outcome["coupling"]["how"] = hostile
    found = report(make(records=metrics(), outcome=result() | outcome))
    assert not found.all("img")
    assert len(found.all("script")) == 3


def test_a_report_of_climate_stations(make: Any) -> None:
    found = report(make(config={"experiment": "ushcn"}, records=metrics(),
                        outcome={"test": {"mse": 0.4}, "metric": "mse"} | STATION_RESULT
                        | synthetic.coupling(side=5, names=synthetic.STATION)))
    assert {"over_time", "records", "coupling"} <= set(found.figures())
    assert "Values are standardised" in found.text
    shapes = found.data["figures"]["records/0"]["layout"]["shapes"]
    assert any(shape.get("path", "").startswith("M7.45,0V0.05M14.9,0") for shape in shapes)  # days
    assert found.data["figures"]["coupling"]["data"][0]["y"][0] == "PRCP · rain"
