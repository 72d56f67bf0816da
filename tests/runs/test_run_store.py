"""The run directory: what is written, what survives failures, and what is refused."""

from __future__ import annotations

import gc
import gzip
import json
import os
import pickle
import re
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quick_settings import QUICK, quick_settings
from safetensors.torch import load, load_file
from short_runs import numbers

from acenode import UserError, experiments
from acenode.cli import main
from acenode.config import FORMAT
from acenode.execution.execute import Outcome, create, execute
from acenode.execution.launcher import Launcher
from acenode.experiments.image_task import ImageTask
from acenode.experiments.recording import LIMIT, fit
from acenode.files import MAX_JSON, open_regular, parse_json
from acenode.runs import store as store_module
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import UNREADABLE
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunWriter
from acenode.training.task import Loss, Metric

Train = Callable[..., Outcome]


def test_a_finished_run_has_all_files(train: Train) -> None:
    outcome = train("ace", epochs=2)
    run, result = outcome.run, outcome.run.result()
    assert outcome.state == run.status()["state"] == "finished", outcome.error
    assert {p.name for p in run.path.iterdir()} == {"config.json", "status.json", "metrics.jsonl", "snapshots",
                                                   "checkpoints", "result.json", "log.txt", "lock"}
    given = quick_settings("ace", {"epochs": 2, "batch_size": 128})
    assert run.config() == experiments.get("mnist").configure("ace", **given)
    description = run.description()
    assert description["params"] == outcome.params == 31_690
    assert description["environment"]["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    step = next(r for r in run.metrics()[0] if r["kind"] == "step")
    assert {"L_h", "L_a", "accuracy", "nfe_forward", "nfe_backward", "nfe_forward_a", "steps", "rejected", "dt_min",
            "dt_mean", "dt_max", "grad_h", "grad_a", "lr", "seconds"} <= step.keys()
    epoch = [r for r in run.metrics()[0] if r["kind"] == "epoch"]
    assert [e["epoch"] for e in epoch] == [1, 2]
    assert {"train_L_h", "train_accuracy", "validation_accuracy", "validation_loss", "best"} <= epoch[0].keys()
    assert result is not None
    assert result["test"].keys() == {"accuracy", "loss", "nfe"}
    assert np.sum(result["confusion"]) == 90
    assert result["test"]["accuracy"] == pytest.approx(np.trace(result["confusion"]) / 90)
    assert len(result["class_accuracy"]) == 10
    task = experiments.get("mnist").make(run.config(), Path(), torch.device("cpu"))
    task.model.load_state_dict(load_file(run.path / "checkpoints" / "best.safetensors"))
    assert task.evaluate("test") == outcome.metrics  # the best parameters were tested


def test_snapshots_hold_the_trajectory_and_stay_small(train: Train) -> None:
    run = train("ace", epochs=3, snapshots=3).run
    files = run.snapshots()
    assert [p.stem for p in files] == ["epoch-00000", "epoch-00002", "epoch-00003"]
    for path in files:
        assert path.stat().st_size < 2_000_000
        arrays = run.snapshot(path)
        assert arrays["h"].shape == arrays["a"].shape == (len(arrays["t"]), len(arrays["label"]), 24, 4, 4)
        assert arrays["h"].dtype == np.float16
        assert (arrays["t"][0], arrays["t"][-1]) == (0, 1)
        assert np.isfinite(arrays["a"]).all()
    first, last = run.snapshot(files[0]), run.snapshot(files[-1])
    assert np.array_equal(first["image"], last["image"])
    assert np.abs(first["a"].astype(float) - last["a"]).max() > 0
    assert "snapshot after epoch 0" in (run.path / "log.txt").read_text()
    for state in (512, 2304, 4096, 8192):  # of models of full size
        probes, frames = fit(state * 2 * 2)
        assert (probes >= 4, frames >= 9, probes * frames * state * 4 <= LIMIT) == (True, True, True)


def test_runs_in_other_threads_do_not_change_the_numbers(train: Train) -> None:
    alone = numbers(train("ace", epochs=2).run)
    with ThreadPoolExecutor(3) as pool:
        first, second, _ = pool.map(lambda method, seed: train(method, epochs=2, seed=seed),
                                    ("ace", "ace", "augmented"), (0, 0, 5))
    assert numbers(first.run) == numbers(second.run) == alone
    assert numbers(train("ace", epochs=2, seed=1).run) != alone


def test_the_model_is_freed_when_a_run_ends(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    born: list[weakref.ref] = []
    whole = ImageTask.recipe
    monkeypatch.setattr(ImageTask, "recipe", lambda self: (born.append(weakref.ref(self.model)), whole(self))[1])
    gc.disable()
    try:
        assert train("ace", batch_size=288).state == "finished"
        assert [ref() for ref in born] == [None]
    finally:
        gc.enable()


class CountDown:
    """A stop event that is set after a number of checks."""

    def __init__(self, looks: float) -> None:
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_stop_and_resume_equal_one_run(few_digits: None, tmp_path: Path) -> None:
    """A run stopped in mid-epoch and resumed twice has the metrics of a run that was never stopped."""
    config = experiments.get("mnist").configure("ace", epochs=2, analysis=False, snapshots=2, batch_size=64)
    whole, part = (create(RunStore(tmp_path), config) for _ in range(2))
    assert execute(whole, tmp_path).state == "finished"
    part.request_stop()
    assert execute(part, tmp_path).state == "stopped"  # before it began
    part.cancel_stop()
    for looks, state in ((3, "stopped"), (2, "stopped"), (float("inf"), "finished")):
        assert execute(part, tmp_path, stop=CountDown(looks)).state == state  # type: ignore[arg-type]
        assert part.status()["state"] == state
    assert numbers(part) == numbers(whole)
    assert part.result()["test"] == whole.result()["test"]  # type: ignore[index]
    with pytest.raises(UserError, match="nothing to resume"):
        execute(part, tmp_path)


def test_a_failed_run_states_its_reason(train: Train) -> None:
    outcome = train("ace", max_steps=1, rtol=1e-6, atol=1e-6)
    assert outcome.state == outcome.run.status()["state"] == "failed"
    assert "the step limit of 1 was reached at t=" in outcome.run.status()["error"]
    assert "loosen rtol and atol" in outcome.run.status()["error"]


def test_deleted_best_parameters_are_written_again(train: Train) -> None:
    run = train("resnet").run
    best = run.path / "checkpoints" / "best.safetensors"
    before = best.read_bytes()
    best.unlink()
    (run.path / "result.json").unlink()
    assert execute(run, run.path).state == "finished"
    assert torch.equal(load(best.read_bytes())["head.linear.bias"], load(before)["head.linear.bias"])


def test_a_failed_analysis_does_not_lose_the_result(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: ImageTask) -> dict:
        raise MemoryError("too many points")

    monkeypatch.setattr(ImageTask, "report", fails)
    outcome = train("resnet")
    assert outcome.state == "finished"
    assert outcome.run.result()["test"] == outcome.metrics  # type: ignore[index]
    assert "no analysis" in (outcome.run.path / "log.txt").read_text()


def test_a_run_whose_numbers_are_nan_fails_with_advice(train: Train, monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    loss, evaluate = ImageTask.loss, ImageTask.evaluate
    monkeypatch.setattr(ImageTask, "evaluate", lambda self, split: evaluate(self, split) | (
        {"loss": float("nan")} if split == "test" else {}))
    run = train("resnet").run
    rate = run.config().get("learning_rate")
    assert run.status()["error"] == f"the test loss is nan, not a number: lower the learning rate (now {rate:g})"
    assert run.result() is None
    (run.path / "result.json").write_text(json.dumps(  # as older versions wrote it
        {"test": {"accuracy": 0.5, "loss": None}, "test_last": {}, "metric": "accuracy", "best_epoch": 1}))
    assert main(["show", run.id, "--runs", str(run.path.parent)]) == 0
    assert "not a number" in capsys.readouterr().out

    def broken(self: ImageTask, batch: tuple, *, detach_attention: bool) -> Loss:
        whole = loss(self, batch, detach_attention=detach_attention)
        return Loss(whole.task * torch.nan, whole.metrics)

    monkeypatch.setattr(ImageTask, "loss", broken)
    outcome = train("resnet")
    assert "became nan at step 0: lower the learning rate" in str(outcome.error)
    assert outcome.run.metrics()[0][0]["L_h"] is None  # JSON has no NaN


def test_out_of_memory_while_loading_does_not_blame_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*given: object) -> None:
        raise MemoryError("Unable to allocate 44 GiB")

    run = create(RunStore(tmp_path), experiments.get("mnist").configure("resnet", epochs=1))
    broken = type("Broken", (), {"make": staticmethod(too_large), "metric": Metric("accuracy")})
    monkeypatch.setattr(experiments, "get", lambda name: broken)
    error = execute(run, tmp_path).error or ""
    assert error.startswith("out of memory while the data was loaded: end other programs")
    assert "batch" not in error


# Damaged folders: one bad run hurts nobody ----------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Return a folder with a good run."""
    made = RunStore(tmp_path / "runs")
    create(made, experiments.get("mnist").configure("resnet", **QUICK))
    return made


def test_a_second_writer_is_refused(store: RunStore, tmp_path: Path) -> None:
    (run,) = store
    writer = RunWriter(run)
    writer.acquire()
    with pytest.raises(UserError, match="is being trained already"):
        execute(run, tmp_path)
    writer.release()
    (run.path / "lock").write_text("whatever a dead process left")
    writer.acquire()
    writer.release()


def test_a_checkpoint_is_never_unpickled(store: RunStore, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (run,) = store
    (run.path / "checkpoints").mkdir()
    (run.path / "checkpoints" / "last.pt").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match="delete it to start the run afresh"):
        execute(run, tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    for name in ("../x", "/etc", "", "a/b"):
        with pytest.raises(UserError, match="is not a run id"):
            RunStore(tmp_path).open(name)


def large(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(MAX_JSON + 10)


CONFIG = {"experiment": "mnist", "method": "ace"}
DAMAGES: list[tuple[str, Any, str]] = [  # a file; its bytes, a change of its values, or what is done to it; the reason
    ("config.json", Path.unlink, "is not a run: it has no config.json"),
    ("config.json", b"{", "cannot be read"), ("config.json", b"\xff\xfe", "cannot be read"),
    ("config.json", b"[" * 5000 + b"]" * 5000, "cannot be read"),
    ("config.json", b"[1]", "is not a valid config.json"),
    ("config.json", b'{"a": 1}', "is not a run: its config.json is not valid"),
    ("config.json", {"format": FORMAT + 1}, "newer version .* update acenode"),
    ("config.json", {"config": {"format": FORMAT, "method": "ace"}}, "lacks experiment"),
    ("config.json", {"config": {**CONFIG, "speed": 1}}, "no setting 'speed'.* did you mean seed"),
    ("config.json", {"config": {**CONFIG, "method": None}}, ""),
    *(("config.json", {"created": value}, "is not valid") for value in ("once", 1e308, -1e12, 10**400)),
    ("config.json", {"params": 10**400}, "is not valid"), ("config.json", {"data_note": "\ud800"}, "cannot be read"),
    *(("status.json", change, "is not a valid status.json") for change in (
        {"heartbeat": "soon"}, {"heartbeat": 10**400}, {"process": [1]}, {"progress": "half"},
        {"progress": float("nan")}, {"state": "dancing"}, {"state": ["queued"]})),
    ("status.json", b'{"state": "run', "cannot be read"), ("status.json", Path.unlink, "it has no status.json"),
    ("status.json", lambda path: (path.unlink(), os.mkfifo(path)), "not a regular file"),
    ("status.json", lambda path: (path.unlink(), path.mkdir()), ""), ("status.json", large, "more than 100 MB"),
    ("result.json", b"{}", "is not a valid result.json"), ("result.json", b'{"test": {"accuracy": "good"}}', "valid"),
]


@pytest.mark.parametrize(("name", "damage", "words"), DAMAGES)
def test_a_bad_run_is_one_unreadable_entry(name: str, damage: Any, words: str, store: RunStore,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    run = create(store, experiments.get("mnist").configure("odenet"))
    path = run.path / name
    if isinstance(damage, bytes):
        path.write_bytes(damage)
    elif isinstance(damage, dict):
        path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    else:
        damage(path)
    found = {e.id: e for e in Catalogue(store).entries()}
    bad = found.pop(run.id)
    assert (bad.state, [e.state for e in found.values()]) == (UNREADABLE, ["queued"])
    assert bad.error
    assert "\n" not in bad.error
    assert re.search(words, bad.error)
    assert main(["list", "--runs", str(store.root)]) == 0
    assert re.search(rf"{run.id}\s+unreadable", capsys.readouterr().out)
    assert main(["show", run.id, "--runs", str(store.root)]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err
    launcher = Launcher(store, store.root)
    launcher.recover(store)
    launcher.close()
    store.folder(run.id).delete()
    assert len(Catalogue(store).entries()) == 1


def test_curves_are_read_line_by_line_without_damaged_ones(tmp_path: Path) -> None:
    run, path = Run(tmp_path), tmp_path / "metrics.jsonl"
    lines = ['{"step": 0, "L_h": 1.0}', '{"step": 1, "L_h": NaN}', '{"step": 1e5, "note": "\\ud800"}',
             f'{{"step": 1{"0" * 400}}}', "[" * 5000 + "]" * 5000, '{"step": 2, "L_h": null}', '{"st']
    path.write_text("\n".join(lines))
    records, offset = run.metrics()
    assert records == [{"step": 0, "L_h": 1.0}, {"step": 1, "L_h": None}, {"step": 2, "L_h": None}]
    with open(path, "ab") as file:
        file.write(b'ep": 3}\n')
    assert run.metrics(offset)[0] == [{"step": 3}]  # the last line is read once it is complete


def test_files_that_unpack_to_too_much_are_not_read(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = store
    (run.path / "metrics.jsonl.gz").write_bytes(gzip.compress(b'{"step": 0}\n' * 1000))
    assert len(run.metrics()[0]) == 1000
    monkeypatch.setattr(store_module, "MAX_METRICS", 10_000)
    assert run.metrics() == ([], 0)
    with pytest.raises(OSError, match="unpacks to more than"):
        run.open_metrics()
    path, half = run.path / "large.npz", np.zeros(store_module.MAX_SNAPSHOT // 2, np.uint8)
    np.savez_compressed(path, x=half, y=half)
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda *_: pytest.fail("it was read"))
    with pytest.raises(UserError, match="it unpacks to 64 MB, more than 64"):
        run.snapshot(path)


@pytest.mark.parametrize(("name", "read"), [
    ("metrics.jsonl", lambda path: Run(path.parent).open_metrics()),
    ("snapshots/epoch-00000.npz", lambda path: Run(path.parents[1]).snapshot(path)),
    ("result.json", lambda path: Run(path.parent).result()), ("notes.json", open_regular)])
def test_a_pipe_in_place_of_a_file_blocks_nobody(name: str, read: Callable[[Path], Any], store: RunStore) -> None:
    (run,) = store
    (run.path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(run.path / name)

    def look() -> None:
        with pytest.raises((UserError, OSError)):
            read(run.path / name)
        assert run.metrics() == ([], 0)
        done.append(Catalogue(store).entries())

    done: list[Any] = []
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(20)
    assert len(done) == 1


def test_json_is_read_strictly() -> None:
    assert parse_json(b'{"a": [1, "\\ud83d\\ude00"]}') == {"a": [1, "\U0001f600"]}
    assert parse_json(b"[NaN, -Infinity]", only_numbers=True) == [None, None]
    for wrong in (b"[" * 100_000, b'"\\udead"', b"\xff", b""):
        with pytest.raises(ValueError, match=".+"):
            parse_json(wrong)


def test_permission_denied_does_not_ask_to_delete_the_run(store: RunStore, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("acenode.runs.store.read_json", denied)
        error = Catalogue(store).entries()[0].error or ""
    assert "may not be read (permission denied): change its permissions" in error
    assert "delete" not in error
    monkeypatch.setattr(os, "scandir", denied)  # a folder that cannot be read is not an empty one
    assert main(["list", "--runs", str(store.root)]) == 2
    caught = capsys.readouterr()
    assert "cannot be read (Permission denied): change its permissions" in caught.err
    assert "no runs" not in caught.out
