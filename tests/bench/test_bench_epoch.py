"""`acenode bench epoch`: one epoch on the bundled digits, the table, and refused options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from acenode.bench import epoch
from acenode.cli import main
from acenode.config import read_seeds
from acenode.errors import UserError


@pytest.mark.long
def test_an_epoch_on_the_bundled_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path))
    arguments = ["bench", "epoch", "--device", "cpu", "--engines", "native", "--seeds", "3", "--jobs", "2",
             "--json"]
    assert main(arguments) == 0
    out = capsys.readouterr()
    result = json.loads(out.out)
    assert (result["data"], result["seeds"], result["engines"]) == ("sample", [3], ["native"])
    (row,) = result["rows"]
    assert row["iterations"] > 5
    assert row["evaluations"] > 13
    assert 0.1 < row["accuracy"] < 1
    assert f"1/1 native, seed 3: {row['accuracy']:.2%}" in out.err


def rows(**accuracies: list[float | None]) -> dict[str, Any]:
    found = [{"engine": e, "seed": s, "error": "out of memory"} if value is None else
             {"engine": e, "seed": s, "accuracy": value, "iterations": 429, "evaluations": 38.0, "seconds": 3.0}
             for e, values in accuracies.items() for s, value in enumerate(values)]
    return {"environment": {"device": "a GPU"}, "data": "full", "seeds": [0, 1, 2], "engines": list(accuracies),
            "rows": found}


def test_differences_are_taken_seed_by_seed() -> None:
    text = epoch.render(rows(graph=[0.91, 0.93, None], native=[None] * 3, reference=[0.90, 0.90, 0.95]))
    assert "graph minus reference, seed by seed: +2.00 ± 1.00 points" in text
    assert "native minus reference: no seed finished with both" in text
    assert "graph, seed 2: out of memory" in text
    assert ["median", "92.00", "—", "90.00"] in [line.split() for line in text.splitlines()]


def test_seeds_and_engines_are_read_from_text() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert read_seeds("0-2, 7,1") == read_seeds("0 - 2 7 1") == read_seeds(" 0-2  7;1 ") == [0, 1, 2, 7]
    assert epoch.engines_from(None, cuda) == ["graph", "native", "reference"]
    assert epoch.engines_from("float32, native", cuda) == ["float32", "native"]
    for text in ("one", "2-1", ""):
        with pytest.raises(UserError, match="seeds"):
            read_seeds(text)
    with pytest.raises(UserError, match="there is no engine 'graphs': choose from graph, float32, native, reference"):
        epoch.engines_from("graphs", cuda)
    with pytest.raises(UserError, match="graph needs a CUDA device"):
        epoch.engines_from("graph", cpu)
