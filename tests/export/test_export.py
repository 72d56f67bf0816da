"""All formats of `export`: where files go, error messages, complete files or none, and TensorBoard."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from export_runs import CREATED, metrics, result, step

from acenode import files
from acenode.errors import UserError
from acenode.export import FORMATS, export
from acenode.runs.store import Run


@pytest.mark.parametrize("to", FORMATS)
def test_an_export_that_fails_leaves_no_files(make, pairs, tmp_path: Path, to: str,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    queued = make(status={"state": "queued"})
    with pytest.raises(UserError, match="has no metrics yet"):
        export(queued, to)
    with pytest.raises(UserError, match="is not a run"):
        export(Run(tmp_path), to)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written .* --out"):
        export(pairs, to, tmp_path / "file" / "below")
    assert not (queued.path / "export").exists()
    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UserError, match="No space left"):
        export(pairs, to)
    assert [p for p in (pairs.path / "export").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("to", FORMATS)
def test_out_sets_the_destination(pairs, tmp_path: Path, to: str) -> None:
    folder = export(pairs, to, tmp_path / "elsewhere")
    assert folder == tmp_path / "elsewhere" / {"html": "pairs.html", "attention": "pairs-attention.csv"}.get(to, "")
    assert not (pairs.path / "export").exists()


def test_html_to_a_file_and_into_a_folder(ace, tmp_path: Path) -> None:
    assert export(ace, "html", tmp_path / "mine.html") == tmp_path / "mine.html"
    assert export(ace, "html", tmp_path) == tmp_path / "ace.html"
    assert export(ace, "html") == ace.path / "export" / "report.html"


accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def test_accumulator_reads_the_metrics_back(ace) -> None:
    folder = export(ace, "tensorboard")
    first = [(p.name, p.read_bytes()) for p in folder.iterdir()]
    assert [(p.name, p.read_bytes()) for p in export(ace, "tensorboard").iterdir()] == first  # replaces the file
    read = accumulator.EventAccumulator(str(folder)).Reload()
    tags = set(read.Tags()["scalars"])
    expected: dict[str, list[tuple[int, float]]] = {}
    for record in metrics():
        family, axis = ("train", "step") if record["kind"] == "step" else ("epoch", "epoch")
        for key, value in record.items():
            if key not in ("kind", "step", "epoch", "best"):
                expected.setdefault(f"{family}/{key}", []).append((record[axis], value))
    expected |= {f"test/{key}": [(8, value)] for key, value in result()["test"].items()}
    assert tags == set(expected)
    for tag, points in expected.items():
        found = read.Scalars(tag)
        assert [e.step for e in found] == [n for n, _ in points]
        np.testing.assert_array_equal(np.float32([e.value for e in found]), np.float32([v for _, v in points]))
    assert [e.wall_time for e in read.Scalars("train/L_h")] == [CREATED + 0.25 * (n + 1) for n in range(8)]


def test_without_tensorboard_one_line_says_what_to_install(ace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(UserError) as error:
        export(ace, "tensorboard")
    assert str(error.value) == "the tensorboard package is not installed: run `pip install 'acenode[tensorboard]'`"
    assert not (ace.path / "export").exists()


def test_not_finite_and_not_numeric(make) -> None:
    """null is NaN, a number beyond float32 is infinite, and texts and flags are not written."""
    run = make(records=[{**step(0), "L_h": None, "huge": 1e300, "word": "x", "flag": True, "list": [1]}])
    read = accumulator.EventAccumulator(str(export(run, "tensorboard"))).Reload()
    assert math.isnan(read.Scalars("train/L_h")[0].value)
    assert read.Scalars("train/huge")[0].value == math.inf
    assert not {"train/word", "train/flag", "train/list"} & set(read.Tags()["scalars"])
