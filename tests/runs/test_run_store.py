"""The run directory: what is written, what survives failures, and what is refused."""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quick_settings import QUICK, quick_settings

from acenode import SolveError, UserError, experiments
from acenode.cli import main
from acenode.config import FORMAT
from acenode.execution import execute as execution
from acenode.execution.execute import Outcome, create, execute
from acenode.execution.launcher import Launcher
from acenode.experiments.recording import LIMIT, fit
from acenode.files import MAX_JSON, open_regular, parse_json
from acenode.runs import store as store_module
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import UNREADABLE
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunWriter
from acenode.training.task import Loss, Metric

Train = Callable[..., Outcome]


def steps(run: Run) -> list[dict]:
    """Return the metrics without measured times."""
    return [{k: v for k, v in r.items() if k not in ("seconds", "elapsed")} for r in run.metrics()[0]]


def test_a_finished_run_has_all_files(train: Train) -> None:
    outcome = train("ace", epochs=2)
    run = outcome.run
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
    result = run.result()
    assert result is not None
    assert result["test"].keys() == {"accuracy", "loss", "nfe"}
    assert np.sum(result["confusion"]) == 90
    assert result["test"]["accuracy"] == pytest.approx(np.trace(result["confusion"]) / 90)
    assert len(result["class_accuracy"]) == 10


def test_the_best_parameters_are_tested(train: Train) -> None:
    from safetensors.torch import load_file

    outcome = train("odenet", epochs=2, batch_size=64)
    experiment = experiments.get("mnist")
    task = experiment.make(outcome.run.config(), Path(), torch.device("cpu"))
    task.model.load_state_dict(load_file(outcome.run.path / "checkpoints" / "best.safetensors"))
    assert task.evaluate("test") == outcome.metrics


def test_snapshots_hold_the_trajectory_and_stay_small(train: Train) -> None:
    run = train("ace", epochs=3, snapshots=3).run
    files = run.snapshots()
    assert [p.stem for p in files] == ["epoch-00000", "epoch-00002", "epoch-00003"]
    for path in files:
        assert path.stat().st_size < 2_000_000
        arrays = run.snapshot(path)
        assert arrays["h"].shape == arrays["a"].shape == (len(arrays["t"]), len(arrays["label"]), 24, 4, 4)
        assert arrays["h"].dtype == np.float16
        assert arrays["t"][0] == 0
        assert arrays["t"][-1] == 1
        assert np.isfinite(arrays["a"]).all()
    first, last = run.snapshot(files[0]), run.snapshot(files[-1])
    assert np.array_equal(first["image"], last["image"])
    assert np.abs(first["a"].astype(float) - last["a"]).max() > 0
    assert "snapshot after epoch 0" in (run.path / "log.txt").read_text()


@pytest.mark.parametrize("state", [512, 2304, 4096, 8192])
def test_snapshots_of_full_size_models_fit(state: int) -> None:
    probes, frames = fit(state * 2 * 2)
    assert probes >= 4
    assert frames >= 9
    assert probes * frames * state * 4 <= LIMIT


def test_the_same_seed_gives_the_same_numbers(train: Train) -> None:
    first = steps(train("ace").run)
    assert steps(train("ace").run) == first
    assert steps(train("ace", seed=1).run) != first


def test_runs_in_other_threads_do_not_change_the_numbers(train: Train, tmp_path: Path) -> None:
    """Train the same seed alone and while other runs start and seed their generators."""
    alone = steps(train("ace", epochs=2).run)
    outcomes: dict[int, Outcome] = {}

    def work(i: int) -> None:
        outcomes[i] = train("ace" if i < 2 else "augmented", epochs=2, seed=0 if i < 2 else 5)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps(outcomes[0].run) == alone
    assert steps(outcomes[1].run) == alone


def test_the_model_is_freed_when_a_run_ends(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.experiments.image_task import ImageTask

    born: list[weakref.ref] = []
    whole = ImageTask.recipe
    monkeypatch.setattr(ImageTask, "recipe", lambda self: (born.append(weakref.ref(self.model)), whole(self))[1])
    gc.disable()
    try:
        assert train("ace", batch_size=288).state == "finished"
        assert [ref() for ref in born] == [None]
    finally:
        gc.enable()


def test_stop_and_resume_equal_one_run(few_digits: None, tmp_path: Path) -> None:
    """A run stopped in mid-epoch and resumed twice has the metrics of a run that was never stopped."""
    config = experiments.get("mnist").configure("ace", epochs=2, analysis=False, snapshots=2, batch_size=64)
    store = RunStore(tmp_path)
    whole = create(store, config)
    assert execute(whole, tmp_path).state == "finished"
    part = create(store, config)
    for steps_to_go in (3, 2, None):
        counter = CountDown(steps_to_go)
        outcome = execute(part, tmp_path, stop=counter)  # type: ignore[arg-type]
        assert outcome.state == ("stopped" if steps_to_go else "finished")
        if steps_to_go:
            assert part.status()["state"] == "stopped"
    assert steps(part) == steps(whole)
    first, second = part.result(), whole.result()
    assert first is not None
    assert second is not None
    assert first["test"] == second["test"]
    with pytest.raises(UserError, match="nothing to resume"):
        execute(part, tmp_path)


class CountDown:
    """A stop event that is set after a number of checks."""

    def __init__(self, looks: int | None) -> None:
        self.looks = looks

    def is_set(self) -> bool:
        if self.looks is None:
            return False
        self.looks -= 1
        return self.looks < 0


def test_a_failed_run_states_its_reason(train: Train) -> None:
    outcome = train("ace", max_steps=1, rtol=1e-6, atol=1e-6)
    assert outcome.state == outcome.run.status()["state"] == "failed"
    assert "the step limit of 1 was reached at t=" in outcome.run.status()["error"]
    assert "loosen rtol and atol" in outcome.run.status()["error"]


def test_a_run_that_fails_later_keeps_curves_and_checkpoint(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.experiments.image_task import ImageTask

    whole, calls = ImageTask.loss, []

    def breaks(self: ImageTask, batch: tuple, *, detach_attention: bool) -> Loss:
        calls.append(1)
        if len(calls) > 3:  # in the second epoch of two iterations each
            raise SolveError("underflow in dt", 0.5, 1e-9, "loosen rtol and atol")
        return whole(self, batch, detach_attention=detach_attention)

    monkeypatch.setattr(ImageTask, "loss", breaks)
    run = train("resnet", epochs=2).run
    assert run.status()["state"] == "failed"
    assert [r["step"] for r in run.metrics()[0] if r["kind"] == "step"] == [0, 1, 2]
    assert (run.path / "checkpoints" / "last.pt").exists()
    monkeypatch.undo()
    assert execute(run, run.path).state == "finished"
    assert [r["step"] for r in run.metrics()[0] if r["kind"] == "step"] == [0, 1, 2, 3]


def test_a_failed_analysis_does_not_lose_the_result(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.experiments.image_task import ImageTask

    def fails(self: ImageTask) -> dict:
        raise MemoryError("too many points")

    monkeypatch.setattr(ImageTask, "report", fails)
    outcome = train("resnet")
    assert outcome.state == "finished"
    assert outcome.run.result()["test"] == outcome.metrics  # type: ignore[index]
    assert "no analysis" in (outcome.run.path / "log.txt").read_text()


def test_a_stop_requested_before_the_start_stops_the_run(tmp_path: Path) -> None:
    run = create(RunStore(tmp_path), experiments.get("mnist").configure("resnet", **QUICK))
    run.request_stop()
    assert execute(run, tmp_path).state == "stopped"
    run.cancel_stop()
    assert execute(run, tmp_path).state == "finished"


def test_deleted_best_parameters_are_written_again(train: Train) -> None:
    from safetensors.torch import load

    run = train("resnet").run
    best = run.path / "checkpoints" / "best.safetensors"
    before = best.read_bytes()
    best.unlink()
    (run.path / "result.json").unlink()
    assert execute(run, run.path).state == "finished"
    assert torch.equal(load(best.read_bytes())["head.linear.bias"], load(before)["head.linear.bias"])


def test_a_run_whose_loss_is_nan_fails_with_advice(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.experiments.image_task import ImageTask

    whole = ImageTask.loss

    def broken(self: ImageTask, batch: tuple, *, detach_attention: bool) -> Loss:
        loss = whole(self, batch, detach_attention=detach_attention)
        return Loss(loss.task * torch.nan, loss.metrics)

    monkeypatch.setattr(ImageTask, "loss", broken)
    outcome = train("resnet")
    assert outcome.state == "failed"
    assert "became nan at step 0: lower the learning rate" in str(outcome.error)
    assert outcome.run.metrics()[0][0]["L_h"] is None  # JSON has no NaN


def test_a_second_writer_is_refused(train: Train, tmp_path: Path) -> None:
    config = experiments.get("mnist").configure("ace", epochs=1)
    run = create(RunStore(tmp_path), config)
    first = RunWriter(run)
    first.acquire()
    with pytest.raises(UserError, match="is being trained already"):
        execute(run, tmp_path)
    first.release()
    (run.path / "lock").write_text("whatever a dead process left")
    second = RunWriter(run)
    second.acquire()
    second.release()


def test_an_incomplete_last_line_is_read_when_complete(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    records, offset = run.metrics()
    assert [r["step"] for r in records] == [1, 2]
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'ep": 3}\n')
    assert run.metrics(offset)[0] == [{"step": 3}]


@pytest.mark.parametrize(("content", "words"), [
    (None, "is not a run: it has no config.json"),
    (b"{", "cannot be read"),
    (b"\xff\xfe", "cannot be read"),
    (b"[1]", "is not a valid config.json"),
    (b'{"a": 1}', "is not a run: its config.json is not valid"),
    (json.dumps({"format": FORMAT + 1, "config": {}}).encode(), "newer version .* update acenode"),
    (json.dumps({"format": FORMAT, "config": {"format": FORMAT, "method": "ace"}}).encode(), "lacks experiment"),
    (json.dumps({"format": FORMAT, "config": {"experiment": "mnist", "method": "ace", "speed": 1}}).encode(),
     "no setting 'speed'.* did you mean seed"),
])
def test_folders_that_are_not_runs_are_refused(content: bytes | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=words):
        Run(tmp_path).config()


@pytest.mark.parametrize(("name", "change"), [
    ("status.json", {"heartbeat": "soon"}), ("status.json", {"process": [1]}), ("status.json", {"progress": "half"}),
    ("status.json", {"state": "dancing"}), ("config.json", {"created": "once"}), ("result.json", {"test": None}),
    ("result.json", {"test": {"accuracy": "good"}}),
])
def test_a_damaged_run_is_listed_as_unreadable(name: str, change: dict, train: Train,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    run = train("resnet").run
    (run.path / name).write_text(json.dumps(json.loads((run.path / name).read_text()) | change))
    assert main(["list", "--json", "--runs", str(run.path.parent)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "unreadable"
    assert main(["show", run.id, "--runs", str(run.path.parent)]) == 2


def test_a_checkpoint_is_never_unpickled(train: Train, tmp_path: Path) -> None:
    import pickle

    config = experiments.get("mnist").configure("odenet", epochs=1)
    run = create(RunStore(tmp_path), config)
    (run.path / "checkpoints").mkdir()

    class Trap:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (run.path / "checkpoints" / "last.pt").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match="delete it to start the run afresh"):
        execute(run, tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    for name in ("../x", "/etc", "", "a/b"):
        with pytest.raises(UserError, match="is not a run id"):
            RunStore(tmp_path).open(name)


# One bad run hurts nobody ---------------------------------------------------------------------------------------------


FILES: dict[str, tuple[str, Any]] = {
    "null method": ("config.json", lambda d: d["config"].update(method=None)),
    "late creation": ("config.json", lambda d: d.update(created=1e308)),
    "negative creation": ("config.json", lambda d: d.update(created=-1e12)),
    "huge creation": ("config.json", lambda d: d.update(created=10**400)),
    "huge parameters": ("config.json", lambda d: d.update(params=10**400)),
    "surrogate": ("config.json", lambda d: d.update(data_note="\ud800")),
    "NaN progress": ("status.json", lambda d: d.update(progress=float("nan"))),
    "huge heartbeat": ("status.json", lambda d: d.update(heartbeat=10**400)),
    "list as state": ("status.json", lambda d: d.update(state=["queued"])),
}


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Return a folder with a good run."""
    made = RunStore(tmp_path / "runs")
    create(made, experiments.get("mnist").configure("resnet"))
    return made


def bad_run(store: RunStore, kind: str) -> Run:
    run = create(store, experiments.get("mnist").configure("odenet"))
    if kind == "nested":
        (run.path / "config.json").write_bytes(b"[" * 5000 + b"]" * 5000)
    elif kind == "pipe":
        (run.path / "status.json").unlink()
        os.mkfifo(run.path / "status.json")
    elif kind == "folder":
        (run.path / "status.json").unlink()
        (run.path / "status.json").mkdir()
    elif kind == "large":
        with open(run.path / "status.json", "r+b") as file:
            file.truncate(MAX_JSON + 10)
    else:
        name, change = FILES[kind]
        values = json.loads((run.path / name).read_text())
        change(values)
        (run.path / name).write_text(json.dumps(values))
    return run


@pytest.mark.parametrize("kind", [*FILES, "nested", "pipe", "folder", "large"])
def test_a_bad_run_is_one_unreadable_entry(kind: str, store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    run = bad_run(store, kind)
    found = {e.id: e for e in Catalogue(store).entries()}
    assert found.pop(run.id).state == UNREADABLE
    assert [e.state for e in found.values()] == ["queued"]
    reason = Catalogue(store).entry(run.id).error  # type: ignore[union-attr]
    assert reason
    assert "\n" not in reason
    assert main(["list", "--runs", str(store.root)]) == 0
    assert re.search(rf"{run.id}\s+unreadable", capsys.readouterr().out)
    assert main(["show", run.id, "--runs", str(store.root)]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err
    launcher = Launcher(store, store.root)
    launcher.recover()
    launcher.close()
    store.folder(run.id).delete()
    assert len(Catalogue(store).entries()) == 1


def test_a_huge_process_number_is_not_alive(store: RunStore) -> None:
    run = next(iter(store))
    status = run.status()
    (run.path / "status.json").write_text(json.dumps(status | {
        "state": "running", "process": status["process"] | {"pid": 10**400}, "heartbeat": 0}))
    assert run.status()["state"] == "interrupted"


def test_damaged_lines_of_the_curves_are_left_out(store: RunStore) -> None:
    run = next(iter(store))
    lines = ['{"step": 0, "L_h": 1.0}', '{"step": 1, "L_h": NaN}', '{"step": 1e5, "note": "\\ud800"}',
             f'{{"step": 1{"0" * 400}}}', "[" * 5000 + "]" * 5000, '{"step": 2, "L_h": null}']
    (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert run.metrics()[0] == [{"step": 0, "L_h": 1.0}, {"step": 1, "L_h": None}, {"step": 2, "L_h": None}]


def test_files_that_unpack_to_too_much_are_not_read(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run = next(iter(store))
    (run.path / "metrics.jsonl").unlink(missing_ok=True)
    (run.path / "metrics.jsonl.gz").write_bytes(gzip.compress(b'{"step": 0}\n' * 1000))
    assert len(run.metrics()[0]) == 1000
    monkeypatch.setattr(store_module, "MAX_METRICS", 10_000)
    assert run.metrics() == ([], 0)
    with pytest.raises(OSError, match="unpacks to more than"):
        run.open_metrics()
    path = run.path / "large.npz"
    np.savez_compressed(path, x=np.zeros(store_module.MAX_SNAPSHOT // 2, np.uint8),
                        y=np.zeros(store_module.MAX_SNAPSHOT // 2, np.uint8))
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda *_: pytest.fail("it was read"))
    with pytest.raises(UserError, match="it unpacks to 64 MB, more than 64"):
        run.snapshot(path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "snapshots/epoch-00000.npz", "result.json", "notes.json"])
def test_a_pipe_in_place_of_a_file_blocks_nobody(name: str, store: RunStore) -> None:
    run = next(iter(store))
    (run.path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(run.path / name)

    def read() -> None:
        with pytest.raises((UserError, OSError)):
            {"metrics.jsonl": run.open_metrics, "result.json": run.result,
             "notes.json": lambda: open_regular(run.path / name)}.get(
                name, lambda: run.snapshot(run.path / name))()  # type: ignore[operator]
        assert name != "metrics.jsonl" or run.metrics() == ([], 0)
        done.append(Catalogue(store).entries())

    done: list[Any] = []
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(20)
    assert len(done) == 1


def test_json_is_read_strictly() -> None:
    assert parse_json(b'{"a": [1, "\\ud83d\\ude00"]}') == {"a": [1, "\U0001f600"]}
    assert parse_json(b"[NaN, -Infinity]", only_numbers=True) == [None, None]
    for wrong in (b"[" * 100_000, b'"\\udead"', b"\xff", b""):
        with pytest.raises(ValueError, match=".+"):
            parse_json(wrong)


def test_permission_denied_does_not_ask_to_delete_the_run(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("acenode.runs.store.read_json", denied)
    error = Catalogue(store).entries()[0].error or ""
    assert "may not be read (permission denied): change its permissions" in error
    assert "delete" not in error


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(store: RunStore, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", denied)
    assert main(["list", "--runs", str(store.root)]) == 2
    caught = capsys.readouterr()
    assert "cannot be read (Permission denied): change its permissions" in caught.err
    assert "no runs" not in caught.out



def test_a_run_whose_test_is_nan_fails_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    real = execution._test

    def nan(trainer: Any, task: Any) -> dict[str, Any]:
        return real(trainer, task) | {"test": {"mse": 0.5, "negll": float("nan")}}

    monkeypatch.setattr(execution, "_test", nan)
    store = RunStore(tmp_path)
    config = experiments.get("ushcn").configure("gru-simple", epochs=1)
    outcome = execute(create(store, config), tmp_path)
    assert outcome.state == "failed"
    rate = config.get("learning_rate")
    assert outcome.error == f"the test negll is nan, not a number: lower the learning rate (now {rate:g})"
    assert outcome.run.result() is None
    assert main(["show", outcome.run.id, "--runs", str(tmp_path)]) == 0
    (outcome.run.path / "result.json").write_text(json.dumps(  # as older versions wrote it
        {"test": {"mse": 0.5, "negll": None}, "test_last": {}, "metric": "mse", "best_epoch": 1}))
    assert main(["show", outcome.run.id, "--runs", str(tmp_path)]) == 0
    assert "not a number" in capsys.readouterr().out


def test_out_of_memory_while_loading_does_not_blame_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*given: object) -> None:
        raise MemoryError("Unable to allocate 44 GiB")

    config = experiments.get("mnist").configure("resnet", epochs=1)
    run = create(RunStore(tmp_path), config)
    broken = type("Broken", (), {"make": staticmethod(too_large), "metric": Metric("accuracy")})
    monkeypatch.setattr(experiments, "get", lambda name: broken)
    error = execute(run, tmp_path).error or ""
    assert error.startswith("out of memory while the data was loaded: end other programs")
    assert "batch" not in error
