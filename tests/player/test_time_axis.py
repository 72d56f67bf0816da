"""The unit of a snapshot's time."""

from __future__ import annotations

import numpy as np
import pytest

from acenode import experiments
from acenode.player.time_axis import TimeAxis, time_axis


@pytest.mark.parametrize(("name", "expected"), [
    ("physionet", TimeAxis(48.0, "hours")), ("physionet-vitals", TimeAxis(48.0, "hours")),
    ("ushcn", TimeAxis(18_627 / 2_500, "days")), ("mnist", None), ("activity", None)])
def test_runs_that_do_not_say_it_have_the_experiments_unit(name: str, expected: TimeAxis | None) -> None:
    assert time_axis(experiments.get(name).configure("ace"), {}) == expected


def test_a_snapshot_says_it_itself() -> None:
    arrays = {"time_scale": np.array([2.5], np.float32), "time_unit": np.array(["s"])}
    assert time_axis(None, arrays) == TimeAxis(2.5, "seconds")
    assert time_axis(None, arrays | {"time_unit": np.array([7])}) is None
    assert time_axis(None, arrays | {"time_scale": np.array([np.nan])}) is None


def test_time_of_a_process_has_no_unit() -> None:
    assert time_axis(experiments.get("ushcn").configure("ace", sample="ou"), {}) is None
