"""The data folder, and files that are written completely or not at all."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from acenode import files
from acenode.data.folder import data_dir, read_npz, write_npz
from acenode.errors import UserError

ARRAYS = {"a": np.arange(12, dtype=np.uint8).reshape(3, 4), "b": np.ones(5, dtype=np.float32)}


def test_data_dir_prefers_the_argument_to_the_environment(monkeypatch, tmp_path):
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
def test_data_dir_defaults_to_the_users_cache(monkeypatch, platform, env, expected):
    for name in ("ACENODE_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert data_dir() == Path(expected)


def test_data_dir_without_a_home_folder_names_the_variable(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ACENODE_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UserError, match="set ACENODE_DATA"):
        data_dir()


def test_npz_reads_the_same_as_with_numpy(tmp_path):
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


def test_read_npz_reads_compressed_files_of_numpy(tmp_path):
    np.savez_compressed(tmp_path / "set.npz", **ARRAYS)
    np.testing.assert_array_equal(read_npz(tmp_path / "set.npz", ["a"])["a"], ARRAYS["a"])


def test_equal_arrays_give_equal_bytes(tmp_path):
    write_npz(tmp_path / "one.npz", ARRAYS)
    write_npz(tmp_path / "two.npz", ARRAYS)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_a_full_disk_leaves_the_old_npz_unchanged(tmp_path, full_disk):
    (tmp_path / "set.npz").write_bytes(b"old")
    with pytest.raises(UserError, match=r"no space left on the disk for .*set\.npz"):
        write_npz(tmp_path / "set.npz", ARRAYS)
    assert os.listdir(tmp_path) == ["set.npz"]
    assert (tmp_path / "set.npz").read_bytes() == b"old"


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, MemoryError])
def test_a_failure_while_writing_leaves_no_file(tmp_path, monkeypatch, trouble):
    def fail(_descriptor):
        raise trouble

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(trouble):
        write_npz(tmp_path / "set.npz", ARRAYS)
    assert os.listdir(tmp_path) == []


def test_object_arrays_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        write_npz(tmp_path / "set.npz", {"a": np.array([{}], dtype=object)})
    assert os.listdir(tmp_path) == []
