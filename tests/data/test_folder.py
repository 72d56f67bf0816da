"""The data folder: whole files or none, arrays without pickles, and a lock that ends with its process."""

import errno
import fcntl
import io
import os
import signal
import subprocess
import sys
import threading
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from acenode import files
from acenode.data import folder
from acenode.data.folder import data_dir, locked, read_npz, write_npz
from acenode.errors import UserError

ARRAYS = {"a": np.arange(12, dtype=np.uint8).reshape(3, 4), "b": np.ones(5, dtype=np.float32),
          "empty": np.zeros((0, 4)), "text": np.array("some words"), "fortran": np.asfortranarray(np.eye(3))}
HOLD = """
import sys, time
from pathlib import Path
from acenode.data.folder import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("platform", "env", "expected"), [
    ("linux", {"ACENODE_DATA": "/sets", "XDG_CACHE_HOME": "/caches"}, "/sets"),
    ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/acenode"),
    ("linux", {"HOME": "/home/ada"}, "/home/ada/.cache/acenode"),
    ("darwin", {"HOME": "/home/ada"}, "/home/ada/Library/Caches/acenode"),
    ("win32", {"LOCALAPPDATA": "/local"}, "/local/acenode")])
def test_the_folder_is_the_argument_the_environments_or_in_the_users_cache(monkeypatch, platform, env, expected):
    for name in ("ACENODE_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert data_dir() == Path(expected)
    assert data_dir("/given") == Path("/given")


def test_without_a_home_folder_the_error_names_the_variable(monkeypatch):
    for name in ("ACENODE_DATA", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", str)  # as where an account has no home folder
    with pytest.raises(UserError, match="set ACENODE_DATA"):
        data_dir()


def test_arrays_are_read_as_written_also_by_numpy(tmp_path):
    path = tmp_path / "deep" / "set.npz"
    write_npz(path, ARRAYS)
    write_npz(tmp_path / "again.npz", ARRAYS)
    assert path.read_bytes() == (tmp_path / "again.npz").read_bytes()
    np.savez_compressed(tmp_path / "theirs.npz", **ARRAYS)
    found = [read_npz(path, list(ARRAYS)), read_npz(tmp_path / "theirs.npz", list(ARRAYS))]
    with np.load(path, allow_pickle=False) as theirs:
        for arrays in (*found, theirs):
            for name, array in ARRAYS.items():
                np.testing.assert_array_equal(arrays[name], array)
                assert arrays[name].dtype == array.dtype


def test_a_failure_while_writing_keeps_the_old_file_and_leaves_no_part(tmp_path, full_disk, monkeypatch):
    (tmp_path / "set.npz").write_bytes(b"old")
    with pytest.raises(UserError, match=r"no space left on the disk for .*set\.npz"):
        write_npz(tmp_path / "set.npz", ARRAYS)
    monkeypatch.undo()
    monkeypatch.setattr(files.os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_npz(tmp_path / "set.npz", ARRAYS)
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        write_npz(tmp_path / "set.npz", {"a": np.array([{}], dtype=object)})
    assert os.listdir(tmp_path) == ["set.npz"]
    assert (tmp_path / "set.npz").read_bytes() == b"old"


def test_more_than_the_file_has_or_may_have_is_not_allocated(tmp_path, monkeypatch):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (11, 10**9)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(16))
    write_npz(tmp_path / "b.npz", {"x": np.zeros(100), "y": np.zeros(100)})
    monkeypatch.setattr(folder, "MAX_BYTES", 1000)  # of all arrays together
    assert len(read_npz(tmp_path / "b.npz", ["x"])["x"]) == 100
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: pytest.fail("it was allocated"))
    with pytest.raises(ValueError, match=r"x claims 44\.0 GB, which the file does not have"):
        read_npz(tmp_path / "a.npz", ["x"])
    with pytest.raises(ValueError, match=r"^it claims .* GB, and at most .* GB are read$"):
        read_npz(tmp_path / "b.npz", ["x", "y"])


def test_a_killed_process_does_not_keep_the_lock(tmp_path):
    path, waits = tmp_path / ".set.lock", threading.Event()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"

        def kill() -> None:
            waits.set()
            holder.send_signal(signal.SIGKILL)

        with locked(path, waiting=kill):
            pass
    assert waits.is_set()  # the other process did hold it
    assert path.exists()
    for _ in range(2):  # an error releases it too
        with suppress(ValueError), locked(path, waiting=lambda: pytest.fail("something holds the lock")):
            raise ValueError


def test_where_there_can_be_no_lock_the_error_says_what_to_do(tmp_path, monkeypatch):
    def fail(*_args: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / "taken").write_text("a note")
    with pytest.raises(UserError, match="set ACENODE_DATA"), locked(tmp_path / "taken" / ".set.lock"):
        pass
    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(UserError, match=r"cannot write .*set\.lock .*: fix that, or set ACENODE_DATA"), \
            locked(tmp_path / ".set.lock"):
        pass
