"""Names and jumps of the probes in a snapshot."""

from __future__ import annotations

import numpy as np
import pytest

from acenode.player import snapshots

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


def test_unprintable_characters_are_no_names() -> None:
    no_letters = np.full(4, 0x7FFFFFFF, np.uint32).view("<U1")
    assert snapshots.names({"name": no_letters}, 4) is None
    assert snapshots.names({"name": np.array(["\ud800", " ", "\x00", "\u202e"])}, 4) is None

