"""TensorBoard reads the event file and finds the metrics in it."""

from __future__ import annotations

import math
import struct
import sys

import numpy as np
import pytest
from export_runs import CREATED, metrics, result, step

from acenode.errors import UserError
from acenode.export import export

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def test_file_version_comes_first(ace) -> None:
    (path,) = export(ace, "tensorboard").iterdir()
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert data[12:12 + length].endswith(b"\x1a\x0dbrain.Event:2")


def test_accumulator_reads_the_metrics_back(ace) -> None:
    folder = export(ace, "tensorboard")
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


def test_epochs_and_the_test_have_their_times(ace) -> None:
    read = accumulator.EventAccumulator(str(export(ace, "tensorboard"))).Reload()
    assert [e.wall_time for e in read.Scalars("epoch/validation_accuracy")] == [CREATED + 1, CREATED + 2]
    assert [e.wall_time for e in read.Scalars("test/accuracy")] == [CREATED + 2]
    assert read.FirstEventTimestamp() == CREATED


def test_exporting_again_replaces_the_file(ace) -> None:
    first = [(p.name, p.read_bytes()) for p in export(ace, "tensorboard").iterdir()]
    assert [(p.name, p.read_bytes()) for p in export(ace, "tensorboard").iterdir()] == first


def test_not_finite_and_not_numeric(make) -> None:
    """null is NaN, a number beyond float32 is infinite, and texts and flags are not written."""
    run = make(records=[{**step(0), "L_h": None, "huge": 1e300, "word": "x", "flag": True, "list": [1]}])
    read = accumulator.EventAccumulator(str(export(run, "tensorboard"))).Reload()
    assert math.isnan(read.Scalars("train/L_h")[0].value)
    assert read.Scalars("train/huge")[0].value == math.inf
    assert not {"train/word", "train/flag", "train/list"} & set(read.Tags()["scalars"])
