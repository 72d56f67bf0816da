"""The report: one self-contained file, every section drawn or explained, no text taken for markup."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

import synthetic_results as synthetic
from export_runs import metrics, result, snapshot, step
from page_reader import Page
from synthetic_results import ALL_CHARTS, STATION_RESULT

from acenode.export import export
from acenode.export import report as html_parts
from acenode.runs.store import Run

CURVES = ["losses", "metric", "nfe", "dt", "gradients", "seconds"]
PLAYER = ["player"]
OUTCOME = ["confusion", "recall", "tsne"]
HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u2028&lt;]]>'\"`${x}"


def report(run: Run) -> Page:
    return Page(export(run, "html").read_text(encoding="utf-8"))


def missing(found: Page) -> list[str]:
    return [name for name, present in found.figures().items() if not present]


def described(found: Page) -> dict[str, Any]:
    """Return the description of the snapshots that the player shows."""
    (run,) = found.data["player"]["runs"]
    return found.data["player"]["embedded"][run["id"]]["description"]


def test_finished_run_has_every_figure(ace) -> None:
    found = report(ace)
    assert list(found.figures()) == CURVES + PLAYER + OUTCOME
    assert missing(found) == []
    for text in ("ACE-ODE-Net on MNIST", "finished", "75.00%", "1,234", "features 0.432", "dopri5",
                 "Not comparable with the paper"):
        assert text in found.text
    assert found.data["figures"]["losses"]["data"][0]["y"][:2] == [2.0, 1.0]
    assert found.data["figures"]["recall"]["data"][0]["x"] == [1.0, 0.75, 0.5]
    assert described(found)["epochs"] == [0, 1, 2]
    assert list(found.data["player"]["embedded"]["ace"]["blocks"]) == ["0", "1", "2"]


def test_run_without_attention_or_solver(resnet) -> None:
    found = report(resnet)
    assert missing(found) == ["nfe", "dt"]
    assert len(found.reasons()) == 2
    assert sum("solves no ODE" in why for why in found.reasons()) == 2
    assert described(found)["no_attention"] == "This method has no attention: the state h(t) evolves alone."
    assert "No L_a" in found.text


def test_running_run_has_no_result_yet(running) -> None:
    found = report(running)
    assert missing(found) == ["metric", *OUTCOME]
    assert sum("The run is running and has no result" in why for why in found.reasons()) == 3
    assert "Waiting for the end of the first epoch…" in found.reasons()


def test_failed_run_says_why(make) -> None:
    run = make(status={"state": "failed", "error": "the loss L_h became nan"}, records=[{**step(0), "L_h": None}])
    found = report(run)
    assert "the loss L_h became nan" in found.text


def test_nothing_is_loaded_from_outside(ace) -> None:
    found = report(ace)
    assert not [e.tag for e in found.elements if {"src", "href", "srcset", "action", "data"} & e.attributes.keys()]
    assert not found.all("link")
    styles = "".join(e.text for e in found.all("style"))
    assert "url(" not in styles
    assert "@import" not in styles
    (policy,) = [e.attributes["content"] or "" for e in found.all("meta")
                 if e.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    runnable = [e.text for e in found.all("script") if "type" not in e.attributes]
    assert re.findall(r"'sha256-[^']+'", policy) == [html_parts.digest(code) for code in runnable]


def hostile(make) -> Run:
    snap = snapshot()
    return make(config={"experiment": HOSTILE, "method": HOSTILE}, notes=HOSTILE, records=[
        {**r, HOSTILE: 1.0} for r in metrics()], status={"state": "failed", "error": HOSTILE}, snapshots={0: snap},
        outcome={**result((HOSTILE, "<b>one</b>", "%{x}")), "metric": HOSTILE, "test": {HOSTILE: 0.5},
                 "silhouette": {HOSTILE: 0.1}})


def test_injection_is_inert(ace, make) -> None:
    clean, found = report(ace), report(hostile(make))
    for tag in ("script", "style", "img", "b", "meta", "body", "figure"):
        assert len(found.all(tag)) == len(clean.all(tag)), tag
    assert len(found.all("script")) == 3
    assert not [e for e in found.elements if any(k.startswith("on") for k in e.attributes)]
    assert found.data["figures"]["recall"]["data"][0]["y"] == [escape(text) for text in (HOSTILE, "<b>one</b>", "%{x}")]
    assert found.text.count(HOSTILE) >= 5  # shown verbatim


def test_embedded_json_has_no_markup_and_finite_numbers() -> None:
    text = html_parts.embedded({"k<": [HOSTILE], "numbers": [1.5, None, float("nan"), float("inf")]})
    assert not set(text) & set("<>&\u2028\u2029")
    assert text.isascii()
    assert json.loads(text) == {"k<": [HOSTILE], "numbers": [1.5, None, None, None]}


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


def test_a_report_of_climate_stations(make: Any) -> None:
    found = report(make(config={"experiment": "ushcn"}, records=metrics(),
                        outcome={"test": {"mse": 0.4}, "metric": "mse"} | STATION_RESULT
                        | synthetic.coupling(side=5, names=synthetic.STATION)))
    assert {"over_time", "records", "coupling"} <= set(found.figures())
    assert "Values are standardised" in found.text
    shapes = found.data["figures"]["records/0"]["layout"]["shapes"]
    assert any(shape.get("path", "").startswith("M7.45,0V0.05M14.9,0") for shape in shapes)  # days
    assert found.data["figures"]["coupling"]["data"][0]["y"][0] == "PRCP · rain"
