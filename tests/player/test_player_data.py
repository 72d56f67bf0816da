"""What the player is sent: the values of the snapshots, within limits, read once, and never an exception."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from player_runs import decoded, run_of, sigmoid, snapshot, values

from acenode.errors import UserError
from acenode.player import data as player_data
from acenode.runs.store import Run


def softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a.astype(np.float64))
    return np.asarray(e / e.sum(-1, keepdims=True))


def distances(x: np.ndarray) -> np.ndarray:
    flat = x.reshape(x.shape[0] * x.shape[1], -1).astype(np.float64)
    return np.linalg.norm(flat[:, None] - flat[None], axis=-1)


def played(path: Path, snapshots: dict[int, dict[str, np.ndarray]]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what the player is sent of a run: its description and the arrays of its latest epoch."""
    run = run_of(path, snapshots)
    about = player_data.describe(run)
    json.dumps(about, allow_nan=False)
    header, arrays = decoded(player_data.epoch_block(run, max(snapshots)))
    assert (header["version"], header["epoch"]) == (about["version"], max(snapshots))
    return about, arrays


def half_a_level(scale: dict[str, float]) -> float:
    return 0.51 * (scale["high"] - scale["low"]) / 255


def test_a_run_on_images(tmp_path: Path) -> None:
    snaps = {n: snapshot(n) for n in (0, 2, 5)}
    about, arrays = played(tmp_path / "run", snaps)
    assert (about["epochs"], about["probes"], about["labels"]) == ([0, 2, 5], 4, [0, 1, 2, 0])
    assert (about["why"], about["notes"]) == (None, [])
    np.testing.assert_allclose(about["t"], np.linspace(0, 1, 9))
    attention, features = about["attention"], about["features"]
    assert (attention["kind"], attention["shape"]) == ("elementwise", [4, 4])
    assert about["attention_channels"]["shape"] == features["shape"] == [3, 4, 4]
    assert features["low"] == -features["high"]
    pixels = np.frombuffer(b64decode(about["image"]["pixels"]), np.uint8).reshape(4, 8, 8, 1)
    np.testing.assert_array_equal(pixels[2, :, :, 0], snaps[5]["image"][2, 0])
    probabilities = softmax(snaps[2]["logits"])
    assert [p[0] for p in about["predictions"][1]] == probabilities.argmax(1).tolist()
    np.testing.assert_allclose([p[1] for p in about["predictions"][1]], probabilities.max(1), atol=1e-3)
    a, h = snaps[5]["a"], snaps[5]["h"].astype(np.float64)
    clipped = h.clip(features["low"], features["high"])
    for name, expected in (("attention", sigmoid(a).mean(2)), ("attention_channels", sigmoid(a)),
                           ("features", clipped)):
        np.testing.assert_allclose(values(arrays[name], about[name]), expected, atol=half_a_level(about[name]))
    assert (clipped == h).mean() > 0.98
    measure, found = about["measure"], arrays["measure"]
    assert (measure["name"], measure["reference"]) == ("passed", 0.5)
    np.testing.assert_allclose(found[..., 0], sigmoid(a).reshape(9, 4, -1).mean(-1), rtol=1e-4)
    assert measure["low"] <= found.min() < found.max() <= measure["high"]


def test_pairwise_weights_are_the_row_softmax(tmp_path: Path) -> None:
    snaps = {n: snapshot(n, kind="pairwise") for n in range(2)}
    about, arrays = played(tmp_path / "run", snaps)
    scale = about["attention"]
    assert (scale["kind"], scale["shape"], about["state"]["shape"]) == ("pairwise", [5, 5], [5])
    np.testing.assert_allclose(values(arrays["attention"], scale), softmax(snaps[1]["a"]), atol=half_a_level(scale))
    np.testing.assert_array_equal(arrays["state"], snaps[1]["h"].astype(np.float32))
    for name in ("features", "attention_channels"):
        assert about[name] is None
        assert name not in arrays


def test_rows_that_have_become_equal_are_noted_by_epoch(tmp_path: Path) -> None:
    apart, equal = snapshot(0, kind="pairwise"), snapshot(1, kind="pairwise")
    equal["a"][-1] = 0
    about = player_data.describe(run_of(tmp_path / "run", {0: apart, 1: equal}))
    assert about["measure"]["reference"] == 5  # coordinates
    assert about["equal_rows"][0] == ""
    assert "have become equal at the end (t = 1) " in about["equal_rows"][1]
    assert "Every coordinate then" in about["equal_rows"][1]
    equal |= {"coordinate": np.array(["HR", "MAP", "Temp", "Urine", "GCS"]),
              "time_scale": np.array([48.0], np.float32), "time_unit": np.array(["h"])}
    (note,) = player_data.describe(run_of(tmp_path / "named", {1: equal}))["equal_rows"]
    assert "at the end (t = 48 hours)" in note
    assert "Every variable then" in note


def test_attention_that_hardly_changes_is_noted(tmp_path: Path) -> None:
    moving, still, apart = (snapshot(n, kind="pairwise") for n in range(3))
    still["a"][:] = still["a"][0, 0]
    apart["a"][:] = apart["a"][0]
    about = player_data.describe(run_of(tmp_path / "one", {80: still}))
    assert about["steady"] == ["In this run the attention hardly changes with t, and hardly differs between samples."]
    about = player_data.describe(run_of(tmp_path / "many", {0: still, 1: apart, 2: moving}))
    assert about["steady"] == [
        "Before training the attention hardly changes with t, and hardly differs between samples.",
        "After epoch 1 the attention hardly changes with t.", ""]
    single = {key: x if key == "t" else x[:, :1] if key in "ha" else x[:1] for key, x in still.items()}
    assert player_data.describe(run_of(tmp_path / "single", {3: single}))["steady"] == [
        "In this run the attention hardly changes with t."]


def named(seed: int = 0, *, influence: bool = True) -> dict[str, np.ndarray]:
    """Return a snapshot of five named variables, which influence themselves most."""
    arrays = snapshot(seed, kind="pairwise") | {"coordinate": np.array(["HR", "MAP", "Temp", "Urine", "GCS"])}
    acts = np.random.default_rng(seed).uniform(0, 0.2, arrays["a"].shape) + 3 * np.eye(5)
    return arrays | ({"influence": acts.astype(np.float16)} if influence else {})


def test_influence_of_named_variables_is_a_second_map(tmp_path: Path) -> None:
    snaps = {n: named(n) for n in range(2)}
    about, arrays = played(tmp_path / "run", snaps)
    found = about["influence"]
    assert about["named"]
    assert (found["shape"], found["names"][1]) == ([5, 5], "MAP")
    assert (about["measure"]["title"], about["measure"]["mixed"]) == ("Variables mixed into one", "variables")
    others = ~np.eye(5, dtype=bool)
    everything = np.stack([s["influence"] for s in snaps.values()])
    assert (found["low"], found["high"]) == (0, pytest.approx(everything[..., others].max(), abs=1e-4))
    np.testing.assert_allclose(values(arrays["influence"], found)[..., others], snaps[1]["influence"][..., others],
                               atol=half_a_level(found))
    assert player_data.embed(Run(tmp_path / "run"))["description"]["influence"]["shape"] == [5, 5]


def test_influence_that_was_not_kept_is_missing(tmp_path: Path) -> None:
    broken = named() | {"influence": np.full((9, 4, 5, 5), np.inf, np.float16)}
    for name, snaps in {"none": {0: named(influence=False)}, "some": {0: named(influence=False), 1: named(1)},
                        "broken": {0: broken}, "shape": {0: named() | {"influence": np.zeros((9, 4, 5))}}}.items():
        about, arrays = played(tmp_path / name, snaps)
        assert (about["named"], about["influence"], about["notes"]) == (True, None, []), name
        assert "influence" not in arrays
    unnamed = named()
    del unnamed["coordinate"]
    about = player_data.describe(run_of(tmp_path / "unnamed", {0: unnamed}))
    assert (about["named"], about["influence"]) == (False, None)


@pytest.mark.parametrize("epochs", [2, 3])
def test_all_epochs_share_one_plane(tmp_path: Path, epochs: int) -> None:
    """States in a plane keep their distances, within and between epochs, with fewer or more rows than columns."""
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(48, 2)))
    states = [(rng.normal(size=(9, 4, 2)) * [5, 1]) @ basis.T + 3 for _ in range(epochs)]
    run = run_of(tmp_path / "run", {n: {"t": np.linspace(0, 1, 9), "h": h.reshape(9, 4, 3, 4, 4).astype(np.float32)}
                                    for n, h in enumerate(states)})
    points = np.concatenate([decoded(player_data.epoch_block(run, n))[1]["pca"] for n in range(epochs)])
    np.testing.assert_allclose(distances(points), distances(np.concatenate(states)), atol=1e-4)
    first, second = player_data.describe(run)["pca"]["shares"]
    assert first + second == pytest.approx(1.0, abs=1e-4)
    assert first > second


def test_a_run_without_attention(tmp_path: Path) -> None:
    about, arrays = played(tmp_path / "run", {0: snapshot(0, kind="none")})
    assert (about["attention"], about["steady"]) == (None, [""])
    assert about["no_attention"] == "This method has no attention: the state h(t) evolves alone."
    assert set(arrays) == {"pca", "features"}


def test_run_without_snapshots(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {})
    assert player_data.describe(run)["why"] == "No snapshot has been taken yet."
    with pytest.raises(UserError, match="no snapshot of epoch 3"):
        player_data.epoch_block(run, 3)
    kept = Run(run_of(tmp_path / "kept", {}).path, recorded=True)
    assert "Another seed" in player_data.describe(kept)["why"]


def test_torn_and_foreign_files_become_notes(tmp_path: Path) -> None:
    spoiled = snapshot(1)
    spoiled["h"][0, 0] = np.nan
    run = run_of(tmp_path / "run", {0: snapshot(0), 1: spoiled, 2: {"x": np.zeros(3)}, 3: snapshot(3, frames=5),
                                    9: snapshot(9)})
    folder = run.path / "snapshots"
    whole = (folder / "epoch-00000.npz").read_bytes()
    (folder / "epoch-00004.npz").write_bytes(whole[:len(whole) // 2])
    (folder / "epoch-00005.npz").write_bytes(whole[:400] + b"\xff" * 400 + whole[800:])
    (folder / "epoch-00006.npz").mkdir()
    (folder / "copy.npz").write_bytes(whole)
    about = player_data.describe(run)
    assert about["epochs"] == [0, 9]
    assert len(about["notes"]) == 7
    player_data.epoch_block(run, 0)
    only = run_of(tmp_path / "torn", {2: {"x": np.zeros(3)}})
    assert player_data.describe(only)["why"] == "No snapshot of this run can be drawn."


def test_a_snapshot_written_again_is_read_again(tmp_path: Path) -> None:
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


def test_a_variable_limits_that_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, megabytes in (("20", 20), ("", 150), ("much", 150), ("-5", 150)):
        monkeypatch.setenv("ACENODE_CACHE_MB", given)
        assert player_data._cache_bytes() == megabytes * 1_000_000


# In a report --------------------------------------------------------------------------------------------------------


def test_large_maps_are_embedded_within_the_limit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    h, a = rng.normal(size=(25, 10, 64)), rng.normal(size=(25, 10, 64, 64))
    arrays = {"t": np.linspace(0, 1, 25), "h": h.astype(np.float16), "a": a.astype(np.float16)}
    run = run_of(tmp_path / "run", dict.fromkeys(range(6), arrays))
    found = player_data.embed(run)
    about, size = found["description"], sum(len(b64decode(block)) for block in found["blocks"].values())
    assert size <= player_data.EMBEDDED_BYTES + 6 * 2000  # with the headers
    assert about["t"][-1] == 1.0
    assert about["labels"] is None
    assert about["attention"]["shape"] == [40, 40]
