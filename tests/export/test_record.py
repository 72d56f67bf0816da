"""Recorded copies of runs: exact results, thinned curves, the same player, and nothing about the machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import command
from export_runs import metrics, result, snapshot, step

from acenode.compare.metrics import read_records
from acenode.errors import UserError
from acenode.export.record import record
from acenode.player import data as player_data
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import Run, RunStore

Make = Callable[..., Run]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def arrays(epoch: int, kind: str) -> dict[str, np.ndarray]:
    """Return a snapshot of smooth trajectories: `pairwise` or `elementwise` attention, or `jumps` in time."""
    random = np.random.default_rng(epoch)
    shape = (6, 5, 5) if kind == "elementwise" else (12,)
    t = np.linspace(0, 1, 21)

    def course(shape: tuple[int, ...]) -> np.ndarray:
        rate, phase = random.normal(size=(1, 4, *shape)), random.normal(size=(1, 4, *shape))
        x = np.cos(t.reshape(-1, *[1] * (len(shape) + 1)) * rate + phase)
        return (x + (random.normal(size=x.shape) if kind == "jumps" else 0)).astype(np.float16)

    return {"t": t.astype(np.float32), "h": course(shape), "label": np.arange(4),
            "a": course(shape if kind == "elementwise" else (12, 12))}


def arrays_of_block(run: Run, epoch: int) -> dict[str, np.ndarray]:
    block = player_data.epoch_block(run, epoch)
    length = int.from_bytes(block[:4], "little")
    head, body = json.loads(block[4:4 + length]), block[4 + length:]
    return {name: np.frombuffer(body, place["dtype"], int(np.prod(place["shape"])), place["offset"])
            .reshape(place["shape"]) for name, place in head["arrays"].items()}


@pytest.mark.parametrize("kind", ["pairwise", "elementwise", "jumps"])
def test_the_player_shows_the_same(kind: str, make: Make, kept: Path) -> None:
    run = make(records=metrics(), outcome=result(), snapshots={n: arrays(n, kind) for n in (0, 1, 2)})
    copy = record(run, kept)
    assert copy.snapshots == 3
    original, recorded = player_data.describe(run), player_data.describe(copy.run)
    assert recorded["why"] is None
    for key in ("epochs", "t", "probes", "labels", "classes"):
        assert recorded[key] == original[key]
    for epoch in original["epochs"]:
        before, after = arrays_of_block(run, epoch), arrays_of_block(copy.run, epoch)
        assert before.keys() == after.keys()
        for name in ("attention", "attention_channels", "features"):
            if name in before:  # levels of 0 to 255: one for the rounding here, and one for the player's own
                error = np.abs(before[name].astype(int) - after[name].astype(int))
                assert np.percentile(error, 99.9) <= 2
                assert error.mean() < 0.6
        np.testing.assert_allclose(after["measure"], before["measure"], rtol=0.02, atol=0.01)
        if "state" in before:
            np.testing.assert_allclose(after["state"], before["state"], atol=0.05)
        span = np.ptp(before["pca"], axis=(0, 1)).max()
        np.testing.assert_allclose(np.abs(after["pca"]), np.abs(before["pca"]), atol=0.1 * span)


def test_a_copy_is_listed_exported_and_has_the_exact_result(make: Make, kept: Path, tmp_path: Path) -> None:
    run = make("mnist-ace-1", records=metrics(), outcome=result(), snapshots={0: snapshot(0)})
    copy = record(run, kept, note="rebuilt from the station files", commit="abc1234").run
    assert copy.result()["test"] == run.result()["test"]  # type: ignore[index]
    (entry,) = Catalogue(RunStore(tmp_path / "none", kept)).entries()
    assert (entry.recorded, entry.state, entry.test) == (True, "finished", run.result()["test"])  # type: ignore[index]
    assert entry.data_note == "rebuilt from the station files"
    assert entry.code.endswith("abc1234")
    assert read_records(copy).epochs == read_records(run).epochs
    (run.path / "config.json").write_text(json.dumps(run.description() | {"partial": True}))
    again = record(run, kept).run  # without the options: those of the earlier copy stay
    assert again.description()["data_note"] == "rebuilt from the station files"
    assert again.description()["environment"]["commit"] == "abc1234"
    assert "partial" not in again.description()  # as corrected in the earlier copy


def test_long_curves_keep_epochs_ends_and_extremes(make: Make, kept: Path) -> None:
    random = np.random.default_rng(0)
    steps = [step(i) | {"kind": "step", "seconds": 0.5, "L_h": float(x)}
             for i, x in enumerate(random.normal(size=5000) + 5)]
    epochs = [{"kind": "epoch", "epoch": n, "step": 1000 * n, "validation_accuracy": 1 / 3} for n in range(1, 6)]
    records = sorted(steps + epochs, key=lambda r: r["step"])
    run = make(records=records, outcome=result())
    found = read_records(record(run, kept).run)
    assert found.epochs == read_records(run).epochs
    assert 900 < len(found.steps) <= 1000
    assert (found.steps[0]["step"], found.steps[-1]["step"]) == (0, 4999)
    assert found.steps[-1]["elapsed"] == 2500.0
    losses = [s["L_h"] for s in steps]
    assert (min(s["L_h"] for s in found.steps), max(s["L_h"] for s in found.steps)) == pytest.approx(
        (min(losses), max(losses)), rel=1e-3)
    assert {"L_h", "dt_mean", "grad_h", "nfe_forward"} <= set(found.steps[0])


def test_nothing_about_the_machine_is_kept(make: Make, kept: Path) -> None:
    run = make(records=metrics(), outcome=result(),
               status={"process": {"pid": 7, "host": "secret-host"}, "error": None})
    description = run.description()
    description["environment"]["platform"] = "Linux-6.1.2-secret-x86_64-with-glibc2.39"
    (run.path / "config.json").write_text(json.dumps(description))
    (run.path / "log.txt").write_text("cache at /home/secret/data/mnist.npz was read\n")
    copy = record(run, kept).run
    assert copy.description()["environment"]["platform"] == "Linux-x86_64"
    assert (copy.path / "log.txt").read_text() == "cache at …/mnist.npz was read\n"
    assert not [p for p in copy.path.rglob("*") if p.is_file() and b"secret" in p.read_bytes()]


def test_fewer_snapshots_are_kept_in_a_smaller_copy(make: Make, kept: Path) -> None:
    run = make(records=metrics(), outcome=result(), snapshots={n: arrays(n, "elementwise") for n in range(15)})
    assert record(run, kept, size=10**6).snapshots == 12
    few = record(run, kept, size=40_000)
    assert 1 < few.snapshots < 12
    epochs = player_data.describe(few.run)["epochs"]
    assert (epochs[0], epochs[-1]) == (0, 14)
    assert player_data.describe(record(run, kept, size=1).run)["epochs"] == [14]


def test_what_cannot_be_recorded_is_refused(make: Make, running: Run, kept: Path) -> None:
    with pytest.raises(UserError, match="is running: only a finished run can be recorded"):
        record(running, kept)
    run = make(records=metrics(), outcome=result())
    with pytest.raises(UserError, match="above the limit of 0 MB"):
        record(run, kept, total=100)
    assert not (kept / run.id).exists()
    copy = record(run, kept).run
    with pytest.raises(UserError, match="is a recorded run already"):
        record(copy, kept)


@pytest.mark.parametrize(("damage", "words"), [
    (lambda file: file.write_bytes(b""), "there are none"),
    (lambda file: file.unlink(), "No such file"),
    (lambda file: file.write_bytes(b"\0" * 100 + b"\n"), "1 of 1 lines are damaged"),
    (lambda file: file.write_bytes(file.read_bytes()[:-9]), "1 of .* lines are damaged"),
])
def test_damaged_metrics_are_refused_before_anything_is_written(damage: Callable[[Path], Any], words: str, make: Make,
                                                                kept: Path, tmp_path: Path) -> None:
    good, run = (make(f"mnist-ace-{n}", records=metrics(), outcome=result()) for n in (1, 2))
    damage(run.path / "metrics.jsonl")
    with pytest.raises(UserError, match=f"the metrics of mnist-ace-2 cannot be read .*{words}.*: restore "):
        record(run, kept)
    error = command(f"record {good.id} {run.id} --to {kept} --runs {tmp_path}", 2)
    assert error.count("\n") == 1
    assert "cannot be read" in error
    assert not kept.exists()
