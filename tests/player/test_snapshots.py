"""Names and jumps of the probes in a snapshot, and the unit of its time."""

from __future__ import annotations

import numpy as np
import pytest

from acenode import experiments
from acenode.player import snapshots
from acenode.player.snapshots import TimeAxis, time_axis

NAN = float("nan")


def test_jumps_and_names_of_the_probes() -> None:
    jumps = np.array([[0.5, 0.25, NAN], [NAN] * 3, [0.1, 7.0, -1.0], [np.inf, 1.0, 0.0]], np.float32)
    extra = {"jumps": jumps, "name": np.array(["USC1", "", "<b>USC3</b>", "x" * 90 + "\n"])}
    arrays = {"t": np.linspace(0, 1, 9), **extra}
    assert snapshots.jumps(arrays, 4) == [[0.25, 0.5], [], [0.1], [0.0, 1.0]]  # sorted, and within the range of t
    assert snapshots.names(arrays, 4) == ["USC1", "sample 2", "<b>USC3</b>", "x" * snapshots.NAME]


@pytest.mark.parametrize("wrong", [
    np.zeros(4, np.float32), np.zeros((3, 2), np.float32), np.zeros((4, 2), complex), np.zeros((4, 2, 1)),
    np.array([["a"]] * 4), np.full((4, 2), NAN), np.zeros((4, 0)), np.array(0.5)])
def test_malformed_jumps_and_names_are_ignored(wrong: np.ndarray) -> None:
    arrays = {"t": np.linspace(0, 1, 9), "jumps": wrong, "name": wrong}
    assert (snapshots.jumps(arrays, 4), snapshots.names(arrays, 4)) == (None, None)


def test_time_has_the_unit_of_the_snapshot_or_of_the_experiment() -> None:
    for name, expected in (("physionet", TimeAxis(48.0, "hours")), ("ushcn", TimeAxis(18_627 / 2_500, "days")),
                           ("mnist", None), ("activity", None)):
        assert time_axis(experiments.get(name).configure("ace"), {}) == expected
    arrays = {"time_scale": np.array([2.5], np.float32), "time_unit": np.array(["s"])}
    assert time_axis(None, arrays) == TimeAxis(2.5, "seconds")
    assert time_axis(None, arrays | {"time_unit": np.array([7])}) is None
    assert time_axis(None, arrays | {"time_scale": np.array([np.nan])}) is None
