"""The player reads each snapshot once, and its caches are bounded."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from player_runs import decoded, run_of, snapshot

from acenode.bench.synthetic import run_with_large_maps
from acenode.player import data as player_data
from acenode.runs.store import Run, RunStore


def test_a_new_snapshot_reads_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "run", {n: snapshot(n) for n in range(3)})
    before = player_data.describe(run)
    player_data.epoch_block(run, 2)
    read: list[str] = []
    original = Run.snapshot
    monkeypatch.setattr(Run, "snapshot", lambda self, path: (read.append(path.name), original(self, path))[1])
    assert player_data.describe(run) == before
    assert player_data.epoch_block(run, 2) == player_data.epoch_block(run, 2)
    assert read == []
    run_of(run.path, {3: snapshot(3)})
    after = player_data.describe(run)
    player_data.epoch_block(run, 0)
    assert read == ["epoch-00003.npz"]
    assert after["version"] != before["version"]
    assert after["epochs"] == [0, 1, 2, 3]


def test_a_snapshot_written_again_is_read_again(tmp_path: Path) -> None:
    """A resumed run writes the snapshot of an epoch again."""
    run = run_of(tmp_path / "run", {0: snapshot(0), 1: snapshot(1)})
    before, block = player_data.describe(run)["version"], player_data.epoch_block(run, 1)
    run_of(run.path, {1: snapshot(7)})
    assert player_data.describe(run)["version"] != before
    assert player_data.epoch_block(run, 1) != block


def test_axes_keep_their_sign_while_a_run_is_watched(tmp_path: Path) -> None:
    """The farthest point decides the sign of an axis, but a later snapshot does not change it."""
    line = np.linspace(0, 1, 9)[:, None, None] * np.ones((1, 2, 3))
    def arrays(scale: float) -> dict[str, np.ndarray]:
        return {"t": np.linspace(0, 1, 9), "h": (scale * line).astype(np.float32)}
    run = run_of(tmp_path / "run", {0: arrays(1.0), 1: arrays(2.0)})
    first = decoded(player_data.epoch_block(run, 1))[1]["pca"]
    run_of(run.path, {2: arrays(-9.0)})
    second = decoded(player_data.epoch_block(run, 1))[1]["pca"]
    np.testing.assert_allclose(second - second[0], first - first[0], atol=1e-4)


def test_large_snapshots_are_thinned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    h = rng.normal(size=(41, 4, 80, 24, 24)).astype(np.float16)
    run = run_of(tmp_path / "run", {n: {"t": np.linspace(0, 1, 41), "h": h, "a": h} for n in range(2)})
    about = player_data.describe(run)
    assert len(player_data.epoch_block(run, 0)) < 6_000_000
    assert about["t"][0] == 0.0
    assert about["t"][-1] == 1.0
    assert len(about["t"]) >= 12
    assert about["features"]["channels"] <= 64
    assert about["features"]["total"] == 80
    _, arrays = decoded(player_data.epoch_block(run, 1))
    assert arrays["features"].shape == (len(about["t"]), 4, about["features"]["channels"], 24, 24)
    assert arrays["pca"].shape == (len(about["t"]), 4, 2)


def test_every_frame_of_the_benchmarks_run_is_sent(tmp_path: Path) -> None:
    run = run_with_large_maps(RunStore(tmp_path))
    about = player_data.describe(run)
    assert len(about["t"]) == 60
    assert about["attention"]["shape"] == about["features"]["shape"] == [64, 64]
    assert decoded(player_data.epoch_block(run, 0))[1]["features"].shape[0] == 60


def test_caches_count_their_bytes(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {0: snapshot(0)})
    for epoch in (1, 2):
        player_data.epoch_block(run_of(run.path, {epoch: snapshot(epoch)}), epoch)
    for cache in player_data.CACHES:
        assert cache.bytes == sum(map(cache.size_of, cache.values.values()))


def test_caches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "run", {n: snapshot(n) for n in range(6)})
    for cache in player_data.CACHES:
        monkeypatch.setattr(cache, "limit", 12_000)
    blocks = [player_data.epoch_block(run, n) for n in range(6)]
    assert player_data._BLOCKS.bytes <= 12_000
    assert player_data._LOADED.bytes <= 12_000
    assert [player_data.epoch_block(run, n) for n in range(6)] == blocks


def test_a_server_that_shows_every_run_needs_little_memory() -> None:
    assert sum(cache.limit for cache in player_data.CACHES) <= 150_000_000


@pytest.mark.parametrize(("given", "megabytes"), [("20", 20), ("", 150), ("much", 150), ("-5", 150)])
def test_a_variable_limits_that_memory(monkeypatch: pytest.MonkeyPatch, given: str, megabytes: int) -> None:
    monkeypatch.setenv("ACENODE_CACHE_MB", given)
    assert player_data._cache_bytes() == megabytes * 1_000_000


def test_several_threads_read_each_snapshot_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "run", {n: snapshot(n) for n in range(3)})
    read: list[str] = []
    original = Run.snapshot
    monkeypatch.setattr(Run, "snapshot", lambda self, path: (read.append(path.name), original(self, path))[1])
    found: list[bytes] = []
    tabs = [threading.Thread(target=lambda: found.append(player_data.epoch_block(run, 1))) for _ in range(6)]
    for tab in tabs:
        tab.start()
    for tab in tabs:
        tab.join()
    assert len(found) == 6
    assert len(set(found)) == 1
    assert sorted(read) == [f"epoch-{n:05d}.npz" for n in range(3)]


# In a report --------------------------------------------------------------------------------------------------------
