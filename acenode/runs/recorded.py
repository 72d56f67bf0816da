"""Recorded runs that come with the project: where they are, and how the arrays of their snapshots take few bytes.

They are runs on the full data, kept in a compact form: arrays are transformed, rounded to multiples of a step and
compressed.
h(t) and a(t) are smooth in t and their channels are correlated, so that most of their coefficients in a suitable basis
round to zero. A basis is orthonormal, so that rounding coefficients changes values by about as much.

An array NAME is stored as these members of an npz file:

    NAME.low, NAME.high     low and high bytes of the coefficients (int16), in the shape of the array
    NAME.step, NAME.dtype   the step, and the type to return
    NAME.axis0, …           for each transformed axis its basis; an empty one stands for polynomials in t
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from functools import cache
from pathlib import Path

import numpy as np

PACKAGE = Path(__file__).resolve().parents[1]


@cache
def recorded_runs() -> Path | None:
    """Return the folder of recorded runs: inside an installed package, or runs/paper of the repository; None if there
    is none."""
    folders = (PACKAGE / "recorded", PACKAGE.parent / "runs" / "paper")
    return next((folder for folder in folders if folder.is_dir()), None)


def repository_folder() -> Path | None:
    """Return the folder in which the repository keeps recorded runs, or None in an installed package."""
    return PACKAGE.parent / "runs" / "paper" if (PACKAGE.parent / "pyproject.toml").is_file() else None


def chosen_recorded_runs() -> Path | None:
    """Return the folder in the environment variable ACENODE_RECORDED, or the project's own; None if that is empty. For
    the command line and the app, which pass it to `RunStore`."""
    chosen = os.environ.get("ACENODE_RECORDED")
    if chosen is None:
        return recorded_runs()
    return Path(chosen) if chosen else None


Arrays = dict[str, np.ndarray]
LARGEST = 32_000  # of a coefficient


def encode(name: str, x: np.ndarray, step: float, polynomials: bool, axes: tuple[int, ...]) -> Arrays:
    """Return the members that store an array.

    Args:
        name: the array's name.
        x: the array; its first axis is time.
        step: coefficients are rounded to multiples of it; made larger where one would not fit into 16 bits.
        polynomials: write the first axis in polynomials, for what is smooth in time.
        axes: axes that are written in the basis of their principal components, which is stored too.
    """
    members: Arrays = {}
    values = x.astype(np.float64)
    if polynomials:
        members[f"{name}.axis0"] = np.zeros((0, 0), np.float32)
        values = _apply(_polynomials(len(x)).T, values, 0)
    for axis in axes:
        basis = _principal(values, axis).astype(np.float32)
        members[f"{name}.axis{axis}"] = basis
        values = _apply(basis.astype(np.float64).T, values, axis)
    step = max(step, float(np.abs(values).max()) / LARGEST)
    coefficients = np.rint(values / step).astype(np.int16)
    return members | {f"{name}.low": (coefficients & 255).astype(np.uint8),
                      f"{name}.high": (coefficients >> 8).astype(np.int8),
                      f"{name}.step": np.array(step), f"{name}.dtype": np.array(x.dtype.name)}


def decode(members: Arrays) -> Arrays:
    """Return the arrays that these members store; members that are arrays themselves are returned unchanged. Members
    that are missing or do not fit together are a ValueError or a KeyError."""
    found = {key: x for key, x in members.items() if "." not in key}
    for name in dict.fromkeys(key.partition(".")[0] for key in members if "." in key):
        values = (members[f"{name}.high"].astype(np.float64) * 256 + members[f"{name}.low"]) * members[f"{name}.step"]
        for axis in range(values.ndim - 1, -1, -1):
            basis = members.get(f"{name}.axis{axis}")
            if basis is not None:
                values = _apply(basis.astype(np.float64) if basis.size else _polynomials(len(values)), values, axis)
        dtype = str(members[f"{name}.dtype"])
        if not re.fullmatch(r"float(16|32|64)", dtype):
            raise ValueError(f"{name} has the type {dtype!r}")
        found[name] = values.astype(dtype)
    return found


def pack(members: Arrays) -> bytes:
    """Return an npz file of the members, which `numpy.load` reads; LZMA makes it smaller than numpy's own writer."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
        for name, x in members.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # without the time of day: equal arrays give equal files
            member.compress_type = zipfile.ZIP_LZMA
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(x), allow_pickle=False)
            archive.writestr(member, content.getvalue())
    return buffer.getvalue()


def _apply(matrix: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)


@cache
def _polynomials(count: int) -> np.ndarray:
    legendre = np.polynomial.legendre.legvander(np.linspace(-1, 1, count), count - 1)
    basis, upper = np.linalg.qr(legendre)
    return basis * np.sign(np.diag(upper))


def _principal(x: np.ndarray, axis: int) -> np.ndarray:
    rows = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    return np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
