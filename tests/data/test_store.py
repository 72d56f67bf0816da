"""The data folder, files that are whole or absent, and the lock."""

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from acenode import files
from acenode.data.store import data_dir, read_npz, sweep, write_npz
from acenode.errors import UserError
from acenode.lock import locked

ARRAYS = {"a": np.arange(12, dtype=np.uint8).reshape(3, 4), "b": np.ones(5, dtype=np.float32)}


def test_data_dir_takes_the_nearest_wish(monkeypatch, tmp_path):
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "env"))
    assert data_dir(tmp_path / "given") == tmp_path / "given"
    assert data_dir(str(tmp_path / "given")) == tmp_path / "given"
    assert data_dir() == tmp_path / "env"
    assert data_dir("~/sets") == Path.home() / "sets"


@pytest.mark.parametrize(
    ("platform", "env", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/acenode"),
        ("linux", {"HOME": "/home/ada"}, "/home/ada/.cache/acenode"),
        ("darwin", {"HOME": "/home/ada"}, "/home/ada/Library/Caches/acenode"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/acenode"),
    ],
)
def test_data_dir_is_in_the_users_cache(monkeypatch, platform, env, expected):
    for name in ("ACENODE_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert data_dir() == Path(expected)


def test_data_dir_without_a_home_says_what_to_set(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ACENODE_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UserError, match="set ACENODE_DATA"):
        data_dir()


def test_npz_is_read_by_numpy_and_by_us_alike(tmp_path):
    path = tmp_path / "deep" / "set.npz"
    write_npz(path, ARRAYS)
    assert os.listdir(path.parent) == ["set.npz"]
    ours = read_npz(path, ("a", "b"))
    with np.load(path, allow_pickle=False) as theirs:
        assert sorted(theirs.files) == ["a", "b"]
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(theirs[name], array)
            np.testing.assert_array_equal(ours[name], array)
            assert ours[name].dtype == array.dtype


def test_read_npz_takes_what_numpy_wrote_compressed(tmp_path):
    np.savez_compressed(tmp_path / "set.npz", **ARRAYS)
    np.testing.assert_array_equal(read_npz(tmp_path / "set.npz", ["a"])["a"], ARRAYS["a"])


def test_equal_arrays_give_equal_bytes(tmp_path):
    write_npz(tmp_path / "one.npz", ARRAYS)
    write_npz(tmp_path / "two.npz", ARRAYS)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_a_full_disk_leaves_the_old_npz_alone(tmp_path, full_disk):
    (tmp_path / "set.npz").write_bytes(b"old")
    with pytest.raises(UserError, match=r"no space left on the disk for .*set\.npz"):
        write_npz(tmp_path / "set.npz", ARRAYS)
    assert os.listdir(tmp_path) == ["set.npz"]
    assert (tmp_path / "set.npz").read_bytes() == b"old"


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, MemoryError])
def test_any_failure_while_writing_leaves_nothing(tmp_path, monkeypatch, trouble):
    def fail(_descriptor):
        raise trouble

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(trouble):
        write_npz(tmp_path / "set.npz", ARRAYS)
    assert os.listdir(tmp_path) == []


def test_objects_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        write_npz(tmp_path / "set.npz", {"a": np.array([{}], dtype=object)})
    assert os.listdir(tmp_path) == []


def test_sweep_takes_the_parts_of_one_target_only(tmp_path):
    for name in ("set.npz", ".set.npz.0123.part", ".other.npz.0123.part"):
        (tmp_path / name).touch()
    sweep(tmp_path / "set.npz")
    assert sorted(os.listdir(tmp_path)) == [".other.npz.0123.part", "set.npz"]


def test_the_lock_admits_one_thread_at_a_time(tmp_path):
    lock, order, waits = tmp_path / ".set.lock", [], threading.Event()

    def second() -> None:
        with locked(lock, waiting=waits.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(lock):
        thread.start()
        assert waits.wait(5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_the_lock_is_free_after_an_error(tmp_path):
    with pytest.raises(ValueError, match="inside"), locked(tmp_path / ".set.lock"):
        raise ValueError("inside")
    with locked(tmp_path / ".set.lock", waiting=lambda: pytest.fail("the lock was kept")):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_dead_process_does_not_keep_the_lock(tmp_path):
    lock = tmp_path / ".set.lock"
    child = os.fork()
    if child == 0:
        with locked(lock):
            os._exit(9)  # as a kill would: nothing is unwound
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert lock.exists()
    with locked(lock, waiting=lambda: pytest.fail("a dead process holds the lock")):
        pass


def test_a_lock_in_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "taken").write_text("a note")
    with pytest.raises(UserError, match="set ACENODE_DATA"), locked(tmp_path / "taken" / ".set.lock"):
        pass
