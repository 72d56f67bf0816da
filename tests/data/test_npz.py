"""An npz file that claims more than it has is refused before anything is allocated."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from acenode.data import folder
from acenode.data.folder import read_npz, write_npz


def claiming(shape: tuple[int, ...]) -> bytes:
    """Return an array file whose header has that shape, with four numbers of data."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return header.getvalue() + np.zeros(4, np.float32).tobytes()


def test_a_claim_of_44_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", claiming((11, 10**9)))
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: pytest.fail("it was allocated"))
    with pytest.raises(ValueError, match=r"x claims 44\.0 GB, which the file does not have"):
        read_npz(tmp_path / "a.npz", ["x"])


def test_more_than_the_limit_is_refused_though_the_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for all arrays together; 1,000 bytes here."""
    write_npz(tmp_path / "a.npz", {"x": np.zeros(100), "y": np.zeros(100)})
    monkeypatch.setattr(folder, "MAX_BYTES", 1000)
    assert len(read_npz(tmp_path / "a.npz", ["x"])["x"]) == 100
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: pytest.fail("it was allocated"))
    with pytest.raises(ValueError, match=r"^it claims .* GB, and at most .* GB are read$"):
        read_npz(tmp_path / "a.npz", ["x", "y"])


def test_arrays_are_read_as_written(tmp_path: Path) -> None:
    arrays = {"x": np.arange(6.0).reshape(2, 3), "empty": np.zeros((0, 4)), "text": np.array("some words"),
              "fortran": np.asfortranarray(np.eye(3)), "zeros": np.zeros(10**6, np.uint8)}
    write_npz(tmp_path / "a.npz", arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    for name in ("a.npz", "b.npz"):
        for key, value in read_npz(tmp_path / name, list(arrays)).items():
            assert np.array_equal(value, arrays[key])
            assert value.dtype == arrays[key].dtype
