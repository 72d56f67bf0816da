"""The recorded runs that come with the project: they are listed, open, export, and are never written to."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from acenode.bench.synthetic import finished_runs
from acenode.cli import main
from acenode.errors import UserError
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import write_notes
from acenode.runs.recorded import chosen_recorded_runs, decode, encode, pack, recorded_runs
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunWriter


def folder() -> Path:
    found = recorded_runs()
    assert found is not None
    return found


def files() -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder().rglob("*") if path.is_file()}


def test_every_recorded_run_is_finished_and_has_a_result() -> None:
    entries = Catalogue(RunStore(folder(), folder())).entries()
    assert len(entries) >= 39
    assert {e.state for e in entries} == {"finished"}
    for run in RunStore(folder()):
        assert run.result() is not None
        assert run.metrics()[0]
        assert run.description()["environment"]["device"]


def test_the_folder_of_recorded_runs_is_not_taken_for_a_run() -> None:
    """In the repository it lies in the default folder of runs, where it must be neither listed nor deleted."""
    store = RunStore(folder().parent, folder())
    assert folder().name not in {run.id for run in store}
    assert store.find(folder().name) is None
    for access in (store.open, store.folder):
        with pytest.raises(UserError, match="there is no"):
            access(folder().name)


def test_tables_and_exports_read_recorded_runs_without_writing_to_them(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    before = files()
    assert main(["table", "physionet", "--runs", "recorded"]) == 0
    assert "0.836 ± 0.008  3" in capsys.readouterr().out
    run = next(r.id for r in RunStore(folder()) if r.id.startswith("ushcn-ace"))
    assert main(["show", run, "--runs", "recorded"]) == 0
    assert main(["export", run, "--to", "html", "--runs", "recorded"]) == 0
    assert (tmp_path / f"{run}-report.html").exists()
    assert files() == before


@pytest.mark.parametrize("words", [["train", "mnist", "--method", "ace"], ["resume", "mnist"], ["stop", "mnist"]])
def test_recorded_runs_cannot_be_trained(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--runs", "recorded"]) == 2
    assert "recorded runs can only be read" in capsys.readouterr().err


# Beside the user's own runs -----------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Return a store with three runs of its own, and two recorded ones, of which one is also in the store."""
    finished_runs(tmp_path / "runs", 3)
    finished_runs(tmp_path / "recorded", 2, experiment="svhn")
    shutil.copytree(tmp_path / "recorded" / "svhn-ace-00001", tmp_path / "runs" / "svhn-ace-00001")
    return RunStore(tmp_path / "runs", tmp_path / "recorded")


def test_recorded_runs_are_listed_once_after_the_others(store: RunStore) -> None:
    entries = Catalogue(store).entries()
    assert [(e.id, e.recorded) for e in entries] == [
        ("mnist-ace-00002", False), ("svhn-ace-00001", False), ("mnist-ace-00001", False), ("mnist-ace-00000", False),
        ("svhn-ace-00000", True)]
    assert entries[-1].code == "0.1.0"
    assert [run.id for run in store] == sorted(e.id for e in entries[:-1])  # what the launcher sees
    assert all(not e.recorded for e in Catalogue(RunStore(store.root)).entries())


def test_ids_of_recorded_runs_open(store: RunStore) -> None:
    for found in (store.open("svhn-ace-00000"), store.find("svhn-ace-00000"), Catalogue(store).entry("svhn-ace-00000")):
        assert found is not None
        assert found.recorded
        assert found.path.parent.name == "recorded"
    assert not store.open("svhn-ace-00001").recorded  # the store's own comes first
    assert store.open("svhn").id == "svhn-ace-00001"  # and the prefixes of its own
    assert store.open("last").id.startswith(("mnist", "svhn-ace-00001"))
    with pytest.raises(UserError, match="there is no folder"):
        store.folder("svhn-ace-00000")
    shutil.rmtree(store.root / "svhn-ace-00001")
    with pytest.raises(UserError, match=r"matches 2 runs: use a longer prefix of the id \(svhn-ace-00000, svhn-"):
        store.open("svhn")
    shutil.rmtree(store.root.parent / "recorded")  # a missing folder does no harm
    assert len(Catalogue(store).entries()) == 3
    assert store.find("svhn-ace-00000") is None


@pytest.mark.parametrize("action", [
    Run.delete, Run.request_stop, Run.cancel_stop, lambda run: run.set_state("stopped"),
    lambda run: write_notes(run, "mine", []), lambda run: RunWriter(run).acquire()])
def test_recorded_runs_are_not_changed(action: Callable[[Run], None], store: RunStore) -> None:
    run = store.open("svhn-ace-00000")
    before = {p: p.read_bytes() for p in run.path.iterdir()}
    with pytest.raises(UserError, match="is a recorded run and cannot be .*: it can be read, and run again"):
        action(run)
    assert {p: p.read_bytes() for p in run.path.iterdir()} == before


def test_the_command_line_lists_and_opens_them(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    for value, expected in ((None, folder()), ("", None), (str(tmp_path / "recorded"), tmp_path / "recorded")):
        monkeypatch.setenv("ACENODE_RECORDED", value or "") if value is not None else monkeypatch.delenv(
            "ACENODE_RECORDED")
        assert chosen_recorded_runs() == expected
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["recorded"] + 4 * ["finished"]
    assert main(["list", "--json"]) == 0
    assert ["recorded" in x for x in json.loads(capsys.readouterr().out)] == [True] + 4 * [False]
    assert main(["list", "--no-recorded"]) == 0
    assert "svhn-ace-00000" not in capsys.readouterr().out
    assert main(["show", "svhn-ace-00000"]) == 0
    assert "svhn-ace-00000: recorded" in capsys.readouterr().out
    assert main(["resume", "svhn-ace-00000"]) == 2
    assert "svhn-ace-00000 is a recorded run and cannot be" in capsys.readouterr().err


# Compact arrays of recorded snapshots ---------------------------------------------------------------------------------


RANDOM = np.random.default_rng(0)


def trajectories(shape: tuple[int, ...], frames: int = 21) -> np.ndarray:
    """Return damped oscillations, as float16."""
    t = np.linspace(0, 1, frames).reshape(-1, *[1] * len(shape))
    rate, phase, size = (RANDOM.normal(size=(1, *shape)) for _ in range(3))
    return (size * np.exp(-t * np.abs(rate)) * np.cos(2 * t + phase)).astype(np.float16)


@pytest.mark.parametrize(("polynomials", "axes"), [(True, ()), (False, ()), (False, (2, 3)), (True, (3,))])
def test_arrays_are_read_back_within_the_step(polynomials: bool, axes: tuple[int, ...]) -> None:
    x, step = trajectories((3, 8, 8)), 0.01
    found = decode(encode("a", x, step, polynomials, axes) | {"label": np.arange(3)})
    assert set(found) == {"a", "label"}
    assert found["a"].dtype == x.dtype
    error = np.abs(found["a"].astype(float) - x.astype(float))
    assert error.max() < 3 * step
    assert np.sqrt(np.square(error).mean()) < 0.31 * step  # uniform rounding: step / √12


def test_smooth_trajectories_and_matrices_of_low_rank_take_few_bytes() -> None:
    x = trajectories((10, 16, 6, 6))
    plain, smooth = (len(pack(encode("h", x, 0.02, polynomials, ()))) for polynomials in (False, True))
    assert smooth < min(plain / 3, x.nbytes / 8)
    left, right = RANDOM.normal(size=(21, 4, 30, 2)), RANDOM.normal(size=(1, 1, 2, 30))  # not smooth in time
    rows, plain = (len(pack(encode("a", (left @ right).astype(np.float16), 0.02, False, axes))) for axes in (
        (2, 3), ()))
    assert rows < plain / 3


def test_a_coefficient_beyond_16_bits_makes_the_step_larger() -> None:
    x = np.full((5, 1, 4), 60_000.0, np.float32)
    assert decode(encode("h", x, 1e-3, True, ()))["h"] == pytest.approx(x, rel=1e-3)


def test_files_are_npz_and_depend_on_nothing_but_the_arrays() -> None:
    members = encode("h", trajectories((2, 4)), 0.01, True, ())
    content = pack(members)
    assert content == pack(members)
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        np.testing.assert_array_equal(decode({k: file[k] for k in file.files})["h"], decode(members)["h"])


@pytest.mark.parametrize("change", [
    {"h.dtype": np.array("object")}, {"h.axis0": np.zeros((3, 3), np.float32)}, {"h.low": np.zeros((2, 2), np.uint8)}])
def test_damaged_members_raise(change: dict[str, np.ndarray]) -> None:
    members = encode("h", trajectories((2, 4)), 0.01, True, ())
    with pytest.raises((ValueError, KeyError)):
        decode(members | change)
    with pytest.raises(KeyError):
        decode({k: x for k, x in members.items() if k != "h.step"})
