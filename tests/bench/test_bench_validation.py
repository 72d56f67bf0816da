"""`acenode bench validation`: what a row contains, and a row that fails without the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from acenode.bench import validation
from acenode.cli import main


def test_a_row_of_sample_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "BATCHES", 1)
    row = validation.measure("ushcn", "gru-ode-bayes", "sample", torch.device("cpu"), tmp_path, 1)
    assert row["training"] == pytest.approx(row["iteration"] * row["iterations"])
    assert row["share"] == pytest.approx(row["validation"] / (row["training"] + row["validation"]))
    assert min(row["checkpoint"], row["snapshot"]) > 0
    lost = {"experiment": "mnist", "method": "ace", "data": "full", "error": "no such file"}
    text = validation.render({"environment": {"device": "cpu"}, "rows": [row, lost]})
    assert f"{row['share']:.1%}" in text
    assert "mnist ace" in text
    assert "failed: no such file" in text


def test_a_failing_row_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(validation, "ROWS", (("mnist", "ace"), ("ushcn", "ace")))

    def fails(experiment: str, *_: object) -> None:
        raise RuntimeError(f"no {experiment}")

    monkeypatch.setattr(validation, "measure", fails)
    assert main(["bench", "validation", "--device", "cpu", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [r["error"] for r in rows] == ["RuntimeError: no mnist", "RuntimeError: no ushcn"]
