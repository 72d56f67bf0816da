"""What the player is given: principal components, attention maps, and few enough of them."""

from __future__ import annotations

from base64 import b64decode

import numpy as np
import pytest
from export_runs import metrics, snapshot

from acenode.export import player
from acenode.results import attention_maps, snapshots, training_curves
from acenode.results.pca import principal


@pytest.mark.parametrize("shape", [(60, 5), (20, 200)])
def test_principal_components_of_a_plane(shape: tuple[int, int]) -> None:
    """Points of a plane keep their distances, and the plane has all of the variance."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(shape[0], 2)) * [5.0, 1.0]
    basis, _ = np.linalg.qr(rng.normal(size=(shape[1], 2)))
    found = principal(flat @ basis.T + 7.0)
    apart = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
    np.testing.assert_allclose(np.linalg.norm(found.points[:, None] - found.points[None], axis=-1), apart, atol=1e-6)
    assert found.shares.sum() == pytest.approx(1.0)
    assert found.shares[0] > found.shares[1]


def test_principal_components_where_there_are_none() -> None:
    assert principal(np.ones((4, 1))).points.shape == (4, 2)
    assert principal(np.ones((4, 3))).shares.tolist() == [0.0, 0.0]


def test_elementwise_weights_are_the_mean_sigmoid() -> None:
    a = np.zeros((2, 1, 2, 3, 3), dtype=np.float16)
    a[1, 0, 0] = 60.0
    shown = attention_maps.weights(a, attention_maps.ELEMENTWISE)
    np.testing.assert_allclose(shown[0, 0], 0.5)
    np.testing.assert_allclose(shown[1, 0], 0.75)


def test_pairwise_weights_are_the_row_softmax() -> None:
    a = np.log(np.array([[1.0, 3.0], [2.0, 2.0]])).reshape(1, 1, 2, 2)
    shown = attention_maps.weights(a, attention_maps.PAIRWISE)[0, 0]
    np.testing.assert_allclose(shown, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6)


def test_kind_by_shapes() -> None:
    h = np.zeros((2, 3, 4))
    assert attention_maps.kind_of(h, np.zeros((2, 3, 4, 4))) is attention_maps.PAIRWISE
    assert attention_maps.kind_of(h, h) is attention_maps.COORDINATES
    assert attention_maps.kind_of(np.zeros((2, 3, 4, 4, 4)), np.zeros((2, 3, 4, 4, 4))) is attention_maps.ELEMENTWISE
    assert attention_maps.kind_of(h, np.zeros((2, 3, 7))) is None


def test_pooling_keeps_the_mean_of_a_wide_map() -> None:
    wide = np.random.default_rng(0).random((1, 1, 80, 120))
    small = attention_maps.pooled(wide)
    assert small.shape == (1, 1, 40, 40)
    assert small.mean() == pytest.approx(wide.mean())


def test_quantisation_is_within_half_a_level() -> None:
    values = np.random.default_rng(0).random((2, 3, 4, 4)).astype(np.float32)
    levels, low, high = attention_maps.quantised(values)
    np.testing.assert_allclose(low + levels * (high - low) / 255, values, atol=0.51 * (high - low) / 255)
    levels, low, high = attention_maps.quantised(np.full((1, 1, 2, 2), 0.25))
    assert low < 0.25 < high


def test_change_since_the_beginning() -> None:
    a = np.array([[[3.0, 4.0]], [[6.0, 8.0]]])  # ‖a(0)‖ = 5, ‖a(1) − a(0)‖ = 5
    assert attention_maps.change(a).tolist() == [[0.0], [1.0]]


def test_maps_travel_in_the_order_epoch_frame_probe(make) -> None:
    snaps = {n: snapshot(n) for n in range(2)}
    data = player.gather(make(records=metrics(), snapshots=snaps)).data
    assert data is not None
    attention = data["attention"]
    levels = np.frombuffer(b64decode(attention["maps"]), np.uint8).reshape(2, 9, 4, 4, 4)
    shown = attention["low"] + levels * (attention["high"] - attention["low"]) / 255
    np.testing.assert_allclose(shown[1], attention_maps.weights(snaps[1]["a"], attention_maps.ELEMENTWISE), atol=3e-3)
    pixels = np.frombuffer(b64decode(data["image"]["pixels"]), np.uint8).reshape(4, 8, 8, 1)
    np.testing.assert_array_equal(pixels[2, :, :, 0], snaps[1]["image"][2, 0])
    assert len(data["pca"]["x"]) == len(attention["change"]) == 2 * 9 * 4
    assert attention["change"][:4] == [0.0] * 4


def test_few_epochs_and_frames_evenly_with_both_ends(make) -> None:
    data = player.gather(make(snapshots={n: snapshot(n, frames=41) for n in range(12)})).data
    assert data is not None
    assert data["epochs"][0] == 0
    assert data["epochs"][-1] == 11
    assert len(data["epochs"]) == 6
    np.testing.assert_allclose(data["t"], np.linspace(0, 1, 21), atol=1e-5)


def test_large_maps_mean_fewer_frames(make) -> None:
    rng = np.random.default_rng(0)
    h, a = rng.normal(size=(25, 10, 64)), rng.normal(size=(25, 10, 64, 64))
    arrays = {"t": np.linspace(0, 1, 25), "h": h.astype(np.float16), "a": a.astype(np.float16)}
    data = player.gather(make(snapshots=dict.fromkeys(range(6), arrays))).data
    assert data is not None
    assert len(b64decode(data["attention"]["maps"])) <= player.MAP_BYTES
    assert data["t"][-1] == 1.0
    assert data["labels"] is None


def test_bad_snapshots_are_left_out_and_named(make) -> None:
    spoiled = snapshot(1)
    spoiled["h"][0, 0] = np.nan
    run = make(snapshots={0: snapshot(0), 1: spoiled, 2: {"x": np.zeros(3)}})
    (run.path / "snapshots" / "epoch-00003.npz").write_bytes(b"torn")
    (run.path / "snapshots" / "epoch-00004.npz").write_bytes(b"PK\x03\x04torn")
    found = player.gather(run)
    assert found.data is not None
    assert found.data["epochs"] == [0]
    assert len(found.notes) == 4


def test_thinned_curves_keep_means_and_extremes() -> None:
    steps = [{"step": n, "L_h": float(n), "dt_min": float(n), "dt_max": float(n)} for n in range(3100)]
    steps[1]["L_h"] = None  # type: ignore[assignment]
    found = training_curves.over_steps(steps)
    assert found["every"] == 3
    assert found["step"][:2] == [0, 3]
    assert len(found["step"]) == len(found["series"]["L_h"]) == 1034
    assert found["series"]["L_h"][:2] == [1.0, 4.0]
    assert found["series"]["dt_min"][:2] == [0.0, 3.0]
    assert found["series"]["dt_max"][:2] == [2.0, 5.0]


# Jumps and names ----------------------------------------------------------------------------------------------------

NAN = float("nan")


def test_a_vector_is_shown_over_time(make) -> None:
    snaps = {n: snapshot(n, kind="pairwise") for n in range(2)}
    data = player.gather(make(snapshots=snaps)).data
    assert data is not None
    levels = np.frombuffer(b64decode(data["state"]["levels"]), np.uint8).reshape(2, 9, 4, 5)
    most = data["state"]["most"]
    wanted = np.clip(snaps[1]["h"], -most, most)
    np.testing.assert_allclose((levels[1] / 127 - 1) * most, wanted, atol=0.51 * most / 127)


def test_jumps_and_names_travel_with_the_probes(make) -> None:
    jumps = np.array([[0.5, 0.25, NAN], [NAN] * 3, [0.1, 7.0, -1.0], [np.inf, 1.0, 0.0]], np.float32)
    extra = {"jumps": jumps, "name": np.array(["USC1", "", "<b>USC3</b>", "x" * 90 + "\n"])}
    data = player.gather(make(snapshots={0: snapshot(kind="pairwise") | extra})).data
    assert data is not None
    assert data["jumps"] == [[0.25, 0.5], [], [0.1], [0.0, 1.0]]  # in order, and within the time that is shown
    assert data["names"] == ["USC1", "probe 2", "<b>USC3</b>", "x" * snapshots.NAME]


@pytest.mark.parametrize("wrong", [
    np.zeros(4, np.float32), np.zeros((3, 2), np.float32), np.zeros((4, 2), complex), np.zeros((4, 2, 1)),
    np.array([["a"]] * 4), np.full((4, 2), NAN), np.zeros((4, 0)), np.array(0.5)])
def test_malformed_jumps_and_names_are_ignored(make, wrong: np.ndarray) -> None:
    found = player.gather(make(snapshots={0: snapshot(kind="pairwise") | {"jumps": wrong, "name": wrong}}))
    assert found.data is not None
    assert (found.data["jumps"], found.data["names"], found.notes) == (None, None, [])


def test_letters_that_are_none_are_no_names() -> None:
    no_letters = np.full(4, 0x7FFFFFFF, np.uint32).view("<U1")
    assert snapshots.names({"name": no_letters}, 4) is None
    assert snapshots.names({"name": np.array(["\ud800", " ", "\x00", "\u202e"])}, 4) is None
