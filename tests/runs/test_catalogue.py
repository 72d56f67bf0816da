"""The catalogue of runs: its entries, how few files it reads, and damaged folders."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from quick_settings import QUICK
from short_runs import AfterEpoch

from acenode import UserError, experiments
from acenode.bench.synthetic import finished_runs
from acenode.compare.groups import changed_in
from acenode.execution.execute import Outcome, create, execute
from acenode.runs import catalogue as catalogue_module
from acenode.runs import store as store_module
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import Entry, Notes, read_notes, write_notes
from acenode.runs.store import Run, RunStore

Train = Callable[..., Outcome]
COUNT = 12


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Collect the paths of the JSON files that are parsed."""
    seen: list[Path] = []
    whole = store_module.read_json

    def count(path: Path) -> Any:
        seen.append(path)
        return whole(path)

    for place in ("acenode.runs.store.read_json", "acenode.runs.entry.read_json"):
        monkeypatch.setattr(place, count)
    return seen


def edit(run: Run, name: str, **change: Any) -> None:
    (run.path / name).write_text(json.dumps(json.loads((run.path / name).read_text()) | change))


def test_the_entry_of_a_trained_run_is_complete(train: Train, tmp_path: Path, reads: list[Path]) -> None:
    outcome = train("ace", epochs=2, seed=3)
    catalogue = Catalogue(RunStore(tmp_path / "runs"))
    reads.clear()
    (entry,) = catalogue.entries()
    assert sorted(path.name for path in reads) == ["config.json", "status.json"]
    epochs = [r for r in outcome.run.metrics()[0] if r["kind"] == "epoch"]
    status = outcome.run.status()
    assert (entry.id, entry.path, entry.state, entry.error) == (outcome.run.id, outcome.run.path, "finished", None)
    assert (entry.experiment, entry.method, entry.data, entry.seed) == ("mnist", "ace", "sample", 3)
    assert entry.config == {k: v for k, v in outcome.run.config().to_dict().items() if k != "format"}
    assert (entry.progress, entry.epoch, entry.epochs) == (1.0, 2, 2)
    assert entry.seconds == pytest.approx(outcome.seconds, abs=1e-3)
    assert entry.params == outcome.params
    assert (entry.metric, entry.value, entry.test) == ("accuracy", outcome.metrics["accuracy"], outcome.metrics)
    last = outcome.run.result()["test_last"]  # type: ignore[index]
    assert (entry.test_last, entry.last_value) == (last, last["accuracy"])
    assert entry.best == max(e["validation_accuracy"] for e in epochs)
    assert entry.last == epochs[-1]["validation_accuracy"]
    assert status["best_epoch"] == outcome.run.result()["best_epoch"]  # type: ignore[index]
    assert entry.began == status["began"] >= entry.created > 0
    assert entry.device.startswith("cpu")
    assert (entry.notes, entry.tags) == ("", ())
    assert catalogue.entry(entry.id) == entry
    assert catalogue.entry("nothing") is None
    assert catalogue.entry("../runs") is None


def test_test_values_of_older_runs_come_from_their_results(tmp_path: Path, reads: list[Path]) -> None:
    finished_runs(tmp_path, 2, old=True)
    (newer, older) = Catalogue(RunStore(tmp_path)).entries()
    assert (newer.metric, newer.value, older.value) == ("accuracy", 0.901, 0.9)
    assert newer.last_value == 0.901
    assert newer.last is None
    assert [path.name for path in reads].count("result.json") == 2


def test_a_changed_result_is_read(tmp_path: Path) -> None:
    lost, changed, before = finished_runs(tmp_path, 3)
    catalogue = Catalogue(RunStore(tmp_path))

    def entry(run: Run) -> Entry:
        found = catalogue.entry(run.id)
        assert found is not None
        return found

    (lost.path / "result.json").unlink()
    assert (entry(lost).state, entry(lost).value, entry(lost).test) == ("finished", None, {})
    assert (entry(lost).last_value, entry(lost).test_last) == (None, {})
    edit(changed, "result.json", test={"accuracy": 0.5})
    assert entry(changed).value == 0.5
    assert (entry(before).value, entry(before).last_value) == (0.902, 0.902)  # the status has no last values
    edit(before, "result.json", test_last=[1])
    assert (entry(before).value, entry(before).last_value) == (0.902, None)
    edit(before, "status.json", seconds="long", best=[1], epoch=None, last="x", epochs=float("nan"))  # not numbers
    found = entry(before)
    assert (found.seconds, found.best, found.epoch, found.last, found.epochs) == (None, None, 0, None, 0)


def test_a_run_deleted_while_listing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, gone = finished_runs(tmp_path, 2)
    whole = store_module.read_json

    def slow(path: Path) -> Any:
        if path == gone.path / "status.json":
            (gone.path / "status.json").unlink()  # deleted in part
        return whole(path)

    monkeypatch.setattr("acenode.runs.store.read_json", slow)
    catalogue = Catalogue(RunStore(tmp_path))
    assert {e.id: e.state for e in catalogue.entries()} == {first.id: "finished", gone.id: "unreadable"}
    monkeypatch.undo()
    shutil.rmtree(gone.path)
    assert [e.id for e in catalogue.entries()] == [first.id]
    shutil.rmtree(tmp_path)
    assert catalogue.entries() == []


def test_a_change_of_equal_length_within_a_clock_tick_is_noticed(tmp_path: Path) -> None:
    """`running` and `stopped` have equal length, and two writes may have the same time stamp."""
    store = RunStore(tmp_path)
    run = store.create(experiments.get("mnist").configure("odenet", **QUICK), {})
    run.set_state("running", heartbeat=1.5e9)
    path = run.path / "status.json"
    before, catalogue = path.stat(), Catalogue(store)
    assert catalogue.entries()[0].state == "running"
    run.set_state("stopped", heartbeat=1.5e9)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert catalogue.entries()[0].state == "stopped"


def test_busy_runs_are_listed_without_reading_others_again(tmp_path: Path, reads: list[Path]) -> None:
    recorded = RunStore(tmp_path / "recorded")
    finished_runs(recorded.root, 3, experiment="svhn")
    store = RunStore(tmp_path / "runs", recorded.root)
    finished_runs(store.root, 3)
    catalogue = Catalogue(store)
    assert catalogue.busy_entries() == []
    queued = [store.create(experiments.get("mnist").configure("odenet", **QUICK), {}).id for _ in range(2)]
    everything = catalogue.entries()
    assert len(everything) == 8
    reads.clear()
    busy = catalogue.busy_entries()
    assert busy == [entry for entry in everything if entry.busy]
    assert {entry.id for entry in busy} == set(queued)
    assert reads == []
    shutil.rmtree(store.root)
    assert catalogue.busy_entries() == []


def test_threads_may_list_while_runs_change(tmp_path: Path) -> None:
    made = finished_runs(tmp_path, 12)
    catalogue, stop = Catalogue(RunStore(tmp_path)), threading.Event()

    def look() -> None:
        while not stop.is_set():
            assert {e.state for e in catalogue.entries()} <= {"finished", "stopped", "unreadable"}
            catalogue.entry(made[0].id)

    with ThreadPoolExecutor(3) as pool:
        looking = [pool.submit(look) for _ in range(3)]
        for run in made[1:]:
            run.set_state("stopped")
            run.delete()
        stop.set()
    assert [one.exception() for one in looking] == [None] * 3
    assert [e.id for e in catalogue.entries()] == [made[0].id]


def test_a_resumed_run_keeps_its_progress_and_gets_a_new_start_time(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = create(store, experiments.get("mnist").configure("resnet", **QUICK | {"epochs": 3}))

    assert execute(run, tmp_path, stop=AfterEpoch(run)).state == "stopped"  # type: ignore[arg-type]
    (stopped,) = Catalogue(store).entries()
    assert (stopped.state, stopped.epoch, stopped.epochs, stopped.value) == ("stopped", 1, 3, None)
    assert stopped.last == stopped.best is not None
    run.request_stop()  # before its first iteration, so that nothing changes
    assert execute(run, tmp_path).state == "stopped"
    (again,) = Catalogue(store).entries()
    assert (again.epoch, again.epochs, again.last, again.best) == (1, 3, stopped.last, stopped.best)
    assert again.began is not None
    assert stopped.began is not None
    assert again.began > stopped.began


def test_a_page_looks_once(tmp_path: Path) -> None:
    finished_runs(tmp_path, 2)
    catalogue = Catalogue(RunStore(tmp_path, recorded=tmp_path / "none"))
    with catalogue.one_look():
        before = catalogue.entries()
        before.pop()  # a caller may change its list
        shutil.copytree(tmp_path / "mnist-ace-00000", tmp_path / "mnist-ace-new")
        assert len(catalogue.entries()) == 2
        assert catalogue.busy_entries() == []
        with ThreadPoolExecutor(1) as pool:
            assert len(pool.submit(catalogue.entries).result()) == 3  # other threads look for themselves
    assert len(catalogue.entries()) == 3


# The index beside the runs --------------------------------------------------------------------------------------------

@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Return runs in a folder that has an index after it was listed once."""
    monkeypatch.setattr(catalogue_module, "INDEXED_AFTER", 10)
    return finished_runs(tmp_path, COUNT)


def entries(root: Path) -> list[Entry]:
    """List the runs as a new process does."""
    return Catalogue(RunStore(root)).entries()


def test_a_second_process_opens_only_changed_runs(runs: list[Run], tmp_path: Path, reads: list[Path]) -> None:
    write_notes(runs[3], "good – gut", ["keep", "best"])
    first = entries(tmp_path)
    reads.clear()
    assert entries(tmp_path) == first
    assert reads == []
    assert len(first) == COUNT  # the index itself is no run
    runs[4].set_state("stopped")
    shutil.rmtree(runs[5].path)
    shutil.copytree(runs[6].path, tmp_path / "copy")
    reads.clear()
    found = {e.id: e.state for e in entries(tmp_path)}
    assert {path.parent.name for path in reads} == {runs[4].id, "copy"}
    assert found[runs[4].id] == "stopped"
    assert found.keys() == {run.id for run in runs} - {runs[5].id} | {"copy"}
    runs[0].set_state("running")  # busy and unreadable runs are always read
    (runs[1].path / "config.json").write_text("{")
    entries(tmp_path)
    reads.clear()
    entries(tmp_path)
    assert {runs[0].id, runs[1].id} <= {path.parent.name for path in reads}


def _flip_digit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"0.901", b"0.951"))


def _foreign(path: Path) -> None:
    content = b"[[[], [1, 2]]]"
    path.write_bytes(catalogue_module._header(content) + content)


@pytest.mark.parametrize("damage", [
    _flip_digit, _foreign, Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"\xff" * 99),
    lambda path: path.write_bytes(path.read_bytes()[:-9]),
    lambda path: (path.unlink(), os.mkfifo(path)), lambda path: (path.unlink(), path.mkdir()),
], ids=["flipped digit", "foreign", "missing", "empty", "not text", "cut", "pipe", "folder"])
def test_an_invalid_index_is_not_used(damage: Callable[[Path], object], runs: list[Run], tmp_path: Path,
                                      reads: list[Path]) -> None:
    first = entries(tmp_path)
    reads.clear()
    damage(tmp_path / catalogue_module.FILE)
    assert entries(tmp_path) == first
    assert len(reads) == 2 * COUNT
    if (tmp_path / catalogue_module.FILE).is_file():  # written again
        reads.clear()
        assert entries(tmp_path) == first
        assert reads == []


def test_small_folders_and_recorded_runs_and_those_that_cannot_be_written_have_no_index(
        runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(path: Path, content: bytes) -> None:
        raise PermissionError(30, "Read-only file system")

    assert all(e.recorded for e in Catalogue(RunStore(tmp_path, recorded=tmp_path)).entries())
    with monkeypatch.context() as patch:
        patch.setattr(catalogue_module, "write_atomic", read_only)
        assert len(entries(tmp_path)) == COUNT
    monkeypatch.setattr(catalogue_module, "INDEXED_AFTER", COUNT + 1)
    entries(tmp_path)
    assert not (tmp_path / catalogue_module.FILE).exists()


def test_equal_values_of_other_types_are_told_apart() -> None:
    config = experiments.get("mnist").configure("ace", epochs=1).to_dict()
    assert changed_in(config) == changed_in(config | {"seed": 7, "device": "cpu"}) == {"epochs": 1}
    assert changed_in(config | {"epochs": True}) == changed_in(config | {"epochs": [1]}) == {}  # not valid


def test_the_index_is_not_written_for_every_new_run(runs: list[Run], tmp_path: Path) -> None:
    listed = Catalogue(RunStore(tmp_path))
    listed.entries()
    before = (tmp_path / catalogue_module.FILE).stat().st_ino
    for run in runs[:3]:
        run.set_state("stopped")
        listed.entries()
    assert (tmp_path / catalogue_module.FILE).stat().st_ino == before
    for run in runs[1:]:
        shutil.rmtree(run.path)
    listed.entries()
    assert (tmp_path / catalogue_module.FILE).stat().st_ino != before  # mostly about runs that no longer exist


def test_files_of_many_runs_are_looked_at_in_turns(runs: list[Run], tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced file is noticed at once, since its folder changes; one written in place within some listings."""
    looked: list[str] = []
    whole = catalogue_module.stamps_of
    monkeypatch.setattr(catalogue_module, "stamps_of", lambda place: (looked.append(place), whole(place))[1])
    monkeypatch.setattr(catalogue_module, "MANY", COUNT)
    monkeypatch.setattr(catalogue_module, "SETTLED", -1)
    catalogue = Catalogue(RunStore(tmp_path))
    catalogue.entries()
    assert len(looked) == COUNT
    looked.clear()
    for _ in range(catalogue_module.TURNS):
        catalogue.entries()
    assert sorted(looked) == sorted(str(run.path) for run in runs)  # each once
    write_notes(runs[3], "replaced", [])
    assert "replaced" in {entry.notes for entry in catalogue.entries()}
    path = runs[5].path / "status.json"
    path.write_text(path.read_text().replace('"finished"', '"stopped"'))
    for _ in range(catalogue_module.TURNS):
        states = {entry.id: entry.state for entry in catalogue.entries()}
    assert states[runs[5].id] == "stopped"


# Notes and tags of a run ----------------------------------------------------------------------------------------------


def test_written_notes_are_read_back(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert read_notes(run) == Notes("", ())
    kept = write_notes(run, "Line one\nλ = 0.1\tgood 🙂", [" baseline ", "λ", "baseline", ""])
    assert kept == read_notes(run) == Notes("Line one\nλ = 0.1\tgood 🙂", ("baseline", "λ"))
    assert json.loads((tmp_path / "notes.json").read_text()) == {"notes": kept.notes, "tags": ["baseline", "λ"]}
    assert [p.name for p in tmp_path.iterdir()] == ["notes.json"]
    assert write_notes(run, "a\r\nb", []).notes == "a\nb"  # as some browsers send it
    tags = [f"{i:02d}" + "x" * 38 for i in range(20)]
    assert write_notes(run, "x" * 10_000, tags).tags == tuple(tags)  # the limits themselves
    (tmp_path / "notes.json").unlink()
    (tmp_path / "notes.json").mkdir()  # cannot be replaced by a file
    with pytest.raises(UserError, match="notes of .* cannot be written"):
        write_notes(run, "x", [])
    with pytest.raises(UserError, match="no longer exists"):
        write_notes(Run(tmp_path / "gone"), "x", [])
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(("notes", "tags", "words"), [
    ("x" * 10_001, [], "notes have 10,001 characters: at most 10,000 are allowed"),
    ("", [str(i) for i in range(21)], "21 tags: at most 20 are allowed"),
    ("", ["x" * 41], "has 41 characters: at most 40 are allowed"),
    ("a\x00b", [], "control character"),
    ("\x1b[31mred", [], "control character"),
    ("", ["two\nlines"], "control character"),
    ("\ud800", [], "control character"),
    (5, [], "must be text"),
    ("", [5], "must be text"),
    ("", "word", "list of words"),
])
def test_invalid_notes_leave_the_file_unchanged(notes: str, tags: list[str], words: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    write_notes(run, "before", ["kept"])
    with pytest.raises(UserError, match=words) as caught:
        write_notes(run, notes, tags)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()
    assert read_notes(run) == Notes("before", ("kept",))


@pytest.mark.parametrize("content", [
    b"", b"{", b"\xff", b"[]", b'{"notes": 1}', b'{"notes": "x", "tags": "abc"}', b'{"notes": "x", "tags": [1]}',
    b'{"notes": "\\u0000"}', b"[" * 100_000,
])
def test_a_damaged_file_reads_as_empty(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_bytes(content)
    assert read_notes(Run(tmp_path)) == Notes("", ())

