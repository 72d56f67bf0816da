"""TensorBoard reads the event file and finds the metrics in it."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from export_runs import CREATED, metrics, result, step

from acenode.export import export, tensorboard_events
from acenode.export.crc32c import crc32c

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def test_crc32c_check_values() -> None:
    """The check value of the catalogue of CRCs, and RFC 3720's (B.4) zeros, ones and rising bytes."""
    blocks = [b"123456789", b"", bytes(32), b"\xff" * 32, bytes(range(32))]
    assert crc32c(blocks).tolist() == [0xE3069283, 0, 0x8A9136AA, 0x62A8AB43, 0x46DD794E]
    assert crc32c([]).tolist() == []


def test_varint() -> None:
    assert [tensorboard_events.varint(n) for n in (0, 127, 128, 300)] == [b"\0", b"\x7f", b"\x80\x01", b"\xac\x02"]


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


def test_exporting_again_draws_nothing_twice(ace) -> None:
    first = [(p.name, p.read_bytes()) for p in export(ace, "tensorboard").iterdir()]
    assert [(p.name, p.read_bytes()) for p in export(ace, "tensorboard").iterdir()] == first


def test_not_finite_and_not_numeric(make) -> None:
    """What JSON could not say is NaN; too large for a float is infinite; texts and flags are no scalars."""
    run = make(records=[{**step(0), "L_h": None, "huge": 1e300, "word": "x", "flag": True, "list": [1]}])
    read = accumulator.EventAccumulator(str(export(run, "tensorboard"))).Reload()
    assert math.isnan(read.Scalars("train/L_h")[0].value)
    assert read.Scalars("train/huge")[0].value == math.inf
    assert not {"train/word", "train/flag", "train/list"} & set(read.Tags()["scalars"])
