"""Prepared files that cannot be used are refused with a message, replaced, and never unpickled."""

import os

import numpy as np
import pytest

from acenode.errors import UserError


def incomplete(path, arrays):
    np.savez(path, **arrays)
    path.write_bytes(path.read_bytes()[:-200])


def one_byte_off(path, arrays):
    np.savez(path, **arrays)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def bare(path, arrays):
    np.save(path.with_suffix(".npy"), arrays["x_train"])
    path.with_suffix(".npy").rename(path)


def pickled(path, arrays):
    np.savez(path, **{**arrays, "y_test": np.array([{"a": 1}] * 4, dtype=object)})


FAULTS = {
    "incomplete": incomplete,
    "one byte off": one_byte_off,
    "objects": pickled,
    "empty": lambda path, arrays: path.touch(),
    "text": lambda path, arrays: path.write_text("not an npz"),
    "bare npy": bare,
    "an array missing": lambda path, arrays: np.savez(path, x_train=arrays["x_train"]),
    "floats": lambda path, arrays: np.savez(path, **{**arrays, "x_test": arrays["x_test"] / 255.0}),
    "channels first": lambda path, arrays: np.savez(
        path, **{**arrays, "x_test": np.moveaxis(arrays["x_test"], 3, 1)}
    ),
    "fewer": lambda path, arrays: np.savez(path, **{key: array[1:] for key, array in arrays.items()}),
    "unlabelled": lambda path, arrays: np.savez(path, **{**arrays, "y_train": arrays["y_train"][:-1]}),
    "label too large": lambda path, arrays: np.savez(path, **{**arrays, "y_test": arrays["y_test"] + 10}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_file_is_refused_and_replaced(tmp_path, official, mirror, fault):
    made = official("mnist")
    path = tmp_path / "mnist.npz"
    FAULTS[fault](path, made.arrays)

    with pytest.raises(UserError) as caught:
        made.source.load(tmp_path)
    line = str(caught.value)
    assert str(path) in line
    assert "delete it, or get it again with `acenode data get mnist`" in line
    assert "\n" not in line

    state = made.source.check(tmp_path)
    assert state.state == "broken"
    assert state.bytes == path.stat().st_size

    assert made.source.prepare(tmp_path) == path
    np.testing.assert_array_equal(made.source.load(tmp_path).x_train, made.arrays["x_train"])


def test_a_pickle_is_never_loaded(tmp_path, official):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "unpickled"),)

    made = official("mnist")
    np.savez(tmp_path / "mnist.npz", **{**made.arrays, "x_train": np.array([Trap()], dtype=object)})
    with pytest.raises(UserError, match="x_train is not a plain array"):
        made.source.load(tmp_path)
    assert not (tmp_path / "unpickled").exists()
