"""Snapshots embedded in a report: values, thinning, limits and bad files."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
from player_runs import decoded, run_of, sigmoid, snapshot, values

from acenode.player import data as player_data
from acenode.runs.store import Run


def embedded(run: Run) -> tuple[dict[str, Any], dict[int, dict[str, np.ndarray]]]:
    """Return the description and the arrays of each epoch that a report embeds."""
    found = player_data.embed(run)
    json.dumps(found, allow_nan=False)
    return found["description"], {epoch: decoded(b64decode(block))[1] for epoch, block in found["blocks"].items()}


def test_embedded_arrays_have_the_values_of_the_snapshots(tmp_path: Path) -> None:
    snaps = {n: snapshot(n) for n in range(2)}
    about, blocks = embedded(run_of(tmp_path / "run", snaps))
    assert list(blocks) == about["epochs"] == [0, 1]
    scale = about["attention"]
    np.testing.assert_allclose(values(blocks[1]["attention"], scale), sigmoid(snaps[1]["a"]).mean(2),
                               atol=0.51 * (scale["high"] - scale["low"]) / 255)
    assert blocks[0]["measure"].shape[1:] == (4, 3)


def test_a_report_has_few_epochs_and_frames_evenly_with_both_ends(tmp_path: Path) -> None:
    about, blocks = embedded(run_of(tmp_path / "run", {n: snapshot(n, frames=41) for n in range(12)}))
    assert about["epochs"][0] == 0
    assert about["epochs"][-1] == 11
    assert len(blocks) == 6
    np.testing.assert_allclose(about["t"], np.linspace(0, 1, 21), atol=1e-5)


def test_large_maps_are_embedded_within_the_limit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    h, a = rng.normal(size=(25, 10, 64)), rng.normal(size=(25, 10, 64, 64))
    arrays = {"t": np.linspace(0, 1, 25), "h": h.astype(np.float16), "a": a.astype(np.float16)}
    run = run_of(tmp_path / "run", dict.fromkeys(range(6), arrays))
    about = player_data.embed(run)["description"]
    size = sum(len(b64decode(block)) for block in player_data.embed(run)["blocks"].values())
    assert size <= player_data.EMBEDDED_BYTES + 6 * 2000  # with the headers
    assert about["t"][-1] == 1.0
    assert about["labels"] is None
    assert about["attention"]["shape"] == [40, 40]


def test_bad_snapshots_are_left_out_of_a_report_and_named(tmp_path: Path) -> None:
    spoiled = snapshot(1)
    spoiled["h"][0, 0] = np.nan
    run = run_of(tmp_path / "run", {0: snapshot(0), 1: spoiled, 2: {"x": np.zeros(3)}})
    (run.path / "snapshots" / "epoch-00003.npz").write_bytes(b"torn")
    (run.path / "snapshots" / "epoch-00004.npz").write_bytes(b"PK\x03\x04torn")
    about, blocks = embedded(run)
    assert list(blocks) == [0]
    assert len(about["notes"]) == 4
